//! Encodes requests for the Chat Completions API.
//!
//! * Only the limit of the reply, which a budget may lower, comes after the messages.
//! * A message that was received in this format is sent back with its original JSON text.
//! * Each tool result is a message of its own, and can contain text only. Images and documents
//!   follow in a user message after all results, each after the name of its descriptor.
//! * A tool result has no error flag: the text of an error begins with `Error:`.
//! * No cache is requested: these servers cache equal prefixes by themselves.
//!
//! `wire/request_body.rs` joins the head, the messages and the tail that are encoded here.

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Role, text_of};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::provider_tools::ToolForm;
use dormouse_proto::tool::ToolSpec;
use serde_json::{Map, Value};

use super::{Dialect, FORMAT};
use crate::wire::call_ids;
use crate::wire::json_fields::{Fields, object_or_empty, to_raw, verbatim};
use crate::wire::media::{self, MediaKind};
use crate::wire::{Delivery, MessageContext, Purpose, parameters, schema, system_prompt, tools};

/// Fields that the request itself sets, so `[parameters]` must not.
const RESERVED: [&str; 6] = [
    "model",
    "messages",
    "tools",
    "stream",
    "stream_options",
    "n",
];
/// The parameters that limit a reply. `max_tokens` is understood for all providers, and is sent
/// under the name that the server knows; the other name is the format's own, and is sent as
/// written.
const LIMIT_NAMES: [&str; 2] = ["max_completion_tokens", "max_tokens"];
/// The longest id of a call that the provider accepts, in bytes.
pub(super) const MAX_ID_BYTES: usize = 40;

pub(super) fn encode_head(request: &Request, purpose: Purpose) -> Result<String, ModelError> {
    let is_streamed = purpose == Purpose::Reply(Delivery::Stream);
    let mut head = Fields::default()
        .with("model", &*request.model)
        .with("stream", &is_streamed);
    if is_streamed {
        head = head.with(
            "stream_options",
            &Fields::default().with("include_usage", &true),
        );
    }
    let parameters = parameters::sorted(request, &RESERVED)?;
    for (name, value) in parameters
        .into_iter()
        .filter(|(name, _)| !LIMIT_NAMES.contains(name))
    {
        head = head.with(name, value);
    }
    let tools = tools::all(request, tool)?;
    if !tools.is_empty() {
        head = head.with("tools", &tools);
    }
    let system = system_prompt(request)
        .map(|system| text_message("system", system).to_json())
        .unwrap_or_default();
    Ok(head.to_json_up_to_list("messages") + &system)
}

/// Encodes the limit of the reply. There is only one: servers refuse two.
pub(super) fn encode_tail(request: &Request, dialect: Dialect) -> String {
    let [own_name, general_name] = LIMIT_NAMES;
    let name_of_general = match dialect {
        Dialect::OpenAi => own_name,
        Dialect::Compatible => general_name,
    };
    let limit = |name| request.parameters.get(name);
    let own = limit(own_name).map(|limit| (own_name, limit));
    let general = || limit(general_name).map(|limit| (name_of_general, limit));
    match own.or_else(general) {
        Some((name, limit)) => format!("],\"{name}\":{}}}", to_raw(limit)),
        None => "]}".to_owned(),
    }
}

fn tool(spec: &ToolSpec, form: Option<&ToolForm>) -> Result<Fields, ModelError> {
    let described = Fields::default()
        .with("name", &*spec.name)
        .with("description", &*spec.description);
    if let Some(format) = form.and_then(|form| form.input_format.as_ref()) {
        schema::check_input_only(spec)?;
        let custom = described.with("format", &nested_format(format));
        return Ok(Fields::of_type("custom").with("custom", &custom));
    }
    let is_strict = schema::is_strict(spec, form, schema::StrictDialect::OpenAi);
    let schema = match is_strict {
        true => schema::with_all_required(spec)?,
        false => schema::for_request(spec)?,
    };
    let function = described
        .with("parameters", &schema)
        .with_some("strict", is_strict.then_some(&true));
    Ok(Fields::of_type("function").with("function", &function))
}

/// The format of a text in this API, which puts the fields of a grammar into an object of their
/// own. A program may write either form.
fn nested_format(format: &Map<String, Value>) -> Fields {
    let kind = format.get("type").and_then(Value::as_str);
    let is_flat = kind == Some("grammar") && !format.contains_key("grammar");
    let mut outer = Fields::default();
    let mut grammar = Fields::default();
    for (name, value) in format {
        match is_flat && name != "type" {
            true => grammar.set(name, to_raw(value)),
            false => outer.set(name, to_raw(value)),
        }
    }
    match is_flat {
        true => outer.with("grammar", &grammar),
        false => outer,
    }
}

