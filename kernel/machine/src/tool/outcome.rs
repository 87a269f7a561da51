//! The outcomes of descriptor tools, and the answers to calls that start work outside of the
//! process.

use dormouse_proto::descriptor::view::{self, ContentSummary, Summary, Written};
use dormouse_proto::descriptor::{FdError, FdErrorKind};
use dormouse_proto::file::{FileError, FileWrite};
use dormouse_proto::id::FdId;
use dormouse_proto::message::text_of;
use dormouse_proto::model::{ModelError, Reply, Usage};
use dormouse_proto::record::Annotation;
use dormouse_proto::temp_file::{self, TempFileError, TempFileOp, TempId};
use dormouse_proto::text::truncate;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use crate::table::NewDescriptor;
use dormouse_content::Content;

/// Maximum length of a summary, in characters.
pub const MAX_SUMMARY_CHARS: usize = 2_000;

/// The outcome of a descriptor tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call is answered.
    Answer(Answer),
    /// A descriptor is opened, and the answer announces it.
    Opened(Box<NewDescriptor>),
    /// A descriptor gets a note (a name, a section mark or a summary), and the call is answered.
    Annotated {
        /// Id of the descriptor.
        id: FdId,
        /// The note.
        note: Annotation,
        /// The answer.
        answer: Answer,
    },
    /// The host writes a file; the answer depends on the result.
    Write(PendingWrite),
    /// A model writes a summary; note and answer depend on its reply.
    Summarize(PendingSummary),
    /// An operation on the temporary files of the tree; the answer depends on its result.
    TempFile(PendingTempFile),
}

impl Outcome {
    /// The answer. `None` if it is known only later.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answer(answer) | Self::Annotated { answer, .. } => Some(answer),
            Self::Opened(_) | Self::Write(_) | Self::Summarize(_) | Self::TempFile(_) => None,
        }
    }

    /// Whether the outcome starts work outside of the process.
    #[must_use]
    pub fn starts_work(&self) -> bool {
        match self {
            Self::Answer(_) | Self::Opened(_) | Self::Annotated { .. } => false,
            Self::Write(_) | Self::Summarize(_) | Self::TempFile(_) => true,
        }
    }
}

impl From<Result<Self, FdError>> for Outcome {
    fn from(result: Result<Self, FdError>) -> Self {
        result.unwrap_or_else(|error| Self::Answer(error.answer()))
    }
}

/// Why a call of a process tool was refused, which values are valid, and what to try. The model
/// reads it as a `process_error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of an error about an argument or a descriptor; `None` for other refusals.
    kind: Option<FdErrorKind>,
    /// The descriptor as the model named it, if the refusal is about one.
    fd: Option<String>,
    message: String,
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self {
            kind: None,
            fd: None,
            message,
        }
    }
}

impl From<&str> for Refusal {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

impl From<FdError> for Refusal {
    fn from(
        FdError {
            kind, fd, message, ..
        }: FdError,
    ) -> Self {
        Self {
            kind: Some(kind),
            fd,
            message,
        }
    }
}

impl From<Refusal> for Answer {
    fn from(Refusal { kind, fd, message }: Refusal) -> Self {
        let kind = kind.map_or("refused", FdErrorKind::word);
        let error = Element::new("process_error")
            .attribute("type", kind)
            .attribute_if("fd", fd)
            .child(Element::new("message").text(message));
        Self::failed(error)
    }
}

/// A file write that the host has to perform. Repeating a call yields the same write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWrite {
    /// The write.
    pub write: FileWrite,
    /// The descriptor, as the model named it.
    pub requested_fd: String,
    /// Id of the descriptor.
    pub fd: FdId,
    /// Number of lines that are written.
    pub lines: u64,
    /// Whether JSON is reformatted. `None` if the content is plain text by default.
    pub pretty: Option<bool>,
}

impl PendingWrite {
    /// The answer for the result of the write.
    #[must_use]
    pub fn answer(&self, result: Result<(), FileError>) -> Answer {
        match result {
            Ok(()) => view::write(&self.fd, self.describe_write()),
            Err(FileError { kind, message }) => FdError {
                kind: kind.into(),
                fd: Some(self.requested_fd.clone()),
                message,
                details: Some(format!(
                    "Operation: {}, Path: {}",
                    self.write.mode.word(),
                    self.write.path
                )),
            }
            .answer(),
        }
    }

