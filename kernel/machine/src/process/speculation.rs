//! Speculative processes: branches of one point, of which the host chooses one.
//!
//! A speculative process reads, thinks and changes its own temporary files as any other. A call of
//! its model that acts outside of the process ([`ToolBinding::has_effect`]) is held before it
//! begins. The process then stands *at its write*: it rests, and the call with its arguments can be
//! judged. When the host chooses the process, one fact ends its speculation, and its calls are judged
//! by the fence and by the rules of its program as if they had just been made. A person cannot
//! approve such a call by itself.
//!
//! A child of the tool `explore` is speculative too (`exploring.rs`). It ends at its write, and
//! proposes the calls to its parent, which makes one itself or not. The temporary files of the tree
//! are not its own.
//!
//! A root that is speculative does not end when its task is done, since an ended process could not
//! be continued from where it is: it waits, and ends when it is chosen.
//!
//! Invariant kept here: SPEC-1, no call of a model acts outside of its process while the process is
//! speculative.
//!
//! [`ToolBinding::has_effect`]: super::toolbox::ToolBinding::has_effect

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::message::Role;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{
    Caller, ControlFact, HoldReason, Lifetime, PendingCall, Phase, Speculation,
};
use dormouse_proto::tool::Answer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decide::Draft;
use super::{Effect, Image, Report, State};

/// The image of a process that is created from another one. What is created from a speculative
/// process is speculative too. An earlier approval of a call does not apply to it.
#[must_use]
pub fn with_speculation(image: Image, speculation: Speculation) -> Image {
    match (image.speculation, speculation) {
        // A child stays one of its parent, which decides about it.
        (Speculation::Child, _) | (_, Speculation::None) => image,
        (_, Speculation::Branch | Speculation::Child) => Image {
            speculation,
            ..image
        },
    }
}

/// Answer, in the history of a child of `explore`, to the calls that it ends at.
const PROPOSED: &str = "Not run: this call is proposed to the parent process, which decides.";

impl State {
    /// Whether the process has to be chosen among its branches before it acts outside of itself.
    #[must_use]
    pub fn speculation(&self) -> Speculation {
        self.speculation
    }

    /// Whether a call has to be held because the process is speculative. A call that made children
    /// before the point waits for them: they are speculative too.
    pub(super) fn is_speculative_write(&self, pending_call: &PendingCall) -> bool {
        let Some(binding) = self.toolbox.find(&pending_call.tool) else {
            return false;
        };
        let is_write = match self.speculation {
            Speculation::None => false,
            Speculation::Branch => binding.has_effect(),
            Speculation::Child => binding.has_effect() || binding.writes_temp_files(),
        };
        is_write
            && binding.access <= self.access
            && !(pending_call.started && binding.tool.makes_children())
    }

    /// The process was chosen: nothing is held for that reason any more.
    pub(super) fn leave_speculation(&mut self) {
        self.speculation = Speculation::None;
        if let Phase::Acting { pending_calls, .. } = &mut self.phase {
            let held = pending_calls
                .iter_mut()
                .filter(|call| waits_for_choice(call));
            held.for_each(|pending_call| pending_call.gate = None);
        }
    }

    /// Whether a task whose turn is done waits, instead of ending.
    pub(super) fn waits_after_turn(&self) -> bool {
        let waits_for_choice = self.speculation != Speculation::None && self.depth == 0;
        waits_for_choice || self.will_be_woken()
    }

    /// The result of the last turn of a task that waits to be chosen; `None` if it has none.
    fn unended_exit(&self) -> Option<Exit> {
        let is_waiting = self.phase == Phase::Idle
            && self.lifetime == Lifetime::Task
            && self.mailbox.is_empty()
            && !self.pending_reads.has_arrivals();
        if !is_waiting || self.will_be_woken() {
            return None;
        }
        if let Some(value) = &self.result.value {
            return Some(Exit::with_result(value.clone()));
        }
        let last = self.messages.last()?;
        (last.role == Role::Assistant).then(|| Exit::new(ExitStatus::Done, self.last_reply()))
    }
}

