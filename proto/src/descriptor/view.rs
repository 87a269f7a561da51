//! The elements that descriptor tools answer with, one function each. Attributes echo what was
//! served, not what was asked for.

mod attached;
mod distinct;
mod listing;
mod notes;
mod search_all;

pub use self::attached::{Attached, attachment, attachments_left_out};
pub use self::distinct::{Distinct, DistinctMatch, distinct, distinct_in_all};
pub use self::listing::{ListedFd, Shown, list};
pub use self::notes::{ListedSection, marked, renamed, section, sections, unmarked};
pub use self::search_all::{FoundInAll, Group, search_all};

use std::sync::Arc;

use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

/// A content as every answer about it describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Pages, by the page size of its descriptor.
    pub pages: u64,
    /// Lines.
    pub total_lines: u64,
    /// Characters.
    pub total_chars: u64,
    /// How its bytes are shown.
    pub encoding: Encoding,
    /// Bytes that came after it and were cut off.
    pub cut_bytes: u64,
    /// Whether it is JSON reformatted, and pages, lines and characters are those of the reformatted
    /// text. None where the content is as it is and a call did not insist on that.
    pub pretty: Option<bool>,
}

impl Extent {
    fn cut(self) -> Option<u64> {
        (self.cut_bytes > 0).then_some(self.cut_bytes)
    }
}

/// How bytes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As the text that they are.
    Text,
    /// They are not UTF-8: as base64, and pages, lines and characters are those of the base64 text.
    Base64,
}

impl Encoding {
    /// The word for it, in answers; none where nothing has to be said.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Base64 => Some("base64"),
        }
    }
}

/// A part of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The text.
    pub text: &'a str,
    /// The line of its first character, from 1.
    pub first_line: u64,
    /// The line of its last character.
    pub last_line: u64,
    /// It starts inside a line.
    pub continued: bool,
    /// It ends inside a line.
    pub truncated: bool,
}

impl Part<'_> {
    fn lines(&self) -> String {
        format!("{}-{}", self.first_line, self.last_line)
    }
}

/// Which part was served, in the units that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// Everything.
    All,
    /// One page, from 1, that was asked for without a count.
    Page(u64),
    /// Pages, from 1.
    Pages {
        /// The first.
        start: u64,
        /// How many.
        count: u64,
    },
    /// Lines, from 1.
    Lines {
        /// The first.
        start: u64,
        /// How many.
        count: u64,
    },
    /// Characters, from 0.
    Chars {
        /// The first.
        start: u64,
        /// How many.
        count: u64,
    },
    /// Lines that are a unit, or its beginning.
    Unit {
        /// `paragraph`, `section`, `function` or `class`.
        unit: &'static str,
        /// Its number among those, from 1.
        index: u64,
        /// Its name; empty if it has none.
        name: Arc<str>,
        /// The first line.
        start: u64,
        /// How many lines.
        count: u64,
    },
}

impl Served {
    /// The `mode`, `start` and `count` that ask for this part.
    #[must_use]
    pub fn units(&self) -> Option<(&'static str, u64, u64)> {
        match *self {
            Self::All => None,
            Self::Page(page) => Some(("page", page, 1)),
            Self::Pages { start, count } => Some(("page", start, count)),
            Self::Lines { start, count } | Self::Unit { start, count, .. } => {
                Some(("line", start, count))
            }
            Self::Chars { start, count } => Some(("char", start, count)),
        }
    }

    /// One page is `page="2"`, several are `page="2-4"`, everything is `page="all"`; lines and
    /// characters have `mode`, `start` and `count`; a unit has `unit`, `index` and, if it has one,
    /// its `name`. Pages that were asked for with a count have `start` and `count` beside `page`.
    fn describe(&self, element: Element) -> Element {
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
                let mode = self.units().map(|(mode, ..)| mode);
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
        }
    }
}

/// What of a new descriptor is shown at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previewed<'a> {
    /// Its beginning.
    pub head: Part<'a>,
    /// Its end, where that is shown as well.
    pub tail: Option<Tail<'a>>,
    /// What it is about, where a model was asked.
    pub summary: Option<&'a str>,
}

