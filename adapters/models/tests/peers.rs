//! Every format against real servers: llama-server with a tiny model, LiteLLM in front of it, and
//! aimock with prepared failures.
//!
//! `.ci/peers` builds and starts them and runs these tests. By hand, with the servers running:
//!
//! ```text
//! llama-server -m tiny.gguf --port 8082 -c 65536 -np 4 --jinja     (tiny.gguf: tests/peers/tiny_model.py)
//! node aimock/dist/cli.js -p 4010 -f adapters/models/tests/peers/aimock.json --strict
//! DORMOUSE_LLAMA_URL=http://127.0.0.1:8082 DORMOUSE_AIMOCK_URL=http://127.0.0.1:4010 \
//!     cargo test -p dormouse-models --test peers -- --ignored --nocapture
//! ```

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stderr,
    reason = "what the servers answered is part of the result"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_actors::ports::Model;
use dormouse_models::anthropic::Messages;
use dormouse_models::chat::Completions;
use dormouse_models::gemini::GenerateContent;
use dormouse_models::responses::Responses;
use dormouse_models::wire::{Client, Codec, Delivery, Purpose};
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role, text_of};
use dormouse_proto::model::{
    Delta, ModelError, ModelErrorKind, Reply, Request, StopReason, TokenCount,
};
use dormouse_proto::tool::ToolSpec;
use serde_json::{Value, json};

const DELIVERIES: [Delivery; 2] = [Delivery::Stream, Delivery::Whole];

fn model<C: Codec>(variable: &str, delivery: Delivery) -> Client<C> {
    let url = std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} must name a running server: see .ci/peers"));
    let builder = Client::builder()
        .base_url(url)
        .api_key("sk-none")
        .delivery(delivery);
    // A machine that does other things too needs minutes for a whole reply of 2,000 tokens.
    builder
        .idle_timeout(Duration::from_secs(600))
        .build()
        .unwrap()
}

/// The tiny model would open one call after the other until it is cut. Each format has its own word
/// for where to stop, or none.
fn bounds<C: Codec>() -> Value {
    match C::FORMAT {
        "anthropic" => json!({"max_tokens": 2000, "stop_sequences": ["</tool_call>"]}),
        "openai-chat" => json!({"max_tokens": 2000, "stop": ["</tool_call>"]}),
        _ => json!({"max_tokens": 120}),
    }
}

fn request<C: Codec>(messages: &[Message]) -> Request {
    let tool = |name: &str, schema: Value| ToolSpec {
        name: name.into(),
        description: "For the test.".into(),
        schema: schema.to_string().into(),
    };
    let fd = json!({"type": "string", "enum": ["fd:1", "fd:2"]});
    let page = json!({"type": "integer", "enum": [1, 2, 3]});
    let parameters = bounds::<C>();
    let read_fd = json!({"type": "object", "properties": {"fd": fd, "page": page}, "required": ["fd", "page"],
        "additionalProperties": false});
    Request {
        pid: Pid(1),
        program: "peers".into(),
        model: "tiny".into(),
        system: "You read descriptors.".into(),
        tools: [tool("read_fd", read_fd)].into(),
        messages: messages.iter().cloned().map(Arc::new).collect(),
        parameters: Arc::new(parameters.as_object().unwrap().clone()),
        forked_at: Vec::new(),
        provider_tools: Default::default(),
        media: Default::default(),
    }
}

async fn ask<C: Codec>(
    model: &Client<C>,
    messages: &[Message],
) -> (Result<Reply, ModelError>, Vec<Delta>) {
    let deltas = Mutex::new(Vec::new());
    let reply = model
        .call(request::<C>(messages), &|delta| {
            deltas.lock().unwrap().push(delta)
        })
        .await;
    (reply, deltas.into_inner().unwrap())
}

/// The model's turn and the answers to all its tool uses.
fn answered(reply: &Reply, answer: &str) -> [Message; 2] {
    let result = |block: &Block| match block {
        Block::ToolUse { id, .. } => Some(Block::ToolResult {
            id: id.clone(),
            text: answer.into(),
            is_error: false,
        }),
        _ => None,
    };
    let results = reply.blocks.iter().filter_map(result).collect();
    [
        Message {
            role: Role::Assistant,
            blocks: reply.blocks.clone(),
        },
        Message {
            role: Role::User,
            blocks: results,
        },
    ]
}

