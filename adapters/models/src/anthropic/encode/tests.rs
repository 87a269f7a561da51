use std::sync::Arc;

use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::message::{Message, Raw};
use dormouse_proto::model::ModelErrorKind;
use dormouse_proto::program::CacheTtl;
use serde_json::{Value, json};

use super::super::Messages;
use super::*;

fn encode_request(
    request: &Request,
    delivery: Delivery,
    cache_ttl: Option<CacheTtl>,
) -> Result<String, ModelError> {
    crate::wire::encode(&Messages, request, Purpose::Reply(delivery), cache_ttl)
}

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
        forked_at: Vec::new(),
        provider_tools: Default::default(),
        media: Default::default(),
    }
}

fn encode(request: &Request) -> String {
    encode_request(request, Delivery::Stream, Some(CacheTtl::FiveMinutes)).unwrap()
}

fn messages_of(messages: Vec<Message>) -> Value {
    serde_json::from_str::<Value>(&encode(&request(messages))).unwrap()["messages"].take()
}

fn message(role: Role, blocks: Vec<Block>) -> Message {
    Message { role, blocks }
}

fn result(id: &str, is_error: bool) -> Block {
    Block::ToolResult {
        id: id.into(),
        text: "r".into(),
        is_error,
    }
}

fn kept(json: &str, format: &str) -> Raw {
    Raw::new(format, json)
}

