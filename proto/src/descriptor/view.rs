//! Builds the XML elements that are the answers of descriptor tools. Each function builds the
//! element that its documentation names. The attributes state the range that the answer contains,
//! which can be less than the requested range.

mod attached;
mod distinct;
mod encoding;
mod listing;
mod notes;
mod search_all;

pub use self::attached::{
    Attached, attachment, attachments_left_out, attachments_missing, attachments_of_reply,
};
pub use self::distinct::{DistinctMatch, DistinctMatches, distinct, distinct_in_all};
pub use self::encoding::{Encoding, SourceEncoding};
pub use self::listing::{ListedFd, Shown, list};
pub use self::notes::{ListedSection, marked, renamed, section, sections, unmarked};
pub use self::search_all::{FoundInAll, Group, search_all};

use std::borrow::Cow;
use std::sync::Arc;

use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// The size and encoding of a content, which every answer about the content states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentSummary {
    /// Number of pages, by the page size of the descriptor.
    pub pages: u64,
    /// Number of lines.
    pub total_lines: u64,
    /// Number of characters.
    pub total_chars: u64,
    /// Encoding of the shown text.
    pub encoding: Encoding,
    /// Bytes that were dropped after the content.
    pub cut_bytes: u64,
    /// Whether the content is reformatted JSON, to which pages, lines and characters then refer.
    /// `None` for plain text, unless a call requested it explicitly.
    pub pretty: Option<bool>,
}

impl ContentSummary {
    fn cut_attribute(self) -> Option<u64> {
        (self.cut_bytes > 0).then_some(self.cut_bytes)
    }
}

/// A part of a content with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The text.
    pub text: &'a str,
    /// The line of its first character, from 1.
    pub first_line: u64,
    /// The line of its last character.
    pub last_line: u64,
    /// Whether the part starts within a line.
    pub continued: bool,
    /// Whether the part ends within a line.
    pub truncated: bool,
    /// Whether each line is shown with its number and a tab before it, which the content does not
    /// contain.
    pub is_numbered: bool,
}

impl Part<'_> {
    /// The text as it is shown.
    fn shown_text(&self) -> Cow<'_, str> {
        if !self.is_numbered {
            return Cow::Borrowed(self.text);
        }
        let mut numbered = String::with_capacity(self.text.len() * 5 / 4);
        for (number, line) in (self.first_line..).zip(self.text.split_inclusive('\n')) {
            numbered += &number.to_string();
            numbered.push('\t');
            numbered += line;
        }
        Cow::Owned(numbered)
    }

    /// Characters that the numbers add to the text.
    #[must_use]
    pub fn number_chars(&self) -> u64 {
        let lines = self.last_line - self.first_line + 1;
        let digits = self.last_line.to_string().len() as u64;
        if self.is_numbered {
            lines * (digits + 1)
        } else {
            0
        }
    }

    fn line_range(&self) -> String {
        format!("{}-{}", self.first_line, self.last_line)
    }
}

/// The part of a content that an answer contains, in the units of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownPart {
    /// The whole content.
    All,
    /// One page, from 1, requested without a count.
    Page(u64),
    /// Pages, from 1.
    Pages {
        /// The first unit.
        start: u64,
        /// The number of units.
        count: u64,
    },
    /// Lines, from 1.
    Lines {
        /// The first unit.
        start: u64,
        /// The number of units.
        count: u64,
    },
    /// Characters, from 0.
    Chars {
        /// The first unit.
        start: u64,
        /// The number of units.
        count: u64,
    },
    /// The lines of a unit, or the first of them.
    Unit {
        /// `paragraph`, `section`, `function` or `class`.
        unit: &'static str,
        /// Number of the unit among its kind, from 1.
        index: u64,
        /// Name of the unit; empty if it has none.
        name: Arc<str>,
        /// First line.
        start: u64,
        /// Number of lines.
        count: u64,
    },
    /// The characters of a unit that does not consist of whole lines.
    UnitChars {
        /// `function` or `class`.
        unit: &'static str,
        /// Number of the unit among its kind, from 1.
        index: u64,
        /// Name of the unit.
        name: Arc<str>,
        /// First character, from 0.
        start: u64,
        /// Number of characters.
        count: u64,
    },
}

impl ShownPart {
    /// The `mode`, `start` and `count` that request this part.
    #[must_use]
    pub fn request(&self) -> Option<(&'static str, u64, u64)> {
        match *self {
            Self::All => None,
            Self::Page(page) => Some(("page", page, 1)),
            Self::Pages { start, count } => Some(("page", start, count)),
            Self::Lines { start, count } | Self::Unit { start, count, .. } => {
                Some(("line", start, count))
            }
            Self::Chars { start, count } | Self::UnitChars { start, count, .. } => {
                Some(("char", start, count))
            }
        }
    }