impl Draft {
    /// Holds the calls of a speculative process that act outside of it, also those that were in
    /// flight at the point and would be made again. The calls of the host are not held.
    pub(super) fn hold_speculative_calls(&mut self) {
        if self.state.speculation == Speculation::None || self.caller() == Caller::Host {
            return;
        }
        let open = self.state.pending_calls().iter().filter(|pending_call| {
            pending_call.answer.is_none()
                && !waits_for_choice(pending_call)
                && self.state.is_speculative_write(pending_call)
        });
        let calls: Vec<CallId> = open.map(|pending_call| pending_call.call).collect();
        for call in calls {
            self.hold_call(call, HoldReason::Speculation);
        }
    }

    /// Ends a child of `explore` that stands at its write, and proposes its calls to its parent.
    /// Called when a decision about the calls of a turn is done.
    pub(super) fn end_at_write(&mut self) {
        if self.state.speculation != Speculation::Child || self.state.is_stopped() {
            return;
        }
        let pending_calls = self.state.pending_calls().iter();
        let open: Vec<_> = pending_calls.filter(|call| call.answer.is_none()).collect();
        let is_at_write = !self.state.pending_reads.has_call_reads()
            && open.iter().any(|call| waits_for_choice(call))
            && open
                .iter()
                .all(|call| !call.started && self.state.waits_for_person(call));
        if !is_at_write {
            return;
        }
        let proposed = open.into_iter().filter(|call| waits_for_choice(call));
        let proposal = Proposal {
            message: self.state.last_reply(),
            proposed_calls: proposed
                .map(|call| ProposedCall {
                    tool: call.tool.clone(),
                    args: serde_json::from_str(&call.args)
                        .unwrap_or_else(|_| Value::from(&*call.args)),
                })
                .collect(),
        };
        let proposal = serde_json::to_string(&proposal);
        let proposal = proposal.expect("a proposal is texts and JSON values");
        self.abandon_calls(PROPOSED);
        self.end_process(Exit::with_result(proposal));
    }

    /// Ends the speculation of a process that was chosen: what was held is judged anew, and a task
    /// that is done ends.
    pub(super) fn end_speculation(&mut self, request_id: Arc<str>) {
        if self.state.speculation == Speculation::Branch {
            let pending_calls = self.state.pending_calls().iter();
            let held = pending_calls.filter(|pending_call| waits_for_choice(pending_call));
            let held: Vec<_> = held.map(|pending_call| pending_call.call).collect();
            self.emit(ControlFact::SpeculationEnded);
            for call in held {
                self.schedule(Effect::Report(Report::HeldAnswered { call }));
            }
            self.start_unstarted_calls();
            if let Some(exit) = self.state.unended_exit() {
                self.end_process(exit.with_usage(self.state.budget.spent()));
            }
        }
        let answer = Answer::shown("Chosen.".to_owned());
        self.schedule(Effect::AnswerHost { request_id, answer });
    }
}

/// What a child of `explore` ends with that stands at its write.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposal {
    /// The text of the last reply.
    pub(super) message: Arc<str>,
    /// The calls that would act outside of it.
    pub(super) proposed_calls: Vec<ProposedCall>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProposedCall {
    pub(super) tool: Arc<str>,
    pub(super) args: Value,
}

impl Proposal {
    /// What a child that has ended proposes; `None` if it stood at no write. O(n) in its message.
    pub(super) fn of(exit: &Exit) -> Option<Self> {
        serde_json::from_str(exit.result()?).ok()
    }
}

/// Whether a call is held until its process is chosen.
pub(super) fn waits_for_choice(pending_call: &PendingCall) -> bool {
    let hold = pending_call.hold();
    hold.is_some_and(|hold| hold.reason == HoldReason::Speculation)
}