fn text_message(role: &str, text: &str) -> Fields {
    Fields::default().with("role", role).with("content", text)
}

pub(super) fn encode_message(context: MessageContext<'_>) -> Result<String, ModelError> {
    match context.message.role {
        Role::Assistant => assistant_message(&context.message.blocks),
        Role::User => Ok(user_messages(context)),
    }
}

fn assistant_message(blocks: &[Block]) -> Result<String, ModelError> {
    let original = blocks.iter().find_map(|block| match block {
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw) => Some(raw).filter(|raw| *raw.format == *FORMAT),
        _ => None,
    });
    if let Some(original) = original {
        return verbatim(&original.json, || "a kept message".to_owned())
            .map(|json| json.get().to_owned());
    }
    let calls: Vec<_> = blocks.iter().filter_map(tool_call).collect();
    let text = text_of(blocks);
    Ok(match (text.trim().is_empty(), calls.is_empty()) {
        (true, true) => String::new(),
        (false, true) => text_message("assistant", &text).to_json(),
        (is_blank, false) => {
            let content = Some(&text).filter(|_| !is_blank);
            Fields::default()
                .with("role", "assistant")
                .with("content", &content)
                .with("tool_calls", &calls)
                .to_json()
        }
    })
}

fn tool_call(block: &Block) -> Option<Fields> {
    let Block::ToolUse { id, name, args, .. } = block else {
        return None;
    };
    let function = Fields::default()
        .with("name", &**name)
        .with("arguments", object_or_empty(args).get());
    let id = call_ids::accepted_id(id, MAX_ID_BYTES);
    Some(
        Fields::default()
            .with("id", &*id)
            .with("type", "function")
            .with("function", &function),
    )
}

fn user_messages(context: MessageContext<'_>) -> String {
    let blocks = &context.message.blocks;
    let tool_results = blocks
        .iter()
        .filter_map(|block| tool_result(block, context));
    let parts: Vec<_> = blocks
        .iter()
        .flat_map(|block| user_parts(block, context))
        .collect();
    let user_message = match (&parts[..], first_text(blocks)) {
        ([], _) => None,
        ([_], Some(text)) => Some(text_message("user", text)),
        _ => Some(
            Fields::default()
                .with("role", "user")
                .with("content", &parts),
        ),
    };
    let messages: Vec<_> = tool_results
        .chain(user_message)
        .map(|message| message.to_json())
        .collect();
    messages.join(",")
}

fn tool_result(block: &Block, context: MessageContext<'_>) -> Option<Fields> {
    let Block::ToolResult { id, text, is_error } = block else {
        return None;
    };
    let id = call_ids::id_of_result(id, context.previous, FORMAT, MAX_ID_BYTES);
    let message = Fields::default()
        .with("role", "tool")
        .with("tool_call_id", &*id);
    Some(if *is_error {
        message.with("content", &format!("Error: {text}"))
    } else {
        message.with("content", &**text)
    })
}

/// The first text that is not blank.
fn first_text(blocks: &[Block]) -> Option<&str> {
    blocks.iter().find_map(|block| match block {
        Block::Text { text, .. } if !text.trim().is_empty() => Some(&**text),
        _ => None,
    })
}

/// The parts of a user message that encode a block.
fn user_parts(block: &Block, context: MessageContext<'_>) -> Vec<Fields> {
    match block {
        Block::Text { text, .. } if !text.trim().is_empty() => vec![text_part(text)],
        Block::Media { media, .. } => {
            let media_part = context
                .media
                .get(&media.fd)
                .and_then(|bytes| media_part(media, bytes));
            let name = text_part(&format!("{} ({}):", media.fd, media.media_type));
            media_part
                .into_iter()
                .flat_map(|media_part| [name.clone(), media_part])
                .collect()
        }
        Block::Text { .. }
        | Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Opaque(_) => Vec::new(),
    }
}

fn text_part(text: &str) -> Fields {
    Fields::of_type("text").with("text", text)
}

fn media_part(media: &Media, bytes: &Bytes) -> Option<Fields> {
    let url = || media::data_url(&media.media_type, bytes);
    Some(match media::kind(&media.media_type)? {
        MediaKind::Image => {
            Fields::of_type("image_url").with("image_url", &Fields::default().with("url", &url()))
        }
        MediaKind::Pdf => {
            let file = Fields::default()
                .with("filename", &media::file_name(media))
                .with("file_data", &url());
            Fields::of_type("file").with("file", &file)
        }
    })
}

#[cfg(test)]
mod tests;