    /// Adds the attributes of the part. One page is `page="2"`, several are `page="2-4"`,
    /// everything is `page="all"`; lines and characters have `mode`, `start` and `count`; a unit
    /// has `unit`, `index` and, if it has one, `name`. Pages that were requested with a count have
    /// `start` and `count` in addition to `page`.
    fn add_attributes(&self, element: Element) -> Element {
        match self {
            Self::All => element.attribute("page", "all"),
            Self::Page(page) => element.attribute("page", page),
            Self::Pages { start, count } => {
                let pages = if *count == 1 {
                    start.to_string()
                } else {
                    format!("{start}-{}", start + count - 1)
                };
                element
                    .attribute("page", pages)
                    .attribute("start", start)
                    .attribute("count", count)
            }
            Self::Lines { start, count } | Self::Chars { start, count } => {
                let mode = self.request().map(|(mode, ..)| mode);
                element
                    .attribute_if("mode", mode)
                    .attribute("start", start)
                    .attribute("count", count)
            }
            Self::Unit {
                unit, index, name, ..
            } => {
                let name = (!name.is_empty()).then_some(name);
                element
                    .attribute("unit", unit)
                    .attribute("index", index)
                    .attribute_if("name", name)
            }
            Self::UnitChars {
                unit,
                index,
                name,
                start,
                count,
            } => element
                .attribute("unit", unit)
                .attribute("index", index)
                .attribute("name", name)
                .attribute("mode", "char")
                .attribute("start", start)
                .attribute("count", count),
        }
    }
}

/// The preview of a new descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previewed<'a> {
    /// The first part.
    pub head: Part<'a>,
    /// The last part, if it is shown.
    pub tail: Option<Tail<'a>>,
    /// The summary of the descriptor, if there is one.
    pub summary: Option<&'a str>,
}

/// The last part of a content, and what was omitted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail<'a> {
    /// The omitted text.
    pub omitted: Omitted,
    /// The last part.
    pub part: Part<'a>,
}

/// The omitted text between two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omitted {
    /// First and last line, from 1, including lines that are shown in part.
    pub lines: (u64, u64),
    /// Number of characters.
    pub chars: u64,
}

impl Tail<'_> {
    fn add_to(self, element: Element) -> Element {
        let Self {
            omitted:
                Omitted {
                    lines: (first, last),
                    chars,
                },
            part,
        } = self;
        let omitted = Element::new("omitted")
            .attribute("lines", format!("{first}-{last}"))
            .attribute("chars", chars);
        let preview = Element::new("preview")
            .attribute("part", "tail")
            .attribute("lines", part.line_range())
            .attribute_if("continued", part.continued.then_some(true))
            .text(part.text);
        element.child(omitted).child(preview)
    }
}

/// `fd_result`: content has become a descriptor. `lines` and `truncated` refer to the first part.
#[must_use]
pub fn result(
    fd: &FdId,
    source: &str,
    extent: ContentSummary,
    message: &str,
    preview: Previewed<'_>,
) -> Answer {
    let element = Element::new("fd_result")
        .attribute("fd", fd)
        .attribute("source", source);
    Answer::shown(with_preview(element, extent, message, preview))
}

/// Adds the preview of a content to an element: the attributes of `fd_result` except `fd` and
/// `source`, then a message, the summary if there is one, and the previewed parts.
#[must_use]
pub fn with_preview(
    element: Element,
    extent: ContentSummary,
    message: &str,
    preview: Previewed<'_>,
) -> Element {
    let Previewed {
        head: part,
        tail,
        summary,
    } = preview;
    let element = element
        .attribute("pages", extent.pages)
        .attribute("truncated", part.truncated)
        .attribute("lines", part.line_range())
        .attribute("total_lines", extent.total_lines)
        .attribute("total_chars", extent.total_chars)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("replaced_bytes", extent.encoding.replaced_bytes())
        .attribute_if("cut_bytes", extent.cut_attribute())
        .attribute_if("pretty", extent.pretty)
        .child(Element::new("message").text(message));
    let summary = summary.map(|text| Element::new("summary").text(text));
    let element = summary
        .into_iter()
        .fold(element, Element::child)
        .child(Element::new("preview").text(part.text));
    tail.into_iter()
        .fold(element, |element, tail| tail.add_to(element))
}

