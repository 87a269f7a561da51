use dormouse_proto::message::Block;
use dormouse_proto::model::{Delta, ModelErrorKind, StopReason};
use serde_json::json;

use super::super::StreamDecoder;
use super::*;
use crate::testing::decoded;

fn event(call: &Value, stop: Option<&str>) -> String {
    let part = json!({ "functionCall": call });
    let candidate = json!({"content": {"parts": [part]}, "finishReason": stop});
    json!({ "candidates": [candidate] }).to_string()
}

/// The arguments of the first call of a stream whose calls are these, and the names that are told.
fn args_of(calls: &[Value], stop: &str) -> Result<(Value, Vec<String>), ModelError> {
    let (last, before) = calls.split_last().unwrap();
    let mut events: Vec<_> = before.iter().map(|call| event(call, None)).collect();
    events.push(event(last, Some(stop)));
    let events: Vec<_> = events.iter().map(String::as_str).collect();
    let (reply, deltas) = decoded::<StreamDecoder>(&events);
    let told = deltas.into_iter().filter_map(|delta| match delta {
        Delta::ToolUse(name) => Some(name),
        Delta::Text(_) | Delta::Thinking(_) => None,
    });
    let told = told.collect();
    let reply = reply?;
    let Block::ToolUse { args, raw, .. } = &reply.blocks[0] else {
        panic!("no call: {reply:?}")
    };
    let raw: Value = serde_json::from_str(&raw.as_ref().unwrap().json).unwrap();
    let args: Value = serde_json::from_str(args).unwrap();
    assert_eq!(raw["functionCall"]["args"], args);
    for field in [PIECES, CONTINUES] {
        assert!(raw["functionCall"].get(field).is_none(), "{raw}");
    }
    Ok((args, told))
}

/// A call that begins, a part for each list of pieces, and the end.
fn call(pieces: &[Value]) -> Vec<Value> {
    let begun = json!({"name": "book", "willContinue": true});
    let parts = pieces
        .iter()
        .map(|pieces| json!({"partialArgs": pieces, "willContinue": true}));
    let mut calls: Vec<_> = [begun].into_iter().chain(parts).collect();
    calls.push(json!({}));
    calls
}

#[test]
fn pieces_become_the_arguments() {
    let cases = [
        (vec![], json!({})),
        (
            vec![
                json!([{"jsonPath": "$.city", "stringValue": "New ", "willContinue": true}]),
                json!([{"jsonPath": "$.city", "stringValue": "Del", "willContinue": true}]),
                json!([{"jsonPath": "$.city", "stringValue": "hi"}, {"jsonPath": "$.n", "numberValue": 50}]),
            ],
            json!({"city": "New Delhi", "n": 50}),
        ),
        (
            vec![
                json!([{"jsonPath": "$.a", "willContinue": true}]),
                json!([{"jsonPath": "$.b", "stringValue": "é", "willContinue": true}]),
                json!([{"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": "$.b"}]),
            ],
            json!({"a": "x", "b": "é"}),
        ),
        (
            vec![json!([
                {"jsonPath": "$.rooms[0].name", "stringValue": "k"},
                {"jsonPath": "$.rooms[0].lit", "boolValue": false},
                {"jsonPath": "$.rooms[1]['a b']", "nullValue": null},
                {"jsonPath": "$.grid[0][0]", "numberValue": 1.5},
                {"jsonPath": "$.grid[0][1]", "nullValue": "NULL_VALUE"},
            ])],
            json!({"rooms": [{"name": "k", "lit": false}, {"a b": null}], "grid": [[1.5, null]]}),
        ),
    ];
    for (pieces, expected) in cases {
        let (args, told) = args_of(&call(&pieces), "STOP").unwrap();
        assert_eq!(args, expected, "{pieces:?}");
        assert_eq!(told, ["book"], "the call is told once");
    }
}

