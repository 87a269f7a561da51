use dormouse_proto::id::Pid;
use serde_json::{Value, json};

use super::*;

fn request(messages: Vec<Message>) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "d".into(),
        schema: r#"{"type":"object", "properties":{"n":{"type":"integer"}}}"#.into(),
    };
    let parameters = json!({"temperature": 0.5, "stop_sequences": ["END"]});
    Request {
        pid: Pid(1),
        program: "p".into(),
        model: "m".into(),
        system: "be brief".into(),
        tools: [tool("a"), tool("b")].into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        parameters: Arc::new(parameters.as_object().unwrap().clone()),
    }
}

fn encode(request: &Request) -> String {
    encode_request(request, Delivery::Stream, Caching::Automatic).unwrap()
}

fn messages_of(messages: Vec<Message>) -> Value {
    serde_json::from_str::<Value>(&encode(&request(messages))).unwrap()["messages"].take()
}

fn message(role: Role, blocks: Vec<Block>) -> Message {
    Message { role, blocks }
}

fn result(id: &str, is_error: bool) -> Block {
    Block::ToolResult { id: id.into(), text: "r".into(), is_error }
}

fn kept(json: &str, format: &str) -> Raw {
    Raw { format: format.into(), json: json.into() }
}

#[test]
fn the_body_is_the_one_that_the_provider_documents() {
    let expected = concat!(
        r#"{"model":"m","stream":true,"stop_sequences":["END"],"temperature":0.5,"#,
        r#""cache_control":{"type":"ephemeral"},"#,
        r#""tools":[{"name":"a","description":"d","input_schema":{"type":"object", "properties":{"n":{"type":"integer"}}}},"#,
        r#"{"name":"b","description":"d","input_schema":{"type":"object", "properties":{"n":{"type":"integer"}}}}],"#,
        r#""system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_tokens":4096}"#,
    );
    assert_eq!(encode(&request(vec![Message::user("hi")])), expected);
}

#[test]
fn breakpoints_stand_where_they_never_move() {
    let bare = Request { system: "".into(), ..request(vec![]) };
    let body: Value = serde_json::from_str(&encode(&bare)).unwrap();
    assert_eq!(body["tools"][1]["cache_control"]["type"], "ephemeral");
    assert_eq!((body.get("system"), body["tools"][0].get("cache_control")), (None, None));
    let off = encode_request(&request(vec![Message::user("hi")]), Delivery::Whole, Caching::Off).unwrap();
    assert!(!off.contains("cache_control") && off.contains("\"stream\":false"), "{off}");
    let parameters = json!({"cache_control": {"type": "ephemeral", "ttl": "1h"}, "max_tokens": 9});
    let own = Request { parameters: Arc::new(parameters.as_object().unwrap().clone()), ..request(vec![]) };
    let body = encode(&own);
    assert!(body.ends_with(",\"max_tokens\":9}") && body.matches("\"max_tokens\"").count() == 1, "{body}");
    assert_eq!(body.matches("\"cache_control\"").count(), 2, "the program's at the top, ours at the system prompt");
}

#[test]
fn a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() {
    let raw = r#"{"type":"tool_use","id":"t","name":"a","input":{"n": 1.0}}"#;
    let used = Block::ToolUse { id: "t".into(), name: "a".into(), args: "{}".into(), raw: Some(kept(raw, FORMAT)) };
    let conversation = [
        Message::user("go"),
        message(Role::Assistant, vec![Block::text("so"), used]),
        message(Role::User, vec![result("t", false)]),
        Message::user("and"),
        message(Role::Assistant, vec![Block::text("done")]),
        Message::user("more"),
    ];
    let bodies: Vec<_> = (1..=conversation.len()).map(|n| encode(&request(conversation[..n].to_vec()))).collect();
    for pair in bodies.windows(2) {
        let shorter = pair[0].strip_suffix("],\"max_tokens\":4096}").unwrap();
        assert!(pair[1].starts_with(shorter), "{} is no beginning of {}", pair[0], pair[1]);
    }
}

#[test]
fn what_came_from_this_provider_goes_back_verbatim_and_what_did_not_is_built() {
    let json = r#"{"type":"text",  "text":"h\u00e9", "new": 1.50}"#;
    let text = |format| Block::Text { text: "hé".into(), raw: Some(kept(json, format)) };
    let body = encode(&request(vec![message(Role::Assistant, vec![text(FORMAT)])]));
    assert!(body.contains(json), "{body}");
    let used = |args: &str| Block::ToolUse { id: "t".into(), name: "a".into(), args: args.into(), raw: None };
    let cases = [
        (text("other"), json!([{"type": "text", "text": "hé"}])),
        (used(r#"{"n":1}"#), json!([{"type": "tool_use", "id": "t", "name": "a", "input": {"n": 1}}])),
        (used(r#"{"n":"#), json!([{"type": "tool_use", "id": "t", "name": "a", "input": {}}])),
        (used("[1]"), json!([{"type": "tool_use", "id": "t", "name": "a", "input": {}}])),
        (Block::Opaque(kept(r#"{"type":"x"}"#, FORMAT)), json!([{"type": "x"}])),
        (result("t", true), json!([{"type": "tool_result", "tool_use_id": "t", "content": "r", "is_error": true}])),
        (result("t", false), json!([{"type": "tool_result", "tool_use_id": "t", "content": "r"}])),
    ];
    for (block, content) in cases {
        assert_eq!(messages_of(vec![message(Role::Assistant, vec![block])])[0]["content"], content);
    }
}

#[test]
fn answers_stand_together_and_in_front() {
    let kinds = |messages: Vec<Message>| -> Vec<String> {
        let turns = messages_of(messages);
        let kind = |block: &Value| block["tool_use_id"].as_str().or(block["text"].as_str()).unwrap().to_owned();
        let words = |turn: &Value| turn["content"].as_array().unwrap().iter().map(kind).collect::<Vec<_>>().join(" ");
        turns.as_array().unwrap().iter().map(words).collect()
    };
    let answer = |id: &str| message(Role::User, vec![result(id, false)]);
    let cases = [
        (vec![message(Role::User, vec![Block::text("x"), result("1", false), result("2", false)])], vec!["1 2 x"]),
        (vec![answer("1"), answer("2")], vec!["1 2"]),
        (vec![answer("1"), Message::user("x"), answer("2")], vec!["1", "2 x"]),
        (vec![Message::user("x"), Message::user("y")], vec!["x", "y"]),
        (
            vec![Message::user("x"), message(Role::Assistant, vec![Block::text(" ")]), Message::user("y")],
            vec!["x", "y"],
        ),
        (vec![message(Role::Assistant, vec![Block::Opaque(kept("{}", "other"))])], vec![]),
    ];
    for (messages, expected) in cases {
        assert_eq!(kinds(messages), expected);
    }
}

#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let parameters = json!({"stream": true});
    let bad_tool = ToolSpec { name: "broken".into(), description: "".into(), schema: "{".into() };
    let bad_block = message(Role::Assistant, vec![Block::Opaque(kept("{", FORMAT))]);
    let cases = [
        (Request { parameters: Arc::new(parameters.as_object().unwrap().clone()), ..request(vec![]) }, "'stream'"),
        (Request { tools: [bad_tool].into(), ..request(vec![]) }, "'broken'"),
        (request(vec![bad_block]), "kept block"),
    ];
    for (request, part) in cases {
        let error = encode_request(&request, Delivery::Stream, Caching::Automatic).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
        assert!(error.message.contains(part), "{error}");
    }
}
