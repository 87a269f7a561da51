//! Decodes streamed replies of the Messages API: joins the events into the reply that a complete
//! response would contain.
//!
//! A delta extends the block that it names: text fields are appended to, other fields are replaced.
//! That also holds for deltas of unknown types, so a block of a new type is still decoded
//! completely.

use std::collections::BTreeMap;

use dormouse_proto::model::{Delta, ModelError, Reply, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{self, UsageFields};
use crate::wire::excerpt::{malformed, malformed_in};
use crate::wire::failure;
use crate::wire::json_fields::{Fields, MAX_FIELDS, as_string, is_object, to_raw};
use crate::wire::{Completeness, Decoder};

/// Decodes a streamed reply, event by event.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    blocks: BTreeMap<u64, PartialBlock>,
    stop_reason: Option<String>,
    usage: Usage,
    is_complete: bool,
}

/// A block whose deltas are still arriving.
#[derive(Debug)]
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

#[derive(Deserialize)]
struct Start {
    usage: Option<UsageFields>,
}

impl Decoder for StreamDecoder {
    fn feed(&mut self, data: &str, deltas: &dyn Fn(Delta)) -> Result<(), ModelError> {
        let event: Event = serde_json::from_str(data).map_err(|error| {
            failure::from_event(data).unwrap_or_else(|| malformed_in("event", data, &error))
        })?;
        match event.r#type.as_str() {
            "message_start" => self.update_usage(event.message.and_then(|message| message.usage)),
            "content_block_start" => self.begin_block(event, deltas)?,
            "content_block_delta" => self.apply_delta(&event, deltas)?,
            "message_delta" => {
                self.update_usage(event.usage);
                self.stop_reason = event
                    .delta
                    .and_then(|delta| delta.text("stop_reason"))
                    .or(self.stop_reason.take());
            }
            "message_stop" => self.is_complete = true,
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
        let blocks = self
            .blocks
            .into_values()
            .map(PartialBlock::finish)
            .collect::<Result<_, _>>()?;
        decode::build_reply(blocks, self.stop_reason.as_deref(), self.usage)
    }
}

