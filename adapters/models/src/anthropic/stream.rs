//! Decodes streamed replies of the Messages API: joins the events into the reply that a complete
//! response would contain.
//!
//! A delta extends the block that it names: text fields are appended to, other fields are replaced.
//! That also holds for deltas of unknown types, so a block of a new type is still decoded
//! completely. The signature of a thinking block arrives whole, and replaces the field. A [`Delta`]
//! is something else: what those who watch the reply are told.
//!
//! Compatible servers report blocks, the stop reason and counts in `message_start` too, or only
//! there. What a later event reports takes precedence.

use std::collections::BTreeMap;

use dormouse_proto::model::{Delta, ModelError, Reply, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::container::{self, CONTAINER, Container};
use super::decode::{self, UsageFields};
use crate::wire::excerpt::{malformed, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::{Fields, MAX_FIELDS, as_string, is_object, to_raw};
use crate::wire::{Completeness, Decoder};

/// Decodes a streamed reply, event by event.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    /// The message as it began. Its content is used where no block began after it.
    start: Start,
    blocks: BTreeMap<u64, PartialBlock>,
    stop_reason: Option<String>,
    container: Option<Container>,
    usage: Usage,
    is_complete: bool,
}

/// A block whose deltas are still arriving.
#[derive(Clone, Debug)]
struct PartialBlock {
    fields: Fields,
    /// The text fields that deltas have extended, by name.
    texts: Vec<(String, String)>,
    /// The JSON text of the arguments so far.
    input: String,
    citations: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    index: Option<u64>,
    message: Option<Start>,
    content_block: Option<Fields>,
    delta: Option<Fields>,
    usage: Option<UsageFields>,
    error: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Start {
    content: Option<Vec<Box<RawValue>>>,
    stop_reason: Option<String>,
    usage: Option<UsageFields>,
    #[serde(default, deserialize_with = "container::lenient")]
    container: Option<Container>,
}

impl Decoder for StreamDecoder {
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        let event: Event = serde_json::from_str(data).map_err(|error| {
            failure::from_event(data).unwrap_or_else(|| malformed_in("event", data, &error))
        })?;
        self.update_usage(event.usage.as_ref());
        match event.r#type.as_str() {
            "message_start" => {
                self.start = event.message.unwrap_or_default();
                let usage = self.start.usage.take();
                self.update_usage(usage.as_ref());
            }
            "content_block_start" => self.begin_block(event, deltas)?,
            "content_block_delta" => self.apply_delta(&event, deltas)?,
            "message_delta" => {
                let delta = event.delta.unwrap_or_default();
                self.stop_reason = delta.text("stop_reason").or(self.stop_reason.take());
                let container = delta.get(CONTAINER).map(RawValue::get);
                let container = container.and_then(|json| serde_json::from_str(json).ok());
                self.container = container.or(self.container.take());
            }
            "message_stop" if !self.is_complete => {
                self.is_complete = true;
                self.report_sources(deltas);
            }
            "error" => return Err(failure::from_error_object(&event.error.unwrap_or_default())),
            // content_block_stop and ping contain nothing that is needed. Events of unknown types
            // may arrive at any point.
            _ => {}
        }
        Ok(())
    }

    fn completeness(&self) -> Completeness {
        if self.is_complete {
            Completeness::Complete
        } else {
            Completeness::Open
        }
    }

    fn finish(self) -> Result<Reply, ModelError> {
        if !self.is_complete {
            return Err(failure::cut_stream(format!(
                "the stream ended in block {} before message_stop",
                self.blocks.len()
            )));
        }
        let mut blocks = BTreeMap::new();
        for (index, json) in (0..).zip(self.start.content.unwrap_or_default()) {
            blocks.insert(index, decode::decode_block(json.get())?);
        }
        for (index, block) in self.blocks {
            blocks.insert(index, block.finish()?);
        }
        let stop_reason = self.stop_reason.or(self.start.stop_reason);
        let container = self.container.or(self.start.container);
        let blocks = blocks.into_values().collect();
        decode::build_reply(blocks, stop_reason.as_deref(), self.usage, container)
    }
}

impl StreamDecoder {
    /// Reports the sources that the reply cites, which its text lists at the end.
    fn report_sources(&self, deltas: &dyn Fn(Delta)) {
        let has_citations = |block: &PartialBlock| {
            !block.citations.is_empty() || block.fields.get("citations").is_some()
        };
        if self.blocks.values().any(has_citations)
            && let Ok(reply) = self.clone().finish()
        {
            decode::sources(&reply.blocks).report(&reply.blocks, deltas);
        }
    }

