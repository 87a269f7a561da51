//! Builds the XML elements that are the answers of descriptor tools. Each function builds the
//! element that its documentation names. The attributes state the range that the answer contains,
//! which can be less than the requested range.

mod attached;
mod distinct;
mod encoding;
mod listing;
mod notes;
mod part;
mod preview;
mod search;
mod search_all;
mod units;

pub use self::attached::{
    Attached, attachment, attachments_left_out, attachments_missing, attachments_of_reply,
};
pub use self::distinct::{DistinctMatch, DistinctMatches, distinct, distinct_in_all};
pub use self::encoding::{Encoding, SourceEncoding};
pub use self::listing::{ListedFd, Shown, list};
pub use self::notes::{ListedSection, marked, renamed, section, sections, unmarked};
pub use self::part::{Part, ShownPart};
pub use self::preview::{Omitted, Previewed, Tail, result, with_preview};
pub use self::search::{Excerpt, Found, QueryKind, search};
pub use self::search_all::{FoundInAll, Group, search_all};
pub use self::units::{Listed, Units, units};

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
