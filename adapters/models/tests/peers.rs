//! The Messages API against real servers: llama-server with a tiny model, and aimock with prepared failures.
//!
//! `.ci/peers` builds and starts both and runs these tests. By hand, with the servers running:
//!
//! ```text
//! llama-server -m tiny.gguf --port 8082 -c 65536 -np 4 --jinja     (tiny.gguf: tests/peers/tiny_model.py)
//! node aimock/dist/cli.js -p 4010 -f adapters/models/tests/peers/aimock.json --strict
//! DORMOUSE_LLAMA_URL=http://127.0.0.1:8082 DORMOUSE_AIMOCK_URL=http://127.0.0.1:4010 \
//!     cargo test -p dormouse-models --test peers -- --ignored --nocapture
//! ```

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "what the servers answered is part of the result")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_actors::ports::Model;
use dormouse_models::Anthropic;
use dormouse_models::anthropic::{Caching, Delivery, encode_request};
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role, text_of};
use dormouse_proto::model::{Delta, ModelError, ModelErrorKind, Reply, Request, StopReason};
use dormouse_proto::tool::ToolSpec;
use serde_json::{Value, json};

const DELIVERIES: [Delivery; 2] = [Delivery::Stream, Delivery::Whole];

fn model(variable: &str, delivery: Delivery) -> Anthropic {
    let url =
        std::env::var(variable).unwrap_or_else(|_| panic!("{variable} must name a running server: see .ci/peers"));
    let builder = Anthropic::builder().base_url(url).api_key("sk-none").delivery(delivery);
    builder.idle_timeout(Duration::from_secs(60)).build().unwrap()
}

fn request(messages: &[Message]) -> Request {
    let tool = |name: &str, schema: Value| ToolSpec {
        name: name.into(),
        description: "For the test.".into(),
        schema: schema.to_string().into(),
    };
    let fd = json!({"type": "string", "enum": ["fd:1", "fd:2"]});
    let page = json!({"type": "integer", "enum": [1, 2, 3]});
    // The tiny model would open one call after the other until it is cut.
    let parameters = json!({"max_tokens": 2000, "stop_sequences": ["</tool_call>"]});
    let read_fd = json!({"type": "object", "properties": {"fd": fd, "page": page}, "required": ["fd", "page"],
        "additionalProperties": false});
    Request {
        pid: Pid(1),
        program: "peers".into(),
        model: "claude-test".into(),
        system: "You read descriptors.".into(),
        tools: [tool("read_fd", read_fd)].into(),
        messages: messages.iter().cloned().map(Arc::new).collect(),
        parameters: Arc::new(parameters.as_object().unwrap().clone()),
    }
}

async fn ask(model: &Anthropic, messages: &[Message]) -> (Result<Reply, ModelError>, Vec<Delta>) {
    let deltas = Mutex::new(Vec::new());
    let reply = model.call(request(messages), &|delta| deltas.lock().unwrap().push(delta)).await;
    (reply, deltas.into_inner().unwrap())
}

/// The model's turn and the answers to all its tool uses.
fn answered(reply: &Reply, answer: &str) -> [Message; 2] {
    let result = |block: &Block| match block {
        Block::ToolUse { id, .. } => Some(Block::ToolResult { id: id.clone(), text: answer.into(), is_error: false }),
        _ => None,
    };
    let results = reply.blocks.iter().filter_map(result).collect();
    [Message { role: Role::Assistant, blocks: reply.blocks.clone() }, Message { role: Role::User, blocks: results }]
}

fn uses(reply: &Reply) -> Vec<(&str, Value)> {
    let parsed = |block: &'_ Block| match block {
        Block::ToolUse { args, .. } => Some(serde_json::from_str(args).expect("arguments are JSON")),
        _ => None,
    };
    let names = reply.blocks.iter().filter_map(|block| match block {
        Block::ToolUse { name, .. } => Some(&**name),
        _ => None,
    });
    names.zip(reply.blocks.iter().filter_map(parsed)).collect()
}

#[tokio::test]
#[ignore = "needs llama-server: .ci/peers"]
async fn a_real_server_is_led_through_a_tool_loop() {
    for delivery in DELIVERIES {
        let model = model("DORMOUSE_LLAMA_URL", delivery);
        let mut messages = vec![Message::user("Read the descriptor fd:1 to its end.")];
        let mut body = encode_request(&request(&messages), delivery, Caching::Automatic).unwrap();
        let mut cache_read = 0;
        for round in 1..=3 {
            let (reply, deltas) = ask(&model, &messages).await;
            let reply = reply.unwrap();
            assert_eq!(reply.stop, StopReason::ToolUse);
            for (name, args) in uses(&reply) {
                assert_eq!(name, "read_fd");
                assert!(args["fd"].is_string() && args["page"].is_u64(), "{args} must fit the schema");
            }
            let begun = deltas.iter().filter(|delta| matches!(delta, Delta::ToolUse(_))).count();
            assert_eq!(begun, if delivery == Delivery::Stream { uses(&reply).len() } else { 0 });
            eprintln!("llama-server, {delivery:?}, round {round}: {:?}, {:?}", uses(&reply), reply.usage);
            cache_read += reply.usage.cache_read_tokens;
            messages.extend(answered(&reply, "<fd_content fd=\"fd:1\" page=\"1\">text</fd_content>"));
            let longer = encode_request(&request(&messages), delivery, Caching::Automatic).unwrap();
            assert!(longer.starts_with(body.strip_suffix("],\"max_tokens\":2000}").unwrap()), "HIST-1");
            body = longer;
        }
        assert!(cache_read > 0, "the server re-reads its cache when the prefix does not change");
    }
}

