//! Encodes requests for the Gemini API.
//!
//! * `generationConfig` comes after the contents, since it holds the limit of the reply, which a
//!   budget may lower.
//! * A part that was received in this format is sent back with its original JSON text.
//! * A function response names its function, which is looked up in the previous message.
//! * A call that another provider's model made has no thought signature, and newer models refuse
//!   such a call. It gets the placeholder that the provider documents for this case.
//! * Media come after the function responses, each after the name of its descriptor. Every model
//!   accepts this order.
//! * No cache is requested: the provider caches by itself. A program may set `cachedContent` among
//!   its parameters.
//!
//! `wire/request_body.rs` joins the head, the messages and the tail that are encoded here.

use bytes::Bytes;
use dormouse_proto::message::{Block, Media, Message, Role};
use dormouse_proto::model::{ModelError, Request};
use dormouse_proto::provider_tools::ToolForm;
use dormouse_proto::tool::ToolSpec;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{FORMAT, metadata, names};
use crate::wire::json_fields::{Fields, object_or_empty, to_raw, verbatim};
use crate::wire::media;
use crate::wire::{MessageContext, Purpose, parameters, schema, system_prompt, tools};

/// Fields that the request itself sets, so `[parameters]` must not.
const RESERVED: [&str; 5] = [
    "contents",
    "systemInstruction",
    "system_instruction",
    "tools",
    "model",
];
/// Parameters at the top level of a request. Every other parameter belongs to `generationConfig`.
const TOP_LEVEL: [&str; 6] = [
    "toolConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "serviceTier",
    "store",
];
/// Names that programs may use for a parameter, as with other providers, and its name here.
const ALIASES: [(&str, &str); 5] = [
    ("max_tokens", "maxOutputTokens"),
    ("stop_sequences", "stopSequences"),
    ("temperature", "temperature"),
    ("top_k", "topK"),
    ("top_p", "topP"),
];
/// The documented placeholder for the signature of a call that another model made.
const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn encode_head(request: &Request, purpose: Purpose) -> Result<String, ModelError> {
    let mut head = Fields::default();
    if purpose == Purpose::Count {
        head = head.with("model", &names::model_path(&request.model)?);
    }
    for (name, value) in parameters::sorted(request, &RESERVED)? {
        if TOP_LEVEL.contains(&name) {
            head = head.with(name, value);
        }
    }
    if let Some(system) = system_prompt(request) {
        head = head.with(
            "systemInstruction",
            &Fields::default().with("parts", &[text_part(system)]),
        );
    }
    let mut all = Vec::new();
    if !request.tools.is_empty() {
        let functions = tools::own(request, function)?;
        all.push(Fields::default().with("functionDeclarations", &functions));
    }
    all.extend(tools::server(request));
    if !all.is_empty() {
        head = head.with("tools", &all);
    }
    let contents = head.to_json_up_to_list("contents");
    let wrapper = if purpose == Purpose::Count {
        "{\"generateContentRequest\":"
    } else {
        ""
    };
    Ok(format!("{wrapper}{contents}"))
}

pub(super) fn encode_tail(request: &Request, purpose: Purpose) -> Result<String, ModelError> {
    if purpose == Purpose::Count {
        return Ok("]}}".to_owned());
    }
    let mut config = Fields::default();
    let mut add = |name: &str, value: &Value| {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        config.set(alias.map_or(name, |(_, name)| name), to_raw(value));
    };
    let parameters = parameters::sorted(request, &RESERVED)?;
    for (name, value) in parameters
        .into_iter()
        .filter(|(name, _)| !TOP_LEVEL.contains(name))
    {
        match (name, value) {
            ("generationConfig", Value::Object(inner)) => {
                inner.iter().for_each(|(name, value)| add(name, value))
            }
            _ => add(name, value),
        }
    }
    Ok(match config.len() {
        0 => "]}".to_owned(),
        _ => format!("],\"generationConfig\":{}}}", config.to_json()),
    })
}

