//! The matches of a search in one descriptor.

use super::{ContentSummary, Part, Shown, with_next_start};
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// The matches of a search, and which of them are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The query as it was requested.
    pub query: &'a str,
    /// How the query was taken.
    pub query_kind: QueryKind,
    /// Number of matches, and which of them are shown.
    pub shown: Shown,
    /// The shown matches.
    pub excerpts: Vec<Excerpt<'a>>,
}

/// An excerpt with one or more matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excerpt<'a> {
    /// The match with its surrounding text.
    pub part: Part<'a>,
    /// Line of the match, from 1.
    pub line: u64,
    /// Page of the match, from 1.
    pub page: u64,
    /// Position of the match, in characters from 0.
    pub char: u64,
    /// Number of shown matches in this excerpt, on the same line.
    pub count: u64,
}

/// `fd_search`: the matches, with one `match` for each line or, on a long line, for each
/// occurrence.
#[must_use]
pub fn search(fd: &FdId, extent: ContentSummary, found: &Found<'_>) -> Answer {
    let Found {
        query,
        query_kind,
        shown,
        excerpts,
    } = found;
    let element = Element::new("fd_search")
        .attribute("fd", fd)
        .attribute("query", query)
        .attribute("matches", shown.total)
        .attribute("shown", shown.range())
        .attribute("pages", extent.pages)
        .attribute("total_lines", extent.total_lines)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("replaced_bytes", extent.encoding.replaced_bytes())
        .attribute_if("pretty", extent.pretty);
    let element = with_next_start(element, *shown, "matches", "search_fd");
    let element = with_literal_note(element, query, *query_kind, *shown);
    let element = with_binary_note(element, extent.encoding.is_base64().then_some(fd));
    Answer::shown(
        excerpts
            .iter()
            .fold(element, |element, excerpt| element.child(excerpt.element())),
    )
}

/// How the query of a search was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// As the text itself.
    Literal,
    /// As a regular expression.
    Pattern,
}

/// Adds a message if nothing was found of a literal query that looks like a regular expression.
pub(super) fn with_literal_note(
    element: Element,
    query: &str,
    kind: QueryKind,
    shown: Shown,
) -> Element {
    let looks_like_pattern = query.contains(['\\', '|', '*', '+', '?', '[', '(', '^', '$']);
    let is_doubtful = kind == QueryKind::Literal && shown.total == 0 && looks_like_pattern;
    let message = "The query was taken literally. With regex=true it is a regular expression.";
    element.attribute_if("message", is_doubtful.then_some(message))
}

/// Adds a note that names the searched descriptors that are binary, of which only the base64 text
/// was searched: no match there does not mean that the bytes do not contain the text.
pub(super) fn with_binary_note<'a>(
    element: Element,
    binary: impl IntoIterator<Item = &'a FdId>,
) -> Element {
    const MAX_NAMED: usize = 10;
    let names: Vec<_> = binary.into_iter().map(FdId::to_string).collect();
    let named = names[..names.len().min(MAX_NAMED)].join(", ");
    let note = match names.len() {
        0 => None,
        1 => Some(format!(
            "{named} is binary: its base64 text was searched, not the text it may contain."
        )),
        count if count > MAX_NAMED => Some(format!(
            "{count} descriptors are binary, among them {named}: their base64 text was searched, \
             not the text they may contain."
        )),
        _ => Some(format!(
            "{named} are binary: their base64 text was searched, not the text they may contain."
        )),
    };
    element.attribute_if("note", note)
}

impl Excerpt<'_> {
    pub(super) fn element(&self) -> Element {
        let is_multiline = self.part.first_line != self.part.last_line;
        Element::new("match")
            .attribute("line", self.line)
            .attribute("page", self.page)
            .attribute("char", self.char)
            .attribute_if("count", (self.count > 1).then_some(self.count))
            .attribute_if("lines", is_multiline.then(|| self.part.line_range()))
            .attribute_if("continued", self.part.continued.then_some(true))
            .attribute_if("truncated", self.part.truncated.then_some(true))
            .text(self.part.text)
    }
}
