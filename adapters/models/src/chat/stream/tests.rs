use dormouse_proto::message::{Block, text_of};
use dormouse_proto::model::{ModelErrorKind, StopReason};

use super::*;
use crate::testing::decoded;

fn delta(fields: &str) -> String {
    format!(
        r#"{{"id":"x","created":7,"choices":[{{"index":0,"delta":{fields},"finish_reason":null}}]}}"#
    )
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;

/// Test case: the deltas of a message, and the equal complete message.
fn check(deltas: &[&str], whole: &str) {
    let deltas: Vec<_> = deltas.iter().map(|fields| delta(fields)).collect();
    let events: Vec<_> = deltas
        .iter()
        .map(String::as_str)
        .chain([STOP, USAGE, "[DONE]"])
        .collect();
    let whole = format!(
        r#"{{"id":"x","created":7,"choices":[{{"message":{whole},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":4}}}}"#
    );
    assert_eq!(
        decoded::<StreamDecoder>(&events).0.unwrap(),
        decode::decode_completion(&whole).unwrap()
    );
}

#[test]
fn a_streamed_message_equals_the_complete_message() {
    check(
        &[
            r#"{"role":"assistant","content":""}"#,
            r#"{"content":"He"}"#,
            r#"{"content":"y \"é\""}"#,
        ],
        r#"{"role":"assistant","content":"Hey \"é\""}"#,
    );
    check(
        &[
            r#"{"role":"assistant","content":null,"reasoning_content":"h"}"#,
            r#"{"reasoning_content":"m","reasoning_details":[{"a":1}]}"#,
            r#"{"content":"so","reasoning_details":[{"b":2.50}],"rate":1}"#,
            r#"{"rate":2.0}"#,
        ],
        r#"{"role":"assistant","reasoning_content":"hm","reasoning_details":[{"a":1},{"b":2.50}],"content":"so","rate":2.0}"#,
    );
    check(
        &[
            r#"{"role":"assistant","tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"cd","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"ls","arguments":"{\"n\""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":": 1.10}"}},{"index":1,"id":"b","function":{"name":"cd","arguments":"{}"}}]}"#,
        ],
        concat!(
            r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"ls","arguments":"{\"n\": 1.10}"}},"#,
            r#"{"id":"b","type":"function","function":{"name":"cd","arguments":"{}"}}]}"#
        ),
    );
}

#[test]
fn calls_without_ids_get_equal_ids_streamed_and_complete() {
    check(
        &[
            r#"{"role":"assistant","content":"so"}"#,
            r#"{"tool_calls":[{"index":0,"id":"","function":{"name":"ls","arguments":"{\"n\""}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"","function":{"arguments":": 1.10}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"name":"ls","arguments":"{}"}}]}"#,
        ],
        concat!(
            r#"{"role":"assistant","content":"so","tool_calls":[{"function":{"name":"ls","arguments":"{\"n\": 1.10}"}},"#,
            r#"{"function":{"name":"ls","arguments":"{}"}}]}"#
        ),
    );
}

