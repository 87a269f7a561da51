//! Tools: what a model is told of them, what they produce, what it is answered.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::descriptor::MAX_CONTENT_BYTES;
use crate::message::Media;
use crate::program::{Duration, Keyword, Section, Size};
use crate::shown::ShownText;

/// What a caller is allowed to do, and what a tool needs. Ordered: `Read < Write < Admin`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Keyword,
)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Reads, and changes nothing.
    Read,
    /// Changes files or other state outside of the kernel.
    Write,
    /// Creates processes, or reaches beyond its own.
    Admin,
}

impl Access {
    /// The word for it, in programs and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        Keyword::word(self)
    }
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name that the model calls it by.
    pub name: Arc<str>,
    /// What it does and when to use it.
    pub description: Arc<str>,
    /// JSON schema of the arguments, an object, as JSON text.
    pub schema: Arc<str>,
}

/// A tool that runs outside of the machine, as a process was given it at its birth. What a model is
/// told of it stands in the [`ToolSpec`] of its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideTool {
    /// The name that the model calls it by.
    pub given: Arc<str>,
    /// The server that has it; none: it is a command of the program, or a tool of the host.
    pub server: Option<Arc<str>>,
    /// Its name there.
    pub name: Arc<str>,
    /// How it is run.
    pub policy: ToolPolicy,
}

impl OutsideTool {
    /// What its program knows it by: a tool of a server by the name that the program gives it, any
    /// other by its own.
    #[must_use]
    pub fn known_as(&self) -> &Arc<str> {
        if self.server.is_some() {
            &self.given
        } else {
            &self.name
        }
    }
}

/// What a tool produced, before the kernel decides how much of it enters a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// Text if it is UTF-8, binary otherwise.
    pub bytes: Bytes,
    /// Whether it reports a failure.
    pub is_error: bool,
    /// Bytes that came after these and were not kept.
    pub cut_bytes: u64,
    /// What else it produced that is no text, in order: each becomes a descriptor.
    pub attached: Vec<Attachment>,
}

/// How far a tool has come, as it says itself. It is watched, and kept nowhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// How much is done, in whatever the tool counts. It grows.
    pub done: f64,
    /// How much there is to do, where that is known.
    pub total: Option<f64>,
    /// What the tool is doing; may be empty.
    pub message: Arc<str>,
}

/// Something that a tool produced beside its text: an image, a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// What it is called, if it has a name: a file's, a resource's.
    pub name: Option<Arc<str>>,
    /// The media type, such as `image/png`.
    pub media_type: Arc<str>,
    /// The bytes, as they are.
    pub bytes: Bytes,
}

impl ToolOutput {
    /// A result.
    #[must_use]
    pub fn ok(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            is_error: false,
            cut_bytes: 0,
            attached: Vec::new(),
        }
    }

    /// A failure that the model can read and react to.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            bytes: Bytes::from(text.into()),
            is_error: true,
            cut_bytes: 0,
            attached: Vec::new(),
        }
    }
}

/// What a model reads in answer to a tool call: it enters the context as it stands and is never put
/// into a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The text.
    pub text: Arc<str>,
    /// Whether it is an error.
    pub is_error: bool,
    /// What the model is shown beside it, where its format takes that.
    pub media: Vec<Media>,
}

impl Answer {
    /// A good answer: an element of the kernel, or a text that is not its word and is shown by the
    /// rule of [`shown`](crate::shown).
    #[must_use]
    pub fn shown(text: impl Into<ShownText>) -> Self {
        Self {
            text: text.into().into(),
            is_error: false,
            media: Vec::new(),
        }
    }

    /// An error that the model can react to, shown by the same rule: a sentence that quotes
    /// something hostile is shown inside of an element.
    #[must_use]
    pub fn failed(text: impl Into<ShownText>) -> Self {
        Self {
            is_error: true,
            ..Self::shown(text)
        }
    }

    /// A good answer whose text was shown before, and stands as it is.
    #[must_use]
    pub fn ok(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            is_error: false,
            media: Vec::new(),
        }
    }

    /// An error whose text was shown before, and stands as it is.
    #[must_use]
    pub fn error(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            is_error: true,
            media: Vec::new(),
        }
    }
}

/// How a tool is run: declared with the tool, kept by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Section)]
pub struct ToolPolicy {
    /// The access that a process needs to call the tool.
    #[key(default = Access::Write)]
    pub access: Access,
    /// Whether a call that was running when the kernel was stopped may run again.
    pub idempotent: bool,
    /// The time after which a call is abandoned and answered with an error.
    #[key(name = "deadline", with = Duration, default = 120_000)]
    pub deadline_ms: u64,
    /// The size at which the output of the tool is cut off; the answer says how much was cut.
    #[key(name = "output_cap", with = Size, default = 256 << 20, range = 1..=MAX_CONTENT_BYTES)]
    pub output_cap_bytes: u64,
}