#[test]
fn the_body_matches_the_documentation_of_the_provider() {
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
fn breakpoints_never_move() {
    let bare = Request {
        system: "".into(),
        ..request(vec![])
    };
    let body: Value = serde_json::from_str(&encode(&bare)).unwrap();
    assert_eq!(body["tools"][1]["cache_control"]["type"], "ephemeral");
    assert_eq!(
        (body.get("system"), body["tools"][0].get("cache_control")),
        (None, None)
    );
    let off = encode_request(&request(vec![Message::user("hi")]), Delivery::Whole, None).unwrap();
    assert!(
        !off.contains("cache_control") && off.contains("\"stream\":false"),
        "{off}"
    );
    let parameters = json!({"cache_control": {"type": "ephemeral", "ttl": "1h"}, "max_tokens": 9});
    let own = Request {
        parameters: Arc::new(parameters.as_object().unwrap().clone()),
        ..request(vec![])
    };
    let body = encode(&own);
    assert!(
        body.ends_with(",\"max_tokens\":9}") && body.matches("\"max_tokens\"").count() == 1,
        "{body}"
    );
    let hour = r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#;
    assert_eq!(
        (
            body.matches("\"cache_control\"").count(),
            body.matches(hour).count()
        ),
        (2, 2),
        "the program's at the top, ours at the system prompt: {body}"
    );
}

/// The provider refuses a breakpoint of an hour behind one of five minutes.
#[test]
fn every_breakpoint_of_a_request_is_kept_equally_long() {
    let messages = vec![
        Message::user("go"),
        message(Role::Assistant, vec![Block::text("so")]),
        Message::user("child 1"),
        message(Role::Assistant, vec![Block::text("done")]),
        Message::user("grandchild 1"),
    ];
    let forked = Request {
        forked_at: vec![2, 4],
        ..request(messages)
    };
    for (cache_ttl, expected) in [
        (
            Some(CacheTtl::FiveMinutes),
            r#""cache_control":{"type":"ephemeral"}"#,
        ),
        (
            Some(CacheTtl::OneHour),
            r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        ),
    ] {
        let body = encode_request(&forked, Delivery::Stream, cache_ttl).unwrap();
        let count = body.matches("\"cache_control\"").count();
        assert_eq!((count, body.matches(expected).count()), (4, 4), "{body}");
    }
}

#[test]
fn a_longer_conversation_starts_with_the_bytes_of_the_shorter_one() {
    let raw = r#"{"type":"tool_use","id":"t","name":"a","input":{"n": 1.0}}"#;
    let used = Block::ToolUse {
        id: "t".into(),
        name: "a".into(),
        args: "{}".into(),
        raw: Some(kept(raw, FORMAT)),
    };
    let conversation = [
        Message::user("go"),
        message(Role::Assistant, vec![Block::text("so"), used]),
        message(Role::User, vec![result("t", false)]),
        Message::user("and"),
        message(Role::Assistant, vec![Block::text("done")]),
        Message::user("more"),
    ];
    let bodies: Vec<_> = (1..=conversation.len())
        .map(|n| encode(&request(conversation[..n].to_vec())))
        .collect();
    for pair in bodies.windows(2) {
        let shorter = pair[0].strip_suffix("],\"max_tokens\":4096}").unwrap();
        assert!(
            pair[1].starts_with(shorter),
            "{} is no beginning of {}",
            pair[0],
            pair[1]
        );
    }
}

#[test]
fn blocks_of_this_provider_are_sent_verbatim_and_others_are_encoded() {
    let json = r#"{"type":"text",  "text":"h\u00e9", "new": 1.50}"#;
    let text = |format| Block::Text {
        text: "hé".into(),
        raw: Some(kept(json, format)),
    };
    let body = encode(&request(vec![message(Role::Assistant, vec![text(FORMAT)])]));
    assert!(body.contains(json), "{body}");
    let used = |args: &str| Block::ToolUse {
        id: "t".into(),
        name: "a".into(),
        args: args.into(),
        raw: None,
    };
    let cases = [
        (text("other"), json!([{"type": "text", "text": "hé"}])),
        (
            used(r#"{"n":1}"#),
            json!([{"type": "tool_use", "id": "t", "name": "a", "input": {"n": 1}}]),
        ),
        (
            used(r#"{"n":"#),
            json!([{"type": "tool_use", "id": "t", "name": "a", "input": {}}]),
        ),
        (
            used("[1]"),
            json!([{"type": "tool_use", "id": "t", "name": "a", "input": {}}]),
        ),
        (
            Block::Opaque(kept(r#"{"type":"x"}"#, FORMAT)),
            json!([{"type": "x"}]),
        ),
        (
            result("t", true),
            json!([{"type": "tool_result", "tool_use_id": "t", "content": "r", "is_error": true}]),
        ),
        (
            result("t", false),
            json!([{"type": "tool_result", "tool_use_id": "t", "content": "r"}]),
        ),
    ];
    for (block, content) in cases {
        assert_eq!(
            messages_of(vec![message(Role::Assistant, vec![block])])[0]["content"],
            content
        );
    }
}

#[test]
fn answers_come_first_in_one_message() {
    let kinds = |messages: Vec<Message>| -> Vec<String> {
        let turns = messages_of(messages);
        let kind = |block: &Value| {
            block["tool_use_id"]
                .as_str()
                .or(block["text"].as_str())
                .unwrap()
                .to_owned()
        };
        let words = |turn: &Value| {
            turn["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(kind)
                .collect::<Vec<_>>()
                .join(" ")
        };
        turns.as_array().unwrap().iter().map(words).collect()
    };
    let answer = |id: &str| message(Role::User, vec![result(id, false)]);
    let cases = [
        (
            vec![message(
                Role::User,
                vec![Block::text("x"), result("1", false), result("2", false)],
            )],
            vec!["1 2 x"],
        ),
        (vec![answer("1"), Message::user("x")], vec!["1", "x"]),
        (vec![Message::user("x"), Message::user("y")], vec!["x", "y"]),
        (
            vec![
                Message::user("x"),
                message(Role::Assistant, vec![Block::text(" ")]),
                Message::user("y"),
            ],
            vec!["x", "y"],
        ),
        (
            vec![message(
                Role::Assistant,
                vec![Block::Opaque(kept("{}", "other"))],
            )],
            vec![],
        ),
    ];
    for (messages, expected) in cases {
        assert_eq!(kinds(messages), expected);
    }
}

#[test]
fn the_first_own_block_of_a_fork_is_a_breakpoint_and_stays_one() {
    let fork = r#"{"type":"tool_use","id":"1","name":"fork","input":{}}"#;
    let used = |id: &str| Block::ToolUse {
        id: id.into(),
        name: "a".into(),
        args: "{}".into(),
        raw: Some(kept(fork, FORMAT)),
    };
    let conversation = vec![
        Message::user("go"),
        message(Role::Assistant, vec![used("1"), used("2")]),
        message(Role::User, vec![result("1", false), result("2", false)]),
        message(Role::Assistant, vec![Block::text("done")]),
        Message::user("more"),
    ];
    let parents = encode(&request(conversation[..1].to_vec()));
    let child = |n: usize| {
        encode(&Request {
            forked_at: vec![2],
            ..request(conversation[..n].to_vec())
        })
    };
    let (first, second) = (child(3), child(5));
    let shared = |body: &str| {
        body.strip_suffix("],\"max_tokens\":4096}")
            .unwrap()
            .to_owned()
    };
    assert!(first.starts_with(&shared(&parents)), "FORK-2");
    assert!(second.starts_with(&shared(&first)), "HIST-1");
    let body: Value = serde_json::from_str(&second).unwrap();
    assert_eq!(
        body["messages"][2]["content"][0]["cache_control"],
        json!({"type": "ephemeral"})
    );
    assert_eq!(
        second.matches("\"cache_control\"").count(),
        3,
        "of the four that are allowed"
    );
    let more = vec![
        message(Role::Assistant, vec![Block::text("and done")]),
        Message::user("and more"),
    ];
    let longer = [conversation.clone(), more].concat();
    let of = |forked_at: &[usize]| {
        encode(&Request {
            forked_at: forked_at.to_vec(),
            ..request(longer.clone())
        })
    };
    let (grandchild, its_child) = (of(&[2, 4]), of(&[2, 4, 6]));
    assert!(grandchild.starts_with(&shared(&child(4))), "FORK-2");
    assert_eq!(grandchild, its_child, "no more than four are taken");
    assert_eq!(grandchild.matches("\"cache_control\"").count(), 4);
    let off = Request {
        forked_at: vec![2],
        ..request(conversation)
    };
    assert!(
        !encode_request(&off, Delivery::Stream, None)
            .unwrap()
            .contains("cache_control")
    );
}

#[test]
fn media_are_inside_their_answer_and_unsupported_media_are_left_out() {
    let media = |fd: u32, kind: &str, answers: Option<&str>| Block::Media {
        answers: answers.map(Into::into),
        media: Media {
            fd: FdId::Fd(fd),
            media_type: kind.into(),
            side_px: 0,
        },
    };
    let blocks = vec![
        result("1", false),
        media(1, "image/png", Some("1")),
        result("2", false),
        media(2, "application/pdf", Some("2")),
        media(3, "text/plain", Some("2")),
        media(4, "audio/wav", Some("2")),
        result("3", true),
        media(1, "image/png", Some("3")),
        media(1, "image/png", None),
        Block::text("look"),
    ];
    let bytes = [(1, "png"), (2, "pdf"), (3, "text"), (4, "wav")];
    let media = bytes.map(|(fd, bytes)| (FdId::Fd(fd), Bytes::from_static(bytes.as_bytes())));
    let request = Request {
        media: media.into(),
        ..request(vec![message(Role::User, blocks)])
    };
    let body: Value = serde_json::from_str(&encode(&request)).unwrap();
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}});
    let expected = json!([
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}, image]},
        {"type": "tool_result", "tool_use_id": "2", "content": [
            {"type": "text", "text": "r"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"}},
        ]},
        {"type": "tool_result", "tool_use_id": "3", "content": "r", "is_error": true},
        image,
        {"type": "text", "text": "look"},
    ]);
    assert_eq!(body["messages"][0]["content"], expected);
}

#[test]
fn a_count_request_has_only_the_fields_that_affect_it() {
    let parameters = json!({"temperature": 0.5, "max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 5}});
    let request = Request {
        parameters: Arc::new(parameters.as_object().unwrap().clone()),
        ..request(vec![Message::user("hi")])
    };
    let body = crate::wire::encode(
        &Messages,
        &request,
        Purpose::Count,
        Some(CacheTtl::FiveMinutes),
    )
    .unwrap();
    let body: Value = serde_json::from_str(&body).unwrap();
    let keys: Vec<_> = body
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys, ["model", "thinking", "tools", "system", "messages"]);
}

#[test]
fn an_invalid_request_is_refused_with_the_name_of_the_cause() {
    let parameters = json!({"stream": true});
    let bad_tool = ToolSpec {
        name: "broken".into(),
        description: "".into(),
        schema: "{".into(),
    };
    let bad_block = message(Role::Assistant, vec![Block::Opaque(kept("{", FORMAT))]);
    let cases = [
        (
            Request {
                parameters: Arc::new(parameters.as_object().unwrap().clone()),
                ..request(vec![])
            },
            "'stream'",
        ),
        (
            Request {
                tools: [bad_tool].into(),
                ..request(vec![])
            },
            "'broken'",
        ),
        (request(vec![bad_block]), "kept block"),
    ];
    for (request, part) in cases {
        let error =
            encode_request(&request, Delivery::Stream, Some(CacheTtl::FiveMinutes)).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn a_reply_truncated_while_thinking_is_sent_without_the_last_thinking_block() {
    let thought = |json: &str| Block::Opaque(kept(json, FORMAT));
    let (first, second) = (
        r#"{"type":"thinking","thinking":"hm"}"#,
        r#"{"type":"redacted_thinking","data":"x"}"#,
    );
    let other = r#"{"type":"server_tool_use","id":"s"}"#;
    let cases = [
        (
            vec![thought(first), Block::text("so"), thought(second)],
            json!([
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "so"},
            ]),
        ),
        (
            vec![thought(first), thought(other)],
            json!([
                {"type": "thinking", "thinking": "hm"},
                {"type": "server_tool_use", "id": "s"},
            ]),
        ),
        (
            vec![thought(first), thought(second), Block::text(" ")],
            json!(null),
        ),
    ];
    for (blocks, expected) in cases {
        let said = vec![message(Role::Assistant, blocks), Message::user("go on")];
        let body: Value = serde_json::from_str(&encode(&request(said))).unwrap();
        let sent = body["messages"].as_array().unwrap();
        let replied = sent
            .iter()
            .find(|message| message["role"] == "assistant")
            .map(|message| &message["content"]);
        assert_eq!(replied.unwrap_or(&Value::Null), &expected);
        assert_eq!(sent.last().unwrap()["role"], "user");
    }
}

#[test]
fn calls_of_other_providers_and_their_answers_get_accepted_ids() {
    let call = |id: &str| Block::ToolUse {
        id: id.into(),
        name: "ls".into(),
        args: "{}".into(),
        raw: None,
    };
    let said = vec![
        message(Role::Assistant, vec![call("functions.ls:0")]),
        message(Role::User, vec![result("functions.ls:0", true)]),
    ];
    let body: Value = serde_json::from_str(&encode(&request(said))).unwrap();
    let ids = [
        &body["messages"][0]["content"][0]["id"],
        &body["messages"][1]["content"][0]["tool_use_id"],
    ];
    assert_eq!(ids[0], ids[1]);
    assert!(
        ids[0]
            .as_str()
            .unwrap()
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_'),
        "{ids:?}"
    );
}
