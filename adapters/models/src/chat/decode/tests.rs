use serde_json::json;

use super::*;

fn reply(message: &str, stop: &str) -> Result<Reply, ModelError> {
    decode_completion(&format!(
        r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":{stop}}}],"usage":null}}"#
    ))
}

#[test]
fn every_finish_reason_is_decoded_and_an_unknown_one_is_refused() {
    let cases = [
        ("\"stop\"", Some(StopReason::EndTurn)),
        ("\"length\"", Some(StopReason::MaxTokens)),
        ("\"content_filter\"", Some(StopReason::Refusal)),
        ("\"tool_calls\"", Some(StopReason::EndTurn)),
        ("\"eos_token\"", Some(StopReason::EndTurn)),
        ("\"stop_sequence\"", Some(StopReason::EndTurn)),
        ("\"sleepy\"", None),
        ("null", None),
    ];
    for (word, stop) in cases {
        let found = reply(r#"{"role":"assistant","content":"x"}"#, word).map(|reply| reply.stop);
        assert_eq!(found.ok(), stop, "{word}");
    }
    let refused = reply(
        r#"{"role":"assistant","content":null,"refusal":"I cannot."}"#,
        "\"stop\"",
    )
    .unwrap();
    assert_eq!(refused.stop, StopReason::Refusal);
    assert!(matches!(&refused.blocks[..], [Block::Text { text, .. }] if **text == *"I cannot."));
}

#[test]
fn failed_sampling_is_a_transient_error() {
    let cases = [
        ("error", ModelErrorKind::CutStream),
        (
            "function_call_filter: MALFORMED_FUNCTION_CALL",
            ModelErrorKind::CutStream,
        ),
        ("insufficient_system_resource", ModelErrorKind::Overloaded),
    ];
    for (word, kind) in cases {
        let nameless = r#"{"role":"assistant","tool_calls":[{"id":"a"}]}"#;
        for message in ["null", r#"{"role":"assistant","content":"x"}"#, nameless] {
            let error = reply(message, &format!("\"{word}\"")).unwrap_err();
            assert_eq!((error.kind, error.is_transient()), (kind, true), "{error}");
            assert!(error.message.contains(word), "{error}");
        }
    }
}

#[test]
fn the_first_block_keeps_the_original_message() {
    let call = r#"{"index":0,"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"n\": 1.10}"}}"#;
    let bare = r#"{"id":"c2","function":{"name":"cd","arguments":{"to":"x"}}}"#;
    let message = format!(
        r#"{{"role":"assistant", "reasoning":"hm","content":"so","tool_calls":[{call},{bare}]}}"#
    );
    let found = reply(&message, "\"stop\"").unwrap();
    let [text, ls, cd] = &found.blocks[..] else {
        panic!("{found:?}")
    };
    assert!(
        matches!(text, Block::Text { text, raw: Some(raw) } if **text == *"so" && *raw.json == *message)
    );
    let Block::ToolUse {
        id,
        name,
        args,
        raw: None,
    } = ls
    else {
        panic!("{ls:?}")
    };
    assert_eq!((&**id, &**name, &**args), ("c1", "ls", "{\"n\": 1.10}"));
    assert!(
        matches!(cd, Block::ToolUse { id, args, .. } if **id == *"c2" && **args == *"{\"to\":\"x\"}")
    );
    assert_eq!(
        found.stop,
        StopReason::ToolUse,
        "tools are asked for, whatever the server calls it"
    );
    let thought = reply(
        r#"{"role":"assistant","content":"","reasoning_content":"hm"}"#,
        "\"length\"",
    )
    .unwrap();
    assert!(
        matches!(&thought.blocks[..], [Block::Opaque(_)]),
        "{thought:?}"
    );
    let silent = r#"{"role":"assistant","content":null,"refusal":null,"annotations":[]}"#;
    assert!(reply(silent, "\"stop\"").unwrap().blocks.is_empty());
}

#[test]
fn a_call_without_an_id_is_sent_back_with_the_id_of_its_answer() {
    for id in ["", r#""id":"","#, r#""id":null,"#] {
        let call =
            format!(r#"{{{id}"type":"function","function":{{"name":"ls","arguments":"{{}}"}}}}"#);
        let found = reply(
            &format!(r#"{{"role":"assistant","content":"so","tool_calls":[{call}]}}"#),
            "\"stop\"",
        )
        .unwrap();
        let [
            Block::Text { raw: Some(raw), .. },
            Block::ToolUse { id, .. },
        ] = &found.blocks[..]
        else {
            panic!("{found:?}")
        };
        let back: Value = serde_json::from_str(&raw.json).unwrap();
        assert_eq!(
            (id.starts_with("call_"), &back["tool_calls"][0]["id"]),
            (true, &Value::from(&**id))
        );
    }
}

#[test]
fn invalid_arguments_reach_the_kernel_and_are_not_sent_back() {
    let call = |args: &str| {
        format!(r#"{{"id":"c","type":"function","function":{{"name":"ls","arguments":{args}}}}}"#)
    };
    let message = |cut: &str| {
        format!(
            r#"{{"role":"assistant","tool_calls":[{},{}],"x":1.50}}"#,
            call(r#""{\"n\":1}""#),
            call(cut)
        )
    };
    let found = reply(&message(r#""{\"n\": ""#), "\"length\"").unwrap();
    let [
        Block::ToolUse { raw: Some(raw), .. },
        Block::ToolUse { args, .. },
    ] = &found.blocks[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!(&**args, "{\"n\": ");
    assert_eq!(&*raw.json, message(r#""{}""#));
    for (sent, known) in [
        ("[]", "[]"),
        ("5", "5"),
        ("\"\"", "{}"),
        ("null", "{}"),
        (r#""[1]""#, "[1]"),
    ] {
        let found = reply(&message(sent), "\"tool_calls\"").unwrap();
        let [
            Block::ToolUse { raw: Some(raw), .. },
            Block::ToolUse { args, .. },
        ] = &found.blocks[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(&**args, known, "{sent}");
        assert_eq!(&*raw.json, message(r#""{}""#), "{sent}");
    }
    let absent = r#"{"tool_calls":[{"id":"c","function":{"name":"ls"}}]}"#;
    let found = reply(absent, "\"tool_calls\"").unwrap();
    let [Block::ToolUse { raw: Some(raw), .. }] = &found.blocks[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        &*raw.json,
        r#"{"tool_calls":[{"id":"c","function":{"name":"ls","arguments":"{}"}}]}"#
    );
}

#[test]
fn a_refusal_is_a_paragraph_of_its_own() {
    let both = r#"{"role":"assistant","content":"Well.","refusal":"No."}"#;
    let found = reply(both, "\"stop\"").unwrap();
    assert!(
        matches!(&found.blocks[..], [Block::Text { text, .. }] if **text == *"Well.\n\nNo."),
        "{found:?}"
    );
}

#[test]
fn cached_and_thinking_tokens_are_counted_once() {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 5}});
    let fields: UsageFields = serde_json::from_value(usage).unwrap();
    let expected = Usage {
        input_tokens: 10,
        output_tokens: 9,
        thinking_tokens: 5,
        cache_read_tokens: 60,
        cache_write_tokens: 30,
        ..Usage::default()
    };
    assert_eq!(Usage::from(fields), expected);
    let separate = json!({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 15,
        "completion_tokens_details": {"reasoning_tokens": 3}});
    assert_eq!(
        Usage::from(serde_json::from_value::<UsageFields>(separate).unwrap()).output_tokens,
        5
    );
}

#[test]
fn an_invalid_reply_is_malformed_and_a_reported_failure_is_classified() {
    let nameless =
        r#"{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"","arguments":""}}]}"#;
    for json in [
        "",
        "<html>",
        "{}",
        r#"{"choices":[]}"#,
        r#"{"choices":[{"finish_reason":"stop"}]}"#,
    ] {
        assert_eq!(
            decode_completion(json).unwrap_err().kind,
            ModelErrorKind::Malformed,
            "{json}"
        );
    }
    assert_eq!(
        reply(nameless, "\"stop\"").unwrap_err().kind,
        ModelErrorKind::Malformed
    );
    let failed = r#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#;
    assert_eq!(
        decode_completion(failed).unwrap_err().kind,
        ModelErrorKind::Overloaded
    );
    let failed = r#"{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":"error","error":{"code":429,"message":"slow"}}]}"#;
    assert_eq!(
        decode_completion(failed).unwrap_err().kind,
        ModelErrorKind::Overloaded
    );
}

#[test]
fn a_call_of_a_tool_that_takes_a_text_is_repaired_without_a_function() {
    let call = r#"{"type":"custom","custom":{"name":"sh","input":"ls"},"function":null}"#;
    let message = format!(r#"{{"role":"assistant","content":null,"tool_calls":[{call}]}}"#);
    let found = reply(&message, "\"tool_calls\"").unwrap();
    let [
        Block::ToolUse {
            id,
            name,
            raw: Some(raw),
            ..
        },
    ] = &found.blocks[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!(&**name, "sh");
    let sent: Value = serde_json::from_str(&raw.json).unwrap();
    assert_eq!(sent["tool_calls"][0]["id"], **id);
}
