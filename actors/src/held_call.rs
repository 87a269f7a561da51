//! Held calls, as an embedder sees them.

use std::sync::Arc;

use dormouse_kernel::process::Question;
use dormouse_kernel::syscall::ask_user;
use dormouse_proto::id::{CallId, Pid, ProcessCallId};
use dormouse_proto::record::{Hold, HoldReason, PendingCall, Phase};

/// A tool call of a model that waits for a person: for an approval, or for the answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldCall {
    /// The process and the call.
    pub id: ProcessCallId,
    /// The name of the tool, as the model calls it.
    pub tool: Arc<str>,
    /// The arguments: JSON text.
    pub args: Arc<str>,
    /// Why the call is held.
    pub reason: HoldReason,
    /// The question, if the call asks one (`ask_user`). It is answered with a value.
    pub question: Option<Question>,
    /// Since when the call is held: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When the call is refused if nobody has answered: milliseconds since the epoch, UTC.
    pub expires_ms: Option<u64>,
}

impl HeldCall {
    fn new(pid: Pid, pending_call: &PendingCall, hold: &Hold) -> Self {
        let question = match hold.reason {
            HoldReason::Question => ask_user::question(&pending_call.args).ok(),
            HoldReason::Rule { .. } | HoldReason::Repeats { .. } | HoldReason::Speculation => None,
        };
        Self {
            id: ProcessCallId {
                pid,
                call: pending_call.call,
            },
            tool: pending_call.tool.clone(),
            args: pending_call.args.clone(),
            reason: hold.reason.clone(),
            question,
            since_ms: hold.since_ms,
            expires_ms: hold.expires_ms,
        }
    }

    /// The held calls of a process in this phase.
    pub(crate) fn all(pid: Pid, phase: &Phase) -> Vec<Self> {
        let held = phase.held_calls();
        held.map(|(pending_call, hold)| Self::new(pid, pending_call, hold))
            .collect()
    }

    /// The held call with this id.
    pub(crate) fn find(pid: Pid, phase: &Phase, call: CallId) -> Option<Self> {
        let mut held = phase.held_calls();
        let (pending_call, hold) = held.find(|(pending_call, _)| pending_call.call == call)?;
        Some(Self::new(pid, pending_call, hold))
    }
}