fn function(spec: &ToolSpec, _: Option<&ToolForm>) -> Result<Fields, ModelError> {
    let schema = schema::for_request(spec)?;
    let fields = Fields::default()
        .with("name", &*spec.name)
        .with("description", &*spec.description);
    Ok(fields.with("parametersJsonSchema", &schema))
}

pub(super) fn encode_message(context: MessageContext<'_>) -> Result<String, ModelError> {
    let (role, parts) = match context.message.role {
        Role::Assistant => ("model", model_parts(context.message)?),
        Role::User => ("user", user_parts(context)),
    };
    // The provider refuses a message without parts.
    Ok(match parts.is_empty() {
        true => String::new(),
        false => Fields::default()
            .with("role", role)
            .with("parts", &parts)
            .to_json(),
    })
}

fn model_parts(message: &Message) -> Result<Vec<Box<RawValue>>, ModelError> {
    let mut parts = Vec::with_capacity(message.blocks.len());
    for block in &message.blocks {
        match block {
            Block::Text { raw: Some(raw), .. }
            | Block::ToolUse { raw: Some(raw), .. }
            | Block::Opaque(raw)
                if *raw.format == *FORMAT =>
            {
                let part = verbatim(&raw.json, || "a kept part".to_owned())?;
                parts.push(metadata::without(part));
            }
            Block::Text { text: words, .. } if !words.trim().is_empty() => {
                parts.push(to_raw(&text_part(words)))
            }
            Block::ToolUse { id, name, args, .. } => {
                let call = id_and_name(id, name).with("args", &object_or_empty(args));
                let call = Fields::default().with("functionCall", &call);
                parts.push(to_raw(
                    &call.with("thoughtSignature", PLACEHOLDER_SIGNATURE),
                ));
            }
            Block::Text { .. }
            | Block::ToolResult { .. }
            | Block::Media { .. }
            | Block::Opaque(_) => {}
        }
    }
    Ok(parts)
}

fn text_part(text: &str) -> Fields {
    Fields::default().with("text", text)
}

fn id_and_name(id: &str, name: &str) -> Fields {
    Fields::default()
        .with_some("id", names::sent_id(id))
        .with("name", name)
}

/// The parts of a user message: function responses first, then media, then texts.
fn user_parts(context: MessageContext<'_>) -> Vec<Box<RawValue>> {
    let blocks = &context.message.blocks;
    let responses = blocks
        .iter()
        .filter_map(|block| function_response(block, context.previous));
    let media = blocks.iter().flat_map(|block| match block {
        Block::Media { media, .. } => context
            .media
            .get(&media.fd)
            .and_then(|bytes| media_parts(media, bytes)),
        _ => None,
    });
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text: words, .. } if !words.trim().is_empty() => Some(text_part(words)),
        _ => None,
    });
    responses
        .chain(media.flatten())
        .chain(texts)
        .map(|part| to_raw(&part))
        .collect()
}

fn function_response(block: &Block, previous: Option<&Message>) -> Option<Fields> {
    let Block::ToolResult { id, text, is_error } = block else {
        return None;
    };
    let key = if *is_error { "error" } else { "output" };
    let response = id_and_name(id, function_name(id, previous))
        .with("response", &Fields::default().with(key, &**text));
    Some(Fields::default().with("functionResponse", &response))
}

/// The name of the function that the call with this id calls.
fn function_name<'a>(id: &str, previous: Option<&'a Message>) -> &'a str {
    let blocks = previous
        .map(|message| message.blocks.as_slice())
        .unwrap_or_default();
    let name = blocks.iter().find_map(|block| match block {
        Block::ToolUse {
            id: call_id, name, ..
        } if **call_id == *id => Some(&**name),
        _ => None,
    });
    // The kernel only answers calls that exist.
    name.unwrap_or("unknown")
}

fn media_parts(media: &Media, bytes: &Bytes) -> Option<[Fields; 2]> {
    media::kind(&media.media_type)?;
    let name = text_part(&format!("{} ({}):", media.fd, media.media_type));
    let data = Fields::default()
        .with("mimeType", &*media.media_type)
        .with("data", &media::base64(bytes));
    Some([name, Fields::default().with("inlineData", &data)])
}

#[cfg(test)]
mod tests;
