//! The settings and errors of descriptor tools, and the XML elements with which they answer.

mod hints;
pub mod view;

pub use self::hints::HintableTools;

use serde::{Deserialize, Serialize};

use crate::program::{Keyword, Section, Size};
use crate::tool::Answer;
use crate::xml::Element;

/// Upper limit for `max_content_bytes` of any program.
pub const MAX_CONTENT_BYTES: u64 = 1_000_000_000;

/// The sizes that decide when content becomes a descriptor and how much of it a context takes at
/// once. All of them count Unicode scalar values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Section)]
pub struct DescriptorSettings {
    /// A tool's output of more characters than this becomes a descriptor.
    #[key(default = 8000, range = 1..=MAX_CHARS)]
    pub max_direct_output_chars: u64,
    /// A tool's output of more tokens than this becomes a descriptor as well. The number of tokens
    /// is estimated: one for every four bytes of UTF-8. Without this key, only characters count.
    #[key(range = 1..=MAX_CHARS)]
    pub max_direct_output_tokens: Option<u64>,
    /// The number of characters of a page of a new descriptor.
    #[key(name = "default_page_size", default = 4000, range = 1..=MAX_CHARS)]
    pub page_chars: u32,
    /// A user's input of more characters than this becomes a descriptor.
    #[key(default = 8000, range = 1..=MAX_CHARS)]
    pub max_input_chars: u64,
    /// Whether user input is put into descriptors at all.
    #[key(default = true)]
    pub page_user_input: bool,
    /// The most characters that one answer of a descriptor tool shows.
    #[key(default = 100_000, range = 1..=MAX_CHARS)]
    pub max_read_chars: u64,
    /// The size of the largest content; what a tool produces beyond it is counted and cut off.
    #[key(with = Size, default = MAX_CONTENT_BYTES, range = 1..=MAX_CONTENT_BYTES)]
    pub max_content_bytes: u64,
    /// A new descriptor of more characters than this is summarized by the summary model without
    /// being asked, while the process goes on. Without this key, a summary is made when it is asked
    /// for.
    #[key(range = 1..=MAX_CHARS)]
    pub auto_summary_chars: Option<u64>,
    /// The part of a new descriptor that is shown at once. One that holds an error always shows
    /// both of its ends.
    pub preview: Preview,
    /// Whether JSON on one line is read with line breaks and indentation, unless a call says
    /// otherwise.
    pub pretty_json: bool,
    /// Whether `read_fd` and `get_fd_section` show each line with its number and a tab before it,
    /// unless a call says otherwise.
    pub line_numbers: bool,
    /// The tools of the program that hints in answers may name.
    #[key(skip)]
    pub hintable_tools: HintableTools,
}

/// The largest size in characters that a program may set.
const MAX_CHARS: u64 = 1_000_000_000;

impl DescriptorSettings {
    /// The limit for direct output that a text of this length exceeds, in words, such as `8000
    /// characters`. `None` if the text is within the limits.
    #[must_use]
    pub fn exceeded_output_limit(&self, chars: u64, bytes: u64) -> Option<String> {
        if chars > self.max_direct_output_chars {
            return Some(format!("{} characters", self.max_direct_output_chars));
        }
        self.max_direct_output_tokens
            .filter(|tokens| bytes.div_ceil(BYTES_PER_TOKEN) > *tokens)
            .map(|tokens| format!("{tokens} tokens, as estimated"))
    }
}

/// Bytes of UTF-8 that are estimated to be one token. Text in Latin letters has about four letters
/// per token; other scripts have fewer letters per token and more bytes per letter.
const BYTES_PER_TOKEN: u64 = 4;

/// What of a new descriptor is shown at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Keyword)]
pub enum Preview {
    /// The first page.
    #[default]
    Head,
    /// The first and the last lines, together one page.
    HeadTail,
}

