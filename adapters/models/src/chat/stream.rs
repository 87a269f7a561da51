//! Decodes streamed replies of the Chat Completions API: joins the events into the reply that a
//! complete response would contain.
//!
//! A text or a list in a delta is appended to the field of the same name, any other value replaces
//! the field. This also holds for unknown fields. Tool calls have rules of their own
//! (`partial_calls`).
//!
//! Some servers send the message so far next to the deltas, or in their place. The last of these
//! messages gives the fields that no delta contained. Usage is read from each of the places that
//! servers put it in. A [`Delta`] is something else: what those who watch the reply are told.

mod partial_calls;
mod partial_object;

use dormouse_proto::model::{Delta, ModelError, Reply, Usage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::partial_calls::Calls;
use self::partial_object::PartialObject;
use super::cited::Cited;
use super::decode::{self, UsageFields};
use super::generated_ids::Origin;
use crate::wire::excerpt::malformed_in;
use crate::wire::failure;
use crate::wire::json_fields::{Fields, as_string, to_raw};
use crate::wire::{Completeness, Decoder};

/// Decodes a streamed reply, event by event.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    message: PartialObject,
    calls: Calls,
    /// The last message next to the deltas.
    whole_message: Option<Fields>,
    finish_reason: Option<String>,
    usage: Option<UsageFields>,
    origin: Origin,
    cited: Cited,
    is_done: bool,
}

#[derive(Deserialize)]
struct Chunk {
    id: Option<Value>,
    created: Option<Value>,
    #[serde(default, deserialize_with = "decode::null_as_default")]
    choices: Vec<Choice>,
    usage: Option<UsageFields>,
    citations: Option<Value>,
    search_results: Option<Value>,
    /// Where Groq reports the usage.
    x_groq: Option<UsageHolder>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct UsageHolder {
    usage: Option<UsageFields>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<Fields>,
    message: Option<Fields>,
    finish_reason: Option<String>,
    /// Where Moonshot reports the usage.
    usage: Option<UsageFields>,
    error: Option<Value>,
}

impl Chunk {
    /// The usage that this chunk reports. Zeros report nothing.
    fn usage(&self) -> Option<UsageFields> {
        let own = self.usage.into_iter();
        let of_choices = self.choices.iter().filter_map(|choice| choice.usage);
        let of_groq = self.x_groq.iter().filter_map(|holder| holder.usage);
        own.chain(of_choices)
            .chain(of_groq)
            .find(|usage| Usage::from(*usage) != Usage::default())
    }
}

impl Decoder for StreamDecoder {
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        if data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|error| {
            failure::from_event(data).unwrap_or_else(|| malformed_in("event", data, &error))
        })?;
        if let Some(error) = chunk.error {
            return Err(failure::from_error_object(&error));
        }
        let usage = chunk.usage();
        let cited = Cited::new(chunk.citations, chunk.search_results);
        self.cited.update(cited);
        if chunk.choices.is_empty() && usage.is_none() {
            // A chunk without content may itself be an error object.
            return failure::from_event(data).map_or(Ok(()), Err);
        }
        let Origin { id, created } = std::mem::take(&mut self.origin);
        self.origin = Origin {
            id: id.or(chunk.id),
            created: created.or(chunk.created),
        };
        self.usage = usage.or(self.usage);
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(error) = choice.error {
                return Err(failure::from_error_object(&error));
            }
            if let Some(delta) = choice.delta {
                self.add_delta(&delta, deltas)?;
            }
            self.whole_message = choice.message.or(self.whole_message.take());
            let finish_reason = choice.finish_reason.filter(|reason| !reason.is_empty());
            if finish_reason.is_some() {
                let is_first = self.finish_reason.is_none();
                self.finish_reason = finish_reason;
                self.add_missing_fields(deltas)?;
                self.calls.report_rest(deltas);
                if is_first {
                    self.report_sources(deltas);
                }
            }
        }
        Ok(())
    }

    fn completeness(&self) -> Completeness {
        match (self.is_done, &self.finish_reason) {
            (true, _) => Completeness::Complete,
            (false, Some(_)) => Completeness::Ended,
            (false, None) => Completeness::Open,
        }
    }

    fn finish(self) -> Result<Reply, ModelError> {
        let stop = self
            .finish_reason
            .ok_or_else(|| failure::cut_stream("the stream ended before its finish reason"))?;
        let stop = decode::stop_reason(Some(&stop))?;
        let mut message = self.message.finish();
        message.set("role", to_raw("assistant"));
        let calls = self.calls.finish();
        if !calls.is_empty() {
            message.set("tool_calls", to_raw(&calls));
        }
        decode::build_reply(
            &message.to_json(),
            stop,
            self.usage.unwrap_or_default(),
            &self.origin,
            &self.cited,
        )
    }
}

impl StreamDecoder {
    /// Reports the sources that the reply cites, which its text lists at the end.
    fn report_sources(&self, deltas: &dyn Fn(Delta)) {
        let message = match self.message.is_empty("annotations") {
            true => String::new(),
            false => self.message.clone().finish().to_json(),
        };
        let sources = self.cited.sources(&message);
        if !sources.is_empty()
            && let Ok(reply) = self.clone().finish()
        {
            sources.report(&reply.blocks, deltas);
        }
    }

    /// Adds the fields of the whole message that no delta contained.
    fn add_missing_fields(&mut self, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        let Some(mut message) = self.whole_message.take() else {
            return Ok(());
        };
        message.retain(|name| match name {
            "role" => false,
            "tool_calls" => self.calls.is_empty(),
            _ => self.message.is_empty(name),
        });
        self.add_delta(&message, deltas)
    }

    fn add_delta(&mut self, delta: &Fields, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        // Some servers send a thought under both names.
        let repeats_thought = delta.text("reasoning_content").is_some();
        for (name, value) in delta.iter().filter(|(_, value)| value.get() != "null") {
            if name == "tool_calls" {
                self.calls.add_parts(value, deltas)?;
                continue;
            }
            if !(repeats_thought && name == "reasoning") {
                observed_deltas(name, value).into_iter().for_each(deltas);
            }
            self.message.extend(name, value)?;
        }
        Ok(())
    }
}

/// The deltas that a field of an event reports to the observers of the reply.
fn observed_deltas(name: &str, value: &RawValue) -> Vec<Delta> {
    let text = || as_string(value).unwrap_or_default();
    let observed = match name {
        "content" => {
            let content = serde_json::from_str(value.get()).unwrap_or_default();
            vec![
                Delta::Thinking(decode::content_thinking(&content)),
                Delta::Text(decode::content_text(&content)),
            ]
        }
        "refusal" => vec![Delta::Text(text())],
        "reasoning_content" | "reasoning" => vec![Delta::Thinking(text())],
        _ => Vec::new(),
    };
    let is_not_empty = |delta: &Delta| !matches!(delta, Delta::Text(text) | Delta::Thinking(text) if text.is_empty());
    observed.into_iter().filter(is_not_empty).collect()
}

#[cfg(test)]
mod tests;
