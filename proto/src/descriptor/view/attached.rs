//! `fd_attachment`: something beside the text of an output, which became a descriptor of its own.

use crate::id::FdId;
use crate::xml::Element;

/// What became a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached<'a> {
    /// Where it comes from, such as `tool:plot`.
    pub source: &'a str,
    /// What it is called, if it has a name.
    pub name: Option<&'a str>,
    /// The media type.
    pub media_type: &'a str,
    /// How many bytes it has.
    pub bytes: u64,
    /// How many of them were kept, where not all were.
    pub kept_bytes: Option<u64>,
}

/// `fd_attachment`: the descriptor, and what it holds. Its bytes are not shown in words.
#[must_use]
pub fn attachment(fd: &FdId, attached: Attached<'_>) -> Element {
    Element::new("fd_attachment")
        .attribute("fd", fd)
        .attribute("source", attached.source)
        .attribute_if("name", attached.name)
        .attribute("media_type", attached.media_type)
        .attribute("bytes", attached.bytes)
        .attribute_if("kept_bytes", attached.kept_bytes)
}

/// `fd_attachments`: how many attachments an output had, and how many became descriptors, where
/// these differ.
#[must_use]
pub fn attachments_left_out(total: usize, kept: usize) -> Element {
    Element::new("fd_attachments")
        .attribute("total", total)
        .attribute("kept", kept)
        .text(format!(
            "Only the first {kept} became descriptors. Ask the tool for fewer at a time \
             to get the others."
        ))
}