/// The end of a content, and what stands between it and the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail<'a> {
    /// What is not shown.
    pub omitted: Omitted,
    /// The end.
    pub part: Part<'a>,
}

/// What is not shown between two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omitted {
    /// Its first and its last line, from 1. A line that is shown in part is among them.
    pub lines: (u64, u64),
    /// Its characters.
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
            .attribute("lines", part.lines())
            .attribute_if("continued", part.continued.then_some(true))
            .text(part.text);
        element.child(omitted).child(preview)
    }
}

/// `fd_result`: content has just become a descriptor. `lines` and `truncated` are those of its
/// beginning.
#[must_use]
pub fn result(
    fd: &FdId,
    source: &str,
    extent: Extent,
    message: &str,
    preview: Previewed<'_>,
) -> Answer {
    let Previewed {
        head: part,
        tail,
        summary,
    } = preview;
    let element = Element::new("fd_result")
        .attribute("fd", fd)
        .attribute("source", source)
        .attribute("pages", extent.pages)
        .attribute("truncated", part.truncated)
        .attribute("lines", part.lines())
        .attribute("total_lines", extent.total_lines)
        .attribute("total_chars", extent.total_chars)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("cut_bytes", extent.cut())
        .attribute_if("pretty", extent.pretty)
        .child(Element::new("message").text(message));
    let summary = summary.map(|text| Element::new("summary").text(text));
    let element = summary
        .into_iter()
        .fold(element, Element::child)
        .child(Element::new("preview").text(part.text));
    Answer::shown(
        tail.into_iter()
            .fold(element, |element, tail| tail.add_to(element)),
    )
}

/// `fd_content`: a part of a content. Where the answer is bounded, `rest` is what is still to be
/// read of what was asked.
#[must_use]
pub fn content(
    fd: &FdId,
    extent: Extent,
    served: &Served,
    part: Part<'_>,
    rest: Option<&Served>,
) -> Answer {
    content_in(
        Element::new("fd_content").attribute("fd", fd),
        extent,
        served,
        part,
        rest,
    )
}

/// The element with everything that an `fd_content` says of the part that it shows.
fn content_in(
    element: Element,
    extent: Extent,
    served: &Served,
    part: Part<'_>,
    rest: Option<&Served>,
) -> Answer {
    let element = served
        .describe(element)
        .attribute("pages", extent.pages)
        .attribute("continued", part.continued)
        .attribute("truncated", part.truncated)
        .attribute("lines", part.lines())
        .attribute("total_lines", extent.total_lines)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("cut_bytes", extent.cut())
        .attribute_if("pretty", extent.pretty);
    Answer::shown(go_on(element, rest, extent.pretty).text(part.text))
}

fn go_on(element: Element, rest: Option<&Served>, pretty: Option<bool>) -> Element {
    let Some((mode, start, count)) = rest.and_then(Served::units) else {
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

/// `fd_extraction`: a part of `source` is now `new`. It names the new descriptor and never shows
/// its content. `lines`, the first and the last, are those of the source, reformatted if it says
/// so.
#[must_use]
pub fn extraction(
    source: &FdId,
    new: &FdId,
    served: &Served,
    lines: (u64, u64),
    extent: Extent,
) -> Answer {
    let element = served
        .describe(
            Element::new("fd_extraction")
                .attribute("source_fd", source)
                .attribute("new_fd", new),
        )
        .attribute("lines", format!("{}-{}", lines.0, lines.1))
        .attribute("pages", extent.pages)
        .attribute("total_lines", extent.total_lines)
        .attribute("total_chars", extent.total_chars)
        .attribute_if("encoding", extent.encoding.word())
        .attribute_if("pretty", extent.pretty);
    Answer::shown(element)
}

/// In what two contents differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differences<'a> {
    /// Lines only in the second.
    pub added: u64,
    /// Lines only in the first.
    pub removed: u64,
    /// Whether all of the diff is shown.
    pub is_complete: bool,
    /// A unified diff, or the beginning of one.
    pub text: &'a str,
}

/// `fd_diff`: in what `a` and `b` differ, as a unified diff. It is empty if they are equal.
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
    /// The word for several.
    pub plural: &'static str,
    /// How many there are.
    pub total: u64,
    /// As many as are shown: the first ones.
    pub listed: Vec<Listed>,
}