    fn describe_write(&self) -> Written<'_> {
        let FileWrite {
            path, bytes, mode, ..
        } = &self.write;
        Written {
            file_path: path,
            mode: mode.word(),
            bytes: bytes.len() as u64,
            lines: self.lines,
            pretty: self.pretty,
        }
    }
}

/// A summary that a model has to write. Repeating a call yields the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSummary {
    /// The system prompt of the summary model.
    pub system: &'static str,
    /// The prompt.
    pub prompt: String,
    /// Id of the descriptor.
    pub fd: FdId,
    /// The descriptor, as the model named it.
    pub requested_fd: String,
    /// Size of its content: numbers of pages, lines and characters.
    pub extent: ContentSummary,
    /// Number of pages that the model sees. `None` if it sees all.
    pub pages_read: Option<u64>,
}

/// The outcome of a summary request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summarized {
    /// The note for the descriptor, if the model returned a summary.
    pub note: Option<(FdId, Annotation)>,
    /// The answer.
    pub answer: Answer,
}

impl PendingSummary {
    /// Turns the reply of the model into note and answer.
    #[must_use]
    pub fn into_summarized(self, reply: Result<Reply, ModelError>) -> Summarized {
        match reply.map(|reply| {
            (
                truncate(text_of(&reply.blocks).trim(), MAX_SUMMARY_CHARS),
                reply.usage,
            )
        }) {
            Ok((text, usage)) if !text.is_empty() => self.into_success(&text, usage),
            Ok(_) => self.into_failure("the model said nothing".to_owned()),
            Err(error) => self.into_failure(error.to_string()),
        }
    }

    fn into_success(self, text: &str, usage: Usage) -> Summarized {
        let summary = Summary {
            text,
            pages_read: self.pages_read,
        };
        let answer = view::summary(&self.fd, self.extent, summary);
        Summarized {
            note: Some((
                self.fd,
                Annotation::Summarized {
                    summary: text.into(),
                    usage,
                },
            )),
            answer,
        }
    }

    fn into_failure(self, reason: String) -> Summarized {
        let message =
            format!("No summary was made: {reason}. Read or search the descriptor instead.");
        let error = FdError::new(FdErrorKind::ModelError, Some(self.requested_fd), message);
        Summarized {
            note: None,
            answer: error.answer(),
        }
    }
}

/// A pending operation on the temporary files of the process tree. Repeating a call yields the same
/// operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingTempFile {
    /// The operation.
    pub op: TempFileOp<Content>,
    /// Maximum size of a file, from the program.
    pub max_bytes: u64,
    /// The file, as the model named it. `None` if the call names no file.
    pub requested_file: Option<String>,
}

impl PendingTempFile {
    /// The answer for a completed change.
    #[must_use]
    pub fn changed(&self, id: TempId, version: u64, total_bytes: u64) -> Answer {
        temp_file::view::changed(&self.op, id, version, total_bytes)
    }

    /// The answer for a refused operation.
    #[must_use]
    pub fn refused(&self, error: &TempFileError) -> Answer {
        error.fd_error(self.requested_file.as_deref()).answer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_element_with_its_type() {
        let fd = Some("fd:9".to_owned());
        let about_fd = FdError::new(FdErrorKind::NotFound, fd, "There is no <fd_error>.");
        let cases = [
            (
                Refusal::from("Give each child more to do."),
                "<process_error type=\"refused\">\n  <message>Give each child more to \
                 do.</message>\n</process_error>",
            ),
            (
                about_fd.into(),
                "<process_error type=\"not_found\" fd=\"fd:9\">\n  <message><![CDATA[There is no \
                 <]]><![CDATA[fd_error>.]]></message>\n</process_error>",
            ),
        ];
        for (refusal, xml) in cases {
            let answer = Answer::from(refusal);
            assert_eq!((&*answer.text, answer.is_error), (xml, true));
        }
    }
}
