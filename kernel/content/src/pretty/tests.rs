//! Reformatted JSON against what `serde_json` reads and writes.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::Content;

fn remove_spaces(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let kept = json.chars().filter(|c| {
        let keep = in_string || !c.is_ascii_whitespace();
        in_string ^= *c == '"' && !is_escaped;
        is_escaped = in_string && *c == '\\' && !is_escaped;
        keep
    });
    kept.collect()
}

#[test]
fn tokens_stay_as_they_are() {
    let cases = [
        (r#"{"a":1}"#, "{\n  \"a\": 1\n}"),
        (
            r#"[1.0,1e400,12345678901234567890,-0.10,true]"#,
            "[\n  1.0,\n  1e400,\n  12345678901234567890,\n  -0.10,\n  true\n]",
        ),
        (
            r#"{"b":null,"a":1,"b":[]}"#,
            "{\n  \"b\": null,\n  \"a\": 1,\n  \"b\": []\n}",
        ),
        (
            r#"["\u00e9\/\\\"[1,2]:{","é😀"]"#,
            "[\n  \"\\u00e9\\/\\\\\\\"[1,2]:{\",\n  \"é😀\"\n]",
        ),
        (" [ ] ", "[]"),
        ("{ \r\n }\n", "{}"),
        ("[[],{},[ 1 ]]", "[\n  [],\n  {},\n  [\n    1\n  ]\n]"),
        ("\"\"", "\"\""),
        ("{\n\n\"a\" \t: [\n1]}", "{\n  \"a\": [\n    1\n  ]\n}"),
    ];
    for (json, expected) in cases {
        assert_eq!(pretty(json).unwrap(), expected, "{json}");
    }
}

#[test]
fn each_top_level_value_starts_a_line() {
    let cases = [
        (
            "{\"a\":1}\n{\"b\":2}\n",
            "{\n  \"a\": 1\n}\n{\n  \"b\": 2\n}",
        ),
        ("[][] {}", "[]\n[]\n{}"),
        ("1 \"two\"[3]null ", "1\n\"two\"\n[\n  3\n]\nnull"),
    ];
    for (json, expected) in cases {
        assert_eq!(pretty(json).unwrap(), expected, "{json}");
    }
}

#[test]
fn each_refusal_gives_its_reason() {
    let deepest = "[".repeat(MAX_DEPTH) + "1" + &"]".repeat(MAX_DEPTH);
    assert!(serde_json::from_str::<Value>(&pretty(&deepest).unwrap()).is_ok());
    let too_deep = format!("[{deepest}]");
    assert!(
        serde_json::from_str::<Value>(&too_deep).is_err(),
        "serde_json reads no deeper"
    );
    let hundred_thousand = "[".repeat(100_000) + &"]".repeat(100_000);
    let far_inside = "[".repeat(100) + &"1,".repeat(100_000) + "1" + &"]".repeat(100);
    let cases = [
        ("", "the content is empty"),
        (" \n", "the content is empty"),
        (
            "hello",
            "the content is not JSON: expected value at line 1 column 1",
        ),
        (
            "{\"a\":1} x",
            "the content is not JSON: expected value at line 1 column 9",
        ),
        ("{\"a\":1", "the content is not JSON: EOF"),
        ("[1,]", "the content is not JSON: "),
        ("[\"a\u{1}\"]", "the content is not JSON: control character"),
        ("\u{feff}{}", "the content is not JSON: expected value"),
        (too_deep.as_str(), "more than 127 levels deep at byte 128"),
        (hundred_thousand.as_str(), "more than 127 levels deep"),
        (&"[".repeat(100_000), "the content is not JSON: EOF"),
        (
            far_inside.as_str(),
            "the JSON would grow from 200201 to more than 1601608 bytes",
        ),
    ];
    for (json, message) in cases {
        let error = pretty(json).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    assert!(matches!(
        Content::new(vec![0xff]).unlimited_reader().pretty(),
        Err(PrettyError::Binary)
    ));
}

#[test]
fn reformatted_json_is_cached_and_shared_by_all_holders() {
    let content = Content::new("[1,2]");
    let pretty = content.unlimited_reader().pretty().unwrap();
    let text = pretty.text().unwrap();
    let same = content
        .clone()
        .unlimited_reader()
        .pretty()
        .unwrap()
        .text()
        .unwrap();
    assert!(
        std::ptr::eq(text.as_ptr(), same.as_ptr()),
        "every holder has the same"
    );
    assert_eq!(
        (
            &*text,
            pretty.total_lines(),
            content.unlimited_reader().total_lines()
        ),
        ("[\n  1,\n  2\n]", Ok(4), Ok(1))
    );
    assert_eq!(pretty.pretty().unwrap().text().unwrap(), text);
}

#[test]
fn single_line_json_is_recognised_by_its_beginning() {
    let cases = [
        ("{}", true),
        (" \t[1]\n", true),
        ("[not JSON", true),
        ("[1,\n2]", false),
        ("{}\n{}\n", false),
        ("1", false),
        ("", false),
        (&(" ".repeat(10_000) + "[]"), true),
    ];
    for (text, expected) in cases {
        assert_eq!(
            Content::new(text.to_owned())
                .unlimited_reader()
                .may_be_json_line(),
            Ok(expected),
            "{text:?}"
        );
    }
    assert_eq!(
        Content::new(vec![b'{', 0xff])
            .unlimited_reader()
            .may_be_json_line(),
        Ok(false)
    );
}

fn json_value(scalar: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    scalar.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn scalar_without_float() -> BoxedStrategy<Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
    .boxed()
}

/// Formats the value with this white space between its tokens.
fn insert_spaces(value: &Value, spaces: &[String]) -> String {
    let json = value.to_string();
    let mut spaces = spaces.iter().cycle();
    let (mut rest, mut spread) = (json.as_str(), String::new());
    while !rest.is_empty() {
        let len = if b"{}[]:,".contains(&rest.as_bytes()[0]) {
            1
        } else {
            token_range(rest.as_bytes(), 0).len()
        };
        spread += spaces.next().map_or("", String::as_str);
        spread += &rest[..len];
        rest = &rest[len..];
    }
    spread
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_result_equals_serde_json_to_string_pretty(value in json_value(scalar_without_float())) {
        let expected = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(pretty(&value.to_string()).unwrap(), expected);
    }

    #[test]
    fn only_white_space_changes(
        value in json_value(prop_oneof![scalar_without_float(), any::<f64>().prop_map(Value::from).boxed()].boxed()),
        spaces in prop::collection::vec("[ \t\r\n]{0,3}", 1..8),
    ) {
        let json = insert_spaces(&value, &spaces);
        let pretty = pretty(&json).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&pretty).unwrap(), serde_json::from_str::<Value>(&json).unwrap());
        prop_assert_eq!(remove_spaces(&pretty), remove_spaces(&json));
        prop_assert_eq!(remove_spaces(&pretty), value.to_string());
    }

    #[test]
    fn random_text_is_refused_or_keeps_its_tokens(json in r#"[\[\]{}:,"\\1a \n]{0,16}"#) {
        if let Ok(pretty) = pretty(&json) {
            prop_assert_eq!(remove_spaces(&pretty), remove_spaces(&json));
        }
    }
}