/// A unit in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, or its first words.
    pub name: String,
    /// Its first and last line, from 1.
    pub lines: (u64, u64),
}

/// `fd_units`: which units there are, numbered from 1.
#[must_use]
pub fn units(fd: &FdId, extent: Extent, units: &Units) -> Answer {
    let Units {
        unit,
        plural,
        total,
        listed,
    } = units;
    let message = format!(
        "The first {} of {total} {plural} are listed. Any of them can be read with index.",
        listed.len()
    );
    let element = Element::new("fd_units")
        .attribute("fd", fd)
        .attribute("unit", unit)
        .attribute("total", total)
        .attribute("total_lines", extent.total_lines)
        .attribute_if("message", (*total > listed.len() as u64).then_some(message));
    Answer::shown(
        (1_u64..)
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
    }
}

/// What a write put into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written<'a> {
    /// The path as the model gave it.
    pub file_path: &'a str,
    /// `write`, `append` or `insert`.
    pub mode: &'a str,
    /// Bytes that were written: not the size of the file.
    pub bytes: u64,
    /// Lines that were written.
    pub lines: u64,
    /// Whether it was JSON reformatted, as in [`Extent`].
    pub pretty: Option<bool>,
}

/// `fd_write`: content went into a file.
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

/// What a search found, and which of it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// The query as it was asked.
    pub query: &'a str,
    /// How many matches the content holds, and which are shown.
    pub shown: Shown,
    /// The shown ones.
    pub excerpts: Vec<Excerpt<'a>>,
}

/// A place where something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excerpt<'a> {
    /// The match with what stands around it.
    pub part: Part<'a>,
    /// The line of the match, from 1.
    pub line: u64,
    /// Its page, from 1.
    pub page: u64,
    /// Its position in the content, in characters from 0.
    pub char: u64,
    /// How many of the shown matches stand in this excerpt, side by side on one line.
    pub count: u64,
}

/// `fd_search`: what was found, one `match` for each line or, on a long line, for each occurrence.
#[must_use]
pub fn search(fd: &FdId, extent: Extent, found: &Found<'_>) -> Answer {
    let Found {
        query,
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
        .attribute_if("pretty", extent.pretty);
    let element = go_on_listing(element, *shown, "matches", "search_fd");
    Answer::shown(
        excerpts
            .iter()
            .fold(element, |element, excerpt| element.child(excerpt.element())),
    )
}

/// The element with how to go on, where not everything is shown.
fn go_on_listing(element: Element, shown: Shown, items: &str, tool: &str) -> Element {
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
        let several_lines = self.part.first_line != self.part.last_line;
        Element::new("match")
            .attribute("line", self.line)
            .attribute("page", self.page)
            .attribute("char", self.char)
            .attribute_if("count", (self.count > 1).then_some(self.count))
            .attribute_if("lines", several_lines.then(|| self.part.lines()))
            .attribute_if("continued", self.part.continued.then_some(true))
            .attribute_if("truncated", self.part.truncated.then_some(true))
            .text(self.part.text)
    }
}

/// A summary, and what it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary<'a> {
    /// The model's words.
    pub text: &'a str,
    /// How many pages the model was shown, where it was not shown all.
    pub pages_read: Option<u64>,
}

/// `fd_summary`: what a content is about, in a model's words.
#[must_use]
pub fn summary(fd: &FdId, extent: Extent, summary: Summary<'_>) -> Answer {
    let element = Element::new("fd_summary")
        .attribute("fd", fd)
        .attribute("pages", extent.pages)
        .attribute_if("pages_read", summary.pages_read)
        .attribute("total_lines", extent.total_lines)
        .attribute("total_chars", extent.total_chars)
        .text(summary.text);
    Answer::shown(element)
}
