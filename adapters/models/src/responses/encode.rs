//! To the wire.
//!
//! * Behind the items stands only the bound of the reply, which a budget may lower.
//! * An item that came from such a server goes back as the text that came, at its place: a
//!   reasoning item is bound to the one that follows it.
//! * The answer to a tool use has no error flag: it begins with the word.
//! * Nothing asks for a cache: the provider caches by itself, what begins with the same bytes. A
//!   program may say `prompt_cache_key` among its parameters.

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Role};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;

use super::FORMAT;
use crate::wire::fields::{Fields, arguments, kept, raw, type_of};
use crate::wire::ids;
use crate::wire::media::{self, Kind};
use crate::wire::{Delivery, Purpose, Turn, parameters, schema};

/// What the request itself says, so that `[parameters]` cannot.
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
/// The bound of a reply, by all its names: a program may write either.
const BOUNDS: [&str; 2] = ["max_tokens", "max_output_tokens"];
/// No reply may be bounded to fewer tokens: where a budget has less left, it goes so far beyond it.
const SHORTEST_REPLY: u64 = 16;
/// What bears on the number of input tokens, of what `[parameters]` may hold.
const COUNTED: [&str; 4] = ["reasoning", "text", "tool_choice", "truncation"];
/// Models that do not reason refuse to be asked for what they reasoned.
const WITHOUT_REASONING: [&str; 5] = ["gpt-3", "gpt-4", "gpt-5-chat", "chatgpt-4o", "computer-use"];
/// The longest id of a call that is taken.
const LONGEST_ID: usize = 64;

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

/// Whether a model may reason. One that was tuned is called `ft:gpt-4.1:…`, one behind a server for
/// many `openai/gpt-4o`.
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
        Some(bound) if bound.as_u64().is_some_and(|bound| bound < SHORTEST_REPLY) => {
            format!("],\"max_output_tokens\":{SHORTEST_REPLY}}}")
        }
        Some(bound) => format!("],\"max_output_tokens\":{}}}", raw(bound)),
        None => "]}".to_owned(),
    }
}

/// Schemas are the host's, and not of the kind that the provider calls strict.
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
                .filter_map(|block| of_the_model(block).transpose());
            without_last_thoughts(items.collect::<Result<Vec<_>, _>>()?)
        }
        Role::User => of_the_user(turn),
    };
    let items: Vec<_> = items.iter().map(|item| item.get()).collect();
    Ok(items.join(","))
}

/// Reasoning is taken only in front of what followed from it, and nothing did where the reply was
/// cut.
fn without_last_thoughts(mut items: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    while items
        .last()
        .is_some_and(|item| type_of(item.get()).as_deref() == Some("reasoning"))
    {
        items.pop();
    }
    items
}

fn of_the_model(block: &Block) -> Result<Option<Box<RawValue>>, ModelError> {
    Ok(match block {
        Block::Text { raw: Some(raw), .. }
        | Block::ToolUse { raw: Some(raw), .. }
        | Block::Opaque(raw)
            if *raw.format == *FORMAT =>
        {
            Some(kept(&raw.json, || "a kept item".to_owned())?)
        }
        Block::Text { text, .. } if text.trim().is_empty() => None,
        Block::Text { text, .. } => Some(raw(&said("assistant", &**text))),
        Block::ToolUse { id, name, args, .. } => {
            let call = Fields::of_type("function_call")
                .with("call_id", &*ids::fitting(id, LONGEST_ID))
                .with("name", &**name);
            Some(raw(&call.with("arguments", arguments(args).get())))
        }
        Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque(_) => None,
    })
}

fn said(role: &str, content: &(impl serde::Serialize + ?Sized)) -> Fields {
    Fields::default()
        .with("role", role)
        .with("content", content)
}

/// Answers first, then what the user says.
fn of_the_user(turn: Turn<'_>) -> Vec<Box<RawValue>> {
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
        ([text], []) => items.push(raw(&said("user", *text))),
        (texts, media) => {
            let parts: Vec<_> = texts
                .iter()
                .map(|text| part(text))
                .chain(media.iter().cloned())
                .collect();
            items.push(raw(&said("user", &parts)));
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
    let sent_id = ids::of_answer(id, turn.before, FORMAT, LONGEST_ID);
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
