use dormouse_proto::message::Message;
use dormouse_proto::model::ModelErrorKind;
use dormouse_proto::program::CacheTtl;
use serde_json::{Value, json};

use super::super::Responses;
use super::*;
use crate::testing::{self, answered, failed, kept, media, message, streamed, used};
use crate::wire::encode;

fn input(said: Vec<Message>) -> Value {
    let body = streamed(&Responses, &testing::request(said, json!({})));
    serde_json::from_str::<Value>(&body).unwrap()["input"].take()
}

#[test]
fn the_body_matches_the_documentation() {
    let parameters = json!({"max_tokens": 90, "temperature": 0.5, "prompt_cache_key": "k"});
    let request = testing::request(vec![Message::user("hi")], parameters);
    let schema = r#"{"type":"object", "properties":{"n":{"type":"integer"}}}"#;
    let tool = |name| {
        format!(
            r#"{{"type":"function","name":"{name}","description":"d","parameters":{schema},"strict":false}}"#
        )
    };
    let expected = [
        r#"{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","#,
        r#""temperature":0.5,"instructions":"be brief","tools":["#,
        &tool("a"),
        ",",
        &tool("b"),
        r#"],"input":[{"role":"user","content":"hi"}],"max_output_tokens":90}"#,
    ];
    assert_eq!(streamed(&Responses, &request), expected.concat());
    let without = Request {
        model: "gpt-4.1-mini".into(),
        ..request.clone()
    };
    assert!(!streamed(&Responses, &without).contains("include"));
    let count = encode(
        &Responses,
        &request,
        Purpose::Count,
        Some(CacheTtl::FiveMinutes),
    )
    .unwrap();
    let count: Value = serde_json::from_str(&count).unwrap();
    let keys: Vec<_> = count
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys, ["model", "instructions", "tools", "input"]);
}

#[test]
fn a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() {
    let reasoning = r#"{"id":"r", "type":"reasoning","summary":[],"encrypted_content":"x=="}"#;
    let call = r#"{"type":"function_call","id":"f","call_id":"t","name":"a","arguments":"{\"n\": 1.0}","status":"completed"}"#;
    let used = Block::ToolUse {
        id: "t".into(),
        name: "a".into(),
        args: "{}".into(),
        raw: Some(kept(call, FORMAT)),
    };
    let reply = vec![Block::Opaque(kept(reasoning, FORMAT)), used];
    let bodies = testing::bodies_of_a_growing_conversation(&Responses, reply);
    testing::check_prefixes(&bodies, "],\"max_output_tokens\":90}");
    assert!(
        bodies[1].contains(&format!("{reasoning},{call}")),
        "items go back as they came, in their order"
    );
}

#[test]
fn media_are_inside_their_answer() {
    let said = vec![
        answered("1", "r"),
        media(1, Some("1")),
        media(2, Some("1")),
        media(4, Some("1")),
        failed("2", "no"),
        media(1, None),
        Block::text("x"),
    ];
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,cG5n"});
    let expected = json!([
        {"type": "function_call_output", "call_id": "1", "output": [
            {"type": "input_text", "text": "r"},
            image,
            {"type": "input_file", "filename": "fd-2.pdf", "file_data": "data:application/pdf;base64,cGRm"},
        ]},
        {"type": "function_call_output", "call_id": "2", "output": "Error: no"},
        {"role": "user", "content": [{"type": "input_text", "text": "x"}, image]},
    ]);
    assert_eq!(input(vec![message(Role::User, said)]), expected);
}

#[test]
fn a_reply_of_another_provider_is_encoded_and_an_empty_one_is_left_out() {
    let theirs = Block::Text {
        text: "hé".into(),
        raw: Some(kept(r#"{"type":"text"}"#, "anthropic")),
    };
    let call =
        json!({"type": "function_call", "call_id": "1", "name": "a", "arguments": "{\"n\":1}"});
    let cases = [
        (
            vec![theirs, used("1", "a", "{\"n\":1}")],
            json!([{"role": "assistant", "content": "hé"}, call]),
        ),
        (vec![Block::Opaque(kept("{}", "other"))], json!([])),
        (vec![Block::text(" ")], json!([])),
    ];
    for (blocks, expected) in cases {
        assert_eq!(input(vec![message(Role::Assistant, blocks)]), expected);
    }
}

#[test]
fn a_program_cannot_request_that_the_provider_stores_the_conversation() {
    for name in [
        "store",
        "previous_response_id",
        "conversation",
        "background",
    ] {
        let request = testing::request(vec![Message::user("hi")], json!({name: true}));
        let error = encode(&Responses, &request, Purpose::Count, None).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
        assert!(error.message.contains(name), "{error}");
    }
}

#[test]
fn reasoning_at_the_end_is_left_out() {
    let reasoning = Block::Opaque(kept(r#"{"type":"reasoning","summary":[]}"#, FORMAT));
    let call = kept(
        r#"{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}"#,
        FORMAT,
    );
    let call = Block::ToolUse {
        id: "c".into(),
        name: "ls".into(),
        args: "{}".into(),
        raw: Some(call),
    };
    assert_eq!(
        input(vec![message(Role::Assistant, vec![reasoning.clone()])]),
        json!([])
    );
    let sent = input(vec![message(
        Role::Assistant,
        vec![reasoning.clone(), call, reasoning],
    )]);
    let kinds: Vec<_> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["reasoning", "function_call"]);
}

#[test]
fn models_that_do_not_reason_are_not_asked_for_it() {
    for (model, expected) in [
        ("gpt-5", true),
        ("o4-mini", true),
        ("openai/gpt-5.1", true),
        ("gpt-5-chat-latest", false),
        ("gpt-4.1", false),
        ("ft:gpt-4.1-mini:me", false),
        ("openai/gpt-4o", false),
    ] {
        let request = Request {
            model: model.into(),
            ..testing::request(vec![Message::user("hi")], json!({}))
        };
        let body = testing::streamed(&Responses, &request);
        assert_eq!(body.contains("encrypted_content"), expected, "{model}");
    }
}

#[test]
fn the_token_limit_is_at_least_the_minimum_of_the_provider() {
    for (asked, sent) in [(9, 16), (16, 16), (17, 17)] {
        let request = testing::request(vec![Message::user("hi")], json!({"max_tokens": asked}));
        assert!(
            testing::streamed(&Responses, &request)
                .ends_with(&format!("\"max_output_tokens\":{sent}}}"))
        );
    }
}
