use serde_json::json;

use super::super::GenerateContent;
use super::*;
use crate::testing::{self, answered, failed, kept, media, message, streamed, used};
use crate::wire::encode;
use dormouse_proto::program::CacheTtl;

fn contents(said: Vec<Message>) -> Value {
    let body = streamed(&GenerateContent, &testing::request(said, json!({})));
    serde_json::from_str::<Value>(&body).unwrap()["contents"].take()
}

#[test]
fn the_body_matches_the_documentation() {
    let parameters = json!({"max_tokens": 9, "top_p": 0.5, "thinkingConfig": {"includeThoughts": true},
        "generationConfig": {"seed": 7}, "safetySettings": []});
    let request = testing::request(vec![Message::user("hi")], parameters);
    let schema = r#"{"type":"object", "properties":{"n":{"type":"integer"}}}"#;
    let tool =
        |name| format!(r#"{{"name":"{name}","description":"d","parametersJsonSchema":{schema}}}"#);
    let expected = [
        r#"{"safetySettings":[],"systemInstruction":{"parts":[{"text":"be brief"}]},"tools":[{"functionDeclarations":["#,
        &tool("a"),
        ",",
        &tool("b"),
        r#"]}],"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{"seed":7,"#,
        r#""maxOutputTokens":9,"thinkingConfig":{"includeThoughts":true},"topP":0.5}}"#,
    ];
    assert_eq!(streamed(&GenerateContent, &request), expected.concat());
    let bare = Request {
        system: "".into(),
        tools: [].into(),
        parameters: Default::default(),
        ..request.clone()
    };
    assert_eq!(
        streamed(&GenerateContent, &bare),
        r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#
    );
    let count = encode(
        &GenerateContent,
        &request,
        Purpose::Count,
        Some(CacheTtl::FiveMinutes),
    )
    .unwrap();
    let count: Value = serde_json::from_str(&count).unwrap();
    let inner = count["generateContentRequest"].as_object().unwrap();
    let keys: Vec<_> = inner.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "model",
            "safetySettings",
            "systemInstruction",
            "tools",
            "contents"
        ]
    );
    assert_eq!(inner["model"], "models/m");
}

#[test]
fn a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() {
    let thought = r#"{"text":"hm",  "thought":true}"#;
    let call = r#"{"functionCall":{"name":"a","args":{"n": 1.0}},"thoughtSignature":"s=="}"#;
    let used = Block::ToolUse {
        id: "t".into(),
        name: "a".into(),
        args: "{}".into(),
        raw: Some(kept(call, FORMAT)),
    };
    let reply = vec![Block::Opaque(kept(thought, FORMAT)), used];
    let bodies = testing::bodies_of_a_growing_conversation(&GenerateContent, reply);
    testing::check_prefixes(
        &bodies,
        r#"],"generationConfig":{"maxOutputTokens":90,"temperature":0.5}}"#,
    );
    assert!(
        bodies[1].contains(&format!("{thought},{call}")),
        "parts go back as they came, in their order"
    );
}

#[test]
fn answers_name_their_function_and_media_come_last() {
    let ours = names::generated_call_id("r", 0);
    let asked = message(
        Role::Assistant,
        vec![used(&ours, "look", "{}"), used("c2", "read", "{}")],
    );
    let said = vec![
        answered(&ours, "r"),
        media(1, Some(&ours)),
        failed("c2", "no"),
        media(5, Some("c2")),
        Block::text("x"),
    ];
    let skipped = "skip_thought_signature_validator";
    let expected = json!([
        {"role": "model", "parts": [
            {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": skipped},
            {"functionCall": {"id": "c2", "name": "read", "args": {}}, "thoughtSignature": skipped},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "look", "response": {"output": "r"}}},
            {"functionResponse": {"id": "c2", "name": "read", "response": {"error": "no"}}},
            {"text": "fd:1 (image/png):"},
            {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
            {"text": "x"},
        ]},
    ]);
    assert_eq!(contents(vec![asked, message(Role::User, said)]), expected);
}

#[test]
fn a_reply_of_another_provider_is_encoded_and_an_empty_one_is_left_out() {
    let theirs = Block::Text {
        text: "hé".into(),
        raw: Some(kept(r#"{"type":"text"}"#, "anthropic")),
    };
    let cases = [
        (
            vec![theirs],
            json!([{"role": "model", "parts": [{"text": "hé"}]}]),
        ),
        (vec![Block::Opaque(kept("{}", "other"))], json!([])),
        (vec![Block::text(" ")], json!([])),
    ];
    for (blocks, expected) in cases {
        assert_eq!(contents(vec![message(Role::Assistant, blocks)]), expected);
    }
}
