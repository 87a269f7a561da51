//! Encodes requests for the Messages API.
//!
//! * The same request gives the same bytes. Everything that may change between two requests of a
//!   conversation comes last: `messages`, and after them only `container`, which a reply may name,
//!   and `max_tokens`, which a budget may lower.
//! * A block that was received in this format is sent back with its original JSON text.
//! * Cache breakpoints never move. One is at the end of the constant part (the system prompt, or
//!   the tools if there is none). For each of the first two forks that the process descends from,
//!   one is on the first block that is not shared. For the conversation, a field at the top of the
//!   request asks for automatic caching: the provider itself then sets a breakpoint after the last
//!   block. That makes four at most, which is the limit of the provider.
//!
//! `wire/request_body.rs` joins the head, the messages and the tail that are encoded here. It also
//! says which message begins with a breakpoint ([`MessageContext`]).

use std::time::SystemTime;

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Role};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::program::CacheTtl;
use dormouse_proto::provider_tools::ToolForm;
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;

use super::{Dialect, FORMAT, container};
use crate::wire::call_ids;
use crate::wire::json_fields::{Fields, object_or_empty, to_raw, type_of, verbatim};
use crate::wire::media::{self, MediaKind};
use crate::wire::{Delivery, MessageContext, Purpose, parameters, schema, system_prompt, tools};

/// The default limit of output tokens.
const MAX_TOKENS: u64 = 4096;
/// Fields that the request itself sets, so `[parameters]` must not.
const RESERVED: [&str; 6] = [
    "model",
    "messages",
    "system",
    "tools",
    "stream",
    "anthropic_version",
];
/// Parameters after the messages, since they may change between requests.
const IN_TAIL: [&str; 2] = [container::CONTAINER, "max_tokens"];
/// The parameters that influence the number of input tokens. A request that counts tokens has no
/// others.
const COUNT_PARAMETERS: [&str; 3] = ["thinking", "tool_choice", "mcp_servers"];
/// The longest id of a tool use that the provider accepts, in bytes.
pub(super) const MAX_ID_BYTES: usize = 64;
/// Types of blocks that must not be the last block of an assistant message. Such a block is last if
/// the reply was truncated while the model was thinking.
const THINKING_TYPES: [&str; 2] = ["thinking", "redacted_thinking"];

pub(crate) fn encode_head(
    request: &Request,
    purpose: Purpose,
    cache_ttl: Option<CacheTtl>,
    dialect: Dialect,
) -> Result<String, ModelError> {
    let parameters = parameters::sorted(request, &RESERVED)?;
    let cache_ttl = cache_ttl.filter(|_| purpose != Purpose::Count);
    let cache_control = cache_ttl.map(cache_control);
    let system = system_prompt(request);
    let mut head = Fields::default().with_some("anthropic_version", dialect.version_in_body());
    if dialect == Dialect::Anthropic || purpose == Purpose::Count {
        head = head.with("model", &*request.model);
    }
    if let Purpose::Reply(delivery) = purpose
        && dialect.has_stream_field()
    {
        head = head.with("stream", &(delivery == Delivery::Stream));
    }
    for (name, value) in parameters {
        if !IN_TAIL.contains(&name)
            && (purpose != Purpose::Count || COUNT_PARAMETERS.contains(&name))
        {
            head = head.with(name, value);
        }
    }
    if dialect == Dialect::Anthropic && !request.parameters.contains_key("cache_control") {
        head = head.with_some("cache_control", cache_control.as_ref());
    }
    let mut tools = tools::all(request, tool)?;
    if let Some(last) = tools.last_mut() {
        if let Some(cache_control) = cache_control.as_ref().filter(|_| system.is_none()) {
            last.set("cache_control", to_raw(cache_control));
        }
        head = head.with("tools", &tools);
    }
    if let Some(system) = system {
        head = head.with(
            "system",
            &[text_block(system).with_some("cache_control", cache_control.as_ref())],
        );
    }
    Ok(head.to_json_up_to_list("messages"))
}

/// A cache breakpoint. Five minutes are the provider's default.
fn cache_control(ttl: CacheTtl) -> Fields {
    let ttl = match ttl {
        CacheTtl::FiveMinutes => None,
        CacheTtl::OneHour => Some("1h"),
    };
    Fields::of_type("ephemeral").with_some("ttl", ttl)
}

pub(super) fn encode_tail(request: &Request, purpose: Purpose, now: SystemTime) -> String {
    let Purpose::Reply(_) = purpose else {
        return "]}".to_owned();
    };
    let max_tokens = request.parameters.get("max_tokens").map(to_raw);
    format!(
        "]{},\"max_tokens\":{}}}",
        container::field(request, now),
        max_tokens.unwrap_or_else(|| to_raw(&MAX_TOKENS))
    )
}

fn tool(spec: &ToolSpec, form: Option<&ToolForm>) -> Result<Fields, ModelError> {
    let is_strict = schema::is_strict(spec, form, schema::StrictDialect::Anthropic);
    let schema = match is_strict {
        true => schema::without_other_properties(spec)?,
        false => schema::for_request(spec)?,
    };
    let fields = Fields::default()
        .with("name", &*spec.name)
        .with("description", &*spec.description);
    Ok(fields
        .with("input_schema", &schema)
        .with_some("strict", is_strict.then_some(&true)))
}

