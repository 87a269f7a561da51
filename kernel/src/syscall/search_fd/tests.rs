//! Tests that matches are counted, located and shown, on short and on long lines.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_proto::id::FdId;
use dormouse_proto::message::Message;
use dormouse_proto::record::Annotation;
use proptest::prelude::*;
use roxmltree::Document;

use super::*;
use crate::table::Table;
use dormouse_content::Content;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::record::Entry;

fn table(text: &str, page_chars: u32) -> Table {
    let entry = Entry::new(Content::new(text.to_owned()), page_chars, "tool:t", 0);
    let mut table = Table::new();
    table.insert(table.next_id(), entry);
    table
}

fn call(text: &str, args: &str) -> String {
    let args = format!(r#"{{"fd": "fd:1", {}}}"#, args.replace('\'', "\""));
    match search_fd(&Call::unlimited(
        &table(text, 10),
        &args,
        &DescriptorSettings::default(),
        0,
    )) {
        Outcome::Answer(answer) => answer.text.to_string(),
        other => panic!("a search only answers: {other:?}"),
    }
}

/// Returns `matches` and `shown`, and the line, page, char and text of each element.
fn seen(xml: &str) -> (String, Vec<String>) {
    let document = Document::parse(xml).unwrap();
    let root = document.root_element();
    let of = |name| root.attribute(name).unwrap_or("-");
    let matches = root
        .children()
        .filter(|node| node.is_element())
        .map(|node| {
            let at =
                ["line", "page", "char", "count"].map(|name| node.attribute(name).unwrap_or("1"));
            let text: String = node.children().filter_map(|child| child.text()).collect();
            format!("{} {text}", at.join("."))
        });
    (
        format!("{} {}", of("matches"), of("shown")),
        matches.collect(),
    )
}

#[test]
fn matches_are_shown_with_their_position() {
    let text = "alpha\nBeta beta beta\n<é> beta\n";
    let cases: [(&str, &str, &[&str]); 11] = [
        (
            "'query':'beta'",
            "3 1-3",
            &["2.2.11.2 Beta beta beta", "3.4.25.1 <é> beta"],
        ),
        (
            "'query':'beta','case_sensitive':false",
            "4 1-4",
            &["2.2.6.3 Beta beta beta", "3.4.25.1 <é> beta"],
        ),
        (
            "'query':'É','case_sensitive':'false'",
            "1 1-1",
            &["3.4.22.1 <é> beta"],
        ),
        (
            "'query':'beta','start':2",
            "3 2-3",
            &["2.3.16.1 Beta beta beta", "3.4.25.1 <é> beta"],
        ),
        (
            "'query':'beta','max_matches':1",
            "3 1-1",
            &["2.2.11.1 Beta beta beta"],
        ),
        (
            "'query':'alpha','context':1",
            "1 1-1",
            &["1.1.0.1 alpha\nBeta beta beta"],
        ),
        ("'query':'nowhere'", "0 0", &[]),
        (
            "'query':'^.e','regex':true",
            "1 1-1",
            &["2.2.6.1 Beta beta beta"],
        ),
        ("'query':'x*','regex':true", "0 0", &[]),
        (
            "'query':'a\\nB'",
            "1 1-1",
            &["1.1.4.1 alpha\nBeta beta beta"],
        ),
        ("'query':'<'", "1 1-1", &["3.4.21.1 <é> beta"]),
    ];
    for (args, totals, matches) in cases {
        assert_eq!(
            seen(&call(text, args)),
            (
                totals.to_owned(),
                matches.iter().map(ToString::to_string).collect()
            ),
            "{args}"
        );
    }
}

#[test]
fn a_query_that_cannot_be_searched_for_is_an_error() {
    let cases = [
        (
            "'case_sensitive':true",
            "invalid_parameter",
            "'query' is missing",
        ),
        ("'query':''", "invalid_parameter", "'query' is missing"),
        (
            "'query':'(','regex':true",
            "invalid_parameter",
            "cannot be searched for",
        ),
        (
            "'query':'(((a{99}){99}){99}){99}','regex':true",
            "invalid_parameter",
            "cannot be searched for",
        ),
        (
            "'query':'a','start':0",
            "invalid_range",
            "it must be 1 or more",
        ),
        ("'query':'a','start':3", "invalid_range", "Valid range: 1-2"),
        ("'query':'z','start':2", "invalid_range", "Valid range: 1-1"),
        (
            "'query':'a','max_matches':0",
            "invalid_range",
            "it must be 1 or more",
        ),
        (
            "'query':'a','context':-1",
            "invalid_range",
            "it must be 0 or more",
        ),
        (
            "'query':'a','offset':1",
            "invalid_parameter",
            "Unknown parameter 'offset'. Did you mean 'start'?",
        ),
    ];
    for (args, kind, message) in cases {
        let xml = call("a a\n", args);
        assert!(
            xml.contains(&format!("type=\"{kind}\"")) && xml.contains(message),
            "{args}: {xml}"
        );
    }
}

#[test]
fn a_pattern_that_would_take_too_long_is_an_error_that_says_what_to_try() {
    let line = "A".repeat(1 << 20);
    let cases = [
        (call(&line, "'query':'.*[^A-Z]|[A-Z]','regex':true"), "fd:1"),
        (
            call_all(
                &table_of(&["short", &line]),
                "'query':'(?s).*b|A','regex':true",
                1000,
            ),
            "*",
        ),
    ];
    for (xml, fd) in cases {
        assert!(
            xml.contains("type=\"invalid_parameter\"") && xml.contains(&format!("fd=\"{fd}\"")),
            "{xml}"
        );
        assert!(
            xml.contains("takes too long") && xml.contains("avoid alternatives that begin with .*"),
            "{xml}"
        );
    }
}

#[test]
fn on_a_long_line_each_match_shows_its_surroundings() {
    let text = format!(
        "{}needle{}needle{}",
        "é".repeat(1000),
        "b".repeat(300),
        "c".repeat(100)
    );
    let xml = call(&text, "'query':'needle'");
    let (totals, matches) = seen(&xml);
    assert_eq!(totals, "2 1-2");
    assert_eq!(
        matches[0],
        format!("1.101.1000.1 {}needle{}", "é".repeat(200), "b".repeat(200))
    );
    assert_eq!(
        matches[1],
        format!("1.131.1306.1 {}needle{}", "b".repeat(200), "c".repeat(100))
    );
    let document = Document::parse(&xml).unwrap();
    let cuts: Vec<_> = document
        .root_element()
        .children()
        .filter(|node| node.is_element())
        .map(|node| {
            (
                node.attribute("continued").is_some(),
                node.attribute("truncated").is_some(),
            )
        })
        .collect();
    assert_eq!(cuts, [(true, true), (true, false)]);
}

#[test]
fn many_matches_are_shown_in_bounded_parts() {
    let text = "a needle in every line\n".repeat(1000);
    let settings = DescriptorSettings {
        max_read_chars: 3000,
        ..DescriptorSettings::default()
    };
    let (mut start, mut seen_matches) = (1, 0);
    loop {
        let args = format!(
            r#"{{"fd": "fd:1", "query": "needle", "max_matches": 999999, "start": {start}}}"#
        );
        let Outcome::Answer(answer) =
            search_fd(&Call::unlimited(&table(&text, 100), &args, &settings, 0))
        else {
            panic!("it answers")
        };
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

/// A table with these contents.
fn table_of(texts: &[&str]) -> Table {
    let mut table = Table::new();
    for text in texts {
        table.insert(
            table.next_id(),
            Entry::new(Content::new((*text).to_owned()), 10, "tool:t", 0),
        );
    }
    table
}

/// A table with these contents, a message without notes, and a message with a note.
fn table_with_messages(texts: &[&str]) -> Table {
    let mut table = table_of(texts);
    let messages = ["beta said", "beta noted"].map(|text| Arc::new(Message::user(text)));
    table.set_conversation(messages.into_iter().collect(), Default::default(), 10);
    table.annotate(
        &FdId::Message {
            number: 2,
            part: None,
        },
        &Annotation::Named {
            name: Some("noted".into()),
        },
    );
    table
}

fn call_all(table: &Table, args: &str, max_read_chars: u64) -> String {
    let args = format!(r#"{{"fd": "*", {}}}"#, args.replace('\'', "\""));
    let settings = DescriptorSettings {
        max_read_chars,
        ..DescriptorSettings::default()
    };
    search_fd(&Call::unlimited(table, &args, &settings, 0))
        .answer()
        .expect("a search only answers")
        .text
        .to_string()
}

/// Returns the totals, and for each descriptor its number of matches and the text of the shown
/// ones.
fn seen_in_all(xml: &str) -> (String, Vec<String>) {
    let document = Document::parse(xml).unwrap();
    let root = document.root_element();
    let totals = ["matches", "shown", "descriptors", "found_in", "next_start"]
        .map(|name| root.attribute(name).unwrap_or("-"));
    let groups = root
        .children()
        .filter(|node| node.is_element())
        .map(|group| {
            let shown = group
                .children()
                .filter(|node| node.is_element())
                .map(|node| {
                    let text: String = node.children().filter_map(|child| child.text()).collect();
                    format!(" {}:{text}", node.attribute("char").unwrap())
                });
            format!(
                "{} {}{}",
                group.attribute("fd").unwrap(),
                group.attribute("matches").unwrap(),
                shown.collect::<String>()
            )
        });
    (totals.join(" "), groups.collect())
}

#[test]
fn a_search_of_all_numbers_matches_across_descriptors() {
    let table = table_of(&["beta\nbeta", "nothing", "a beta", "beta"]);
    let cases: [(&str, &str, &[&str]); 7] = [
        (
            "'query':'beta'",
            "4 1-4 4 3 -",
            &["fd:1 2 0:beta 5:beta", "fd:3 1 2:a beta", "fd:4 1 0:beta"],
        ),
        (
            "'query':'beta','max_matches':1",
            "4 1-1 4 3 2",
            &["fd:1 2 0:beta", "fd:3 1", "fd:4 1"],
        ),
        (
            "'query':'beta','max_matches':1,'start':2",
            "4 2-2 4 3 3",
            &["fd:1 2 5:beta", "fd:3 1", "fd:4 1"],
        ),
        (
            "'query':'beta','max_matches':1,'start':3",
            "4 3-3 4 3 4",
            &["fd:3 1 2:a beta", "fd:4 1"],
        ),
        (
            "'query':'beta','start':4",
            "4 4-4 4 3 -",
            &["fd:4 1 0:beta"],
        ),
        (
            "'query':'^A','regex':true,'case_sensitive':false",
            "1 1-1 4 1 -",
            &["fd:3 1 0:a beta"],
        ),
        ("'query':'nowhere'", "0 0 4 0 -", &[]),
    ];
    for (args, totals, groups) in cases {
        let expected = (
            totals.to_owned(),
            groups.iter().map(ToString::to_string).collect(),
        );
        assert_eq!(
            seen_in_all(&call_all(&table, args, 100_000)),
            expected,
            "{args}"
        );
    }
    assert_eq!(
        seen_in_all(&call_all(&Table::new(), "'query':'beta'", 100)),
        ("0 0 0 0 -".to_owned(), vec![])
    );
    for (args, message) in [
        ("'query':'beta','start':5", "Valid range: 1-4"),
        ("'query':''", "'query' is missing"),
    ] {
        assert!(call_all(&table, args, 100).contains(message), "{args}");
    }
}

#[test]
fn a_search_of_all_covers_each_message_once_where_messages_are_descriptors() {
    let table = table_with_messages(&["beta", "nothing"]);
    let (totals, groups) = seen_in_all(&call_all(&table, "'query':'beta'", 100_000));
    assert_eq!(totals, "3 1-3 4 3 -");
    assert_eq!(
        groups,
        [
            "fd:1 1 0:beta",
            "msg:1 1 0:beta said",
            "msg:2 1 0:beta noted"
        ]
    );
    let xml = call_all(&table, "'query':'beta','distinct':true", 100_000);
    assert!(xml.contains("matches=\"3\""), "{xml}");
}

#[test]
fn many_matches_in_all_descriptors_are_shown_in_parts_and_each_once() {
    let text = "needle one\nneedle two\n".repeat(20);
    let table = table_of(&vec![text.as_str(); 50]);
    for max_read_chars in [20, 100, 3_000] {
        let (mut start, mut found) = (1, Vec::new());
        loop {
            let args = format!("'query':'needle','max_matches':999999,'start':{start}");
            let xml = call_all(&table, &args, max_read_chars);
            assert!(
                xml.len() as u64 <= 3 * max_read_chars + 1_000,
                "{} of {max_read_chars}",
                xml.len()
            );
            let (totals, groups) = seen_in_all(&xml);
            assert!(
                totals.starts_with("2000 ") && totals.contains(" 50 50 "),
                "{totals}"
            );
            for group in groups {
                let mut parts = group
                    .split(' ')
                    .filter(|part| part.starts_with("fd:") || part.contains(":needle"));
                let fd = parts.next().unwrap().to_owned();
                found.extend(parts.map(|part| format!("{fd} {part}")));
            }
            match Document::parse(&xml)
                .unwrap()
                .root_element()
                .attribute("next_start")
            {
                Some(next) => start = next.parse().unwrap(),
                None => break,
            }
        }
        let distinct: BTreeSet<_> = found.iter().collect();
        assert_eq!(
            (found.len(), distinct.len()),
            (2_000, 2_000),
            "{max_read_chars}"
        );
    }
}

#[test]
fn answers_are_bounded_for_any_context() {
    let lines = format!(
        "{}needle\n{}",
        "before\n".repeat(100),
        "after\n".repeat(100)
    );
    let long = format!("{}needle{}", "b".repeat(1000), "a".repeat(1000));
    for (text, query) in [(&lines, "needle"), (&long, "needle"), (&long, "[a-z]+")] {
        for context in [0, 7, i64::MAX] {
            for max_read_chars in [0, 1, 2, 3, 50, 700] {
                let settings = DescriptorSettings {
                    max_read_chars,
                    ..DescriptorSettings::default()
                };
                let args = format!(
                    r#"{{"fd": "fd:1", "query": "{query}", "regex": true, "context": {context}}}"#
                );
                let Outcome::Answer(answer) =
                    search_fd(&Call::unlimited(&table(text, 100), &args, &settings, 0))
                else {
                    panic!("{args}")
                };
                let (totals, matches) = seen(&answer.text);
                assert_eq!(totals, "1 1-1", "{args}");
                let shown = matches[0].split_once(' ').unwrap().1.chars().count() as u64;
                assert!(
                    (1..=max_read_chars.max(1)).contains(&shown),
                    "{shown} of {max_read_chars}: {args}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn matches_equal_those_of_the_standard_library(text in "[ab\n]{0,60}", query in "[ab\n]{1,3}") {
        let args = format!(r#"'query':{}"#, serde_json::Value::from(query.as_str()));
        let (totals, matches) = seen(&call(&text, &args));
        let expected = text.matches(&query).count();
        prop_assert_eq!(totals.split(' ').next().unwrap(), expected.to_string());
        let chars: Vec<usize> = text.match_indices(&query).map(|(at, _)| at).collect();
        let first = matches.first().map(|m| m.split(['.', ' ']).nth(2).unwrap().to_owned());
        prop_assert_eq!(first, chars.first().map(ToString::to_string));
    }
    #[test]
    fn a_search_of_all_finds_the_matches_of_each_descriptor(texts in prop::collection::vec("[ab\n]{0,20}", 0..6), query in "[ab\n]{1,2}") {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let args = format!(r#"'query':{}"#, serde_json::Value::from(query.as_str()));
        let (totals, groups) = seen_in_all(&call_all(&table_of(&texts), &args, 1_000_000));
        let counts: Vec<_> = texts.iter().map(|text| text.matches(&query).count()).collect();
        let total: usize = counts.iter().sum();
        prop_assert!(totals.starts_with(&format!("{total} ")), "{totals}");
        let found: Vec<_> = groups.iter().map(|group| group.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ")).collect();
        let expected = (1..).zip(&counts).filter(|(_, count)| **count > 0).map(|(number, count)| format!("fd:{number} \
             {count}"));
        prop_assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_search_of_all_reads_json_in_the_requested_form() {
    let table = table_of(&["{\"a\":[1,2]}", "no JSON, 2"]);
    let places = |args: &str, pretty_json| {
        let settings = DescriptorSettings {
            pretty_json,
            ..DescriptorSettings::default()
        };
        let args = format!(r#"{{"fd": "*", "query": "2"{args}}}"#);
        let xml = search_fd(&Call::unlimited(&table, &args, &settings, 0))
            .answer()
            .expect("a search only answers")
            .text
            .to_string();
        let document = Document::parse(&xml).unwrap();
        let matches = document
            .descendants()
            .filter(|node| node.has_tag_name("match"));
        let pretty = |node: &roxmltree::Node<'_, '_>| {
            node.parent()
                .unwrap()
                .attribute("pretty")
                .map(str::to_owned)
        };
        matches
            .map(|node| (node.attribute("line").unwrap().to_owned(), pretty(&node)))
            .collect::<Vec<_>>()
    };
    let place = |line: &str, pretty: Option<&str>| (line.to_owned(), pretty.map(str::to_owned));
    for (args, pretty_json, expected) in [
        ("", false, place("1", None)),
        ("", true, place("4", Some("true"))),
        (r#", "pretty": true"#, false, place("4", Some("true"))),
        (r#", "pretty": false"#, true, place("1", Some("false"))),
    ] {
        assert_eq!(
            places(args, pretty_json),
            [expected, place("1", None)],
            "{args} {pretty_json}"
        );
    }
}

fn call_on(contents: &[&[u8]], args: &str) -> String {
    let mut table = Table::new();
    for bytes in contents {
        let content = Content::new(bytes.to_vec());
        table.insert(table.next_id(), Entry::new(content, 100, "tool:t", 0));
    }
    let settings = DescriptorSettings::default();
    let outcome = search_fd(&Call::unlimited(
        &table,
        &args.replace('\'', "\""),
        &settings,
        0,
    ));
    let answer = outcome.answer().expect("a search only answers");
    answer.text.to_string()
}

#[test]
fn text_with_a_broken_byte_or_in_another_encoding_is_searched() {
    let utf16: Vec<u8> = "\u{feff}one\nERROR tö\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let cases: [(&[u8], &str, &str); 3] = [
        (
            b"12:00 started \xff up\n12:01 ERROR t\n",
            "utf-8",
            "ERROR t",
        ),
        (b"Stra\xdfe\nERROR t\xf6\n", "windows-1252", "ERROR tö"),
        (&utf16, "utf-16le", "ERROR tö"),
    ];
    for (bytes, encoding, line) in cases {
        let xml = call_on(&[bytes], "{'fd':'fd:1','query':'ERROR t'}");
        assert!(xml.contains("matches=\"1\"") && xml.contains(line), "{xml}");
        assert!(xml.contains(&format!("encoding=\"{encoding}\"")), "{xml}");
        let replaced = xml.contains("replaced_bytes=\"1\"");
        assert_eq!(replaced, encoding == "utf-8", "{xml}");
        assert!(!xml.contains("note="), "{xml}");
    }
}

#[test]
fn a_search_in_binary_content_says_that_it_is_binary() {
    let binary = [0, 0xff, 1, 0x80].repeat(20);
    let text = b"ERROR\n".as_slice();
    for distinct in ["", ",'distinct':true"] {
        let one = call_on(
            &[&binary],
            &format!("{{'fd':'fd:1','query':'ERROR'{distinct}}}"),
        );
        assert!(one.contains("note=\"fd:1 is binary: "), "{one}");
        let args = format!("{{'fd':'*','query':'ERROR'{distinct}}}");
        let all = call_on(&[text, &binary, &binary], &args);
        assert!(all.contains("note=\"fd:2, fd:3 are binary: "), "{all}");
        let many = call_on(&[&binary[..]; 11], &args);
        assert!(
            many.contains("note=\"11 descriptors are binary, among them fd:1, "),
            "{many}"
        );
        assert!(!call_on(&[text], &args).contains("note="));
    }
}

#[test]
fn an_anchored_pattern_finds_empty_text_once_for_each_line() {
    let text = "\none\n\n\ntwo\n";
    let cases: [(&str, &str, &[&str]); 6] = [
        ("^$", "3 1-3", &["1.1.0.1 ", "3.1.5.1 ", "4.1.6.1 "]),
        ("^ *$", "3 1-3", &["1.1.0.1 ", "3.1.5.1 ", "4.1.6.1 "]),
        (
            "^",
            "5 1-5",
            &[
                "1.1.0.1 ",
                "2.1.1.1 one",
                "3.1.5.1 ",
                "4.1.6.1 ",
                "5.2.7.1 two",
            ],
        ),
        ("e$", "1 1-1", &["2.1.3.1 one"]),
        ("\\\\b", "4 1-4", &["2.1.1.2 one", "5.2.7.2 two"]),
        ("x*", "0 0", &[]),
    ];
    for (query, counts, matches) in cases {
        for (text, line_ends) in [(text.to_owned(), 1), (text.replace('\n', "\r\n"), 2)] {
            let xml = call(&text, &format!("'query':'{query}','regex':true"));
            let (found, shown) = seen(&xml);
            assert_eq!(found, counts, "{query} {line_ends}: {xml}");
            assert!(!xml.contains("&#13;"), "{xml}");
            if line_ends == 1 {
                assert_eq!(shown, matches, "{query}: {xml}");
            } else {
                let lines = |shown: &[String]| -> Vec<_> {
                    shown
                        .iter()
                        .map(|text| text.split(' ').nth(1).unwrap().to_owned())
                        .collect()
                };
                let expected: Vec<_> = matches.iter().map(|text| (*text).to_owned()).collect();
                assert_eq!(lines(&shown), lines(&expected), "{query}: {xml}");
            }
        }
    }
    let long = "x\n\n".repeat(1 << 20);
    let found = seen(&call(&long, "'query':'^$','regex':true,'max_matches':1")).0;
    assert_eq!(found, format!("{} 1-1", 1 << 20), "once, across chunks");
}

#[test]
fn text_with_crlf_is_searched_as_it_is_shown() {
    let text = "<a>\r\n<b>\r\n\r\nend\r\n";
    let cases = [
        ("'query':'>$','regex':true", "2 1-2", "<a>|<b>"),
        ("'query':'^.*$','regex':true", "4 1-4", "<a>|<b>||end"),
        ("'query':'<a>\\n<b>'", "1 1-1", "<a>\n<b>"),
        (
            "'query':'<A>\\n<b>','case_sensitive':false",
            "1 1-1",
            "<a>\n<b>",
        ),
        ("'query':'>\\\\n\\\\n','regex':true", "1 1-1", "<b>\n\n"),
        ("'query':'>\\\\r\\\\n','regex':true", "2 1-2", "<a>\n|<b>\n"),
        ("'query':'b>','context':1", "1 1-1", "<a>\n<b>\n"),
    ];
    for (query, counts, texts) in cases {
        let xml = call(text, query);
        let (found, shown) = seen(&xml);
        assert_eq!(found, counts, "{query}: {xml}");
        let shown: Vec<_> = shown
            .iter()
            .map(|text| text.split_once(' ').unwrap().1)
            .collect();
        assert_eq!(shown.join("|"), texts, "{query}: {xml}");
        assert!(!xml.contains("&#13;"), "{xml}");
    }
    let groups = call(text, "'query':'^(.*)>$','regex':true,'distinct':true");
    assert!(
        groups.contains("<![CDATA[<a]]>") && groups.contains("<![CDATA[<b]]>"),
        "{groups}"
    );
    let mixed = call("one\ntwo\r\n\r\n", "'query':'^(?:|one|two)$','regex':true");
    assert_eq!(seen(&mixed).0, "3 1-3", "{mixed}");
}

#[test]
fn a_literal_query_that_looks_like_a_pattern_and_finds_nothing_is_explained() {
    let message = "With regex=true it is a regular expression.";
    for (args, is_explained) in [
        ("'query':'a|b'", true),
        ("'query':'a|b','regex':true", false),
        ("'pattern':'x|y'", false),
        ("'query':'zzz'", false),
        ("'query':'(1)'", false),
    ] {
        let xml = call("a (1)\n", args);
        assert_eq!(xml.contains(message), is_explained, "{args}: {xml}");
        let xml = call_all(&table_of(&["a (1)\n"]), args, 1_000);
        assert_eq!(xml.contains(message), is_explained, "{args}: {xml}");
    }
}