#[tokio::test]
#[ignore = "needs llama-server: .ci/peers"]
async fn a_real_server_cuts_a_reply_at_its_limit_and_takes_it_back() {
    for delivery in DELIVERIES {
        let model = model("DORMOUSE_LLAMA_URL", delivery);
        let mut messages = vec![Message::user("Read the descriptors fd:1 and fd:2.")];
        let short = json!({"max_tokens": 150}).as_object().unwrap().clone();
        let cut = Request { parameters: Arc::new(short), ..request(&messages) };
        let reply = model.call(cut, &|_| ()).await.unwrap();
        let args = |block: &Block| if let Block::ToolUse { args, .. } = block { Some(args.to_string()) } else { None };
        let args: Vec<_> = reply.blocks.iter().filter_map(args).collect();
        eprintln!("llama-server, {delivery:?}: {:?} with {args:?}", reply.stop);
        assert_eq!(reply.stop, StopReason::MaxTokens);
        assert!(args.len() > 1, "several calls in one turn");
        messages.extend(answered(&reply, "not run: the reply was cut"));
        assert_eq!(ask(&model, &messages).await.0.unwrap().stop, StopReason::ToolUse);
    }
}

#[tokio::test]
#[ignore = "needs llama-server: .ci/peers"]
async fn a_real_server_says_that_the_conversation_is_too_long() {
    for delivery in DELIVERIES {
        let messages = [Message::user("one two three four ".repeat(30_000))];
        let error = ask(&model("DORMOUSE_LLAMA_URL", delivery), &messages).await.0.unwrap_err();
        eprintln!("llama-server, {delivery:?}: {error}");
        assert_eq!(error.kind, ModelErrorKind::ContextOverflow, "{error}");
    }
}

#[tokio::test]
#[ignore = "needs aimock: .ci/peers"]
async fn parallel_tool_uses_are_answered_together() {
    for delivery in DELIVERIES {
        let model = model("DORMOUSE_AIMOCK_URL", delivery);
        let mut messages = vec![Message::user("list the files")];
        let (reply, deltas) = ask(&model, &messages).await;
        let reply = reply.unwrap();
        let expected = [("ls", json!({"path": "src", "depth": 2})), ("read_fd", json!({"fd": "fd:1", "page": 1}))];
        assert_eq!((uses(&reply), reply.stop), (expected.to_vec(), StopReason::ToolUse));
        assert_eq!(text_of(&reply.blocks), "I will look.");
        let told: String =
            deltas.iter().filter_map(|d| if let Delta::Text(t) = d { Some(t.as_str()) } else { None }).collect();
        assert_eq!(told, if delivery == Delivery::Stream { "I will look." } else { "" });
        messages.extend(answered(&reply, "a.txt b.txt"));
        let reply = ask(&model, &messages).await.0.unwrap();
        eprintln!("aimock, {delivery:?}: {} {:?} {:?}", text_of(&reply.blocks), reply.stop, reply.usage);
        assert_eq!((text_of(&reply.blocks).as_str(), reply.stop), ("There are two files.", StopReason::EndTurn));
    }
}

#[tokio::test]
#[ignore = "needs aimock: .ci/peers"]
async fn thinking_and_its_signature_go_back_verbatim() {
    for delivery in DELIVERIES {
        let model = model("DORMOUSE_AIMOCK_URL", delivery);
        let mut messages = vec![Message::user("think first")];
        let (reply, deltas) = ask(&model, &messages).await;
        let reply = reply.unwrap();
        let [Block::Opaque(raw), Block::Text { .. }] = &reply.blocks[..] else { panic!("{:?}", reply.blocks) };
        let thinking: Value = serde_json::from_str(&raw.json).unwrap();
        assert_eq!((&thinking["thinking"], &thinking["signature"]), (&json!("One, two, three."), &json!("c2lnbmVk")));
        assert_eq!(deltas.iter().any(|delta| matches!(delta, Delta::Thinking(_))), delivery == Delivery::Stream);
        messages.push(Message { role: Role::Assistant, blocks: reply.blocks.clone() });
        messages.push(Message::user("go on thinking"));
        assert!(encode_request(&request(&messages), delivery, Caching::Off).unwrap().contains(&*raw.json));
        assert_eq!(text_of(&ask(&model, &messages).await.0.unwrap().blocks), "Still so.");
    }
}

#[tokio::test]
#[ignore = "needs aimock: .ci/peers"]
async fn failures_come_by_kind() {
    use ModelErrorKind as Kind;
    let cases = [
        ("too often", Kind::Overloaded, Some(Duration::from_secs(7))),
        ("too many", Kind::Overloaded, None),
        ("wrong key", Kind::Authentication, None),
        ("garble", Kind::Malformed, None),
    ];
    for delivery in DELIVERIES {
        for (text, kind, after) in cases {
            let error = ask(&model("DORMOUSE_AIMOCK_URL", delivery), &[Message::user(text)]).await.0.unwrap_err();
            eprintln!("aimock, {delivery:?}, {text}: {error} {:?}", error.retry_after);
            assert_eq!((error.kind, error.retry_after), (kind, after), "{text}: {error}");
        }
    }
    let (reply, deltas) = ask(&model("DORMOUSE_AIMOCK_URL", Delivery::Stream), &[Message::user("cut me off")]).await;
    let error = reply.unwrap_err();
    eprintln!("aimock, cut: {error} after {deltas:?}");
    assert_eq!(error.kind, Kind::CutStream);
    assert!(!deltas.is_empty(), "what came before the cut was told");
}
