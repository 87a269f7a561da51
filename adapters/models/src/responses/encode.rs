//! Encodes requests for the Responses API.
//!
//! * Only the limit of the reply, which a budget may lower, comes after the items.
//! * An item that was received in this format is sent back with its original JSON text, in its
//!   original position, since a reasoning item belongs to the item after it.
//! * A function output has no error flag: the text of an error begins with `Error:`.
//! * No cache is requested: the provider caches equal prefixes by itself. A program may set
//!   `prompt_cache_key` among its parameters.
//!
//! `wire/request_body.rs` joins the head, the items of all messages and the tail that are encoded
//! here.

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Role};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::provider_tools::ToolForm;
use dormouse_proto::tool::ToolSpec;
use serde_json::Value;
use serde_json::value::RawValue;

use super::FORMAT;
use crate::wire::call_ids;
use crate::wire::json_fields::{Fields, object_or_empty, to_raw, type_of, verbatim};
use crate::wire::media::{self, MediaKind};
use crate::wire::{Delivery, MessageContext, Purpose, parameters, schema, system_prompt, tools};

/// Fields that the request itself sets, so `[parameters]` must not.
const RESERVED: [&str; 9] = [
    "model",
    "input",
    "instructions",
    "tools",
    "stream",
    "store",
    "background",
    "previous_response_id",
    "conversation",
];
/// The parameters that limit a reply. A program may use either.
const LIMIT_NAMES: [&str; 2] = ["max_tokens", "max_output_tokens"];
/// The smallest limit that the provider accepts. If a budget has fewer tokens left, the reply may
/// exceed the budget by the difference.
const MIN_REPLY_TOKENS: u64 = 16;
/// The parameters that influence the number of input tokens. A request that counts tokens has no
/// others.
const COUNT_PARAMETERS: [&str; 4] = ["reasoning", "text", "tool_choice", "truncation"];
/// Models without reasoning. They refuse a request for their reasoning.
const WITHOUT_REASONING: [&str; 5] = ["gpt-3", "gpt-4", "gpt-5-chat", "chatgpt-4o", "computer-use"];
/// The longest id of a call that the provider accepts, in bytes.
pub(super) const MAX_ID_BYTES: usize = 64;

pub(super) fn encode_head(request: &Request, purpose: Purpose) -> Result<String, ModelError> {
    let mut head = Fields::default().with("model", &*request.model);
    if let Purpose::Reply(delivery) = purpose {
        head = head
            .with("stream", &(delivery == Delivery::Stream))
            .with("store", &false);
        if let Some(include) = included(request) {
            head = head.with("include", &include);
        }
    }
    for (name, value) in parameters::sorted(request, &RESERVED)? {
        if !LIMIT_NAMES.contains(&name)
            && name != "include"
            && (purpose != Purpose::Count || COUNT_PARAMETERS.contains(&name))
        {
            head = head.with(name, value);
        }
    }
    let system = system_prompt(request);
    head = head.with_some("instructions", system);
    let tools = tools::all(request, tool)?;
    if !tools.is_empty() {
        head = head.with("tools", &tools);
    }
    Ok(head.to_json_up_to_list("input"))
}

/// What the reply has to include: what the program asks for, and the reasoning, without which the
/// conversation could not go on. A list that is no list is sent as it is.
fn included(request: &Request) -> Option<Value> {
    const REASONING: &str = "reasoning.encrypted_content";
    let mut include = match request.parameters.get("include") {
        Some(Value::Array(written)) => written.clone(),
        Some(other) => return Some(other.clone()),
        None => Vec::new(),
    };
    if may_reason(&request.model) && !include.iter().any(|field| field == REASONING) {
        include.push(REASONING.into());
    }
    let is_written = request.parameters.contains_key("include");
    (is_written || !include.is_empty()).then(|| include.into())
}

/// Whether a model may reason. The name may have a prefix: `ft:gpt-4.1:…` for a fine-tuned model,
/// `openai/gpt-4o` on a server for many providers.
fn may_reason(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    !WITHOUT_REASONING
        .iter()
        .any(|without| name.starts_with(without))
}

pub(super) fn encode_tail(request: &Request, purpose: Purpose) -> String {
    let limit = LIMIT_NAMES
        .iter()
        .find_map(|name| request.parameters.get(*name));
    match limit.filter(|_| purpose != Purpose::Count) {
        Some(limit) if limit.as_u64().is_some_and(|limit| limit < MIN_REPLY_TOKENS) => {
            format!("],\"max_output_tokens\":{MIN_REPLY_TOKENS}}}")
        }
        Some(limit) => format!("],\"max_output_tokens\":{}}}", to_raw(limit)),
        None => "]}".to_owned(),
    }
}

/// Encodes a tool. The provider's strict mode is off unless the program asks for it, since schemas
/// come from the host and need not follow its rules.
fn tool(spec: &ToolSpec, form: Option<&ToolForm>) -> Result<Fields, ModelError> {
    let fields = |kind| {
        Fields::of_type(kind)
            .with("name", &*spec.name)
            .with("description", &*spec.description)
    };
    if let Some(format) = form.and_then(|form| form.input_format.as_ref()) {
        schema::check_input_only(spec)?;
        return Ok(fields("custom").with("format", format));
    }
    let is_strict = schema::is_strict(spec, form, schema::StrictDialect::OpenAi);
    let schema = match is_strict {
        true => schema::with_all_required(spec)?,
        false => schema::for_request(spec)?,
    };
    let fields = fields("function").with("parameters", &schema);
    Ok(fields.with("strict", &is_strict))
}

