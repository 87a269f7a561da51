//! Tests when two calls are the same for the effect log.

use super::*;

#[test]
fn two_calls_are_the_same_if_their_declared_arguments_are() {
    let volatile = |names: &[&str]| RepeatRule {
        volatile: names.iter().map(|name| (*name).to_owned()).collect(),
        ..RepeatRule::default()
    };
    let key = |names: &[&str]| RepeatRule {
        key: names.iter().map(|name| (*name).to_owned()).collect(),
        ..RepeatRule::default()
    };
    let plain = RepeatRule::default();
    let cases = [
        (
            &plain,
            r#"{"a":1,"b":[2]}"#,
            r#"{ "b": [2], "a": 1 }"#,
            true,
        ),
        (&plain, r#"{"a":1}"#, r#"{"a":2}"#, false),
        (&plain, r#"{"a":1}"#, r#"{"a":"1"}"#, false),
        (&plain, r#"{"a":["b","c"]}"#, r#"{"a":["b,c"]}"#, false),
        (&plain, "no JSON", " no JSON\n", true),
        (
            &volatile(&["id"]),
            r#"{"a":1,"id":1}"#,
            r#"{"a":1,"id":2}"#,
            true,
        ),
        (&volatile(&["id"]), r#"{"a":1,"id":1}"#, r#"{"a":1}"#, true),
        (
            &volatile(&["id"]),
            r#"{"a":1,"id":1}"#,
            r#"{"a":2,"id":1}"#,
            false,
        ),
        (
            &volatile(&["/o/id"]),
            r#"{"o":{"id":1,"x":1}}"#,
            r#"{"o":{"x":1}}"#,
            true,
        ),
        (
            &volatile(&["/o/id"]),
            r#"{"o":{"id":1},"id":1}"#,
            r#"{"o":{"id":1},"id":2}"#,
            false,
        ),
        (
            &key(&["order"]),
            r#"{"order":7,"sum":1}"#,
            r#"{"order":7,"sum":2}"#,
            true,
        ),
        (&key(&["order"]), r#"{"order":7}"#, r#"{"order":8}"#, false),
        (
            &key(&["/o/a", "b"]),
            r#"{"o":{"a":1},"b":2,"c":3}"#,
            r#"{"b":2,"o":{"a":1}}"#,
            true,
        ),
        // A call without any of these arguments is compared as a whole.
        (&key(&["order"]), r#"{"sum":1}"#, r#"{"sum":2}"#, false),
    ];
    for (rule, one, other, expected) in cases {
        let key = |args| key_of_arguments(args, Some(rule), |args| args);
        assert_eq!(
            key(one) == key(other),
            expected,
            "{one} and {other} by {rule:?}"
        );
    }
}
