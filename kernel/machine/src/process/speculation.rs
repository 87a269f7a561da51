//! Speculative processes: branches of one point, of which the host chooses one.
//!
//! A speculative process reads, thinks and changes its own temporary files as any other. A call of
//! its model that acts outside of the process ([`ToolBinding::has_effect`]) is held before it
//! begins. The process then stands *at its write*: it rests, and the call with its arguments can be
//! judged. When the host chooses the process, one fact ends its speculation, and its calls are judged
//! by the fence and by the rules of its program as if they had just been made. A person cannot
//! approve such a call by itself.
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

use super::decide::Draft;
use super::{Effect, Image, Report, State};

/// The image of a process that is created from another one. What is created from a speculative
/// process is speculative too. An earlier approval of a call does not apply to it.
#[must_use]
pub fn with_speculation(image: Image, speculation: Speculation) -> Image {
    match speculation {
        Speculation::None => image,
        Speculation::Branch => Image {
            speculation,
            ..image
        },
    }
}

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
        self.speculation != Speculation::None
            && binding.access <= self.access
            && binding.has_effect()
            && !(pending_call.started && binding.tool.makes_children())
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

    /// Ends the speculation of a process that was chosen: what was held is judged anew, and a task
    /// that is done ends.
    pub(super) fn end_speculation(&mut self, request_id: Arc<str>) {
        if self.state.speculation != Speculation::None {
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

/// Whether a call is held until its process is chosen.
pub(super) fn waits_for_choice(pending_call: &PendingCall) -> bool {
    let hold = pending_call.hold();
    hold.is_some_and(|hold| hold.reason == HoldReason::Speculation)
}