/// A failed call of a descriptor tool. The model receives the error as an answer; the process does
/// not fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FdError {
    /// The kind of the error. The answer has it as the attribute `type`.
    pub kind: FdErrorKind,
    /// The descriptor as the model named it, if it did.
    pub fd: Option<String>,
    /// What was requested, what is valid, and what to try.
    pub message: String,
    /// What was being done, such as the operation and the path of a file.
    pub details: Option<String>,
}

impl FdError {
    /// An error without details.
    #[must_use]
    pub fn new(kind: FdErrorKind, fd: Option<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            fd,
            message: message.into(),
            details: None,
        }
    }

    /// The error as an answer. `fd` is echoed as it was requested.
    #[must_use]
    pub fn answer(&self) -> Answer {
        Answer::failed(self.element())
    }

    /// The error as an element within an answer about several descriptors.
    pub(crate) fn element(&self) -> Element {
        let element = Element::new("fd_error")
            .attribute("type", self.kind.word())
            .attribute_if("fd", self.fd.as_ref())
            .child(Element::new("message").text(self.message.as_str()));
        match &self.details {
            Some(details) => element.child(Element::new("details").text(details.as_str())),
            None => element,
        }
    }
}

/// Kinds of descriptor tool errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdErrorKind {
    /// The process has no such descriptor.
    NotFound,
    /// The content has no such page.
    InvalidPage,
    /// The content has no such lines, characters or matches.
    InvalidRange,
    /// An argument is missing, unknown, of a wrong type, or contradicts another.
    InvalidParameter,
    /// The file must not exist, but does.
    FileExists,
    /// The file must exist, but does not.
    FileNotFound,
    /// The operating system refuses access to the file.
    PermissionError,
    /// The file could not be written.
    WriteError,
    /// The user has not permitted this path.
    AccessDenied,
    /// The model gave no usable summary.
    ModelError,
    /// The temporary file has changed since the given version.
    StaleVersion,
    /// The stored content is damaged or lost.
    ContentUnreadable,
}

impl FdErrorKind {
    /// The name in answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::InvalidPage => "invalid_page",
            Self::InvalidRange => "invalid_range",
            Self::InvalidParameter => "invalid_parameter",
            Self::FileExists => "file_exists",
            Self::FileNotFound => "file_not_found",
            Self::PermissionError => "permission_error",
            Self::WriteError => "write_error",
            Self::AccessDenied => "access_denied",
            Self::ModelError => "model_error",
            Self::StaleVersion => "stale_version",
            Self::ContentUnreadable => "content_unreadable",
        }
    }
}

impl From<crate::file::FileErrorKind> for FdErrorKind {
    fn from(kind: crate::file::FileErrorKind) -> Self {
        use crate::file::FileErrorKind as File;
        match kind {
            File::FileExists => Self::FileExists,
            File::FileNotFound => Self::FileNotFound,
            File::PermissionError => Self::PermissionError,
            File::AccessDenied => Self::AccessDenied,
            File::InvalidRange => Self::InvalidRange,
            File::WriteError => Self::WriteError,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_element_and_sets_the_flag() {
        let cases = [
            (
                Some("fd:1"),
                "Invalid page number 9. Valid range: 1-5",
                "<fd_error type=\"invalid_page\" fd=\"fd:1\">\n  <message>Invalid page number 9. \
                 Valid range: 1-5</message>\n</fd_error>",
            ),
            (
                Some("\"/>\u{7}"),
                "x",
                "<fd_error type=\"invalid_page\" fd=\"&quot;/&gt;\u{2407}\" sanitized=\"true\">\n  \
                 <message>x</message>\n</fd_error>",
            ),
            (
                None,
                "x",
                "<fd_error type=\"invalid_page\">\n  <message>x</message>\n</fd_error>",
            ),
        ];
        for (fd, message, xml) in cases {
            let fd = fd.map(str::to_owned);
            let error = FdError::new(FdErrorKind::InvalidPage, fd, message);
            let answer = error.answer();
            assert_eq!((&*answer.text, answer.is_error), (xml, true));
        }
    }
}