    fn update_usage(&mut self, usage: Option<&UsageFields>) {
        if let Some(usage) = usage {
            usage.update(&mut self.usage);
        }
    }

    fn begin_block(&mut self, event: Event, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        let index = required_index(&event)?;
        let fields = event
            .content_block
            .ok_or_else(|| malformed(format!("block {index} starts without a block")))?;
        if fields.text("type").as_deref() == Some("tool_use") {
            deltas(Delta::ToolUse(fields.text("name").unwrap_or_default()));
        }
        let block = PartialBlock {
            fields,
            texts: Vec::new(),
            input: String::new(),
            citations: Vec::new(),
        };
        match self.blocks.insert(index, block) {
            None => Ok(()),
            Some(_) => Err(malformed(format!("block {index} starts twice"))),
        }
    }

    fn apply_delta(&mut self, event: &Event, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        let index = required_index(event)?;
        let block = self
            .blocks
            .get_mut(&index)
            .ok_or_else(|| malformed(format!("block {index} grows unstarted")))?;
        let delta = event
            .delta
            .as_ref()
            .ok_or_else(|| malformed(format!("a delta of block {index} is empty")))?;
        block.apply_delta(delta, deltas);
        match block.fields.len() + block.texts.len() {
            0..=MAX_FIELDS => Ok(()),
            _ => Err(malformed(format!(
                "block {index} grows beyond {MAX_FIELDS} fields"
            ))),
        }
    }
}

fn required_index(event: &Event) -> Result<u64, ModelError> {
    event
        .index
        .ok_or_else(|| malformed(format!("a {} has no index", event.r#type)))
}

impl PartialBlock {
    fn apply_delta(&mut self, delta: &Fields, deltas: &dyn Fn(Delta)) {
        match delta.text("type").as_deref() {
            Some("input_json_delta") => {
                self.input += &delta.text("partial_json").unwrap_or_default()
            }
            Some("citations_delta") => self
                .citations
                .extend(delta.get("citation").map(RawValue::to_owned)),
            Some("signature_delta") => {
                if let Some(signature) = delta.get("signature") {
                    self.fields.set("signature", signature.to_owned());
                }
            }
            kind => {
                match kind {
                    Some("text_delta") => {
                        deltas(Delta::Text(delta.text("text").unwrap_or_default()))
                    }
                    Some("thinking_delta") => {
                        deltas(Delta::Thinking(delta.text("thinking").unwrap_or_default()))
                    }
                    _ => {}
                }
                delta
                    .iter()
                    .filter(|(name, _)| *name != "type")
                    .for_each(|(name, value)| self.extend_field(name, value));
            }
        }
    }

    fn extend_field(&mut self, name: &str, value: &RawValue) {
        let Some(text) = as_string(value) else {
            return self.fields.set(name, value.to_owned());
        };
        match self.texts.iter_mut().find(|(field, _)| field == name) {
            Some((_, so_far)) => so_far.push_str(&text),
            None => self.texts.push((
                name.to_owned(),
                self.fields.text(name).unwrap_or_default() + &text,
            )),
        }
    }

    fn finish(mut self) -> Result<dormouse_proto::message::Block, ModelError> {
        for (name, text) in &self.texts {
            self.fields.set(name, to_raw(text));
        }
        if !self.citations.is_empty() {
            let initial = self
                .fields
                .get("citations")
                .and_then(|list| serde_json::from_str(list.get()).ok());
            let mut citations: Vec<Box<RawValue>> = initial.unwrap_or_default();
            citations.append(&mut self.citations);
            self.fields.set("citations", to_raw(&citations));
        }
        let args = self.finish_args();
        decode::block_of(&self.fields, &self.fields.to_json(), args)
    }

    /// The arguments as they arrived. If they are not a JSON object (an error of the model, or a
    /// truncated reply), the original form of the block keeps the empty object that it started
    /// with.
    fn finish_args(&mut self) -> String {
        if self.input.trim().is_empty() {
            return self
                .fields
                .get("input")
                .map_or_else(|| "{}".to_owned(), |input| input.get().to_owned());
        }
        let input = std::mem::take(&mut self.input);
        if let Some(value) = RawValue::from_string(input.clone())
            .ok()
            .filter(|_| is_object(&input))
        {
            self.fields.set("input", value);
        }
        input
    }
}

#[cfg(test)]
mod tests;
