//! Encodes requests.
//!
//! * After the items comes only the limit of the reply, which a budget may lower.
//! * An item that came from such a server is sent back with its original JSON text, in its original
//!   position, since a reasoning item belongs to the item after it.
//! * A function output has no error flag: the text of an error begins with `Error:`.
//! * No cache is requested: the provider caches equal prefixes by itself. A program may set
//!   `prompt_cache_key` among its parameters.

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Role};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;

use super::FORMAT;
use crate::wire::call_ids;
use crate::wire::json_fields::{Fields, arguments, kept, raw, type_of};
use crate::wire::media::{self, Kind};
use crate::wire::{Delivery, Purpose, Turn, parameters, schema};

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
/// The names of the limit of a reply: a program may use either.
const BOUNDS: [&str; 2] = ["max_tokens", "max_output_tokens"];
/// The smallest limit that the provider accepts. If a budget has fewer tokens left, the reply may
/// exceed the budget by the difference.
const MIN_REPLY_TOKENS: u64 = 16;
/// The parameters that influence the number of input tokens.
const COUNTED: [&str; 4] = ["reasoning", "text", "tool_choice", "truncation"];
/// Models without reasoning. They refuse a request for their reasoning.
const WITHOUT_REASONING: [&str; 5] = ["gpt-3", "gpt-4", "gpt-5-chat", "chatgpt-4o", "computer-use"];
/// The longest id of a call that the provider accepts.
const MAX_ID_CHARS: usize = 64;

pub(super) fn head(request: &Request, purpose: Purpose) -> Result<String, ModelError> {
    let mut head = Fields::default().with("model", &*request.model);
    if let Purpose::Reply(delivery) = purpose {
        head = head
            .with("stream", &(delivery == Delivery::Stream))
            .with("store", &false);
        if reasons(&request.model) && !request.parameters.contains_key("include") {
            head = head.with("include", &["reasoning.encrypted_content"]);
        }
    }
    for (name, value) in parameters::sorted(request, &RESERVED)? {
        if !BOUNDS.contains(&name) && (purpose != Purpose::Count || COUNTED.contains(&name)) {
            head = head.with(name, value);
        }
    }
    let system = Some(&*request.system).filter(|system| !system.trim().is_empty());
    head = head.with_some("instructions", system);
    if !request.tools.is_empty() {
        head = head.with(
            "tools",
            &request
                .tools
                .iter()
                .map(tool)
                .collect::<Result<Vec<_>, _>>()?,
        );
    }
    let head = head.to_json();
    let open = head
        .strip_suffix('}')
        .expect("an object ends with its brace");
    Ok(format!("{open},\"input\":["))
}

/// Whether a model may reason. The name may have a prefix: `ft:gpt-4.1:…` for a fine-tuned model,
/// `openai/gpt-4o` on a server for many providers.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    !WITHOUT_REASONING
        .iter()
        .any(|without| name.starts_with(without))
}

pub(super) fn tail(request: &Request, purpose: Purpose) -> String {
    let bound = BOUNDS.iter().find_map(|name| request.parameters.get(*name));
    match bound.filter(|_| purpose != Purpose::Count) {
        Some(bound) if bound.as_u64().is_some_and(|bound| bound < MIN_REPLY_TOKENS) => {
            format!("],\"max_output_tokens\":{MIN_REPLY_TOKENS}}}")
        }
        Some(bound) => format!("],\"max_output_tokens\":{}}}", raw(bound)),
        None => "]}".to_owned(),
    }
}

/// Schemas come from the host, and do not follow the rules that the provider calls strict.
fn tool(spec: &ToolSpec) -> Result<Fields, ModelError> {
    let schema = schema::of(spec)?;
    let named = Fields::of_type("function")
        .with("name", &*spec.name)
        .with("description", &*spec.description);
    Ok(named.with("parameters", &schema).with("strict", &false))
}

