use dormouse_proto::message::Block;
use dormouse_proto::model::{ModelErrorKind, StopReason};

use super::*;
use crate::testing::decoded;

const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"cache_read_input_tokens":7,"output_tokens":1}}}"#;
const END: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":12}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

/// Test case: the deltas of a block, and the equal complete block.
fn check(start: &str, deltas: &[&str], whole: &str) {
    let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
    let grow =
        |delta: &&str| format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
    let deltas: Vec<String> = deltas.iter().map(grow).collect();
    let events: Vec<&str> = [START, r#"{"type":"ping"}"#, &start]
        .into_iter()
        .chain(deltas.iter().map(String::as_str))
        .chain([r#"{"type":"content_block_stop","index":0}"#, END, STOP])
        .collect();
    let reply = decoded::<StreamDecoder>(&events).0.unwrap();
    assert_eq!(reply.blocks, [decode::decode_block(whole).unwrap()]);
    let usage = Usage {
        input_tokens: 9,
        output_tokens: 12,
        cache_read_tokens: 7,
        ..Usage::default()
    };
    assert_eq!(reply.usage, usage);
}

#[test]
fn a_failure_without_an_envelope_is_classified_by_its_type() {
    let cases = [
        (
            r#"{"code":500,"message":"the output does not parse","type":"server_error"}"#,
            ModelErrorKind::Transport,
        ),
        (
            r#"{"code":400,"message":"the request exceeds","type":"exceed_context_size_error"}"#,
            ModelErrorKind::ContextOverflow,
        ),
        (
            r#"{"code":500,"message":"of no kind","type":"thing"}"#,
            ModelErrorKind::Malformed,
        ),
    ];
    for (event, kind) in cases {
        assert_eq!(
            decoded::<StreamDecoder>(&[START, event])
                .0
                .unwrap_err()
                .kind,
            kind,
            "{event}"
        );
    }
}

#[test]
fn a_streamed_block_equals_the_complete_block() {
    check(
        r#"{"type":"text","text":""}"#,
        &[
            r#"{"type":"text_delta","text":"He"}"#,
            r#"{"type":"text_delta","text":"y \"é\""}"#,
        ],
        r#"{"type":"text","text":"Hey \"é\""}"#,
    );
    check(
        r#"{"type":"thinking","thinking":"","signature":""}"#,
        &[
            r#"{"type":"thinking_delta","thinking":"hm"}"#,
            r#"{"type":"thinking_delta","thinking":"m"}"#,
            r#"{"type":"signature_delta","signature":"s=="}"#,
        ],
        r#"{"type":"thinking","thinking":"hmm","signature":"s=="}"#,
    );
    check(
        r#"{"type":"tool_use","id":"t","name":"ls","input":{},"caller":{"type":"direct"}}"#,
        &[
            r#"{"type":"input_json_delta","partial_json":""}"#,
            r#"{"type":"input_json_delta","partial_json":"{\"n\": 1."}"#,
            r#"{"type":"input_json_delta","partial_json":"10}"}"#,
        ],
        r#"{"type":"tool_use","id":"t","name":"ls","input":{"n": 1.10},"caller":{"type":"direct"}}"#,
    );
    check(
        r#"{"citations":[{"a":0}],"type":"text","text":"so"}"#,
        &[
            r#"{"type":"citations_delta","citation":{"a":1}}"#,
            r#"{"type":"text_delta","text":"!"}"#,
            r#"{"type":"citations_delta","citation":{"b":2}}"#,
        ],
        r#"{"citations":[{"a":0},{"a":1},{"b":2}],"type":"text","text":"so!"}"#,
    );
    check(
        r#"{"type":"unheard_of","body":null}"#,
        &[
            r#"{"type":"body_delta","body":"a","rate":1}"#,
            r#"{"type":"body_delta","body":"b","rate":2.50}"#,
        ],
        r#"{"type":"unheard_of","body":"ab","rate":2.50}"#,
    );
    check(
        r#"{"type":"redacted_thinking","data":"x"}"#,
        &[],
        r#"{"type":"redacted_thinking","data":"x"}"#,
    );
}

#[test]
fn what_only_one_of_two_places_says_is_read() {
    let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    let start = format!(
        r#"{{"type":"message_start","message":{{"content":[{}],"stop_reason":"max_tokens","usage":{{"input_tokens":9,"cache_read_input_tokens":7}}}}}}"#,
        text("whole")
    );
    let zeros = r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}"#;
    let last = r#"{"type":"message_stop","usage":{"output_tokens":5}}"#;
    let reply = decoded::<StreamDecoder>(&[&start, zeros, last]).0.unwrap();
    assert_eq!(
        reply.blocks,
        [decode::decode_block(&text("whole")).unwrap()]
    );
    assert_eq!(reply.stop, StopReason::MaxTokens);
    let usage = Usage {
        input_tokens: 9,
        cache_read_tokens: 7,
        output_tokens: 5,
        ..Usage::default()
    };
    assert_eq!(reply.usage, usage, "cumulative counts never decrease");

    let begun = format!(
        r#"{{"type":"content_block_start","index":0,"content_block":{}}}"#,
        text("begun")
    );
    let events = [&start, &begun, END, STOP];
    let reply = decoded::<StreamDecoder>(&events).0.unwrap();
    assert_eq!(
        reply.blocks,
        [decode::decode_block(&text("begun")).unwrap()]
    );
    assert_eq!(reply.stop, StopReason::EndTurn);
}

#[test]
fn arguments_and_a_signature_that_a_block_starts_with_are_whole() {
    check(
        r#"{"type":"tool_use","id":"t","name":"ls","input":{"n": 1.10}}"#,
        &[],
        r#"{"type":"tool_use","id":"t","name":"ls","input":{"n": 1.10}}"#,
    );
    check(
        r#"{"type":"tool_use","id":"t","name":"ls","input":{"n": 1}}"#,
        &[r#"{"type":"input_json_delta","partial_json":"{\"n\": 1}"}"#],
        r#"{"type":"tool_use","id":"t","name":"ls","input":{"n": 1}}"#,
    );
    check(
        r#"{"type":"thinking","thinking":"hm","signature":"s=="}"#,
        &[r#"{"type":"signature_delta","signature":"s=="}"#],
        r#"{"type":"thinking","thinking":"hm","signature":"s=="}"#,
    );
}

#[test]
fn invalid_arguments_reach_the_kernel_and_are_not_in_the_block() {
    let events = [
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"ls","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"n\": "}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
        STOP,
    ];
    let (reply, deltas) = decoded::<StreamDecoder>(&events);
    let Block::ToolUse {
        args,
        raw: Some(raw),
        ..
    } = &reply.unwrap().blocks[0]
    else {
        panic!("a tool use")
    };
    assert_eq!(&**args, "{\"n\": ");
    assert_eq!(
        &*raw.json,
        r#"{"type":"tool_use","id":"t","name":"ls","input":{}}"#
    );
    assert_eq!(deltas, [Delta::ToolUse("ls".into())]);
}

#[test]
fn a_block_with_too_many_fields_is_refused() {
    let text =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#;
    let fields = |from: usize, to: usize| {
        (from..to)
            .map(|n| format!(r#","k{n}":"v""#))
            .collect::<String>()
    };
    let delta = |fields| {
        format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"x"{fields}}}}}"#)
    };
    let at_once = [delta(fields(0, 100_000))];
    let in_turn: Vec<_> = (0..1_000).map(|n| delta(fields(n, n + 1))).collect();
    for deltas in [&at_once[..], &in_turn] {
        let events: Vec<_> = [START, text]
            .into_iter()
            .chain(deltas.iter().map(String::as_str))
            .collect();
        assert_eq!(
            decoded::<StreamDecoder>(&events).0.unwrap_err().kind,
            ModelErrorKind::Malformed
        );
    }
}

#[test]
fn a_truncated_or_invalid_stream_fails_with_its_kind() {
    let text =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#;
    let overloaded =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let delta =
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"a"}}"#;
    let cases: [(&[&str], ModelErrorKind); 8] = [
        (&[], ModelErrorKind::CutStream),
        (&[START, text, END], ModelErrorKind::CutStream),
        (&[START, text, overloaded], ModelErrorKind::Overloaded),
        (&[START, text, "{\"type\":"], ModelErrorKind::Malformed),
        (&[START, text, text], ModelErrorKind::Malformed),
        (&[START, delta], ModelErrorKind::Malformed),
        (&[START, STOP], ModelErrorKind::Malformed),
        (
            &[START, r#"{"type":"content_block_start","index":0}"#],
            ModelErrorKind::Malformed,
        ),
    ];
    for (events, kind) in cases {
        assert_eq!(
            decoded::<StreamDecoder>(events).0.unwrap_err().kind,
            kind,
            "{events:?}"
        );
    }
}