/// What a reply asks for. Arguments that were cut are null.
fn uses(reply: &Reply) -> Vec<(&str, Value)> {
    let parsed = |block: &'_ Block| match block {
        Block::ToolUse { args, .. } => Some(serde_json::from_str(args).unwrap_or_default()),
        _ => None,
    };
    let names = reply.blocks.iter().filter_map(|block| match block {
        Block::ToolUse { name, .. } => Some(&**name),
        _ => None,
    });
    names.zip(reply.blocks.iter().filter_map(parsed)).collect()
}

/// What a server sends for this conversation.
fn sent<C: Codec>(model: &Client<C>, messages: &[Message], delivery: Delivery) -> String {
    model
        .encode(&request::<C>(messages), Purpose::Reply(delivery))
        .unwrap()
        .into_text()
}

/// Three rounds of tools; how many tokens were read from the server's cache.
async fn tool_loop<C: Codec>(variable: &str, delivery: Delivery) -> u64 {
    let model = model::<C>(variable, delivery);
    let mut messages = vec![Message::user("Read the descriptor fd:1 to its end.")];
    let mut cache_read = 0;
    for round in 1..=3 {
        let body = sent(&model, &messages, delivery);
        let (reply, deltas) = ask(&model, &messages).await;
        let reply = reply.unwrap_or_else(|error| panic!("{}: {error} to {body}", C::FORMAT));
        let uses = uses(&reply);
        eprintln!(
            "{variable}, {}, {delivery:?}, round {round}: {uses:?}, {:?}",
            C::FORMAT,
            reply.usage
        );
        assert!(
            !uses.is_empty() && reply.stop == StopReason::ToolUse,
            "{reply:?}"
        );
        // The last may be cut where the format has no word for where to stop.
        let (name, args) = &uses[0];
        assert_eq!(*name, "read_fd");
        assert!(
            args["fd"].is_string() && args["page"].is_u64(),
            "{args} must fit the schema"
        );
        let begun = deltas
            .iter()
            .filter(|delta| matches!(delta, Delta::ToolUse(_)))
            .count();
        // A server in between may send a stream as it likes, or none.
        assert!(
            begun == uses.len() || delivery == Delivery::Whole || variable != LLAMA,
            "{deltas:?}"
        );
        cache_read += reply.usage.cache_read_tokens;
        messages.extend(answered(
            &reply,
            "<fd_content fd=\"fd:1\" page=\"1\">text</fd_content>",
        ));
        let longer = sent(&model, &messages, delivery);
        // Behind the messages stand only bounds, in which is no bracket of this kind.
        assert!(
            longer.starts_with(&body[..body.rfind(']').unwrap()]),
            "HIST-1"
        );
    }
    cache_read
}

const LLAMA: &str = "DORMOUSE_LLAMA_URL";
const LITELLM: &str = "DORMOUSE_LITELLM_URL";
const AIMOCK: &str = "DORMOUSE_AIMOCK_URL";

#[tokio::test]
#[ignore = "needs llama-server: .ci/peers"]
async fn a_real_server_is_led_through_a_tool_loop() {
    for delivery in DELIVERIES {
        let cached = tool_loop::<Messages>(LLAMA, delivery).await;
        assert!(
            cached > 0,
            "the server re-reads its cache when the prefix does not change"
        );
        assert!(tool_loop::<Completions>(LLAMA, delivery).await > 0);
        assert!(tool_loop::<Responses>(LLAMA, delivery).await > 0);
    }
}

#[tokio::test]
#[ignore = "needs LiteLLM in front of llama-server: .ci/peers"]
async fn a_server_that_translates_is_led_through_a_tool_loop() {
    for delivery in DELIVERIES {
        tool_loop::<Completions>(LITELLM, delivery).await;
        tool_loop::<Messages>(LITELLM, delivery).await;
        tool_loop::<Responses>(LITELLM, delivery).await;
    }
}

