//! Tests that both engines find the same matches as the crate `regex`, and refuse searches that
//! exceed their budget.

use proptest::prelude::*;
use regex::RegexBuilder;

use super::super::budget::STEPS;
use super::*;

fn pattern(query: &str) -> Pattern {
    Pattern::new(query, Case::Sensitive, LineEnds::Lf, ReadQuota::unlimited()).unwrap()
}

fn budget(steps: u64) -> StepBudget {
    let mut budget = StepBudget::new();
    assert!(budget.try_spend(STEPS - steps));
    budget
}

/// Searches with a budget of `bounded` steps for the regex engine and of `counted` steps for the
/// lazy DFA.
fn find(
    pattern: &Pattern,
    text: &str,
    bounded: u64,
    counted: u64,
) -> Result<Vec<Range<usize>>, TooSlow> {
    let mut scan = PatternScan::new(pattern);
    (scan.estimated_budget, scan.counted_budget) = (budget(bounded), budget(counted));
    let mut ranges = Vec::new();
    let unlimited = ReadQuota::unlimited();
    scan.find_within(text, 0..text.len(), unlimited, &mut |range| {
        ranges.push(range)
    })
    .map(|()| ranges)
}

/// Whether an empty match counts: never after the last LF.
fn counts_empty(query: &str, range: &Range<usize>, text: &str) -> bool {
    let is_after_last_feed = range.end == text.len() && text.ends_with('\n');
    pattern(query).counts_empty && !is_after_last_feed
}

#[test]
fn an_empty_match_counts_if_it_is_at_an_anchor() {
    let cases = [
        ("^$", true),
        ("^", true),
        (r"\b", true),
        ("^ *$", true),
        ("(?:^|$)x*", true),
        ("^(?:a|b*)", true),
        ("(?:^)+x?", true),
        ("x*", false),
        ("^|x*", false),
        ("x*|^$", false),
        ("(?:^)?x*", false),
        ("(?:^a)?", false),
    ];
    for (query, counts) in cases {
        assert_eq!(pattern(query).counts_empty, counts, "{query}");
        if !counts {
            assert!(
                expected(query, Case::Sensitive, "yyy").is_empty(),
                "{query}"
            );
            let found = find(&pattern(query), "yyy", STEPS, STEPS);
            assert_eq!(found, Ok(Vec::new()), "{query}");
        }
    }
}

fn expected(query: &str, case: Case, text: &str) -> Vec<Range<usize>> {
    let regex = RegexBuilder::new(query)
        .multi_line(true)
        .case_insensitive(case == Case::Insensitive)
        .build()
        .unwrap();
    regex
        .find_iter(text)
        .map(|found| found.range())
        .filter(|range| !range.is_empty() || counts_empty(query, range, text))
        .collect()
}

/// Patterns that read a line of `A` to its end for each of its matches.
const QUADRATIC: [&str; 4] = [
    ".*[^A-Z]|[A-Z]",
    "(?s).*b|A",
    "(?:.*b)?A",
    r"A\b|(?s:A.+b)|A",
];

#[test]
fn a_pattern_that_reads_ahead_for_every_match_is_refused() {
    let text = "A".repeat(1 << 20);
    for query in QUADRATIC {
        let pattern = pattern(query);
        let mut scan = PatternScan::new(&pattern);
        // A smaller budget than the real one, so that the test is fast.
        (scan.estimated_budget, scan.counted_budget) = (budget(8 << 20), budget(8 << 20));
        let mut matches = 0;
        assert_eq!(
            scan.find_within(&text, 0..text.len(), ReadQuota::unlimited(), &mut |_| {
                matches += 1
            }),
            Err(TooSlow::ReadsAhead),
            "{query}"
        );
        assert!((1..20).contains(&matches), "{query}: {matches}");
    }
}

#[test]
fn an_expensive_pattern_is_accepted_for_text_on_which_it_is_cheap() {
    let lines = format!("{}\n", "A".repeat(80)).repeat(1000);
    for query in QUADRATIC {
        // On many short lines, only patterns that do not match across lines are cheap.
        let lines = if query.contains("?s") {
            &lines[..1000]
        } else {
            &lines
        };
        for text in [lines, &"A".repeat(500), ""] {
            let mut ranges = Vec::new();
            PatternScan::new(&pattern(query))
                .find_each(text, ReadQuota::unlimited(), |range| ranges.push(range))
                .unwrap();
            assert_eq!(ranges, expected(query, Case::Sensitive, text), "{query}");
        }
    }
}

#[test]
fn many_matches_on_one_long_line_are_counted_and_not_refused() {
    let text = r#"{"id": 12345, "name": "a näme", "none": null}"#.repeat(20_000);
    for query in [
        r#""[a-z]+":\s*"[^"]*""#,
        r#""id":\s*\d+"#,
        "\"[^\"]*\"",
        r"\bname\b",
        r"(?i)\bn\w+\b",
        r"\w+\s?",
    ] {
        let mut ranges = Vec::new();
        PatternScan::new(&pattern(query))
            .find_each(&text, ReadQuota::unlimited(), |range| ranges.push(range))
            .unwrap();
        assert_eq!(ranges, expected(query, Case::Sensitive, &text), "{query}");
        assert!(ranges.len() >= 20_000, "{query}");
    }
}

