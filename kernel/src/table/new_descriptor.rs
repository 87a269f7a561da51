//! A descriptor that is about to be opened: what it holds, and what its caller reads of it.
//!
//! It has no number yet: the table gives it the next one when it is opened. So it can be made next
//! to the process, whatever is opened there meanwhile.

use std::borrow::Cow;

use dormouse_proto::descriptor::view::{self, Extent, Served};
use dormouse_proto::descriptor::{DescriptorSettings, FdError, FdErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Answer;

use super::preview::{self, Shown};
use super::served;
use dormouse_content::{Content, ReadQuota, Unreadable};

/// A descriptor that is about to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDescriptor {
    /// What it holds.
    pub entry: Entry<Content>,
    /// Characters of the content as it is, whatever form of it is shown.
    total_chars: u64,
    shows: Shows,
}

/// What the caller reads once the descriptor is open.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shows {
    /// A message and the beginning of the content.
    Preview {
        message: String,
        preview: Result<(Extent, Shown), Unreadable>,
        is_error: bool,
    },
    /// Which part of another descriptor it is.
    Part {
        of: FdId,
        served: Served,
        lines: (u64, u64),
        extent: Extent,
    },
}

impl NewDescriptor {
    /// One whose caller reads `message`, how many bytes were dropped, and as much of the content as
    /// the settings want.
    #[must_use]
    pub fn previewed(
        entry: Entry<Content>,
        message: &str,
        settings: &DescriptorSettings,
        quota: &ReadQuota,
    ) -> Self {
        // The index of the pages is kept with the content, so that no page has to be looked for
        // later.
        entry.content.reader(quota).prepare(entry.page_chars);
        let preview = served(Cow::Borrowed(&entry), settings, quota)
            .and_then(|view| Ok((view.extent()?, preview::shown(&view, settings.preview)?)));
        let total_chars = entry
            .content
            .reader(quota)
            .total_chars()
            .unwrap_or_default();
        let message = match entry.cut_bytes {
            0 => message.to_owned(),
            cut_bytes => format!("{message} {}", cut(&entry.content, cut_bytes)),
        };
        Self {
            entry,
            total_chars,
            shows: Shows::Preview {
                message,
                preview,
                is_error: false,
            },
        }
    }

    /// One that is a part of `of`; `lines` are the first and the last of it there.
    pub(crate) fn part(
        entry: Entry<Content>,
        of: FdId,
        served: Served,
        lines: (u64, u64),
        extent: Extent,
    ) -> Self {
        Self {
            entry,
            total_chars: extent.total_chars,
            shows: Shows::Part {
                of,
                served,
                lines,
                extent,
            },
        }
    }

    /// What the caller reads once it is opened as `id`: an `fd_result` or an `fd_extraction`, or an
    /// `fd_error` if its content cannot be read.
    #[must_use]
    pub fn answer(&self, id: &FdId) -> Answer {
        match &self.shows {
            Shows::Preview {
                message,
                preview: Ok((extent, shown)),
                is_error,
            } => {
                let previewed = shown.previewed(self.entry.notes.summary.as_deref());
                Answer {
                    is_error: *is_error,
                    ..view::result(id, &self.entry.source, *extent, message, previewed)
                }
            }
            Shows::Preview {
                preview: Err(lost), ..
            } => unreadable(Some(id.to_string()), lost),
            Shows::Part {
                of,
                served,
                lines,
                extent,
            } => view::extraction(of, id, served, *lines, *extent),
        }
    }

    /// How many characters its content has, whatever form of it is shown.
    pub(super) fn total_chars(&self) -> u64 {
        self.total_chars
    }

    /// Whether the content is that of an error.
    pub(super) fn set_error(&mut self, flag: bool) {
        if let Shows::Preview { is_error, .. } = &mut self.shows {
            *is_error = flag;
        }
    }
}

/// How many bytes of a content were dropped, as a sentence.
pub(super) fn cut(content: &Content, cut_bytes: u64) -> String {
    let kept = content.len_bytes();
    format!("Only its first {kept} bytes were kept; {cut_bytes} bytes after them were cut off.")
}

/// The answer if a content cannot be read. `fd` is the descriptor that was asked for.
pub(crate) fn unreadable(fd: Option<String>, Unreadable { message }: &Unreadable) -> Answer {
    FdError {
        kind: FdErrorKind::ContentUnreadable,
        fd,
        message: message.to_string(),
    }
    .answer()
}
