use dormouse_proto::message::Message;
use dormouse_proto::program::CacheTtl;
use serde_json::{Value, json};

use super::super::{Completions, Dialect};
use super::*;
use crate::testing::{self, answered, failed, kept, media, message, streamed, used};
use crate::wire::{Codec, encode};

const COMPATIBLE: Completions = Completions {
    dialect: Dialect::Compatible,
};

fn messages(said: Vec<Message>) -> Value {
    let body = streamed(&COMPATIBLE, &testing::request(said, json!({})));
    let mut messages = serde_json::from_str::<Value>(&body).unwrap()["messages"].take();
    assert_eq!(
        messages.as_array_mut().unwrap().remove(0),
        json!({"role": "system", "content": "be brief"})
    );
    messages
}

#[test]
fn the_body_matches_the_documentation() {
    let parameters = json!({"max_tokens": 9, "temperature": 0.5, "stop": ["END"]});
    let request = testing::request(vec![Message::user("hi")], parameters);
    let schema = r#"{"type":"object", "properties":{"n":{"type":"integer"}}}"#;
    let tool = |name| {
        format!(
            r#"{{"type":"function","function":{{"name":"{name}","description":"d","parameters":{schema}}}}}"#
        )
    };
    let expected = [
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"stop":["END"],"temperature":0.5,"tools":["#,
        &tool("a"),
        ",",
        &tool("b"),
        r#"],"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hi"}],"max_tokens":9}"#,
    ];
    assert_eq!(streamed(&COMPATIBLE, &request), expected.concat());
    let theirs = streamed(&Completions::default().for_host("api.openai.com"), &request);
    assert!(
        theirs.ends_with(r#"],"max_completion_tokens":9}"#),
        "{theirs}"
    );
    assert_eq!(
        Completions::default()
            .for_host("api.openai.com.example")
            .dialect,
        Dialect::Compatible
    );
    let whole = encode(
        &COMPATIBLE,
        &request,
        Purpose::Reply(Delivery::Whole),
        Some(CacheTtl::FiveMinutes),
    )
    .unwrap();
    assert!(
        whole.contains(r#""stream":false"#) && !whole.contains("stream_options"),
        "{whole}"
    );
}

#[test]
fn a_limit_by_the_name_of_the_format_is_sent_as_written_and_alone() {
    let own = r#"],"max_completion_tokens":7}"#;
    let cases = [
        (json!({"max_completion_tokens": 7}), "example", own),
        (json!({"max_completion_tokens": 7}), "api.openai.com", own),
        (
            json!({"max_completion_tokens": 7, "max_tokens": 9}),
            "example",
            own,
        ),
        (json!({"max_tokens": 7}), "example", r#"],"max_tokens":7}"#),
        (json!({"max_tokens": 7}), "n.openai.azure.com", own),
        (json!({}), "api.openai.com", "}]}"),
    ];
    for (parameters, host, end) in cases {
        let request = testing::request(vec![Message::user("hi")], parameters.clone());
        let body = streamed(&Completions::default().for_host(host), &request);
        assert!(body.ends_with(end), "{parameters} at {host}: {body}");
        assert!(body.matches("_tokens\":").count() <= 1, "{body}");
    }
}

#[test]
fn a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() {
    let raw = r#"{"role":"assistant",  "content":"so","reasoning":"hm","tool_calls":[{"id":"t","type":"function","function":{"name":"a","arguments":"{\"n\": 1.0}"}}]}"#;
    let reply = vec![
        Block::Text {
            text: "so".into(),
            raw: Some(kept(raw, FORMAT)),
        },
        used("t", "a", "{\"n\": 1.0}"),
    ];
    let bodies = testing::bodies_of_a_growing_conversation(&COMPATIBLE, reply);
    testing::check_prefixes(&bodies, "],\"max_tokens\":90}");
    assert_eq!(
        bodies[1].matches(raw).count(),
        1,
        "the message goes back as it came, once"
    );
    assert_eq!(bodies[1].matches("\"role\":\"assistant\"").count(), 1);
}

#[test]
fn answers_are_messages_and_media_come_last() {
    let said = vec![
        answered("1", "r"),
        media(1, Some("1")),
        failed("2", "no"),
        media(2, Some("2")),
        media(4, Some("2")),
        media(5, Some("2")),
        Block::text("[msg:3]"),
    ];
    let expected = json!([
        {"role": "tool", "tool_call_id": "1", "content": "r"},
        {"role": "tool", "tool_call_id": "2", "content": "Error: no"},
        {"role": "user", "content": [
            {"type": "text", "text": "fd:1 (image/png):"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
            {"type": "text", "text": "fd:2 (application/pdf):"},
            {"type": "file", "file": {"filename": "fd-2.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
            {"type": "text", "text": "[msg:3]"},
        ]},
    ]);
    assert_eq!(messages(vec![message(Role::User, said)]), expected);
    let both = message(Role::User, vec![answered("1", "r"), Block::text("x")]);
    let expected = json!([{"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "user", "content": "x"}]);
    assert_eq!(messages(vec![both]), expected);
}

#[test]
fn a_reply_of_another_provider_is_encoded_and_an_empty_one_is_left_out() {
    let theirs = Block::Text {
        text: "hé".into(),
        raw: Some(kept(r#"{"type":"text"}"#, "anthropic")),
    };
    let call =
        json!({"id": "1", "type": "function", "function": {"name": "a", "arguments": "{\"n\":1}"}});
    let cut = json!({"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}});
    let cases = [
        (
            vec![theirs.clone()],
            json!([{"role": "assistant", "content": "hé"}]),
        ),
        (
            vec![theirs, used("1", "a", "{\"n\":1}")],
            json!([{"role": "assistant", "content": "hé", "tool_calls": [call]}]),
        ),
        (
            vec![used("1", "a", "{\"n\":")],
            json!([{"role": "assistant", "content": null, "tool_calls": [cut]}]),
        ),
        (vec![Block::Opaque(kept("{}", "other"))], json!([])),
        (vec![Block::text(" ")], json!([])),
    ];
    for (blocks, expected) in cases {
        assert_eq!(messages(vec![message(Role::Assistant, blocks)]), expected);
    }
}