/// `fd_content`: a part of a content. If the answer was limited, `rest` is the rest of the request.
#[must_use]
pub fn content(
    fd: &FdId,
    extent: ContentSummary,
    shown_part: &ShownPart,
    part: Part<'_>,
    rest: Option<&ShownPart>,
) -> Answer {
    content_answer(
        Element::new("fd_content").attribute("fd", fd),
        extent,
        shown_part,
        part,
        rest,
    )
}

/// `fd_content`, as [`content`], with the summary of the whole content.
#[must_use]
pub fn summarized_content(
    (fd, summary): (&FdId, &str),
    extent: ContentSummary,
    shown_part: &ShownPart,
    part: Part<'_>,
    rest: Option<&ShownPart>,
) -> Answer {
    let element = Element::new("fd_content")
        .attribute("fd", fd)
        .attribute("summary", summary);
    content_answer(element, extent, shown_part, part, rest)
}

/// Completes an `fd_content` element: adds the attributes of its part, and the text.
fn content_answer(
    element: Element,
    extent: ContentSummary,
    shown_part: &ShownPart,
    part: Part<'_>,
    rest: Option<&ShownPart>,
) -> Answer {
    let element = shown_part
        .add_attributes(element)
        .attribute("pages", extent.pages)
        .attribute("continued", part.continued)
        .attribute("truncated", part.truncated)
        .attribute("lines", part.line_range())
        .attribute("total_lines", extent.total_lines)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("replaced_bytes", extent.encoding.replaced_bytes())
        .attribute_if("cut_bytes", extent.cut_attribute())
        .attribute_if("pretty", extent.pretty)
        .attribute_if("line_numbers", part.is_numbered.then_some(true));
    Answer::shown(with_continuation(element, rest, extent.pretty).text(part.shown_text()))
}

fn with_continuation(element: Element, rest: Option<&ShownPart>, pretty: Option<bool>) -> Element {
    let Some((mode, start, count)) = rest.and_then(ShownPart::request) else {
        return element;
    };
    let form = pretty
        .map(|pretty| format!(", pretty={pretty}"))
        .unwrap_or_default();
    let message = format!(
        "Only the first part of what was asked is shown. Go on with read_fd and mode={mode}, \
         start={start}, count={count}{form}."
    );
    element
        .attribute("complete", false)
        .attribute("next_mode", mode)
        .attribute("next_start", start)
        .attribute("next_count", count)
        .attribute("message", message)
}

/// `fd_extraction`: a part of `source` was copied into the new descriptor `new`. The element does
/// not contain the copied text. `lines` are the first and last line in the source; they refer to
/// the reformatted text if `extent` has `pretty`.
#[must_use]
pub fn extraction(
    source: &FdId,
    new: &FdId,
    shown_part: &ShownPart,
    lines: (u64, u64),
    extent: ContentSummary,
) -> Answer {
    let element = shown_part
        .add_attributes(
            Element::new("fd_extraction")
                .attribute("source_fd", source)
                .attribute("new_fd", new),
        )
        .attribute("lines", format!("{}-{}", lines.0, lines.1))
        .attribute("pages", extent.pages)
        .attribute("total_lines", extent.total_lines)
        .attribute("total_chars", extent.total_chars)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("replaced_bytes", extent.encoding.replaced_bytes())
        .attribute_if("pretty", extent.pretty);
    Answer::shown(element)
}

/// The differences between two contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences<'a> {
    /// Number of lines only in the second content.
    pub added: u64,
    /// Number of lines only in the first content.
    pub removed: u64,
    /// Whether the whole diff is shown.
    pub is_complete: bool,
    /// A unified diff, or the beginning of one.
    pub text: &'a str,
}

/// `fd_diff`: the differences between `a` and `b` as a unified diff. Empty if they are equal.
#[must_use]
pub fn differences(a: &str, b: &str, differences: Differences<'_>) -> Answer {
    let Differences {
        added,
        removed,
        is_complete,
        text,
    } = differences;
    let element = Element::new("fd_diff")
        .attribute("a", a)
        .attribute("b", b)
        .attribute("added", added)
        .attribute("removed", removed)
        .attribute("complete", is_complete);
    Answer::shown(element.text(text))
}

/// The units of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    /// `paragraph`, `section`, `function` or `class`.
    pub unit: &'static str,
    /// The plural of `unit`.
    pub plural: &'static str,
    /// Number of units.
    pub total: u64,
    /// Number of the first listed unit, from 1.
    pub start: u64,
    /// The listed units.
    pub listed: Vec<Listed>,
}

/// A unit in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the unit, or its first words.
    pub name: String,
    /// First and last line, from 1.
    pub lines: (u64, u64),
    /// First and last character, from 0, of a unit that does not consist of whole lines.
    pub chars: Option<(u64, u64)>,
}

