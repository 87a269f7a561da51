//! To the wire: a request as the bytes of its body.
//!
//! * The same request gives the same bytes, and everything that may change between two requests of a conversation comes
//!   behind what does not: last stand `messages`, so that a longer conversation starts with the bytes of the shorter one, up
//!   to the bracket that closes it (HIST-1, FORK-2), and behind them only `max_tokens`, which a budget may lower.
//! * A block that came from this provider goes back as the text that came.
//! * Cache breakpoints never stand inside a message, where they would have to move. One stands at the end of the frozen
//!   part (system prompt, or tools where there is none); for the conversation the request asks for automatic caching,
//!   one field at its top: the provider itself then breaks after the last block. Two of the four that are allowed.

use std::sync::Arc;

use dormouse_proto::message::{Block, Message, Raw, Role};
use dormouse_proto::model::{ModelError, ModelErrorKind, Request};
use dormouse_proto::tool::ToolSpec;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::{Caching, Delivery, FORMAT};

/// Output tokens of a reply, unless the program says otherwise.
const MAX_TOKENS: u64 = 4096;
/// What the request itself says, so that `[parameters]` cannot.
const RESERVED: [&str; 5] = ["model", "messages", "system", "tools", "stream"];

/// The body of a request. Costs one pass over the conversation.
///
/// # Errors
/// [`ModelErrorKind::InvalidRequest`] where a parameter is not the program's to set, or a schema or kept block is no
/// JSON.
pub fn encode_request(request: &Request, delivery: Delivery, caching: Caching) -> Result<String, ModelError> {
    if let Some(name) = RESERVED.iter().find(|name| request.parameters.contains_key(**name)) {
        return Err(invalid(format!("the parameter '{name}' is set by the kernel: remove it from [parameters]")));
    }
    let body = Body {
        request,
        delivery,
        caching,
        tools: request.tools.iter().map(tool).collect::<Result<_, _>>()?,
        messages: turns(&request.messages)?,
    };
    serde_json::to_string(&body).map_err(|error| invalid(error.to_string()))
}

struct Body<'a> {
    request: &'a Request,
    delivery: Delivery,
    caching: Caching,
    tools: Vec<Tool<'a>>,
    messages: Vec<Turn<'a>>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, delivery, caching, tools, messages } = self;
        let breakpoint = matches!(caching, Caching::Automatic).then_some(Ephemeral { r#type: "ephemeral" });
        let system = Some(&*request.system).filter(|system| !system.trim().is_empty());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", &*request.model)?;
        map.serialize_entry("stream", &matches!(delivery, Delivery::Stream))?;
        // By name: the order in a program file is no reason for other bytes.
        let mut parameters: Vec<_> = request.parameters.iter().filter(|(name, _)| *name != "max_tokens").collect();
        parameters.sort_unstable_by_key(|(name, _)| *name);
        parameters.into_iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        if let Some(breakpoint) = breakpoint.filter(|_| !request.parameters.contains_key("cache_control")) {
            map.serialize_entry("cache_control", &breakpoint)?;
        }
        if let Some((last, tools)) = tools.split_last() {
            let last = Tool { cache_control: breakpoint.filter(|_| system.is_none()), ..*last };
            map.serialize_entry("tools", &tools.iter().chain([&last]).collect::<Vec<_>>())?;
        }
        if let Some(text) = system {
            map.serialize_entry("system", &[Text { r#type: "text", text, cache_control: breakpoint }])?;
        }
        map.serialize_entry("messages", messages)?;
        match request.parameters.get("max_tokens") {
            Some(written) => map.serialize_entry("max_tokens", written)?,
            None => map.serialize_entry("max_tokens", &MAX_TOKENS)?,
        }
        map.end()
    }
}

#[derive(Clone, Copy, Serialize)]
struct Ephemeral {
    r#type: &'static str,
}

#[derive(Clone, Copy, Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Ephemeral>,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Kept(&'a RawValue),
    Text(Text<'a>),
    ToolUse { r#type: &'static str, id: &'a str, name: &'a str, input: &'a RawValue },
    ToolResult(ToolResult<'a>),
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Ephemeral>,
}

#[derive(Serialize)]
struct ToolResult<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "is_false")]
    is_error: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(flag: &bool) -> bool {
    !flag
}

fn tool(spec: &ToolSpec) -> Result<Tool<'_>, ModelError> {
    let input_schema = serde_json::from_str(&spec.schema)
        .map_err(|error| invalid(format!("the schema of the tool '{}' is no JSON: {error}", spec.name)))?;
    Ok(Tool { name: &spec.name, description: &spec.description, input_schema, cache_control: None })
}

/// The turns of the conversation: all answers to the tool uses of a turn stand in one message, in front of texts.
fn turns(messages: &[Arc<Message>]) -> Result<Vec<Turn<'_>>, ModelError> {
    let mut turns: Vec<Turn<'_>> = Vec::with_capacity(messages.len());
    for message in messages {
        let mut content =
            message.blocks.iter().filter_map(|block| content(block).transpose()).collect::<Result<Vec<_>, _>>()?;
        let role = role_word(message.role);
        let answers = content.iter().any(|content| matches!(content, Content::ToolResult(_)));
        match turns.last_mut().filter(|turn| answers && turn.role == role) {
            Some(turn) => turn.content.append(&mut content),
            // The provider takes no message without content.
            None if content.is_empty() => continue,
            None => turns.push(Turn { role, content }),
        }
        let turn = turns.last_mut().expect("one was pushed or found");
        if answers {
            turn.content.sort_by_key(|content| !matches!(content, Content::ToolResult(_)));
        }
    }
    Ok(turns)
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// A block as it is sent; none where there is nothing to send.
fn content(block: &Block) -> Result<Option<Content<'_>>, ModelError> {
    Ok(match block {
        // The provider sends texts without content, and refuses them.
        Block::Text { text, .. } if text.trim().is_empty() => None,
        Block::Text { raw: Some(raw), .. } | Block::ToolUse { raw: Some(raw), .. } | Block::Opaque(raw)
            if *raw.format == *FORMAT =>
        {
            Some(kept(raw)?)
        }
        Block::Text { text, .. } => Some(Content::Text(Text { r#type: "text", text, cache_control: None })),
        Block::ToolUse { id, name, args, .. } => {
            let input = object(args).unwrap_or_else(|| object("{}").expect("an empty object is JSON"));
            Some(Content::ToolUse { r#type: "tool_use", id, name, input })
        }
        Block::ToolResult { id, text, is_error } => {
            let result = ToolResult { r#type: "tool_result", tool_use_id: id, content: text, is_error: *is_error };
            Some(Content::ToolResult(result))
        }
        // A block that only another provider understands.
        Block::Opaque(_) => None,
    })
}

fn kept(raw: &Raw) -> Result<Content<'_>, ModelError> {
    let kept = serde_json::from_str(&raw.json);
    kept.map(Content::Kept).map_err(|error| invalid(format!("a kept block is no JSON: {error}")))
}

fn object(json: &str) -> Option<&RawValue> {
    serde_json::from_str(json).ok().filter(|value: &&RawValue| value.get().starts_with('{'))
}

fn invalid(message: String) -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests;
