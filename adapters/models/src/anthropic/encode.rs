//! To the wire.
//!
//! * The same request gives the same bytes, and everything that may change between two requests of
//!   a conversation comes behind what does not: last stand `messages`, and behind them only
//!   `max_tokens`, which a budget may lower.
//! * A block that came from this provider goes back as the text that came.
//! * Cache breakpoints stand where they never move. One at the end of the frozen part (system
//!   prompt, or tools where there is none); behind each of the first two forks that the process
//!   descends from, one on the first block that is not shared; for the conversation the request
//!   asks for automatic caching, one field at its top: the provider itself then breaks after the
//!   last block. Four at most, as are allowed.

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Role};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;

use super::FORMAT;
use crate::wire::fields::{Fields, arguments, kept, raw, type_of};
use crate::wire::ids;
use crate::wire::media::{self, Kind};
use crate::wire::{Caching, Delivery, Mark, Purpose, Turn, parameters, schema};

/// Output tokens of a reply, unless the program says otherwise.
const MAX_TOKENS: u64 = 4096;
/// What the request itself says, so that `[parameters]` cannot.
const RESERVED: [&str; 5] = ["model", "messages", "system", "tools", "stream"];
/// What bears on the number of input tokens, of what `[parameters]` may hold.
const COUNTED: [&str; 3] = ["thinking", "tool_choice", "mcp_servers"];
/// The longest id of a tool use that is taken.
const LONGEST_ID: usize = 64;
/// Blocks that a message of the model must not end in: it does where the reply was cut while the
/// model thought.
const THOUGHTS: [&str; 2] = ["thinking", "redacted_thinking"];

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
    let breakpoint = (caching == Caching::Automatic).then(|| Fields::of_type("ephemeral"));
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

/// A message: answers to tool uses stand in front of texts.
pub(super) fn turn(turn: Turn<'_>) -> Result<String, ModelError> {
    let mut content = Vec::with_capacity(turn.message.blocks.len());
    for block in &turn.message.blocks {
        content.extend(element(block, turn)?);
    }
    content.sort_by_key(|element| !matches!(element, Element::Answer(_)));
    while let Some(Element::Thought(_)) = content.last() {
        content.pop();
    }
    // The provider takes no message without content.
    let Some(first) = content.first_mut() else {
        return Ok(String::new());
    };
    match first {
        Element::Answer(fields) | Element::Ours(fields) if turn.mark == Mark::Breakpoint => {
            *fields = std::mem::take(fields).with("cache_control", &Fields::of_type("ephemeral"));
        }
        Element::Answer(_) | Element::Ours(_) | Element::Kept(_) | Element::Thought(_) => {}
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
    Kept(Box<RawValue>),
    /// Of the kinds that nothing may end in.
    Thought(Box<RawValue>),
    Answer(Fields),
    Ours(Fields),
}

impl Element {
    fn into_json(self) -> Box<RawValue> {
        match self {
            Self::Kept(json) | Self::Thought(json) => json,
            Self::Answer(fields) | Self::Ours(fields) => raw(&fields),
        }
    }
}

/// A block as it is sent; none where there is nothing to send.
fn element(block: &Block, turn: Turn<'_>) -> Result<Option<Element>, ModelError> {
    Ok(match block {
        // The provider sends texts without content, and refuses them.
        Block::Text { text, .. } if text.trim().is_empty() => None,
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw)
            if *raw.format == *FORMAT =>
        {
            let json = kept(&raw.json, || "a kept block".to_owned())?;
            let is_thought = matches!(block, Block::Opaque(_))
                && type_of(&raw.json).is_some_and(|kind| THOUGHTS.contains(&kind.as_str()));
            Some(if is_thought {
                Element::Thought(json)
            } else {
                Element::Kept(json)
            })
        }
        Block::Text { text: said, .. } => Some(Element::Ours(text(said))),
        Block::ToolUse { id, name, args, .. } => {
            let tool_use = Fields::of_type("tool_use")
                .with("id", &*ids::fitting(id, LONGEST_ID))
                .with("name", &**name);
            Some(Element::Ours(tool_use.with("input", &arguments(args))))
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
            .and_then(|bytes| shown(media, bytes))
            .map(Element::Ours),
        // It stands in its answer; or it is a block that only another provider understands.
        Block::Media {
            answers: Some(_), ..
        }
        | Block::Opaque(_) => None,
    })
}

fn text(text: &str) -> Fields {
    Fields::of_type("text").with("text", text)
}

/// An answer that is an error: it may hold text only.
fn failure(id: &str, said: &str, turn: Turn<'_>) -> Fields {
    of_call(id, turn)
        .with("content", said)
        .with("is_error", &true)
}

fn of_call(id: &str, turn: Turn<'_>) -> Fields {
    Fields::of_type("tool_result").with(
        "tool_use_id",
        &*ids::of_answer(id, turn.before, FORMAT, LONGEST_ID),
    )
}

/// An answer, with what belongs to it.
fn answer(id: &str, said: &str, turn: Turn<'_>) -> Fields {
    let answer = of_call(id, turn);
    let media = media::of(&turn.message.blocks, turn.media, Some(id));
    let shown: Vec<_> = media
        .filter_map(|(media, bytes)| shown(media, bytes))
        .collect();
    if shown.is_empty() {
        return answer.with("content", said);
    }
    let said = Some(text(said)).filter(|_| !said.trim().is_empty());
    answer.with(
        "content",
        &said.into_iter().chain(shown).collect::<Vec<_>>(),
    )
}

fn shown(media: &Media, bytes: &Bytes) -> Option<Fields> {
    let block = match media::kind(&media.media_type)? {
        Kind::Image => Fields::of_type("image"),
        Kind::Pdf => Fields::of_type("document"),
    };
    let source = Fields::of_type("base64").with("media_type", &*media.media_type);
    Some(block.with("source", &source.with("data", &media::base64(bytes))))
}

#[cfg(test)]
mod tests;
