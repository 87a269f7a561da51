//! Tests that different matches are counted, sorted, limited, and distinguished by their groups.

use std::collections::BTreeMap;

use proptest::prelude::*;
use roxmltree::Document;

use super::*;
use crate::syscall::search_fd::search_fd;
use crate::table::Table;
use dormouse_content::Content;
use dormouse_proto::record::Entry;

fn answer(texts: &[&str], fd: &str, args: &str, max_read_chars: u64) -> String {
    let mut table = Table::new();
    for text in texts {
        table.insert(
            table.next_id(),
            Entry::new(Content::new((*text).to_owned()), 10, "tool:t", 0),
        );
    }
    let args = format!(
        r#"{{"fd": "{fd}", "distinct": true, {}}}"#,
        args.replace('\'', "\"")
    );
    let settings = DescriptorSettings {
        max_read_chars,
        ..DescriptorSettings::default()
    };
    search_fd(&Call::unlimited(&table, &args, &settings, 0))
        .answer()
        .expect("a search only answers")
        .text
        .to_string()
}

/// Returns `matches`, `distinct`, `shown` and `next_start`, and each text with its count.
fn seen(xml: &str) -> (String, Vec<String>) {
    let document = Document::parse(xml).unwrap();
    let root = document.root_element();
    let totals = ["matches", "distinct", "shown", "next_start"]
        .map(|name| root.attribute(name).unwrap_or("-"));
    let matches = root
        .children()
        .filter(|node| node.has_tag_name("match"))
        .map(|node| {
            let text: String = node.children().filter_map(|child| child.text()).collect();
            let cut = node.attribute("truncated").map_or("", |_| "…");
            format!("{} {text}{cut}", node.attribute("count").unwrap())
        });
    (totals.join(" "), matches.collect())
}

fn check(texts: &[&str], fd: &str, args: &str, totals: &str, matches: &[&str]) {
    let expected = (
        totals.to_owned(),
        matches.iter().map(ToString::to_string).collect(),
    );
    assert_eq!(seen(&answer(texts, fd, args, 1000)), expected, "{args}");
}

#[test]
fn each_different_match_is_shown_once_the_most_frequent_first() {
    let text = "serde=1 syn=2 syn=1\nsyn=2 <b>=3 Serde=1";
    let cases: [(&str, &str, &[&str]); 10] = [
        (
            r"'query':'[^ \n]+=','regex':true",
            "6 4 1-4 -",
            &["3 syn=", "1 serde=", "1 <b>=", "1 Serde="],
        ),
        (
            r"'query':'([^ \n]+)=','regex':true",
            "6 4 1-4 -",
            &["3 syn", "1 serde", "1 <b>", "1 Serde"],
        ),
        (
            r"'query':'(s[a-z]+)=(\\d)','regex':true",
            "4 3 1-3 -",
            &["2 syn\t2", "1 serde\t1", "1 syn\t1"],
        ),
        (r"'query':'(x)?syn','regex':true", "3 1 1-1 -", &["3 "]),
        (r"'query':'(?:s)yn','regex':true", "3 1 1-1 -", &["3 syn"]),
        (
            r"'query':'^(s\\w+|<)','regex':true",
            "2 2 1-2 -",
            &["1 serde", "1 syn"],
        ),
        (
            r"'query':'(\\w+)=1$','regex':true",
            "2 2 1-2 -",
            &["1 syn", "1 Serde"],
        ),
        (
            "'query':'serde','case_sensitive':false",
            "2 2 1-2 -",
            &["1 serde", "1 Serde"],
        ),
        (
            r"'query':'=(\\d)','regex':true,'max_matches':1,'start':2",
            "6 3 2-2 3",
            &["2 2"],
        ),
        ("'query':'nowhere'", "0 0 0 -", &[]),
    ];
    for (args, totals, matches) in cases {
        check(&[text], "fd:1", args, totals, matches);
    }
}

