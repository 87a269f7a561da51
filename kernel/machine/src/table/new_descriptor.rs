//! A descriptor that is about to be opened: its entry, and the answer that announces it.
//!
//! A new descriptor has no number until the table assigns one. It can therefore be prepared outside
//! of the process actor while the process opens other descriptors.

use std::borrow::Cow;

use dormouse_proto::descriptor::view::{self, ContentSummary, ShownPart};
use dormouse_proto::descriptor::{DescriptorSettings, FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Answer;

use super::in_default_form;
use super::preview::{self, PreviewParts};
use dormouse_content::{Content, ReadQuota, Unreadable};

/// Most characters of the shape of JSON that the answer to a new descriptor states. It is no longer
/// than what the settings show directly either.
const MAX_SHAPE_CHARS: usize = 1000;

/// A descriptor that is about to be opened. It has no id yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDescriptor {
    /// Entry for the descriptor table.
    pub entry: Entry<Content>,
    /// Characters of the unchanged content, even if reformatted JSON is shown.
    total_chars: u64,
    answer_kind: AnswerKind,
}

/// The kind of answer that announces the descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AnswerKind {
    /// A message and a preview of the content.
    Preview {
        message: String,
        preview: Result<(ContentSummary, PreviewParts), Unreadable>,
        is_error: bool,
    },
    /// A statement that the content is a part of another descriptor, and which part.
    Part {
        parent: FdId,
        part: ShownPart,
        lines: (u64, u64),
        extent: ContentSummary,
    },
}

impl NewDescriptor {
    /// Creates a descriptor whose answer contains `message`, the number of dropped bytes, and a
    /// preview according to the settings.
    #[must_use]
    pub fn previewed(
        entry: Entry<Content>,
        message: &str,
        settings: &DescriptorSettings,
        quota: &ReadQuota,
    ) -> Self {
        // Build the page table (the index of page boundaries) now. It is stored with the content,
        // so that later reads do not build it.
        entry
            .content
            .reader(quota)
            .prepare_page_table(entry.page_chars);
        let preview = in_default_form(Cow::Borrowed(&entry), settings, quota).and_then(|view| {
            Ok((
                view.extent()?,
                preview::build_preview(&view, settings.preview)?,
            ))
        });
        let shape_chars = usize::try_from(settings.max_direct_output_chars)
            .map_or(MAX_SHAPE_CHARS, |direct| direct.min(MAX_SHAPE_CHARS));
        let shape = entry.content.reader(quota).json_shape(shape_chars);
        // If the content cannot be read, the answer says so in place of the preview.
        let shape = shape.ok().flatten();
        let total_chars = entry
            .content
            .reader(quota)
            .total_chars()
            .unwrap_or_default();
        let message = match entry.cut_bytes {
            0 => message.to_owned(),
            cut_bytes => format!("{message} {}", cut_notice(&entry.content, cut_bytes)),
        };
        let message = match shape {
            Some(shape) => format!("{message} It is JSON: {shape}"),
            None => message,
        };
        Self {
            entry,
            total_chars,
            answer_kind: AnswerKind::Preview {
                message,
                preview,
                is_error: false,
            },
        }
    }

    /// Creates a descriptor that holds a part of the descriptor `parent`. `part` identifies the
    /// part; `lines` are its first and last line in `parent`.
    #[must_use]
    pub fn part(
        entry: Entry<Content>,
        parent: FdId,
        part: ShownPart,
        lines: (u64, u64),
        extent: ContentSummary,
    ) -> Self {
        Self {
            entry,
            total_chars: extent.total_chars,
            answer_kind: AnswerKind::Part {
                parent,
                part,
                lines,
                extent,
            },
        }
    }

    /// The answer once the descriptor is opened as `id`: an `fd_result` or `fd_extraction`, or an
    /// `fd_error` if the content cannot be read.
    #[must_use]
    pub fn answer(&self, id: &FdId) -> Answer {
        match &self.answer_kind {
            AnswerKind::Preview {
                message,
                preview: Ok((extent, shown)),
                is_error,
            } => {
                let previewed = shown.to_previewed(self.entry.notes.summary.as_deref());
                Answer {
                    is_error: *is_error,
                    ..view::result(id, &self.entry.source, *extent, message, previewed)
                }
            }
            AnswerKind::Preview {
                preview: Err(error),
                ..
            } => unreadable_answer(Some(id.to_string()), error),
            AnswerKind::Part {
                parent,
                part,
                lines,
                extent,
            } => view::extraction(parent, id, part, *lines, *extent),
        }
    }

    /// Characters of the unchanged content.
    pub(super) fn total_chars(&self) -> u64 {
        self.total_chars
    }

    /// Marks the preview as that of an error.
    pub(super) fn set_error(&mut self, flag: bool) {
        if let AnswerKind::Preview { is_error, .. } = &mut self.answer_kind {
            *is_error = flag;
        }
    }
}

/// A sentence for the model that states how many bytes were dropped.
pub(super) fn cut_notice(content: &Content, cut_bytes: u64) -> String {
    let kept = content.len_bytes();
    format!("Only its first {kept} bytes were kept; {cut_bytes} bytes after them were cut off.")
}

/// The answer if a content cannot be read. `fd` is the requested descriptor.
pub(crate) fn unreadable_answer(fd: Option<String>, Unreadable { message }: &Unreadable) -> Answer {
    FdError::new(FdErrorKind::ContentUnreadable, fd, message.to_string()).answer()
}