/// A text of `a` and `b` in an order that does not repeat soon.
fn mixed(len: u32) -> String {
    let bits = (0..len).map(|at| at.wrapping_mul(at).wrapping_mul(2_654_435_761) >> 30 & 1);
    bits.map(|bit| if bit == 0 { 'a' } else { 'b' }).collect()
}

#[test]
fn a_refusal_states_its_reason() {
    let cases = [
        (".*b|A", "A".repeat(1000), TooSlow::ReadsAhead),
        (
            r".*b\b|A",
            format!("é{}", "A".repeat(100)),
            TooSlow::WordBoundary,
        ),
        ("[ab]*a[ab]{4000}c", mixed(10_000), TooSlow::Branches),
    ];
    for (query, text, why) in cases {
        assert_eq!(find(&pattern(query), &text, 0, 20_000), Err(why), "{query}");
        assert!(
            why.to_string()
                .starts_with("The query takes too long on this text: "),
            "{why}"
        );
    }
}

#[test]
fn many_groups_cost_more_than_few() {
    let text = "a".repeat(STEPS as usize / 16);
    for (count, is_accepted) in [(1, true), (200, false)] {
        let query = format!("{}a+{}", "(".repeat(count), ")".repeat(count));
        let pattern = pattern(&query);
        let mut groups = pattern.groups().unwrap();
        let captured = groups.captured_text(&text, 0..text.len());
        assert_eq!(captured.is_ok(), is_accepted, "{count}");
    }
}

#[test]
fn texts_of_one_search_share_the_budget() {
    let pattern = pattern("(?s).*b|A");
    let mut scan = PatternScan::new(&pattern);
    (scan.estimated_budget, scan.counted_budget) = (budget(0), budget(2 << 20));
    let text = "A".repeat(1024);
    let refused = (1..=100).find(|_| {
        scan.find_each(&text, ReadQuota::unlimited(), |_| {}) == Err(TooSlow::ReadsAhead)
    });
    // Each text spends 512 steps per byte and adds 64 steps per byte to the budget.
    assert_eq!(refused, Some(5));
}

fn queries() -> impl Strategy<Value = String> {
    let leaves = prop::sample::select(vec![
        "a",
        "b",
        "B",
        "é",
        "ß",
        " ",
        r"\n",
        r"\r",
        ".",
        "(?s:.)",
        r"\w",
        r"\W",
        r"\s",
        "[^a]",
        "[ab]",
        "[^a-z]",
        "^",
        "$",
        r"\A",
        r"\z",
        r"\b",
        r"\B",
        r"(?-u:\b)",
        "(?R:$)",
        "(?R:^)",
        "(?i:aé)",
        "ab",
        "",
    ]);
    leaves.prop_map(str::to_owned).prop_recursive(4, 16, 4, |inner| {
        let repeats = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}?"].to_vec();
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            2 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            2 => (inner.clone(), prop::sample::select(repeats)).prop_map(|(part, times)| format!("(?:{part}){times}")),
            1 => inner.prop_map(|part| format!("({part})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn matches_equal_those_of_the_crate_regex(
        query in queries(),
        ignored in any::<bool>(),
        text in "[abABéß \r\n]{0,40}",
        bounded in prop_oneof![Just(0), 0..3000_u64, Just(STEPS)],
    ) {
        let case = if ignored { Case::Insensitive } else { Case::Sensitive };
        let found = find(&Pattern::new(&query, case, LineEnds::Lf, ReadQuota::unlimited()).unwrap(), &text, bounded, STEPS);
        if found == Err(TooSlow::WordBoundary) {
            prop_assert!(bounded < STEPS && !text.is_ascii() && query.to_lowercase().contains(r"\b"), "{query:?}");
        } else {
            prop_assert_eq!(found, Ok(expected(&query, case, &text)), "{:?} in {:?}", query, text);
        }
    }

    #[test]
    fn no_search_reads_more_than_its_upper_bound(query in queries(), text in "[abB \n]{0,60}") {
        let Pattern { hir, bounds, .. } = &pattern(&query);
        let mut lazy = LazyDfa::new(hir, bounds).unwrap();
        let mut matches = Searcher::new(Input::new(&text));
        let (mut counting, mut read_ahead) = (ReadAhead::new(bounds, &text), ReadAhead::new(bounds, &text));
        while matches.advance(|input| {
            let mut left = budget(STEPS);
            let found = lazy.find(input, &mut counting, &mut left).unwrap();
            let read_to = found.map_or(text.len() as u64, |found| found.end() as u64 + read_ahead.bytes_after(found));
            // The byte after a match is read together with the match.
            let bound = read_to.saturating_sub(input.start() as u64) + 1;
            assert!(left.try_spend(STEPS - bound), "{query:?} in {text:?} at {}", input.start());
            Ok(found)
        }).is_some() {}
    }
}
