//! What a response of the Gemini API says next to its parts: which searches the provider made,
//! which pages it read, and which sources the text rests on.
//!
//! It is kept as two further fields in the part of the last text of the reply
//! ([`GEMINI_METADATA`]). [`without`] removes them before the part is sent back, since they are not
//! part of the conversation.

use dormouse_proto::message::{Block, Raw};
use dormouse_proto::server_tool::GEMINI_METADATA;
use serde_json::Value;
use serde_json::value::RawValue;

use super::FORMAT;
use super::decode::Candidate;
use crate::wire::json_fields::{Fields, to_raw};
use crate::wire::sources::Sources;

/// The metadata so far. A later event of a stream replaces what an earlier one says, unless it says
/// nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    grounding: Value,
    url_context: Value,
    citations: Value,
}

impl Metadata {
    /// The metadata with that of a candidate.
    pub(super) fn or_of(mut self, candidate: &Candidate) -> Self {
        let fields = [
            (&mut self.grounding, &candidate.grounding_metadata),
            (&mut self.url_context, &candidate.url_context_metadata),
            (&mut self.citations, &candidate.citation_metadata),
        ];
        for (known, reported) in fields {
            let reported = reported
                .as_ref()
                .map(|json| serde_json::from_str(json.get()));
            if let Some(Ok(Value::Object(reported))) = reported
                && !reported.is_empty()
            {
                *known = Value::Object(reported);
            }
        }
        self
    }

    /// Keeps the metadata with the last text of a reply.
    pub(super) fn attach_to(&self, blocks: &mut [Block]) {
        // The parts of a reply may show the searches themselves.
        let shows_calls = blocks
            .iter()
            .any(|block| matches!(block, Block::Opaque(raw) if raw.json.contains("\"toolCall\"")));
        let mut grounding = self.grounding.clone();
        if let (true, Some(grounding)) = (shows_calls, grounding.as_object_mut()) {
            grounding.remove("webSearchQueries");
        }
        let last = blocks.iter_mut().rev().find_map(|block| match block {
            Block::Text { raw, .. } => raw.as_mut(),
            _ => None,
        });
        let Some(raw) = last else { return };
        let Ok(mut part) = serde_json::from_str::<Fields>(&raw.json) else {
            return;
        };
        let before = part.len();
        for (name, value) in GEMINI_METADATA
            .into_iter()
            .zip([&grounding, &self.url_context])
        {
            if value.is_object() {
                part.set(name, to_raw(value));
            }
        }
        if part.len() > before {
            *raw = Raw::new(FORMAT, part.to_json());
        }
    }

    /// The sources that the text rests on.
    pub(super) fn sources(&self) -> Sources {
        let mut sources = Sources::default();
        let mut add = |list: &Value, title: &str, place: &str| {
            for item in list.as_array().into_iter().flatten() {
                sources.add(item[title].as_str(), item[place].as_str());
            }
        };
        for chunk in self.grounding["groundingChunks"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let kinds = ["web", "retrievedContext", "maps"];
            let chunks: Vec<_> = kinds.iter().map(|kind| chunk[*kind].clone()).collect();
            add(&Value::Array(chunks), "title", "uri");
        }
        add(&self.citations["citationSources"], "title", "uri");
        add(&self.citations["citations"], "title", "uri");
        add(&self.url_context["urlMetadata"], "title", "retrievedUrl");
        sources
    }
}

/// A part without the metadata that is kept with it.
pub(super) fn without(part: Box<RawValue>) -> Box<RawValue> {
    if !GEMINI_METADATA.iter().any(|name| part.get().contains(name)) {
        return part;
    }
    match serde_json::from_str::<Fields>(part.get()) {
        Ok(mut fields) => {
            fields.retain(|name| !GEMINI_METADATA.contains(&name));
            to_raw(&fields)
        }
        Err(_) => part,
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::server_tool::count_calls;
    use serde_json::json;

    use super::super::GenerateContent;
    use crate::testing::{decoded, message, request};
    use crate::wire::{Codec, Delivery, Purpose, encode};

    #[test]
    fn searches_are_counted_sources_listed_and_only_the_part_goes_back() {
        let grounding = json!({
            "webSearchQueries": ["a", "b"],
            "groundingChunks": [{"web": {"title": "T", "uri": "https://t"}}],
        });
        let first = json!({"candidates": [{"content": {"parts": [{"text": "It "}]}, "groundingMetadata": {}}]});
        let last = json!({"candidates": [{"content": {"parts": [{"text": "is."}]}, "finishReason": "STOP", "groundingMetadata": grounding, "urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "https://u"}]}}]});
        let events = [first.to_string(), last.to_string()];
        let (streamed, deltas) = decoded::<super::super::StreamDecoder>(&[&events[0], &events[1]]);
        let mut whole = last;
        whole["candidates"][0]["content"]["parts"][0]["text"] = "It is.".into();
        let whole = GenerateContent.decode(&whole.to_string()).unwrap();
        let streamed = streamed.unwrap();
        assert_eq!(streamed, whole);
        let text = "It is.\n\nSources:\n1. T: https://t\n2. https://u";
        assert_eq!(dormouse_proto::message::text_of(&whole.blocks), text);
        assert_eq!(format!("{deltas:?}").matches("Sources").count(), 1);
        let calls = [
            ("google_search".to_owned(), 2),
            ("url_context".to_owned(), 1),
        ];
        assert_eq!(count_calls(&whole.blocks), calls);
        let said = message(dormouse_proto::message::Role::Assistant, whole.blocks);
        let body = encode(
            &GenerateContent,
            &request(vec![said], json!({})),
            Purpose::Reply(Delivery::Whole),
            None,
        );
        assert!(body.unwrap().contains(r#""parts":[{"text":"It is."}]"#));
    }
}
