//! `fd_search` with `distinct`: each different match once.

use super::search::with_binary_note;
use super::{ContentSummary, Shown, with_next_start};
use crate::descriptor::FdError;
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// The different matched texts, and which of them are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctMatches<'a> {
    /// The query as it was requested.
    pub query: &'a str,
    /// Number of matches, including equal ones.
    pub matches: u64,
    /// Number of different texts, and which of them are shown.
    pub shown: Shown,
    /// The shown texts.
    pub values: Vec<DistinctMatch<'a>>,
}

/// A text that was matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistinctMatch<'a> {
    /// The text.
    pub text: &'a str,
    /// Number of matches with this text.
    pub count: u64,
    /// Whether only the beginning is shown.
    pub truncated: bool,
}

/// `fd_search` with one `match` for each different text; `count` is its number of matches.
#[must_use]
pub fn distinct(fd: &FdId, extent: ContentSummary, found: &DistinctMatches<'_>) -> Answer {
    let element = found
        .add_attributes(Element::new("fd_search").attribute("fd", fd))
        .attribute("pages", extent.pages)
        .attribute("total_lines", extent.total_lines)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("replaced_bytes", extent.encoding.replaced_bytes())
        .attribute_if("pretty", extent.pretty);
    let element = with_binary_note(element, extent.encoding.is_base64().then_some(fd));
    Answer::shown(found.add_matches(element))
}

/// The same for several descriptors, with an `fd_error` for each that could not be searched.
#[must_use]
pub fn distinct_in_all(
    descriptors: u64,
    found_in: u64,
    found: &DistinctMatches<'_>,
    binary: &[FdId],
    unreadable: &[FdError],
) -> Answer {
    let element = found
        .add_attributes(Element::new("fd_search").attribute("fd", "*"))
        .attribute("descriptors", descriptors)
        .attribute("found_in", found_in);
    let element = with_binary_note(element, binary.iter());
    let errors = unreadable.iter().map(FdError::element);
    Answer::shown(errors.fold(found.add_matches(element), Element::child))
}

impl DistinctMatches<'_> {
    fn add_attributes(&self, element: Element) -> Element {
        element
            .attribute("query", self.query)
            .attribute("matches", self.matches)
            .attribute("distinct", self.shown.total)
            .attribute("shown", self.shown.range())
    }

    fn add_matches(&self, element: Element) -> Element {
        let element = with_next_start(element, self.shown, "different matches", "search_fd");
        self.values
            .iter()
            .fold(element, |element, value| element.child(value.element()))
    }
}

impl DistinctMatch<'_> {
    fn element(&self) -> Element {
        Element::new("match")
            .attribute("count", self.count)
            .attribute_if("truncated", self.truncated.then_some(true))
            .text(self.text)
    }
}
