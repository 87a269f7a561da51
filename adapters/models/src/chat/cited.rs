//! The sources that a reply cites: in the annotations of its message, or, as Perplexity sends them,
//! next to its choices. [`Sources`] appends them to the text of the reply, as a list.

use serde_json::Value;

use crate::wire::sources::Sources;

/// What a reply, or an event of one, says about its sources next to its choices.
#[derive(Clone, Debug, Default)]
pub(super) struct Cited {
    /// Addresses, in the order in which the text names them by number.
    citations: Value,
    /// Objects with `title` and `url`.
    search_results: Value,
}

impl Cited {
    pub(super) fn new(citations: Option<Value>, search_results: Option<Value>) -> Self {
        Self {
            citations: citations.unwrap_or_default(),
            search_results: search_results.unwrap_or_default(),
        }
    }

    /// Replaces each list that `later` has as well: each event repeats the lists, which may have
    /// grown.
    pub(super) fn update(&mut self, later: Self) {
        for (known, later) in [
            (&mut self.citations, later.citations),
            (&mut self.search_results, later.search_results),
        ] {
            if later.as_array().is_some_and(|list| !list.is_empty()) {
                *known = later;
            }
        }
    }

    /// The sources of the reply with this message. The numbers that a text gives its citations are
    /// those of the list, unless a citation is listed twice.
    pub(super) fn sources(&self, message: &str) -> Sources {
        let mut sources = Sources::default();
        let results = self.search_results.as_array();
        let results = results.map(Vec::as_slice).unwrap_or_default();
        let citations = self.citations.as_array();
        for citation in citations.into_iter().flatten() {
            let address = citation.as_str().or(citation["url"].as_str());
            let result = results
                .iter()
                .find(|result| result["url"].as_str() == address);
            let title = result.unwrap_or(citation)["title"].as_str();
            sources.add(title, address);
        }
        if citations.is_none_or(Vec::is_empty) {
            sources.add_citations(&self.search_results);
        }
        if message.contains("\"annotations\"") {
            let message: Value = serde_json::from_str(message).unwrap_or_default();
            sources.add_citations(&message["annotations"]);
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::text_of;
    use dormouse_proto::model::Delta;
    use serde_json::{Value, json};

    use super::super::{Completions, StreamDecoder};
    use crate::testing::decoded;
    use crate::wire::Codec;

    /// The text of a reply with these fields next to its choices: whole, and streamed with the
    /// fields in each event.
    fn text(next_to: &Value, message: &Value) -> String {
        let with = |choice: Value| {
            let mut body = next_to.clone();
            body["choices"] = json!([choice]);
            body.to_string()
        };
        let whole = with(json!({"message": message, "finish_reason": "stop"}));
        let events = [
            with(json!({"delta": message})),
            with(json!({"delta": {}, "finish_reason": "stop"})),
        ];
        let whole = Completions::default().decode(&whole).unwrap();
        let (streamed, deltas) = decoded::<StreamDecoder>(&[&events[0], &events[1], "[DONE]"]);
        let text = text_of(&whole.blocks);
        assert_eq!(text_of(&streamed.unwrap().blocks), text);
        let told = deltas.iter().filter_map(|delta| match delta {
            Delta::Text(text) => Some(text.as_str()),
            Delta::Thinking(_) | Delta::ToolUse(_) => None,
        });
        assert_eq!(told.collect::<String>(), text);
        text
    }

    #[test]
    fn sources_next_to_the_choices_are_listed_in_the_order_of_the_citations() {
        let said = json!({"role": "assistant", "content": "It is [1][2]."});
        let annotated = json!({"role": "assistant", "content": "It is.", "annotations": [
            {"type": "url_citation", "url_citation": {"url": "https://c", "title": "C"}},
            {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A"}},
        ]});
        let results = json!([
            {"title": "B", "url": "https://b", "date": "2026-01-01"},
            {"title": "A", "url": "https://a"},
        ]);
        let citations = json!(["https://a", "https://b"]);
        let listed = "\n\nSources:\n1. A: https://a\n2. B: https://b";
        let cases = [
            (
                json!({"citations": citations, "search_results": results}),
                &said,
                listed,
            ),
            (
                json!({"citations": citations}),
                &said,
                "\n\nSources:\n1. https://a\n2. https://b",
            ),
            (
                json!({"search_results": results}),
                &said,
                "\n\nSources:\n1. B: https://b\n2. A: https://a",
            ),
            (
                json!({"citations": ["https://a"], "search_results": results}),
                &annotated,
                "\n\nSources:\n1. A: https://a\n2. C: https://c",
            ),
            // What has another form says nothing.
            (
                json!({"citations": "https://a", "search_results": {"url": 1}}),
                &said,
                "",
            ),
            (
                json!({"citations": [null, 7, {}], "search_results": [null, 7]}),
                &said,
                "",
            ),
            (json!({"citations": null}), &said, ""),
        ];
        for (next_to, message, listed) in cases {
            let content = message["content"].as_str().unwrap();
            assert_eq!(
                text(&next_to, message),
                format!("{content}{listed}"),
                "{next_to}"
            );
        }
    }
}
