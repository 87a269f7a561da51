//! Encodes requests.
//!
//! * The same request gives the same bytes. Everything that may change between two requests of a
//!   conversation comes last: `messages`, and after them only `max_tokens`, which a budget may
//!   lower.
//! * A block that came from this provider is sent back with its original JSON text.
//! * Cache breakpoints never move. One is at the end of the constant part (the system prompt, or
//!   the tools if there is none). For each of the first two forks that the process descends from,
//!   one is on the first block that is not shared. For the conversation, a field at the top of the
//!   request asks for automatic caching: the provider itself then sets a breakpoint after the last
//!   block. That makes four at most, which is the limit of the provider.

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Role};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::program::CacheTtl;
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;

use super::FORMAT;
use crate::wire::call_ids;
use crate::wire::json_fields::{Fields, arguments, kept, raw, type_of};
use crate::wire::media::{self, Kind};
use crate::wire::{Caching, Delivery, Mark, Purpose, Turn, parameters, schema};

/// The default limit of output tokens.
const MAX_TOKENS: u64 = 4096;
/// Fields that the request itself sets, so `[parameters]` must not.
const RESERVED: [&str; 5] = ["model", "messages", "system", "tools", "stream"];
/// The parameters that influence the number of input tokens.
const COUNTED: [&str; 3] = ["thinking", "tool_choice", "mcp_servers"];
/// The longest id of a tool use that the provider accepts.
const MAX_ID_CHARS: usize = 64;
/// Types of blocks that must not be the last one of an assistant message. They are last if the
/// reply was truncated while the model was thinking.
const THINKING_TYPES: [&str; 2] = ["thinking", "redacted_thinking"];

pub(super) fn head(
    request: &Request,
    purpose: Purpose,
    caching: Caching,
) -> Result<String, ModelError> {
    let parameters = parameters::sorted(request, &RESERVED)?;
    let caching = if purpose == Purpose::Count {
        Caching::Off
    } else {
        caching
    };
    let breakpoint = caching.ttl().map(breakpoint);
    let system = Some(&*request.system).filter(|system| !system.trim().is_empty());
    let mut head = Fields::default().with("model", &*request.model);
    if let Purpose::Reply(delivery) = purpose {
        head = head.with("stream", &(delivery == Delivery::Stream));
    }
    for (name, value) in parameters {
        if name != "max_tokens" && (purpose != Purpose::Count || COUNTED.contains(&name)) {
            head = head.with(name, value);
        }
    }
    if !request.parameters.contains_key("cache_control") {
        head = head.with_some("cache_control", breakpoint.as_ref());
    }
    let mut tools = request
        .tools
        .iter()
        .map(tool)
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(last) = tools.pop() {
        tools.push(last.with_some(
            "cache_control",
            breakpoint.as_ref().filter(|_| system.is_none()),
        ));
        head = head.with("tools", &tools);
    }
    if let Some(system) = system {
        head = head.with(
            "system",
            &[text(system).with_some("cache_control", breakpoint.as_ref())],
        );
    }
    let head = head.to_json();
    let open = head
        .strip_suffix('}')
        .expect("an object ends with its brace");
    Ok(format!("{open},\"messages\":["))
}

/// A cache breakpoint. Five minutes are the provider's default.
fn breakpoint(ttl: CacheTtl) -> Fields {
    let ttl = match ttl {
        CacheTtl::FiveMinutes => None,
        CacheTtl::OneHour => Some("1h"),
    };
    Fields::of_type("ephemeral").with_some("ttl", ttl)
}

pub(super) fn tail(request: &Request, purpose: Purpose) -> String {
    let Purpose::Reply(_) = purpose else {
        return "]}".to_owned();
    };
    let written = request.parameters.get("max_tokens").map(raw);
    format!(
        "],\"max_tokens\":{}}}",
        written.unwrap_or_else(|| raw(&MAX_TOKENS))
    )
}

fn tool(spec: &ToolSpec) -> Result<Fields, ModelError> {
    let schema = schema::of(spec)?;
    let named = Fields::default()
        .with("name", &*spec.name)
        .with("description", &*spec.description);
    Ok(named.with("input_schema", &schema))
}

