//! Literal searches, from JSON arguments to XML answers, against the standard library: how many
//! matches, and where.

use super::model::{Model, answer, any_text, call, table, text_of};
use dormouse_kernel::syscall::search_fd;
use proptest::prelude::*;
use roxmltree::{Document, Node};
use serde_json::{Value, json};

/// Where a match stands: line and page from 1, character from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    page: usize,
    char: usize,
}

fn place(model: &Model, text: &str, at: usize) -> Place {
    let mut page_end = 0;
    let page = model
        .pages()
        .iter()
        .take_while(|page| {
            page_end += page.len();
            page_end <= at
        })
        .count()
        + 1;
    Place {
        line: 1 + text[..at].matches('\n').count(),
        page,
        char: text[..at].chars().count(),
    }
}

/// A `match` element: where its first match stands, how many it holds, and its text.
#[derive(Debug)]
struct Shown {
    place: Place,
    count: usize,
    text: String,
}

fn number(node: Node<'_, '_>, key: &str) -> Option<usize> {
    node.attribute(key)
        .map(|value| value.parse().expect("a number"))
}

fn shown(node: Node<'_, '_>) -> Shown {
    let [line, page, char] =
        ["line", "page", "char"].map(|key| number(node, key).expect("a place"));
    let text = text_of(node);
    Shown {
        place: Place { line, page, char },
        count: number(node, "count").unwrap_or(1),
        text,
    }
}

/// The number of all matches, those shown, and where to go on.
fn read(xml: &str) -> (usize, Vec<Shown>, Option<usize>) {
    let document = Document::parse(xml).expect("XML-1");
    let root = document.root_element();
    assert!(root.has_tag_name("fd_search"), "{xml}");
    let matches = root
        .children()
        .filter(Node::is_element)
        .map(shown)
        .collect();
    (
        number(root, "matches").expect("how many"),
        matches,
        number(root, "next_start"),
    )
}

/// Where a query occurs in a part of `text`. If that has CR LF, an LF of the query finds it as
/// well.
fn occurrences(part: &str, query: &str, text: &str) -> Vec<usize> {
    let line_end = if text.contains("\r\n") {
        r"\r?\n"
    } else {
        r"\n"
    };
    let pattern = regex::escape(query).replace('\n', line_end);
    let regex = regex::Regex::new(&pattern).expect("it is escaped");
    regex.find_iter(part).map(|found| found.start()).collect()
}

/// Follows `next_start` to the end and checks every match on the way.
fn check(text: &str, page_chars: u32, query: &str, mut args: Value, max_read_chars: u64) {
    let (table, model) = (table(text, page_chars), Model::new(text, page_chars));
    let expected: Vec<_> = occurrences(text, query, text)
        .into_iter()
        .map(|at| place(&model, text, at))
        .collect();
    let mut seen = 0;
    loop {
        let (matches, all_shown, next) = read(&answer(call(
            search_fd::search_fd,
            &table,
            &args,
            max_read_chars,
        )));
        assert_eq!(matches, expected.len(), "{args}");
        let chars: usize = all_shown
            .iter()
            .map(|shown| shown.text.chars().count())
            .sum();
        assert!(
            chars as u64 <= max_read_chars.max(1),
            "{chars} of {max_read_chars}: {args}"
        );
        let asked = args["max_matches"].as_u64().expect("it was given") as usize;
        assert!(
            all_shown.iter().map(|shown| shown.count).sum::<usize>() <= asked,
            "{args}"
        );
        for shown in all_shown {
            assert_eq!(shown.place, expected[seen], "match {} of {args}", seen + 1);
            let fits = max_read_chars > 1000;
            assert!(
                !fits || occurrences(&shown.text, query, text).len() >= shown.count,
                "{shown:?} of {args}"
            );
            assert!(
                expected[seen..seen + shown.count]
                    .iter()
                    .all(|place| place.line == shown.place.line)
            );
            seen += shown.count;
        }
        assert_eq!(next, (seen < expected.len()).then_some(seen + 1), "{args}");
        let Some(next) = next else { break };
        args["start"] = next.into();
    }
    assert_eq!(seen, expected.len(), "all of them are shown");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn matches_stand_where_the_standard_library_finds_them(
        text in any_text(),
        page_chars in 1_u32..30,
        query in prop_oneof![3 => "[abc]{1,2}", 1 => "[\r\n]{1,2}", 1 => Just("😀".to_owned()), 1 => Just("<&".to_owned())],
        context in prop_oneof![3 => 0_u64..4, 1 => Just(u64::MAX >> 1)],
        max_matches in 1_u64..9,
        max_read_chars in prop_oneof![Just(0_u64), 1_u64..300, Just(100_000)],
    ) {
        let args = json!({"fd": "fd:1", "query": query, "context": context, "max_matches": max_matches});
        check(&text, page_chars, &query, args, max_read_chars);
    }
}
