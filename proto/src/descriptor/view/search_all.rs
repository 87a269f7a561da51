//! `fd_search` across all descriptors of a table.

use super::search::{with_binary_note, with_literal_note};
use super::{ContentSummary, Excerpt, QueryKind, Shown, with_next_start};
use crate::descriptor::FdError;
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// The matches in several descriptors, and which of them are shown. Matches are counted across all
/// of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInAll<'a> {
    /// The query as it was requested.
    pub query: &'a str,
    /// How the query was taken.
    pub query_kind: QueryKind,
    /// Number of searched descriptors.
    pub descriptors: u64,
    /// Number of descriptors with matches.
    pub found_in: u64,
    /// Number of matches, and which of them are shown.
    pub shown: Shown,
    /// The shown descriptors, in the order of their ids.
    pub groups: Vec<Group<'a>>,
    /// The searched descriptors that are binary.
    pub binary: Vec<&'a FdId>,
    /// Errors of descriptors that could not be searched.
    pub unreadable: Vec<FdError>,
}

/// A descriptor with matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Id of the descriptor.
    pub fd: &'a FdId,
    /// Number of its matches.
    pub matches: u64,
    /// Size and encoding of the content, if matches of it are shown.
    pub extent: Option<ContentSummary>,
    /// The shown matches.
    pub excerpts: Vec<Excerpt<'a>>,
}

/// `fd_search` with one `fd_matches` for each descriptor, which contains its shown `match`
/// elements, followed by an `fd_error` for each descriptor that could not be searched.
#[must_use]
pub fn search_all(found: &FoundInAll<'_>) -> Answer {
    let element = Element::new("fd_search")
        .attribute("fd", "*")
        .attribute("query", found.query)
        .attribute("matches", found.shown.total)
        .attribute("shown", found.shown.range())
        .attribute("descriptors", found.descriptors)
        .attribute("found_in", found.found_in);
    let element = with_next_start(element, found.shown, "matches", "search_fd");
    let element = with_literal_note(element, found.query, found.query_kind, found.shown);
    let element = with_binary_note(element, found.binary.iter().copied());
    let errors = found.unreadable.iter().map(FdError::element);
    Answer::shown(
        found
            .groups
            .iter()
            .map(Group::element)
            .chain(errors)
            .fold(element, Element::child),
    )
}

impl Group<'_> {
    fn element(&self) -> Element {
        let element = Element::new("fd_matches")
            .attribute("fd", self.fd)
            .attribute("matches", self.matches);
        let element = match self.extent {
            Some(extent) => element
                .attribute("pages", extent.pages)
                .attribute("total_lines", extent.total_lines)
                .attribute_if("encoding", extent.encoding.word())
                .attribute_if("replaced_bytes", extent.encoding.replaced_bytes())
                .attribute_if("pretty", extent.pretty),
            None => element,
        };
        self.excerpts
            .iter()
            .fold(element, |element, excerpt| element.child(excerpt.element()))
    }
}
