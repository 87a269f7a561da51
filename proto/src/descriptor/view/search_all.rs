//! `fd_search` of all descriptors of a table at once.

use super::{Excerpt, Extent, Shown, go_on_listing};
use crate::descriptor::FdError;
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// What a search of several descriptors found, and which of it is shown. Matches count over all of
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInAll<'a> {
    /// The query as it was asked.
    pub query: &'a str,
    /// How many descriptors were searched.
    pub descriptors: u64,
    /// How many of them hold matches.
    pub found_in: u64,
    /// How many matches there are, and which are shown.
    pub shown: Shown,
    /// The descriptors that are shown, in order of ids.
    pub groups: Vec<Group<'a>>,
    /// Why some could not be searched.
    pub unreadable: Vec<FdError>,
}

/// A descriptor in which something was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Its id.
    pub fd: &'a FdId,
    /// All its matches.
    pub matches: u64,
    /// Its content, where matches of it are shown.
    pub extent: Option<Extent>,
    /// Its matches that are shown.
    pub excerpts: Vec<Excerpt<'a>>,
}

/// `fd_search` with one `fd_matches` for each descriptor, which holds its `match` elements; none
/// where its matches are only counted; then an `fd_error` for each that could not be searched.
#[must_use]
pub fn search_all(found: &FoundInAll<'_>) -> Answer {
    let element = Element::new("fd_search")
        .attribute("fd", "*")
        .attribute("query", found.query)
        .attribute("matches", found.shown.total)
        .attribute("shown", found.shown.range())
        .attribute("descriptors", found.descriptors)
        .attribute("found_in", found.found_in);
    let element = go_on_listing(element, found.shown, "matches", "search_fd");
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
                .attribute_if("pretty", extent.pretty),
            None => element,
        };
        self.excerpts
            .iter()
            .fold(element, |element, excerpt| element.child(excerpt.element()))
    }
}
