//! A tool call of the current turn, and what a person is asked about it.
//!
//! The order of enum variants and struct fields in this module is part of the format.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::id::{CallId, Pid};
use crate::process::Exit;
use crate::tool::Answer;

/// A tool call of the current turn. It stays in this list until all calls of the turn are answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCall {
    /// Id of the call.
    pub call: CallId,
    /// The tool use id of the provider, or the request id of the host.
    pub id: Arc<str>,
    /// Name of the tool, as given to the model.
    pub tool: Arc<str>,
    /// Arguments as JSON text.
    pub args: Arc<str>,
    /// Whether the call was started and may have had side effects.
    pub started: bool,
    /// Ended children of a fork or spawn, by index.
    pub ended_children: OrdMap<u32, (Pid, Exit)>,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
    /// What a person has to decide about the call, or has decided: the *gate* that the call has to
    /// pass before it begins. `None` if nobody was asked.
    #[serde(default)]
    pub gate: Option<Gate>,
}

/// The state of a call that a person is asked about. The call begins only once it is
/// [`Approved`](Self::Approved).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gate {
    /// The call waits for the person.
    Held(Hold),
    /// The person approved the call.
    Approved {
        /// The hold that was approved.
        hold: Hold,
        /// The change that the person made to the arguments.
        edit: Option<ArgumentEdit>,
    },
}

/// Why and since when a call is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why the call is held.
    pub reason: HoldReason,
    /// Since when: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When the call is refused if nobody has answered: milliseconds since the epoch, UTC. `None`
    /// if the call waits without limit.
    pub expires_ms: Option<u64>,
}

/// Why a call is held. Further reasons are added at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldReason {
    /// A rule of the program's `tools.ask` matches the call.
    Rule {
        /// The rule, as people read it: `write`, `bash when command matches /rm/`.
        rule: Arc<str>,
    },
    /// The call asks the person a question (`ask_user`). The person's value is the answer.
    Question,
    /// The call does again what was done beyond a point that the process went back to, or may do
    /// so.
    Repeats {
        /// The effect that it repeats; `None` if the effects beyond that point are not known.
        effect: Option<RepeatedEffect>,
    },
    /// The process is speculative ([`Speculation`](super::Speculation)), and the call acts outside
    /// of it. No person approves such a call: it goes on if its branch is chosen.
    Speculation,
}

/// An effect that a held call repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedEffect {
    /// Number of the effect in the [`EffectLog`](super::EffectLog).
    pub number: u32,
    /// The call that ran.
    pub call: CallId,
    /// The beginning of its answer, for people; `None` if no answer was recorded.
    pub answer: Option<Arc<str>>,
}

/// A change that a person made to the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgumentEdit {
    /// The arguments as the model wrote them: JSON text.
    pub original: Arc<str>,
    /// The notice that stands before the answer of the call, as the model reads it.
    pub notice: Arc<str>,
}

impl PendingCall {
    /// The hold of a call that waits for a person.
    #[must_use]
    pub fn hold(&self) -> Option<&Hold> {
        match &self.gate {
            Some(Gate::Held(hold)) if self.answer.is_none() => Some(hold),
            _ => None,
        }
    }

    /// The change that a person made to the arguments.
    #[must_use]
    pub fn edit(&self) -> Option<&ArgumentEdit> {
        match &self.gate {
            Some(Gate::Approved { edit, .. }) => edit.as_ref(),
            _ => None,
        }
    }
}