impl StreamDecoder {
    fn update_usage(&mut self, usage: Option<UsageFields>) {
        usage.unwrap_or_default().update(&mut self.usage);
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
mod tests {
    use dormouse_proto::message::Block;
    use dormouse_proto::model::ModelErrorKind;

    use super::*;
    use crate::testing::decoded;

    const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"cache_read_input_tokens":7,"output_tokens":1}}}"#;
    const END: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":12}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;

    /// Test case: the deltas of a block, and the equal complete block.
    fn check(start: &str, deltas: &[&str], whole: &str) {
        let start =
            format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
        let grow =
            |delta: &&str| format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#);
        let deltas: Vec<String> = deltas.iter().map(grow).collect();
        let events: Vec<&str> = [START, r#"{"type":"ping"}"#, &start]
            .into_iter()
            .chain(deltas.iter().map(String::as_str))
            .chain([r#"{"type":"content_block_stop","index":0}"#, END, STOP])
            .collect();
        let reply = decoded::<StreamDecoder>(&events).0.unwrap();
        assert_eq!(reply.blocks, [decode::decode_block(whole).unwrap()]);
        let usage = Usage {
            input_tokens: 9,
            output_tokens: 12,
            cache_read_tokens: 7,
            ..Usage::default()
        };
        assert_eq!(reply.usage, usage);
    }

    #[test]
    fn a_failure_without_an_envelope_is_classified_by_its_type() {
        let cases = [
            (
                r#"{"code":500,"message":"the output does not parse","type":"server_error"}"#,
                ModelErrorKind::Transport,
            ),
            (
                r#"{"code":400,"message":"the request exceeds","type":"exceed_context_size_error"}"#,
                ModelErrorKind::ContextOverflow,
            ),
            (
                r#"{"code":500,"message":"of no kind","type":"thing"}"#,
                ModelErrorKind::Malformed,
            ),
        ];
        for (event, kind) in cases {
            assert_eq!(
                decoded::<StreamDecoder>(&[START, event])
                    .0
                    .unwrap_err()
                    .kind,
                kind,
                "{event}"
            );
        }
    }

    #[test]
    fn a_streamed_block_equals_the_complete_block() {
        check(
            r#"{"type":"text","text":""}"#,
            &[
                r#"{"type":"text_delta","text":"He"}"#,
                r#"{"type":"text_delta","text":"y \"é\""}"#,
            ],
            r#"{"type":"text","text":"Hey \"é\""}"#,
        );
        check(
            r#"{"type":"thinking","thinking":"","signature":""}"#,
            &[
                r#"{"type":"thinking_delta","thinking":"hm"}"#,
                r#"{"type":"thinking_delta","thinking":"m"}"#,
                r#"{"type":"signature_delta","signature":"s=="}"#,
            ],
            r#"{"type":"thinking","thinking":"hmm","signature":"s=="}"#,
        );
        check(
            r#"{"type":"tool_use","id":"t","name":"ls","input":{},"caller":{"type":"direct"}}"#,
            &[
                r#"{"type":"input_json_delta","partial_json":""}"#,
                r#"{"type":"input_json_delta","partial_json":"{\"n\": 1."}"#,
                r#"{"type":"input_json_delta","partial_json":"10}"}"#,
            ],
            r#"{"type":"tool_use","id":"t","name":"ls","input":{"n": 1.10},"caller":{"type":"direct"}}"#,
        );
        check(
            r#"{"citations":[{"a":0}],"type":"text","text":"so"}"#,
            &[
                r#"{"type":"citations_delta","citation":{"a":1}}"#,
                r#"{"type":"text_delta","text":"!"}"#,
                r#"{"type":"citations_delta","citation":{"b":2}}"#,
            ],
            r#"{"citations":[{"a":0},{"a":1},{"b":2}],"type":"text","text":"so!"}"#,
        );
        check(
            r#"{"type":"unheard_of","body":null}"#,
            &[
                r#"{"type":"body_delta","body":"a","rate":1}"#,
                r#"{"type":"body_delta","body":"b","rate":2.50}"#,
            ],
            r#"{"type":"unheard_of","body":"ab","rate":2.50}"#,
        );
        check(
            r#"{"type":"redacted_thinking","data":"x"}"#,
            &[],
            r#"{"type":"redacted_thinking","data":"x"}"#,
        );
    }

    #[test]
    fn invalid_arguments_reach_the_kernel_and_are_not_in_the_block() {
        let events = [
            START,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"ls","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"n\": "}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}"#,
            STOP,
        ];
        let (reply, deltas) = decoded::<StreamDecoder>(&events);
        let Block::ToolUse {
            args,
            raw: Some(raw),
            ..
        } = &reply.unwrap().blocks[0]
        else {
            panic!("a tool use")
        };
        assert_eq!(&**args, "{\"n\": ");
        assert_eq!(
            &*raw.json,
            r#"{"type":"tool_use","id":"t","name":"ls","input":{}}"#
        );
        assert_eq!(deltas, [Delta::ToolUse("ls".into())]);
    }

    #[test]
    fn a_block_with_too_many_fields_is_refused() {
        let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#;
        let fields = |from: usize, to: usize| {
            (from..to)
                .map(|n| format!(r#","k{n}":"v""#))
                .collect::<String>()
        };
        let delta = |fields| {
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"x"{fields}}}}}"#)
        };
        let at_once = [delta(fields(0, 100_000))];
        let in_turn: Vec<_> = (0..1_000).map(|n| delta(fields(n, n + 1))).collect();
        for deltas in [&at_once[..], &in_turn] {
            let events: Vec<_> = [START, text]
                .into_iter()
                .chain(deltas.iter().map(String::as_str))
                .collect();
            assert_eq!(
                decoded::<StreamDecoder>(&events).0.unwrap_err().kind,
                ModelErrorKind::Malformed
            );
        }
    }

    #[test]
    fn a_truncated_or_invalid_stream_fails_with_its_kind() {
        let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#;
        let overloaded =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let delta =
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"a"}}"#;
        let cases: [(&[&str], ModelErrorKind); 8] = [
            (&[], ModelErrorKind::CutStream),
            (&[START, text, END], ModelErrorKind::CutStream),
            (&[START, text, overloaded], ModelErrorKind::Overloaded),
            (&[START, text, "{\"type\":"], ModelErrorKind::Malformed),
            (&[START, text, text], ModelErrorKind::Malformed),
            (&[START, delta], ModelErrorKind::Malformed),
            (&[START, STOP], ModelErrorKind::Malformed),
            (
                &[START, r#"{"type":"content_block_start","index":0}"#],
                ModelErrorKind::Malformed,
            ),
        ];
        for (events, kind) in cases {
            assert_eq!(
                decoded::<StreamDecoder>(events).0.unwrap_err().kind,
                kind,
                "{events:?}"
            );
        }
    }
}
