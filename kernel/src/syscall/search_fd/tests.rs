//! Matches are counted, placed and shown, on short lines and on long ones.

use proptest::prelude::*;
use roxmltree::Document;

use super::*;

fn table(text: &str, page_chars: u32) -> Table {
    let entry = Entry { content: Content::new(text.to_owned()), page_chars, source: "tool:t".into(), opened_ms: 0 };
    let mut table = Table::new();
    table.insert(table.next_id(), entry);
    table
}

fn call(text: &str, args: &str) -> String {
    let args = format!(r#"{{"fd": "fd:1", {}}}"#, args.replace('\'', "\""));
    match search_fd(&table(text, 10), &args, &DescriptorSettings::default(), 0) {
        Outcome::Answer(answer) => answer.text.to_string(),
        other => panic!("a search only answers: {other:?}"),
    }
}

/// `matches`, `shown` and of each element line, page, char and text.
fn seen(xml: &str) -> (String, Vec<String>) {
    let document = Document::parse(xml).unwrap();
    let root = document.root_element();
    let of = |name| root.attribute(name).unwrap_or("-");
    let matches = root.children().filter(|node| node.is_element()).map(|node| {
        let at = ["line", "page", "char", "count"].map(|name| node.attribute(name).unwrap_or("1"));
        let text: String = node.children().filter_map(|child| child.text()).collect();
        format!("{} {text}", at.join("."))
    });
    (format!("{} {}", of("matches"), of("shown")), matches.collect())
}

#[test]
fn matches_stand_with_their_place() {
    let text = "alpha\nBeta beta beta\n<é> beta\n";
    let cases: [(&str, &str, &[&str]); 11] = [
        ("'query':'beta'", "3 1-3", &["2.2.11.2 Beta beta beta", "3.4.25.1 <é> beta"]),
        ("'query':'beta','case_sensitive':false", "4 1-4", &["2.2.6.3 Beta beta beta", "3.4.25.1 <é> beta"]),
        ("'query':'É','case_sensitive':'false'", "1 1-1", &["3.4.22.1 <é> beta"]),
        ("'query':'beta','start':2", "3 2-3", &["2.3.16.1 Beta beta beta", "3.4.25.1 <é> beta"]),
        ("'query':'beta','max_matches':1", "3 1-1", &["2.2.11.1 Beta beta beta"]),
        ("'query':'alpha','context':1", "1 1-1", &["1.1.0.1 alpha\nBeta beta beta"]),
        ("'query':'nowhere'", "0 0", &[]),
        ("'query':'^.e','regex':true", "1 1-1", &["2.2.6.1 Beta beta beta"]),
        ("'query':'x*','regex':true", "0 0", &[]),
        ("'query':'a\\nB'", "1 1-1", &["1.1.4.1 alpha\nBeta beta beta"]),
        ("'query':'<'", "1 1-1", &["3.4.21.1 <é> beta"]),
    ];
    for (args, totals, matches) in cases {
        assert_eq!(
            seen(&call(text, args)),
            (totals.to_owned(), matches.iter().map(ToString::to_string).collect()),
            "{args}"
        );
    }
}

#[test]
fn a_query_that_cannot_be_searched_for_is_an_error() {
    let cases = [
        ("'case_sensitive':true", "invalid_parameter", "'query' is missing"),
        ("'query':''", "invalid_parameter", "'query' is missing"),
        ("'query':'(','regex':true", "invalid_parameter", "cannot be searched for"),
        ("'query':'(((a{99}){99}){99}){99}','regex':true", "invalid_parameter", "cannot be searched for"),
        ("'query':'a','start':0", "invalid_range", "it must be 1 or more"),
        ("'query':'a','start':3", "invalid_range", "Valid range: 1-2"),
        ("'query':'z','start':2", "invalid_range", "Valid range: 1-1"),
        ("'query':'a','max_matches':0", "invalid_range", "it must be 1 or more"),
        ("'query':'a','context':-1", "invalid_range", "it must be 0 or more"),
        ("'query':'a','limit':1", "invalid_parameter", "Unknown parameter 'limit'"),
    ];
    for (args, kind, message) in cases {
        let xml = call("a a\n", args);
        assert!(xml.contains(&format!("type=\"{kind}\"")) && xml.contains(message), "{args}: {xml}");
    }
}

#[test]
fn on_a_long_line_each_match_shows_its_surroundings() {
    let text = format!("{}needle{}needle{}", "é".repeat(1000), "b".repeat(300), "c".repeat(100));
    let xml = call(&text, "'query':'needle'");
    let (totals, matches) = seen(&xml);
    assert_eq!(totals, "2 1-2");
    assert_eq!(matches[0], format!("1.101.1000.1 {}needle{}", "é".repeat(200), "b".repeat(200)));
    assert_eq!(matches[1], format!("1.131.1306.1 {}needle{}", "b".repeat(200), "c".repeat(100)));
    let document = Document::parse(&xml).unwrap();
    let cuts: Vec<_> = document
        .root_element()
        .children()
        .filter(|node| node.is_element())
        .map(|node| (node.attribute("continued").is_some(), node.attribute("truncated").is_some()))
        .collect();
    assert_eq!(cuts, [(true, true), (true, false)]);
}

#[test]
fn a_flood_of_matches_is_bounded_and_can_be_gone_on_with() {
    let text = "a needle in every line\n".repeat(1000);
    let settings = DescriptorSettings { max_read_chars: 3000, ..DescriptorSettings::default() };
    let (mut start, mut seen_matches) = (1, 0);
    loop {
        let args = format!(r#"{{"fd": "fd:1", "query": "needle", "max_matches": 999999, "start": {start}}}"#);
        let Outcome::Answer(answer) = search_fd(&table(&text, 100), &args, &settings, 0) else { panic!("it answers") };
        assert!(answer.text.len() < 4000, "{}", answer.text.len());
        let document = Document::parse(&answer.text).unwrap();
        let root = document.root_element();
        assert_eq!(root.attribute("matches"), Some("1000"));
        seen_matches += root.children().filter(|node| node.is_element()).count();
        match root.attribute("next_start") {
            Some(next) => start = next.parse().unwrap(),
            None => break,
        }
    }
    assert_eq!(seen_matches, 1000);
}

#[test]
fn what_is_shown_is_bounded_whatever_context_is_asked_for() {
    let lines = format!("{}needle\n{}", "before\n".repeat(100), "after\n".repeat(100));
    let long = format!("{}needle{}", "b".repeat(1000), "a".repeat(1000));
    for (text, query) in [(&lines, "needle"), (&long, "needle"), (&long, "[a-z]+")] {
        for context in [0, 7, i64::MAX] {
            for max_read_chars in [0, 1, 2, 3, 50, 700] {
                let settings = DescriptorSettings { max_read_chars, ..DescriptorSettings::default() };
                let args = format!(r#"{{"fd": "fd:1", "query": "{query}", "regex": true, "context": {context}}}"#);
                let Outcome::Answer(answer) = search_fd(&table(text, 100), &args, &settings, 0) else {
                    panic!("{args}")
                };
                let (totals, matches) = seen(&answer.text);
                assert_eq!(totals, "1 1-1", "{args}");
                let shown = matches[0].split_once(' ').unwrap().1.chars().count() as u64;
                assert!((1..=max_read_chars.max(1)).contains(&shown), "{shown} of {max_read_chars}: {args}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn occurrences_are_those_of_the_standard_library(text in "[ab\n]{0,60}", query in "[ab\n]{1,3}") {
        let args = format!(r#"'query':{}"#, serde_json::Value::from(query.as_str()));
        let (totals, matches) = seen(&call(&text, &args));
        let expected = text.matches(&query).count();
        prop_assert_eq!(totals.split(' ').next().unwrap(), expected.to_string());
        let chars: Vec<usize> = text.match_indices(&query).map(|(at, _)| at).collect();
        let first = matches.first().map(|m| m.split(['.', ' ']).nth(2).unwrap().to_owned());
        prop_assert_eq!(first, chars.first().map(ToString::to_string));
    }
}