pub(super) fn encode_message(context: MessageContext<'_>) -> Result<String, ModelError> {
    let items = match context.message.role {
        Role::Assistant => {
            let items = context
                .message
                .blocks
                .iter()
                .filter_map(|block| assistant_item(block).transpose());
            without_trailing_reasoning(items.collect::<Result<Vec<_>, _>>()?)
        }
        Role::User => user_items(context),
    };
    let items: Vec<_> = items.iter().map(|item| item.get()).collect();
    Ok(items.join(","))
}

/// Drops reasoning items at the end. The provider accepts a reasoning item only before the item
/// that it led to, which is missing if the reply was truncated.
fn without_trailing_reasoning(mut items: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    while items
        .last()
        .is_some_and(|item| type_of(item.get()).as_deref() == Some("reasoning"))
    {
        items.pop();
    }
    items
}

fn assistant_item(block: &Block) -> Result<Option<Box<RawValue>>, ModelError> {
    Ok(match block {
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw)
            if *raw.format == *FORMAT =>
        {
            Some(verbatim(&raw.json, || "a kept item".to_owned())?)
        }
        Block::Text { text, .. } if text.trim().is_empty() => None,
        Block::Text { text, .. } => Some(to_raw(&message_item("assistant", &**text))),
        Block::ToolUse { id, name, args, .. } => {
            let call = Fields::of_type("function_call")
                .with("call_id", &*call_ids::accepted_id(id, MAX_ID_BYTES))
                .with("name", &**name);
            Some(to_raw(&call.with("arguments", object_or_empty(args).get())))
        }
        Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque(_) => None,
    })
}

fn message_item(role: &str, content: &(impl serde::Serialize + ?Sized)) -> Fields {
    Fields::default()
        .with("role", role)
        .with("content", content)
}

/// The items of a user message: function outputs first, then the texts and media of the user.
fn user_items(context: MessageContext<'_>) -> Vec<Box<RawValue>> {
    let blocks = &context.message.blocks;
    let mut items: Vec<_> = blocks
        .iter()
        .filter_map(|block| function_output(block, context))
        .map(|item| to_raw(&item))
        .collect();
    let texts: Vec<_> = blocks.iter().filter_map(block_text).collect();
    let media: Vec<_> = media_parts(context, None).collect();
    match (&texts[..], &media[..]) {
        ([], []) => {}
        ([text], []) => items.push(to_raw(&message_item("user", *text))),
        (texts, media) => {
            let parts: Vec<_> = texts
                .iter()
                .map(|text| text_part(text))
                .chain(media.iter().cloned())
                .collect();
            items.push(to_raw(&message_item("user", &parts)));
        }
    }
    items
}

fn block_text(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text, .. } if !text.trim().is_empty() => Some(text),
        _ => None,
    }
}

fn text_part(text: &str) -> Fields {
    Fields::of_type("input_text").with("text", text)
}

fn function_output(block: &Block, context: MessageContext<'_>) -> Option<Fields> {
    let Block::ToolResult { id, text, is_error } = block else {
        return None;
    };
    let text = if *is_error {
        format!("Error: {text}")
    } else {
        text.to_string()
    };
    let sent_id = call_ids::id_of_result(id, context.previous, FORMAT, MAX_ID_BYTES);
    let kind = match is_custom_call(id, context) {
        true => "custom_tool_call_output",
        false => "function_call_output",
    };
    let output = Fields::of_type(kind).with("call_id", &*sent_id);
    let media: Vec<_> = media_parts(context, Some(id)).collect();
    if media.is_empty() {
        return Some(output.with("output", &text));
    }
    Some(
        output.with(
            "output",
            &std::iter::once(text_part(&text))
                .chain(media)
                .collect::<Vec<_>>(),
        ),
    )
}

/// Whether the call with this id is sent as the call of a custom tool.
fn is_custom_call(id: &str, context: MessageContext<'_>) -> bool {
    let blocks = context.previous.iter().flat_map(|message| &message.blocks);
    blocks.into_iter().any(|block| match block {
        Block::ToolUse {
            id: called,
            raw: Some(raw),
            ..
        } => {
            **called == *id
                && *raw.format == *FORMAT
                && type_of(&raw.json).as_deref() == Some("custom_tool_call")
        }
        _ => false,
    })
}

fn media_parts<'a>(
    context: MessageContext<'a>,
    result_id: Option<&'a str>,
) -> impl Iterator<Item = Fields> + 'a {
    media::of_result(&context.message.blocks, context.media, result_id)
        .filter_map(|(media, bytes)| media_part(media, bytes))
}

fn media_part(media: &Media, bytes: &Bytes) -> Option<Fields> {
    let url = || media::data_url(&media.media_type, bytes);
    Some(match media::kind(&media.media_type)? {
        MediaKind::Image => Fields::of_type("input_image").with("image_url", &url()),
        MediaKind::Pdf => {
            let file = Fields::of_type("input_file").with("filename", &media::file_name(media));
            file.with("file_data", &url())
        }
    })
}

#[cfg(test)]
mod tests;
