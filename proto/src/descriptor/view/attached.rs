//! `fd_attachment`: an attachment of an output, which became a descriptor of its own.

use crate::id::FdId;
use crate::xml::Element;

/// An attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached<'a> {
    /// Source of the attachment, such as `tool:plot`.
    pub source: &'a str,
    /// Name of the attachment, if it has one.
    pub name: Option<&'a str>,
    /// The media type.
    pub media_type: &'a str,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of kept bytes, if some were dropped.
    pub kept_bytes: Option<u64>,
}

/// `fd_attachment`: the descriptor and its type. The bytes are not shown as text.
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

/// `fd_attachments`: stands before the elements of the descriptors that hold what the provider's
/// tools returned or the model made. The model has received it already, in its reply.
#[must_use]
pub fn attachments_of_reply(count: usize) -> Element {
    Element::new("fd_attachments")
        .attribute("kept", count)
        .text(
            "What your provider's tools returned, and what you made, is also kept as descriptors.",
        )
}

/// `fd_attachments`: files that the provider of the model has and the process does not, a line for
/// each.
#[must_use]
pub fn attachments_missing(files: &[String]) -> Element {
    Element::new("fd_attachments")
        .attribute("missing", files.len())
        .text(files.join("\n"))
}

/// `fd_attachments`: the number of attachments of an output and the number that became descriptors,
/// if these differ.
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