#[test]
fn a_message_beside_the_deltas_is_read_where_they_say_nothing() {
    let message = r#"{"role":"assistant","content":"so","tool_calls":[{"id":"a","type":"function","function":{"name":"ls","arguments":"{}"}}]}"#;
    let chosen = |delta: &str, message: &str, stop: &str| {
        format!(
            r#"{{"id":"c","choices":[{{"index":0,{delta}"message":{message},"finish_reason":{stop}}}]}}"#
        )
    };
    let said = |delta: &str| {
        let grown = chosen(delta, r#"{"content":"s"}"#, "null");
        let last = chosen("", message, "\"tool_calls\"");
        let (reply, deltas) = decoded::<StreamDecoder>(&[&grown, &last]);
        let reply = reply.unwrap();
        let calls = reply
            .blocks
            .iter()
            .filter(|block| matches!(block, Block::ToolUse { .. }));
        (text_of(&reply.blocks), calls.count(), reply.stop, deltas)
    };
    let call = || Delta::ToolUse("ls".into());
    let (text, calls, stop, deltas) = said("");
    assert_eq!((text.as_str(), calls, stop), ("so", 1, StopReason::ToolUse));
    assert_eq!(deltas, [Delta::Text("so".into()), call()]);
    // Deltas and a message that repeats them, as some servers send in every chunk.
    let (text, calls, stop, deltas) = said(r#""delta":{"content":"so"},"#);
    assert_eq!((text.as_str(), calls, stop), ("so", 1, StopReason::ToolUse));
    assert_eq!(deltas, [Delta::Text("so".into()), call()]);
}

#[test]
fn calls_in_the_last_chunk_are_part_of_the_reply() {
    let last = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":"{\"n\":1}"}}]},"finish_reason":"tool_calls"}]}"#;
    let reply = decoded::<StreamDecoder>(&[last, "[DONE]"]).0.unwrap();
    assert!(matches!(&reply.blocks[..], [Block::ToolUse { args, .. }] if &**args == r#"{"n":1}"#));
}

#[test]
fn usage_is_read_wherever_a_server_puts_it() {
    let counts = |output: u64| {
        format!(r#""usage":{{"prompt_tokens":9,"completion_tokens":{output},"total_tokens":14}}"#)
    };
    let text = delta(r#"{"content":"so"}"#);
    let end = |choice: &str, rest: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"{choice}}}]{rest}}}"#
        )
    };
    let cases = [
        vec![end("", &format!(",{}", counts(5)))],
        vec![end("", ""), format!(r#"{{"choices":[],{}}}"#, counts(5))],
        vec![end("", ""), format!(r#"{{"choices":null,{}}}"#, counts(5))],
        vec![end(&format!(",{}", counts(5)), "")],
        vec![end("", &format!(r#","x_groq":{{{}}}"#, counts(5)))],
        vec![
            format!(r#"{{"choices":[],{}}}"#, counts(1)),
            end("", &format!(",{}", counts(5))),
            r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#.to_owned(),
        ],
    ];
    for case in cases {
        let events: Vec<_> = std::iter::once(&text)
            .chain(&case)
            .map(String::as_str)
            .collect();
        let usage = decoded::<StreamDecoder>(&events).0.unwrap().usage;
        assert_eq!(
            (usage.input_tokens, usage.output_tokens),
            (9, 5),
            "{case:?}"
        );
    }
}

#[test]
fn an_empty_finish_reason_is_none_and_thinking_in_two_fields_is_reported_once() {
    let thought = r#"{"choices":[{"index":0,"delta":{"reasoning":"hm","reasoning_content":"hm"},"finish_reason":""}]}"#;
    let (reply, deltas) = decoded::<StreamDecoder>(&[thought]);
    assert_eq!(reply.unwrap_err().kind, ModelErrorKind::CutStream);
    assert_eq!(deltas, [Delta::Thinking("hm".into())]);
    assert!(decoded::<StreamDecoder>(&[thought, STOP]).0.is_ok());
}

#[test]
fn deltas_are_reported() {
    let events = [
        delta(r#"{"reasoning":"hm"}"#),
        delta(r#"{"content":"so"}"#),
        delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":""}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#),
    ];
    let events: Vec<_> = events.iter().map(String::as_str).chain([STOP]).collect();
    let (reply, deltas) = decoded::<StreamDecoder>(&events);
    assert_eq!(
        reply.unwrap().stop,
        StopReason::ToolUse,
        "the usage may be missing"
    );
    assert_eq!(
        deltas,
        [
            Delta::Thinking("hm".into()),
            Delta::Text("so".into()),
            Delta::ToolUse("ls".into())
        ]
    );
}

#[test]
fn content_that_arrives_as_parts_and_as_text_is_kept_completely() {
    let thought = |text: &str| {
        format!(r#"{{"type":"thinking","thinking":[{{"type":"text","text":"{text}"}}]}}"#)
    };
    let said = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    let list = |parts: &[String]| format!(r#"{{"content":[{}]}}"#, parts.join(","));
    let text = |text: &str| format!(r#"{{"content":"{text}"}}"#);
    let parts = [
        text(""),
        list(&[thought("h")]),
        list(&[thought("m"), said("So")]),
        text(" i"),
        text("t"),
        text(""),
    ];
    let kept = [thought("h"), thought("m"), said("So"), said(" it")];
    check_content(
        &parts,
        &kept,
        &[Delta::Thinking("h".into()), Delta::Thinking("m".into())],
        "So it",
    );
    let parts = [
        text("S"),
        text("o"),
        list(&[said(" it")]),
        text(" is"),
        list(&[thought("h")]),
    ];
    check_content(
        &parts,
        &[said("So"), said(" it"), said(" is"), thought("h")],
        &[Delta::Thinking("h".into())],
        "So it is",
    );
}

/// Test case: the deltas of a content, its stored parts, and the reported deltas.
fn check_content(parts: &[String], kept: &[String], thoughts: &[Delta], said: &str) {
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    check(
        &parts,
        &format!(r#"{{"content":[{}],"role":"assistant"}}"#, kept.join(",")),
    );
    let events: Vec<_> = parts.iter().map(|fields| delta(fields)).collect();
    let events: Vec<_> = events.iter().map(String::as_str).chain([STOP]).collect();
    let (reply, deltas) = decoded::<StreamDecoder>(&events);
    let (texts, others): (Vec<_>, Vec<_>) = deltas
        .into_iter()
        .partition(|delta| matches!(delta, Delta::Text(_)));
    let joined: String = texts
        .iter()
        .map(|delta| {
            if let Delta::Text(text) = delta {
                text.as_str()
            } else {
                ""
            }
        })
        .collect();
    assert_eq!(
        (joined.as_str(), text_of(&reply.unwrap().blocks).as_str()),
        (said, said)
    );
    assert_eq!(others, thoughts);
}

#[test]
fn a_truncated_or_invalid_stream_fails_with_its_kind() {
    let text = &*delta(r#"{"content":"a"}"#);
    let failed = r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#;
    let bare = r#"{"code":500,"message":"full","type":"exceed_context_size_error"}"#;
    let chosen = r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error","error":{"code":402,"message":"m"}}]}"#;
    let cases: [(&[&str], ModelErrorKind); 7] = [
        (&[], ModelErrorKind::CutStream),
        (&[text], ModelErrorKind::CutStream),
        (&[text, "[DONE]"], ModelErrorKind::CutStream),
        (&[text, failed], ModelErrorKind::Overloaded),
        (&[text, bare], ModelErrorKind::ContextOverflow),
        (&[text, chosen], ModelErrorKind::Unavailable),
        (&[text, "{\"choices\":"], ModelErrorKind::Malformed),
    ];
    for (events, kind) in cases {
        assert_eq!(
            decoded::<StreamDecoder>(events).0.unwrap_err().kind,
            kind,
            "{events:?}"
        );
    }
}

#[test]
fn a_reply_with_too_many_fields_or_calls_is_refused() {
    let fields: Vec<_> = (0..1_000)
        .map(|n| delta(&format!(r#"{{"k{n}":1}}"#)))
        .collect();
    let call =
        |n: usize| format!(r#"{{"tool_calls":[{{"index":{n},"function":{{"name":"f"}}}}]}}"#);
    let calls: Vec<_> = (0..5_000).map(|n| delta(&call(n))).collect();
    for events in [fields, calls] {
        let events: Vec<_> = events.iter().map(String::as_str).collect();
        assert_eq!(
            decoded::<StreamDecoder>(&events).0.unwrap_err().kind,
            ModelErrorKind::Malformed
        );
    }
}