pub(super) fn turn(turn: Turn<'_>) -> Result<String, ModelError> {
    let items = match turn.message.role {
        Role::Assistant => {
            let items = turn
                .message
                .blocks
                .iter()
                .filter_map(|block| model_items(block).transpose());
            without_last_thoughts(items.collect::<Result<Vec<_>, _>>()?)
        }
        Role::User => user_items(turn),
    };
    let items: Vec<_> = items.iter().map(|item| item.get()).collect();
    Ok(items.join(","))
}

/// Drops reasoning at the end: the provider accepts reasoning only before the item that it led to,
/// which is missing if the reply was truncated.
fn without_last_thoughts(mut items: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    while items
        .last()
        .is_some_and(|item| type_of(item.get()).as_deref() == Some("reasoning"))
    {
        items.pop();
    }
    items
}

fn model_items(block: &Block) -> Result<Option<Box<RawValue>>, ModelError> {
    Ok(match block {
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw)
            if *raw.format == *FORMAT =>
        {
            Some(kept(&raw.json, || "a kept item".to_owned())?)
        }
        Block::Text { text, .. } if text.trim().is_empty() => None,
        Block::Text { text, .. } => Some(raw(&message_item("assistant", &**text))),
        Block::ToolUse { id, name, args, .. } => {
            let call = Fields::of_type("function_call")
                .with("call_id", &*call_ids::fitting(id, MAX_ID_CHARS))
                .with("name", &**name);
            Some(raw(&call.with("arguments", arguments(args).get())))
        }
        Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque(_) => None,
    })
}

fn message_item(role: &str, content: &(impl serde::Serialize + ?Sized)) -> Fields {
    Fields::default()
        .with("role", role)
        .with("content", content)
}

/// Function outputs first, then the texts and media of the user.
fn user_items(turn: Turn<'_>) -> Vec<Box<RawValue>> {
    let blocks = &turn.message.blocks;
    let mut items: Vec<_> = blocks
        .iter()
        .filter_map(|block| answer(block, turn))
        .map(|item| raw(&item))
        .collect();
    let texts: Vec<_> = blocks.iter().filter_map(text).collect();
    let media: Vec<_> = shown(turn, None).collect();
    match (&texts[..], &media[..]) {
        ([], []) => {}
        ([text], []) => items.push(raw(&message_item("user", *text))),
        (texts, media) => {
            let parts: Vec<_> = texts
                .iter()
                .map(|text| part(text))
                .chain(media.iter().cloned())
                .collect();
            items.push(raw(&message_item("user", &parts)));
        }
    }
    items
}

fn text(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text, .. } if !text.trim().is_empty() => Some(text),
        _ => None,
    }
}

fn part(text: &str) -> Fields {
    Fields::of_type("input_text").with("text", text)
}

fn answer(block: &Block, turn: Turn<'_>) -> Option<Fields> {
    let Block::ToolResult { id, text, is_error } = block else {
        return None;
    };
    let text = if *is_error {
        format!("Error: {text}")
    } else {
        text.to_string()
    };
    let sent_id = call_ids::of_answer(id, turn.before, FORMAT, MAX_ID_CHARS);
    let answer = Fields::of_type("function_call_output").with("call_id", &*sent_id);
    let media: Vec<_> = shown(turn, Some(id)).collect();
    if media.is_empty() {
        return Some(answer.with("output", &text));
    }
    Some(
        answer.with(
            "output",
            &std::iter::once(part(&text))
                .chain(media)
                .collect::<Vec<_>>(),
        ),
    )
}

fn shown<'a>(turn: Turn<'a>, answer: Option<&'a str>) -> impl Iterator<Item = Fields> + 'a {
    media::of(&turn.message.blocks, turn.media, answer)
        .filter_map(|(media, bytes)| show(media, bytes))
}

fn show(media: &Media, bytes: &Bytes) -> Option<Fields> {
    let url = || media::data_url(&media.media_type, bytes);
    Some(match media::kind(&media.media_type)? {
        Kind::Image => Fields::of_type("input_image").with("image_url", &url()),
        Kind::Pdf => {
            let file = Fields::of_type("input_file").with("filename", &media::file_name(media));
            file.with("file_data", &url())
        }
    })
}

#[cfg(test)]
mod tests;
