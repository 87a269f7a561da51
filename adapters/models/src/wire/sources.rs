//! The sources that a reply cites, as people see them: a list at the end of its last text.
//!
//! The providers' blocks keep the citations and are sent back unchanged. The text of a block is for
//! people, for other processes and for models of other providers; it gets the list.

use dormouse_proto::message::{Block, text_of};
use dormouse_proto::model::Delta;
use serde_json::Value;

/// The most sources that are listed.
const MAX_SOURCES: usize = 64;

/// The sources of a reply, each once, in the order of their first citation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources(Vec<Source>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    /// Where the source is: a URL, or the name of a document.
    place: String,
    title: String,
}

impl Sources {
    /// Adds a source, unless its place is empty or known.
    pub(crate) fn add(&mut self, title: Option<&str>, place: Option<&str>) {
        let title = title.map(one_line).filter(|title| !title.is_empty());
        let place = place.map(one_line).filter(|place| !place.is_empty());
        let Some(place) = place.or_else(|| title.clone()) else {
            return;
        };
        if !self.0.iter().any(|known| known.place == place) {
            let title = title.unwrap_or_default();
            self.0.push(Source { place, title });
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the citations of Anthropic's text blocks and the annotations of OpenAI's texts.
    pub(crate) fn add_citations(&mut self, citations: &Value) {
        for citation in citations.as_array().into_iter().flatten() {
            // The annotations of Chat Completions are nested.
            let nested = &citation["url_citation"];
            let fields = if nested.is_object() { nested } else { citation };
            let text = |names: &[&str]| {
                let given = names.iter().filter_map(|name| fields[*name].as_str());
                given.map(str::to_owned).next()
            };
            let title = text(&["title", "document_title", "filename"]);
            // The place in a search result of the program is not a URL, but what its tool calls it.
            let place = text(&["url", "source", "file_id"]);
            self.add(title.as_deref(), place.as_deref());
        }
    }

    /// The list; empty if there are no sources.
    fn list(&self) -> String {
        let mut list = String::new();
        for (number, Source { place, title }) in (1..).zip(&self.0).take(MAX_SOURCES) {
            let line = match title.is_empty() || title == place {
                true => format!("\n{number}. {place}"),
                false => format!("\n{number}. {title}: {place}"),
            };
            list.push_str(&line);
        }
        if list.is_empty() {
            return list;
        }
        if let Some(more) = self
            .0
            .len()
            .checked_sub(MAX_SOURCES)
            .filter(|more| *more > 0)
        {
            list.push_str(&format!("\n… and {more} more"));
        }
        format!("\n\nSources:{list}")
    }

    /// What is appended to this text: the list, unless the text is a JSON value, which a reader
    /// parses.
    fn list_after(&self, text: &str) -> String {
        let is_json = text.trim_start().starts_with(['{', '['])
            && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        match is_json || text.is_empty() {
            true => String::new(),
            false => self.list(),
        }
    }

    /// Reports the list as a part of the text, if the complete reply has it.
    pub(crate) fn report(&self, blocks: &[Block], deltas: &dyn Fn(Delta)) {
        let list = self.list();
        if !list.is_empty() && text_of(blocks).ends_with(&list) {
            deltas(Delta::Text(list));
        }
    }

    /// Appends the list to the last text of a reply.
    pub(crate) fn append_to(&self, blocks: &mut [Block]) {
        if self.is_empty() {
            return;
        }
        let list = self.list_after(&text_of(blocks));
        let last = blocks.iter_mut().rev().find_map(|block| match block {
            Block::Text { text, .. } if !text.is_empty() => Some(text),
            _ => None,
        });
        if let Some(text) = last.filter(|_| !list.is_empty()) {
            *text = format!("{text}{list}").into();
        }
    }
}

/// A text from outside on one line.
fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_source_is_listed_once_with_its_title() {
        let mut sources = Sources::default();
        sources.add_citations(&json!([
            {"type": "web_search_result_location", "url": "https://a", "title": "A\n B", "cited_text": "…"},
            {"type": "url_citation", "url": "https://a", "title": "again"},
            {"type": "url_citation", "url_citation": {"url": "https://b"}},
            {"type": "char_location", "document_title": "Report", "document_index": 0},
            {"type": "file_citation", "filename": "f.txt", "file_id": "file-1"},
            {"type": "page_location", "document_index": 1},
        ]));
        let list = "\n\nSources:\n1. A B: https://a\n2. https://b\n3. Report\n4. f.txt: file-1";
        assert_eq!(sources.list(), list);
        let mut blocks = [Block::text("one "), Block::text("two"), Block::text("")];
        sources.append_to(&mut blocks);
        assert_eq!(text_of(&blocks), format!("one two{list}"));
        let mut json = [Block::text("{\"a\":"), Block::text("1}")];
        sources.append_to(&mut json);
        assert_eq!(text_of(&json), "{\"a\":1}");
        assert_eq!(Sources::default().list(), "");
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let mut sources = Sources::default();
        for number in 0..=MAX_SOURCES {
            sources.add(None, Some(&format!("https://{number}")));
        }
        assert!(sources.list().ends_with("\n… and 1 more"));
    }
}