#[test]
fn a_search_of_all_counts_over_all() {
    let texts = ["b a", "c", "a b\na"];
    check(
        &texts,
        "*",
        r"'query':'[ab]','regex':true",
        "5 2 1-2 -",
        &["3 a", "2 b"],
    );
    let xml = answer(&texts, "*", "'query':'a'", 1000);
    assert!(xml.contains(r#"descriptors="3" found_in="2""#), "{xml}");
}

#[test]
fn incompatible_arguments_are_an_error() {
    let cases = [
        (
            "'query':'a','context':1",
            "'context' does not go with distinct",
        ),
        ("'query':'a','start':3", "Valid range: 1-1"),
        (
            "'query':'a','distinct':1",
            "'distinct' must be true or false",
        ),
    ];
    for (args, message) in cases {
        let xml = answer(&["a b a"], "fd:1", args, 1000);
        assert!(xml.contains(message), "{args}: {xml}");
    }
}

#[test]
fn many_different_matches_are_shown_in_bounded_parts() {
    let text: String = (0..1000).map(|number| format!("n{number} ")).collect();
    let (mut start, mut found) = (1, Vec::new());
    loop {
        let args = format!(r"'query':'n\\d+','regex':true,'max_matches':9999,'start':{start}");
        let xml = answer(&[&text], "fd:1", &args, 3000);
        assert!(xml.len() < 4000, "{}", xml.len());
        found.extend(seen(&xml).1);
        match Document::parse(&xml)
            .unwrap()
            .root_element()
            .attribute("next_start")
        {
            Some(next) => start = next.parse().unwrap(),
            None => break,
        }
    }
    assert_eq!(
        found,
        (0..1000)
            .map(|number| format!("1 n{number}"))
            .collect::<Vec<_>>()
    );
    for max_read_chars in [0, 1, 5] {
        let (totals, matches) = seen(&answer(
            &["ééééééé b"],
            "fd:1",
            r"'query':'\\w+','regex':true",
            max_read_chars,
        ));
        let shown = "é".repeat(max_read_chars.max(1) as usize);
        assert_eq!(
            (&*totals, matches),
            ("2 2 1-1 2", vec![format!("1 {shown}…")])
        );
    }
}

#[test]
fn an_expensive_query_is_refused_with_advice() {
    let numbers: String = (0..300_000).map(|number| format!("{number} ")).collect();
    let line = "ab".repeat(1 << 19);
    let cases = [
        (&numbers, r"\\d+", "too many different texts"),
        // Extracting the groups would visit this many positions for each byte of a match.
        (
            &line,
            "((?:a|b|ab|ba|aba|bab|abab){1,400})",
            "Shorten its repetitions",
        ),
    ];
    for (text, query, message) in cases {
        let xml = answer(
            &[text],
            "fd:1",
            &format!("'query':'{query}','regex':true"),
            1000,
        );
        assert!(
            xml.contains("invalid_parameter") && xml.contains(message),
            "{query}: {xml}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counts_are_those_of_the_regex_crate(
        text in "[ab1 \n]{0,60}",
        query in prop::sample::select(vec!["a|ab", "(a)(b)?", "(a|ab)(b|1)?", "^(.)(.*)$", "([ab]+?)(b*)", "\\b(a+)\\b"]),
    ) {
        let args = format!(r#"'query':{},'regex':true"#, serde_json::Value::from(query));
        let (totals, found) = seen(&answer(&[&text], "fd:1", &args, 1_000_000));
        let regex = regex::RegexBuilder::new(query).multi_line(true).build().unwrap();
        let mut expected = BTreeMap::<String, u64>::new();
        for captures in regex.captures_iter(&text).filter(|captures| !captures[0].is_empty()) {
            let groups = captures.iter().skip(usize::from(captures.len() > 1));
            let groups: Vec<_> = groups.map(|group| group.map_or("", |group| group.as_str())).collect();
            *expected.entry(groups.join("\t")).or_default() += 1;
        }
        let total: u64 = expected.values().sum();
        prop_assert!(totals.starts_with(&format!("{total} {} ", expected.len())), "{totals}");
        let counts: Vec<u64> = found.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        prop_assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
        let found: BTreeMap<String, u64> = found.iter().zip(&counts).map(|(line, count)| (line.split_once(' ').unwrap().1.to_owned(), *count)).collect();
        prop_assert_eq!(found.len().min(50), expected.len().min(50));
        for (text, count) in &found {
            prop_assert_eq!(expected.get(text), Some(count), "{:?}", text);
        }
    }
}