#[tokio::test]
#[ignore = "needs llama-server: .ci/peers"]
async fn a_real_server_counts_tokens_where_the_format_can_be_counted() {
    let messages = [Message::user("one two three four")];
    let counts = [
        model::<Messages>(LLAMA, Delivery::Whole)
            .count_tokens(&request::<Messages>(&messages))
            .await
            .unwrap(),
        model::<Responses>(LLAMA, Delivery::Whole)
            .count_tokens(&request::<Responses>(&messages))
            .await
            .unwrap(),
    ];
    eprintln!("llama-server: {counts:?}");
    assert!(
        counts
            .iter()
            .all(|count| matches!(count, TokenCount::Counted(100..400))),
        "{counts:?}"
    );
    let chat = model::<Completions>(LLAMA, Delivery::Whole);
    let estimated = chat
        .count_tokens(&request::<Completions>(&messages))
        .await
        .unwrap();
    assert!(
        matches!(estimated, TokenCount::Estimated(_)),
        "{estimated:?}"
    );
}

async fn cut_at_its_limit<C: Codec>(delivery: Delivery) {
    let model = model::<C>(LLAMA, delivery);
    let mut messages = vec![Message::user("Read the descriptors fd:1 and fd:2.")];
    let short = json!({"max_tokens": 150}).as_object().unwrap().clone();
    let cut = Request {
        parameters: Arc::new(short),
        ..request::<C>(&messages)
    };
    let reply = model.call(cut, &|_| ()).await.unwrap();
    let args = |block: &Block| {
        if let Block::ToolUse { args, .. } = block {
            Some(args.to_string())
        } else {
            None
        }
    };
    let args: Vec<_> = reply.blocks.iter().filter_map(args).collect();
    eprintln!(
        "llama-server, {}, {delivery:?}: {:?} with {args:?}",
        C::FORMAT,
        reply.stop
    );
    assert_eq!(reply.stop, StopReason::MaxTokens);
    assert!(args.len() > 1, "several calls in one turn");
    messages.extend(answered(&reply, "not run: the reply was cut"));
    assert_eq!(
        ask(&model, &messages).await.0.unwrap().stop,
        StopReason::ToolUse
    );
}

/// This server's Responses call a reply complete that was cut.
#[tokio::test]
#[ignore = "needs llama-server: .ci/peers"]
async fn a_real_server_cuts_a_reply_at_its_limit_and_takes_it_back() {
    for delivery in DELIVERIES {
        cut_at_its_limit::<Messages>(delivery).await;
        cut_at_its_limit::<Completions>(delivery).await;
    }
}

async fn too_long<C: Codec>(delivery: Delivery) {
    let messages = [Message::user("one two three four ".repeat(30_000))];
    let error = ask(&model::<C>(LLAMA, delivery), &messages)
        .await
        .0
        .unwrap_err();
    eprintln!("llama-server, {}, {delivery:?}: {error}", C::FORMAT);
    assert_eq!(error.kind, ModelErrorKind::ContextOverflow, "{error}");
}

#[tokio::test]
#[ignore = "needs llama-server: .ci/peers"]
async fn a_real_server_says_that_the_conversation_is_too_long() {
    for delivery in DELIVERIES {
        too_long::<Messages>(delivery).await;
        too_long::<Completions>(delivery).await;
        too_long::<Responses>(delivery).await;
    }
}