/// `fd_units`: a list of units, numbered from 1.
#[must_use]
pub fn units(fd: &FdId, extent: ContentSummary, units: &Units) -> Answer {
    let Units {
        unit,
        plural,
        total,
        start,
        listed,
    } = units;
    let shown = Shown {
        total: *total,
        start: *start,
        count: listed.len() as u64,
    };
    let next = shown.next();
    let message = next.map(|next| {
        format!(
            "{total} {plural} in all. Go on with unit={unit}, start={next}. Any of them can be \
             read with index."
        )
    });
    let element = Element::new("fd_units")
        .attribute("fd", fd)
        .attribute("unit", unit)
        .attribute("total", total)
        .attribute_if("shown", (shown.count < shown.total).then(|| shown.range()))
        .attribute("total_lines", extent.total_lines)
        .attribute_if("next_start", next)
        .attribute_if("message", message);
    Answer::shown(
        (*start..)
            .zip(listed)
            .fold(element, |element, (index, unit)| {
                element.child(unit.element(index))
            }),
    )
}

impl Listed {
    fn element(&self, index: u64) -> Element {
        let (first, last) = self.lines;
        Element::new("unit")
            .attribute("index", index)
            .attribute("name", &self.name)
            .attribute("lines", format!("{first}-{last}"))
            .attribute_if(
                "chars",
                self.chars.map(|(first, last)| format!("{first}-{last}")),
            )
    }
}

/// The result of a file write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written<'a> {
    /// Path as the model wrote it.
    pub file_path: &'a str,
    /// `write`, `append` or `insert`.
    pub mode: &'a str,
    /// Number of written bytes, not the size of the file.
    pub bytes: u64,
    /// Number of written lines.
    pub lines: u64,
    /// Whether JSON was reformatted, as in [`ContentSummary`].
    pub pretty: Option<bool>,
}

/// `fd_write`: content was written to a file.
#[must_use]
pub fn write(fd: &FdId, written: Written<'_>) -> Answer {
    let done = match written.mode {
        "append" => "appended to",
        "insert" => "inserted into",
        _ => "written to",
    };
    let message = format!("Content of {fd} was {done} {}", written.file_path);
    let stats = Element::new("stats")
        .child(Element::new("bytes").text(written.bytes.to_string()))
        .child(Element::new("lines").text(written.lines.to_string()));
    let element = Element::new("fd_write")
        .attribute("fd", fd)
        .attribute("file_path", written.file_path)
        .attribute("success", true)
        .attribute("mode", written.mode)
        .attribute_if("pretty", written.pretty)
        .child(Element::new("message").text(message))
        .child(stats);
    Answer::shown(element)
}

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
fn with_literal_note(element: Element, query: &str, kind: QueryKind, shown: Shown) -> Element {
    let looks_like_pattern = query.contains(['\\', '|', '*', '+', '?', '[', '(', '^', '$']);
    let is_doubtful = kind == QueryKind::Literal && shown.total == 0 && looks_like_pattern;
    let message = "The query was taken literally. With regex=true it is a regular expression.";
    element.attribute_if("message", is_doubtful.then_some(message))
}

/// Adds a note that names the searched descriptors that are binary, of which only the base64 text
/// was searched: no match there does not mean that the bytes do not contain the text.
fn with_binary_note<'a>(element: Element, binary: impl IntoIterator<Item = &'a FdId>) -> Element {
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

/// Adds a message that says how to request the next items, if any are left.
fn with_next_start(element: Element, shown: Shown, items: &str, tool: &str) -> Element {
    let Some(next) = shown.next() else {
        return element;
    };
    let message = format!(
        "{} {items} in all. Call {tool} again with start={next} for more.",
        shown.total
    );
    element
        .attribute("next_start", next)
        .attribute("message", message)
}

impl Excerpt<'_> {
    fn element(&self) -> Element {
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

/// A summary and how much of the content it is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary<'a> {
    /// The text of the model.
    pub text: &'a str,
    /// Number of pages that the model was shown, if not all.
    pub pages_read: Option<u64>,
}

/// `fd_summary`: the summary of a content.
#[must_use]
pub fn summary(fd: &FdId, extent: ContentSummary, summary: Summary<'_>) -> Answer {
    let element = Element::new("fd_summary")
        .attribute("fd", fd)
        .attribute("pages", extent.pages)
        .attribute_if("pages_read", summary.pages_read)
        .attribute("total_lines", extent.total_lines)
        .attribute("total_chars", extent.total_chars)
        .text(summary.text);
    Answer::shown(element)
}
