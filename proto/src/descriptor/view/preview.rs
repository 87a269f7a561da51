//! The preview of a new descriptor: the first part of its content, and perhaps the last.

use super::{ContentSummary, Part};
use crate::id::FdId;
use crate::tool::Answer;
use crate::xml::Element;

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