#[test]
fn calls_follow_each_other_and_keep_what_their_parts_say() {
    let piece = |n: u32| json!([{"jsonPath": "$.n", "numberValue": n}]);
    let parts = [
        json!({"text": "so"}),
        json!({"functionCall": {"name": "a", "id": "1", "willContinue": true}, "thoughtSignature": "s"}),
        json!({"functionCall": {"partialArgs": piece(1)}}),
        json!({"functionCall": {"name": "b", "partialArgs": piece(2), "willContinue": true}}),
        json!({"functionCall": {"id": "2", "willContinue": false}, "thoughtSignature": "t"}),
        json!({"functionCall": {"name": "c", "args": {"n": 3}}}),
    ];
    let parts: Vec<_> = parts.iter().map(Value::to_string).collect();
    let joined = join(&parts, IncompleteCall::Refused).unwrap();
    let expected = [
        json!({"text": "so"}),
        json!({"functionCall": {"name": "a", "id": "1", "args": {"n": 1}}, "thoughtSignature": "s"}),
        json!({"functionCall": {"name": "b", "args": {"n": 2}, "id": "2"}, "thoughtSignature": "t"}),
        json!({"functionCall": {"name": "c", "args": {"n": 3}}}),
    ];
    let joined: Vec<Value> = joined
        .iter()
        .map(|part| serde_json::from_str(part).unwrap())
        .collect();
    assert_eq!(joined, expected);
}

#[test]
fn a_call_without_its_last_piece_is_kept_only_if_the_reply_was_truncated() {
    let mut calls = call(&[json!([{"jsonPath": "$.a", "stringValue": "x", "willContinue": true}])]);
    calls.pop();
    let (args, _) = args_of(&calls, "MAX_TOKENS").unwrap();
    assert_eq!(args, json!({"a": "x"}));
    let error = args_of(&calls, "STOP").unwrap_err();
    assert!(error.message.contains("last piece"), "{error}");
    let events: Vec<_> = calls.iter().map(|call| event(call, None)).collect();
    let mut events: Vec<_> = events.iter().map(String::as_str).collect();
    let cut = decoded::<StreamDecoder>(&events).0.unwrap_err();
    assert_eq!(cut.kind, ModelErrorKind::CutStream);
    let end = r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#;
    events.push(end);
    let reply = decoded::<StreamDecoder>(&events).0.unwrap();
    assert_eq!(reply.stop, StopReason::MaxTokens);
}

#[test]
fn hostile_pieces_are_refused_by_name() {
    let deep = format!("$.a{}", "[0]".repeat(10_000));
    let cases = [
        (json!([{"stringValue": "x"}]), "has no path"),
        (json!([{"jsonPath": 7, "stringValue": "x"}]), "has no path"),
        (
            json!([{"jsonPath": "$", "stringValue": "x"}]),
            "names no argument",
        ),
        (
            json!([{"jsonPath": "$[0]", "stringValue": "x"}]),
            "names no argument",
        ),
        (
            json!([{"jsonPath": "$..a", "stringValue": "x"}]),
            "no name or index",
        ),
        (
            json!([{"jsonPath": deep, "stringValue": "x"}]),
            "too many steps",
        ),
        (
            json!([{"jsonPath": "$.a[4294967295]", "stringValue": "x"}]),
            "skips elements",
        ),
        (
            json!([{"jsonPath": "$.a", "numberValue": "NaN"}]),
            "another type",
        ),
        (
            json!([{"jsonPath": "$.a", "stringValue": {"b": 1}}]),
            "another type",
        ),
        (
            json!([{"jsonPath": "$.a", "numberValue": 1, "willContinue": true}]),
            "no text",
        ),
        (
            json!([{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a", "numberValue": 2}]),
            "an earlier one has given",
        ),
        (
            json!([{"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": "$.a", "stringValue": "y"}]),
            "an earlier one has given",
        ),
        (
            json!([{"jsonPath": "$.a", "stringValue": "x", "willContinue": true}, {"jsonPath": "$.a", "boolValue": true}]),
            "with another type",
        ),
        (
            json!([{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a.b", "numberValue": 2}]),
            "contradicts",
        ),
        (
            json!([{"jsonPath": "$.a.b", "numberValue": 1}, {"jsonPath": "$.a[0]", "numberValue": 2}]),
            "contradicts",
        ),
        (json!({"jsonPath": "$.a"}), "piece of arguments"),
        (json!([1]), "piece of arguments"),
    ];
    for (pieces, why) in cases {
        let error = args_of(&call(std::slice::from_ref(&pieces)), "STOP").unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed);
        assert!(error.message.contains(why), "{why:?} is not in: {error}");
    }
    let other = [
        json!({"name": "a", "willContinue": true}),
        json!({"name": "b", "willContinue": true}),
        json!({}),
    ];
    let error = args_of(&other, "STOP").unwrap_err();
    assert!(error.message.contains("before the last piece"), "{error}");
}

#[test]
fn pieces_that_continue_nothing_are_no_call() {
    let error = args_of(&[json!({"partialArgs": []})], "STOP").unwrap_err();
    assert!(error.message.contains("'name'"), "{error}");
}