/// Encodes a message. Tool results come before texts.
pub(super) fn turn(turn: Turn<'_>) -> Result<String, ModelError> {
    let mut content = Vec::with_capacity(turn.message.blocks.len());
    for block in &turn.message.blocks {
        content.extend(element(block, turn)?);
    }
    content.sort_by_key(|element| !matches!(element, Element::Answer(_)));
    while let Some(Element::Thought(_)) = content.last() {
        content.pop();
    }
    // The provider refuses a message without content.
    let Some(first) = content.first_mut() else {
        return Ok(String::new());
    };
    match first {
        Element::Answer(fields) | Element::Built(fields) => {
            if let Mark::Breakpoint(ttl) = turn.mark {
                *fields = std::mem::take(fields).with("cache_control", &breakpoint(ttl));
            }
        }
        Element::Original(_) | Element::Thought(_) => {}
    }
    let role = match turn.message.role {
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
    Original(Box<RawValue>),
    /// A block of thinking, which must not be last.
    Thought(Box<RawValue>),
    Answer(Fields),
    Built(Fields),
}

impl Element {
    fn into_json(self) -> Box<RawValue> {
        match self {
            Self::Original(json) | Self::Thought(json) => json,
            Self::Answer(fields) | Self::Built(fields) => raw(&fields),
        }
    }
}

/// Encodes a block; none if there is nothing to send.
fn element(block: &Block, turn: Turn<'_>) -> Result<Option<Element>, ModelError> {
    Ok(match block {
        // The provider itself sends empty texts, but refuses them in requests.
        Block::Text { text, .. } if text.trim().is_empty() => None,
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw)
            if *raw.format == *FORMAT =>
        {
            let json = kept(&raw.json, || "a kept block".to_owned())?;
            let is_thought = matches!(block, Block::Opaque(_))
                && type_of(&raw.json).is_some_and(|kind| THINKING_TYPES.contains(&kind.as_str()));
            Some(if is_thought {
                Element::Thought(json)
            } else {
                Element::Original(json)
            })
        }
        Block::Text { text: said, .. } => Some(Element::Built(text(said))),
        Block::ToolUse { id, name, args, .. } => {
            let tool_use = Fields::of_type("tool_use")
                .with("id", &*call_ids::fitting(id, MAX_ID_CHARS))
                .with("name", &**name);
            Some(Element::Built(tool_use.with("input", &arguments(args))))
        }
        Block::ToolResult {
            id,
            text,
            is_error: true,
        } => Some(Element::Answer(failure(id, text, turn))),
        Block::ToolResult {
            id,
            text,
            is_error: false,
        } => Some(Element::Answer(answer(id, text, turn))),
        Block::Media {
            answers: None,
            media,
        } => turn
            .media
            .get(&media.fd)
            .and_then(|bytes| media_block(media, bytes))
            .map(Element::Built),
        // The media are part of their tool result, or the block is from another provider.
        Block::Media {
            answers: Some(_), ..
        }
        | Block::Opaque(_) => None,
    })
}

fn text(text: &str) -> Fields {
    Fields::of_type("text").with("text", text)
}

/// A tool result that reports an error: it may contain text only.
fn failure(id: &str, said: &str, turn: Turn<'_>) -> Fields {
    of_call(id, turn)
        .with("content", said)
        .with("is_error", &true)
}

fn of_call(id: &str, turn: Turn<'_>) -> Fields {
    Fields::of_type("tool_result").with(
        "tool_use_id",
        &*call_ids::of_answer(id, turn.before, FORMAT, MAX_ID_CHARS),
    )
}

/// A tool result with its media.
fn answer(id: &str, output: &str, turn: Turn<'_>) -> Fields {
    let answer = of_call(id, turn);
    let media = media::of(&turn.message.blocks, turn.media, Some(id));
    let shown: Vec<_> = media
        .filter_map(|(media, bytes)| media_block(media, bytes))
        .collect();
    if shown.is_empty() {
        return answer.with("content", output);
    }
    let output = Some(text(output)).filter(|_| !output.trim().is_empty());
    answer.with(
        "content",
        &output.into_iter().chain(shown).collect::<Vec<_>>(),
    )
}

fn media_block(media: &Media, bytes: &Bytes) -> Option<Fields> {
    let block = match media::kind(&media.media_type)? {
        Kind::Image => Fields::of_type("image"),
        Kind::Pdf => Fields::of_type("document"),
    };
    let source = Fields::of_type("base64").with("media_type", &*media.media_type);
    Some(block.with("source", &source.with("data", &media::base64(bytes))))
}

#[cfg(test)]
mod tests;
