//! Tools: specification, output, answers and policy.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::descriptor::MAX_CONTENT_BYTES;
use crate::effect::RepeatRule;
use crate::id::FdId;
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
    /// The name in programs and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        Keyword::word(self)
    }
}

/// A tool specification for a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Name for the model.
    pub name: Arc<str>,
    /// What the tool does and when to use it.
    pub description: Arc<str>,
    /// JSON schema of the arguments, an object, as JSON text.
    pub schema: Arc<str>,
}

/// A tool that runs outside of the machine, as frozen at the birth of a process. Its description is
/// the [`ToolSpec`] of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalTool {
    /// The name by which the model calls the tool: its own, an alias, or its own with a prefix.
    pub name_for_model: Arc<str>,
    /// Server of the tool; `None` for a command of the program or a tool of the host.
    pub server: Option<Arc<str>>,
    /// Name at the server, command or host.
    pub name: Arc<str>,
    /// Access, idempotence and limits of its calls.
    pub policy: ToolPolicy,
    /// How repeated calls are recognised, as the tool declares it.
    #[serde(default)]
    pub repeat: RepeatRule,
}

impl ExternalTool {
    /// The name by which the program refers to the tool: `name_for_model` for a tool of a tool
    /// server, otherwise the tool's own.
    #[must_use]
    pub fn name_in_program(&self) -> &Arc<str> {
        if self.server.is_some() {
            &self.name_for_model
        } else {
            &self.name
        }
    }
}

/// The output of a tool, before placement decides how much of it enters the context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// Text if it is UTF-8, binary otherwise.
    pub bytes: Bytes,
    /// Whether it reports a failure.
    pub is_error: bool,
    /// Number of bytes that were dropped after these.
    pub cut_bytes: u64,
    /// Non-text output, in order: each item becomes a descriptor.
    pub attached: Vec<Attachment>,
}

/// Progress that a tool reports itself. It is only for watching and is not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Completed units, in any unit of the tool. Increasing.
    pub done: f64,
    /// Total number of units, if known.
    pub total: Option<f64>,
    /// Current activity; may be empty.
    pub message: Arc<str>,
}

/// Non-text output of a tool: an image, a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name of a file or resource, if it has one.
    pub name: Option<Arc<str>>,
    /// Media type, such as `image/png`.
    pub media_type: Arc<str>,
    /// The bytes, unchanged.
    pub bytes: Bytes,
}

impl ToolOutput {
    /// A successful result.
    #[must_use]
    pub fn ok(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            is_error: false,
            cut_bytes: 0,
            attached: Vec::new(),
        }
    }

    /// A failure, as text for the model.
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

/// The answer to a tool call. It enters the context unchanged and never becomes a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Text for the model.
    pub text: Arc<str>,
    /// Whether it is an error.
    pub is_error: bool,
    /// Media that are shown with the text, if the wire format supports them.
    pub media: Vec<Media>,
    /// The descriptors that the call opened, if the call has an effect that is recorded.
    #[serde(default)]
    pub opened: Vec<FdId>,
}

impl Answer {
    /// A successful answer: an element of the kernel, or other text, which is escaped by the rule
    /// of [`shown`](crate::shown).
    #[must_use]
    pub fn shown(text: impl Into<ShownText>) -> Self {
        Self {
            text: text.into().into(),
            is_error: false,
            media: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// An error that the model can react to, escaped by the same rule.
    #[must_use]
    pub fn failed(text: impl Into<ShownText>) -> Self {
        Self {
            is_error: true,
            ..Self::shown(text)
        }
    }

    /// A successful answer whose text is already escaped.
    #[must_use]
    pub fn ok(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            is_error: false,
            media: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// An error whose text is already escaped.
    #[must_use]
    pub fn error(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            is_error: true,
            media: Vec::new(),
            opened: Vec::new(),
        }
    }
}

/// How a tool is run. The policy is declared with the tool and enforced by the kernel.
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