async fn parallel_uses<C: Codec>(delivery: Delivery) {
    let model = model::<C>(AIMOCK, delivery);
    let mut messages = vec![Message::user("list the files")];
    let (reply, deltas) = ask(&model, &messages).await;
    let reply = reply.unwrap_or_else(|error| panic!("{}: {error}", C::FORMAT));
    let expected = [
        ("ls", json!({"path": "src", "depth": 2})),
        ("read_fd", json!({"fd": "fd:1", "page": 1})),
    ];
    assert_eq!(
        (uses(&reply), reply.stop),
        (expected.to_vec(), StopReason::ToolUse),
        "{}",
        C::FORMAT
    );
    assert_eq!(text_of(&reply.blocks), "I will look.");
    let told: String = deltas
        .iter()
        .filter_map(|d| {
            if let Delta::Text(t) = d {
                Some(t.as_str())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        told,
        if delivery == Delivery::Stream {
            "I will look."
        } else {
            ""
        }
    );
    messages.extend(answered(&reply, "a.txt b.txt"));
    let reply = ask(&model, &messages).await.0.unwrap();
    eprintln!(
        "aimock, {}, {delivery:?}: {} {:?} {:?}",
        C::FORMAT,
        text_of(&reply.blocks),
        reply.stop,
        reply.usage
    );
    assert_eq!(
        (text_of(&reply.blocks).as_str(), reply.stop),
        ("There are two files.", StopReason::EndTurn)
    );
}

#[tokio::test]
#[ignore = "needs aimock: .ci/peers"]
async fn parallel_tool_uses_are_answered_together() {
    for delivery in DELIVERIES {
        parallel_uses::<Messages>(delivery).await;
        parallel_uses::<Completions>(delivery).await;
        parallel_uses::<Responses>(delivery).await;
        parallel_uses::<GenerateContent>(delivery).await;
    }
}

/// What the model thought goes back as it came, in whatever form the format has for it.
async fn thinking<C: Codec>(delivery: Delivery) {
    let model = model::<C>(AIMOCK, delivery);
    let mut messages = vec![Message::user("think first")];
    let (reply, deltas) = ask(&model, &messages).await;
    let reply = reply.unwrap_or_else(|error| panic!("{}: {error}", C::FORMAT));
    eprintln!("aimock, {}, {delivery:?}: {:?}", C::FORMAT, reply.blocks);
    let thought = reply.blocks.iter().find_map(|block| match block {
        Block::Opaque(raw) | Block::Text { raw: Some(raw), .. } => {
            Some(raw).filter(|raw| raw.json.contains("One, two"))
        }
        _ => None,
    });
    let thought = thought
        .unwrap_or_else(|| panic!("{}: {:?}", C::FORMAT, reply.blocks))
        .clone();
    assert_eq!(
        deltas
            .iter()
            .any(|delta| matches!(delta, Delta::Thinking(_))),
        delivery == Delivery::Stream
    );
    if C::FORMAT == "anthropic" {
        let thinking: Value = serde_json::from_str(&thought.json).unwrap();
        assert_eq!(
            (&thinking["thinking"], &thinking["signature"]),
            (&json!("One, two, three."), &json!("c2lnbmVk"))
        );
    }
    messages.push(Message {
        role: Role::Assistant,
        blocks: reply.blocks.clone(),
    });
    messages.push(Message::user("go on thinking"));
    assert!(sent(&model, &messages, delivery).contains(&*thought.json));
    assert_eq!(
        text_of(&ask(&model, &messages).await.0.unwrap().blocks),
        "Still so."
    );
}

#[tokio::test]
#[ignore = "needs aimock: .ci/peers"]
async fn thinking_and_its_signature_go_back_verbatim() {
    for delivery in DELIVERIES {
        thinking::<Messages>(delivery).await;
        thinking::<Completions>(delivery).await;
        thinking::<Responses>(delivery).await;
        thinking::<GenerateContent>(delivery).await;
    }
}

async fn failures<C: Codec>() {
    use ModelErrorKind as Kind;
    let cases = [
        ("too often", Kind::Overloaded, Some(Duration::from_secs(7))),
        ("too many", Kind::Overloaded, None),
        ("wrong key", Kind::Authentication, None),
        ("garble", Kind::Malformed, None),
    ];
    for delivery in DELIVERIES {
        for (text, kind, after) in cases {
            let error = ask(&model::<C>(AIMOCK, delivery), &[Message::user(text)])
                .await
                .0
                .unwrap_err();
            eprintln!(
                "aimock, {}, {delivery:?}, {text}: {error} {:?}",
                C::FORMAT,
                error.retry_after
            );
            assert_eq!(
                (error.kind, error.retry_after),
                (kind, after),
                "{text}: {error}"
            );
        }
    }
    let (reply, deltas) = ask(
        &model::<C>(AIMOCK, Delivery::Stream),
        &[Message::user("cut me off")],
    )
    .await;
    let error = reply.unwrap_err();
    eprintln!("aimock, {}, cut: {error} after {deltas:?}", C::FORMAT);
    assert_eq!(error.kind, Kind::CutStream);
    assert!(!deltas.is_empty(), "what came before the cut was told");
}

#[tokio::test]
#[ignore = "needs aimock: .ci/peers"]
async fn failures_come_by_kind() {
    failures::<Messages>().await;
    failures::<Completions>().await;
    failures::<Responses>().await;
    failures::<GenerateContent>().await;
}
