//! Journal records: facts and images, and their encoding.
//!
//! A journal is an [`Image`] and the [`Fact`]s after it. Both are generic over the representation
//! of contents: the content itself in memory, its [`ContentRef`] in a journal.
//!
//! The order of enum variants and struct fields in this module is part of the format.

mod annotations;
pub mod codec;
mod effects;
mod fact;
mod image;
pub mod masked;
mod pending_call;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CallId, ContentHash};
use crate::model::StopReason;
use crate::process::Exit;

pub use self::annotations::{Annotation, Annotations, Section};
pub use self::effects::{EffectLog, EffectOutcome, EffectPlace, RecordedEffect};
pub use self::fact::{
    AlarmFact, CallFact, ChildFact, ControlFact, DescriptorFact, EditedArguments, Fact, MailFact,
    TurnFact,
};
pub use self::image::{
    CompactedMessages, Image, OutputTotals, ReopenedChild, ResultProgress, Speculation,
};
pub use self::pending_call::{ArgumentEdit, Gate, Hold, HoldReason, PendingCall, RepeatedEffect};

/// A reference to a content, which a record stores in place of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentRef {
    /// BLAKE3 hash of the bytes.
    pub hash: ContentHash,
    /// Length in bytes.
    pub len: u64,
}

/// An entry of a descriptor table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<C> {
    /// The content.
    pub content: C,
    /// Characters per page.
    pub page_chars: u32,
    /// Source of the content, such as `tool:grep` or `user_input`.
    pub source: Arc<str>,
    /// Opening time: milliseconds since the epoch, UTC.
    pub opened_ms: u64,
    /// How many bytes were cut off the end, at `max_content_bytes`.
    pub cut_bytes: u64,
    /// Notes of the process.
    pub notes: Annotations,
}

/// Whether a process ends with its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// Ends with its first finished turn.
    Task,
    /// Waits for more input after a turn.
    Session,
}

/// The phase of a process within its turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waiting for input.
    Idle,
    /// Waiting for the model.
    Thinking {
        /// Id of the call.
        call: CallId,
    },
    /// Waiting for tools.
    Acting {
        /// Who called the tools.
        caller: Caller,
        /// The tool calls of the turn, in order.
        pending_calls: Vec<PendingCall>,
    },
    /// Waiting for nothing: next, the model is called or the turn ends.
    Ready {
        /// Stop reason of the last reply; `None` after input or tool results.
        stop_reason: Option<StopReason>,
    },
    /// The process has ended.
    Ended {
        /// How it ended.
        exit: Exit,
    },
}

/// Whether a process may start calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Not stopped.
    #[default]
    Running,
    /// Stopped: starts no call. Results of calls in flight are recorded.
    Stopped,
    /// Stopped, and no call is in flight: the process came back from its journal, or is a copy of a
    /// stopped one.
    StoppedWithoutCalls,
}

/// The caller of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caller {
    /// The model: the answers enter the conversation.
    Model,
    /// The host: the answer goes to the host.
    Host,
}

impl Phase {
    /// The tool calls of the turn, in order; empty unless the process is acting.
    #[must_use]
    pub fn pending_calls(&self) -> &[PendingCall] {
        match self {
            Self::Acting { pending_calls, .. } => pending_calls,
            _ => &[],
        }
    }

    /// The calls that wait for a person, each with its hold.
    pub fn held_calls(&self) -> impl Iterator<Item = (&PendingCall, &Hold)> {
        let calls = self.pending_calls().iter();
        calls.filter_map(|pending_call| Some((pending_call, pending_call.hold()?)))
    }

    /// Whether calls wait for a person, and nothing else of the turn is under way. In a copy of a
    /// process, a held call may have been started: the original did that.
    #[must_use]
    pub fn asks(&self) -> bool {
        let mut open = self
            .pending_calls()
            .iter()
            .filter(|call| call.answer.is_none());
        self.held_calls().next().is_some()
            && open.all(|call| !call.started || call.hold().is_some())
    }

    /// When the next held call expires: milliseconds since the epoch, UTC.
    #[must_use]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        let expiries = self.held_calls().filter_map(|(_, hold)| hold.expires_ms);
        expiries.min()
    }
}

impl<C> Entry<C> {
    /// An entry for a complete content, without notes.
    pub fn new(content: C, page_chars: u32, source: impl Into<Arc<str>>, opened_ms: u64) -> Self {
        Self {
            content,
            page_chars,
            source: source.into(),
            opened_ms,
            cut_bytes: 0,
            notes: Annotations::default(),
        }
    }

    /// Converts the representation of the content.
    ///
    /// # Errors
    /// Errors of `convert`.
    pub fn try_map<D, E>(self, convert: &mut impl FnMut(C) -> Result<D, E>) -> Result<Entry<D>, E> {
        let Self {
            content,
            page_chars,
            source,
            opened_ms,
            cut_bytes,
            notes,
        } = self;
        Ok(Entry {
            content: convert(content)?,
            page_chars,
            source,
            opened_ms,
            cut_bytes,
            notes,
        })
    }
}
