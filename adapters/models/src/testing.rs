//! Requests, and replies as events, for the tests of this crate.

#[cfg(any(feature = "bedrock", feature = "vertex"))]
pub(crate) mod played_cloud;
#[cfg(feature = "vertex")]
#[path = "../../../tests/skip.rs"]
pub(crate) mod skip;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::message::{Block, Media, Message, Raw, Role};
use dormouse_proto::model::{Delta, ModelError, Reply, Request};
use dormouse_proto::program::CacheTtl;
use dormouse_proto::tool::ToolSpec;
use serde_json::Value;

use crate::wire::{Codec, Decoder, Delivery, Purpose, encode};

pub(crate) fn request(messages: Vec<Message>, parameters: Value) -> Request {
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: "d".into(),
        schema: r#"{"type":"object", "properties":{"n":{"type":"integer"}}}"#.into(),
    };
    Request {
        pid: Pid(1),
        program: "p".into(),
        model: "m".into(),
        system: "be brief".into(),
        tools: [tool("a"), tool("b")].into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        parameters: Arc::new(
            parameters
                .as_object()
                .expect("parameters are an object")
                .clone(),
        ),
        forked_at: Vec::new(),
        provider_tools: Arc::default(),
        media: [(1, "png"), (2, "pdf"), (3, "text"), (4, "wav"), (5, "zip")]
            .map(|(fd, bytes)| (FdId::Fd(fd), Bytes::from_static(bytes.as_bytes())))
            .into(),
    }
}

pub(crate) fn streamed<C: Codec>(codec: &C, request: &Request) -> String {
    encode(
        codec,
        request,
        Purpose::Reply(Delivery::Stream),
        Some(CacheTtl::FiveMinutes),
    )
    .expect("the request can be sent")
}

pub(crate) fn message(role: Role, blocks: Vec<Block>) -> Message {
    Message { role, blocks }
}

pub(crate) fn used(id: &str, name: &str, args: &str) -> Block {
    Block::ToolUse {
        id: id.into(),
        name: name.into(),
        args: args.into(),
        raw: None,
    }
}

pub(crate) fn answered(id: &str, text: &str) -> Block {
    Block::ToolResult {
        id: id.into(),
        text: text.into(),
        is_error: false,
    }
}

pub(crate) fn failed(id: &str, text: &str) -> Block {
    Block::ToolResult {
        id: id.into(),
        text: text.into(),
        is_error: true,
    }
}

pub(crate) fn kept(json: &str, format: &str) -> Raw {
    Raw::new(format, json)
}

pub(crate) fn media(fd: u32, answers: Option<&str>) -> Block {
    let types = [
        "image/png",
        "application/pdf",
        "text/plain",
        "audio/wav",
        "application/zip",
    ];
    let media_type = types[fd as usize - 1].into();
    Block::Media {
        answers: answers.map(Into::into),
        media: Media {
            fd: FdId::Fd(fd),
            media_type,
            side_px: 0,
        },
    }
}

/// The request bodies of a growing conversation: one after each message of the user.
pub(crate) fn bodies_of_a_growing_conversation<C: Codec>(
    codec: &C,
    reply: Vec<Block>,
) -> Vec<String> {
    let conversation = [
        Message::user("go"),
        message(Role::Assistant, reply),
        message(
            Role::User,
            vec![
                answered("t", "so"),
                media(1, Some("t")),
                Block::text("[msg:3]"),
            ],
        ),
        message(Role::Assistant, vec![Block::text("done")]),
        Message::user("more"),
    ];
    let parameters = serde_json::json!({"max_tokens": 90, "temperature": 0.5});
    [1, 3, 5]
        .map(|n| {
            streamed(
                codec,
                &request(conversation[..n].to_vec(), parameters.clone()),
            )
        })
        .into()
}

/// The reply that these events decode to, and the deltas that were reported.
pub(crate) fn decoded<D: Decoder>(events: &[&str]) -> (Result<Reply, ModelError>, Vec<Delta>) {
    let deltas = RefCell::new(Vec::new());
    let mut decoder = D::default();
    let fed = events
        .iter()
        .try_for_each(|event| decoder.feed(event, &|delta| deltas.borrow_mut().push(delta)));
    (fed.and_then(|()| decoder.finish()), deltas.into_inner())
}

/// HIST-1: each body begins with the previous one, up to `tail`.
#[track_caller]
pub(crate) fn check_prefixes(bodies: &[String], tail: &str) {
    for pair in bodies.windows(2) {
        let shorter = pair[0]
            .strip_suffix(tail)
            .unwrap_or_else(|| panic!("{} ends otherwise", pair[0]));
        assert!(
            pair[1].starts_with(shorter),
            "{} is no beginning of {}",
            pair[0],
            pair[1]
        );
        let _: Value = serde_json::from_str(&pair[1]).expect("a body is JSON");
    }
}