/// Encodes a message. Tool results come before texts.
pub(super) fn encode_message(context: MessageContext<'_>) -> Result<String, ModelError> {
    let mut content = Vec::with_capacity(context.message.blocks.len());
    for block in &context.message.blocks {
        content.extend(encode_block(block, context)?);
    }
    content.sort_by_key(|element| !matches!(element, Element::ToolResult(_)));
    while let Some(Element::Thinking(_)) = content.last() {
        content.pop();
    }
    // The provider refuses a message without content.
    let Some(first) = content.first_mut() else {
        return Ok(String::new());
    };
    match first {
        Element::ToolResult(fields) | Element::New(fields) => {
            if let Some(ttl) = context.breakpoint {
                *fields = std::mem::take(fields).with("cache_control", &cache_control(ttl));
            }
        }
        Element::Original(_) | Element::Thinking(_) => {}
    }
    let role = match context.message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let content: Vec<_> = content.into_iter().map(Element::into_json).collect();
    Ok(Fields::default()
        .with("role", role)
        .with("content", &content)
        .to_json())
}

/// An element of a message's content.
enum Element {
    /// A block in its original form.
    Original(Box<RawValue>),
    /// A block of thinking in its original form, which must not be the last element.
    Thinking(Box<RawValue>),
    ToolResult(Fields),
    New(Fields),
}

impl Element {
    fn into_json(self) -> Box<RawValue> {
        match self {
            Self::Original(json) | Self::Thinking(json) => json,
            Self::ToolResult(fields) | Self::New(fields) => to_raw(&fields),
        }
    }
}

/// Encodes a block. None if there is nothing to send.
fn encode_block(block: &Block, context: MessageContext<'_>) -> Result<Option<Element>, ModelError> {
    Ok(match block {
        // The provider itself sends empty texts, but refuses them in requests.
        Block::Text { text, .. } if text.trim().is_empty() => None,
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw)
            if *raw.format == *FORMAT =>
        {
            let json = verbatim(&raw.json, || "a kept block".to_owned())?;
            let is_thinking = matches!(block, Block::Opaque(_))
                && type_of(&raw.json).is_some_and(|kind| THINKING_TYPES.contains(&kind.as_str()));
            Some(if is_thinking {
                Element::Thinking(json)
            } else {
                Element::Original(json)
            })
        }
        Block::Text { text: words, .. } => Some(Element::New(text_block(words))),
        Block::ToolUse { id, name, args, .. } => {
            let tool_use = Fields::of_type("tool_use")
                .with("id", &*call_ids::accepted_id(id, MAX_ID_BYTES))
                .with("name", &**name);
            Some(Element::New(tool_use.with("input", &object_or_empty(args))))
        }
        Block::ToolResult {
            id,
            text,
            is_error: true,
        } => Some(Element::ToolResult(error_result(id, text, context))),
        Block::ToolResult {
            id,
            text,
            is_error: false,
        } => Some(Element::ToolResult(tool_result(id, text, context))),
        Block::Media {
            answers: None,
            media,
        } => context
            .media
            .get(&media.fd)
            .and_then(|bytes| media_block(media, bytes))
            .map(Element::New),
        // The media are part of their tool result, or the block is from another provider.
        Block::Media {
            answers: Some(_), ..
        }
        | Block::Opaque(_) => None,
    })
}

fn text_block(text: &str) -> Fields {
    Fields::of_type("text").with("text", text)
}

/// A tool result that reports an error. Such a result may contain text only.
fn error_result(id: &str, message: &str, context: MessageContext<'_>) -> Fields {
    result_for_call(id, context)
        .with("content", message)
        .with("is_error", &true)
}

fn result_for_call(id: &str, context: MessageContext<'_>) -> Fields {
    Fields::of_type("tool_result").with(
        "tool_use_id",
        &*call_ids::id_of_result(id, context.previous, FORMAT, MAX_ID_BYTES),
    )
}

/// A tool result with its media.
fn tool_result(id: &str, output: &str, context: MessageContext<'_>) -> Fields {
    let result = result_for_call(id, context);
    let media = media::of_result(&context.message.blocks, context.media, Some(id));
    let media_blocks: Vec<_> = media
        .filter_map(|(media, bytes)| media_block(media, bytes))
        .collect();
    if media_blocks.is_empty() {
        return result.with("content", output);
    }
    let output = Some(text_block(output)).filter(|_| !output.trim().is_empty());
    result.with(
        "content",
        &output.into_iter().chain(media_blocks).collect::<Vec<_>>(),
    )
}

fn media_block(media: &Media, bytes: &Bytes) -> Option<Fields> {
    let block = match media::kind(&media.media_type)? {
        MediaKind::Image => Fields::of_type("image"),
        MediaKind::Pdf => Fields::of_type("document"),
    };
    let source = Fields::of_type("base64").with("media_type", &*media.media_type);
    Some(block.with("source", &source.with("data", &media::base64(bytes))))
}

#[cfg(test)]
mod tests;
