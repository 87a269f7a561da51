//! Starts a new process, or resumes a process that was loaded from its journal.
//!
//! The phase of the process determines which calls are started or repeated. A spawn that was in
//! flight first looks for its child (`FindChild`), and spawns again only if the child does not
//! exist. If the process is stopped or paused, its calls are recorded as lost instead
//! (`control.rs`), and are made again when it goes on.

use dormouse_proto::id::CallId;
use dormouse_proto::record::{CallFact, Phase};
use dormouse_proto::tool::Answer;

use super::decide::Draft;
use super::toolbox::BoundTool;
use super::{Effect, Report};

/// Answer to a call that was in flight at a restart and is not repeatable.
const EFFECT_UNKNOWN: &str = "Interrupted: this call was begun and its result never came. Its effect is \
unknown. Look before you call it again.";

impl Draft {
    /// Starts or resumes the process. A pending model call is made again under the same id. A tool
    /// call that was in flight is repeated only if it is repeatable (CALL-2). Children are looked
    /// up by their origin, so that no child is created twice. A stopped process resumes no call.
    ///
    /// The intent of a repeated call is journalled again, so that no call starts while the store
    /// cannot write.
    pub(super) fn resume_process(&mut self) {
        self.skip_unloaded_time();
        self.record_lost_calls();
        let open = self
            .state
            .pending_calls()
            .iter()
            .filter(|pending_call| pending_call.answer.is_none())
            .map(|pending_call| pending_call.call);
        let reopened = self.state.reopened_children.keys().map(|(call, _)| *call);
        let calls = open
            .chain(self.background_calls())
            .chain(reopened)
            .collect();
        self.schedule(Effect::KillChildrenExcept { calls });
        if self.state.exit().is_none() {
            self.find_children_of_answered_calls();
            if self.end_or_pause_at_deadline(self.now_ms) {
                return self.record_lost_calls();
            }
            self.expire_held_calls(self.now_ms);
            self.request_summaries_of_reopening();
        }
        if !self.state.is_stopped() || self.state.exit().is_some() {
            self.resume_phase();
        }
    }

    /// Calls that are answered and have a background child.
    fn background_calls(&self) -> Vec<CallId> {
        self.state
            .background
            .keys()
            .filter(|call| !self.state.is_open(**call))
            .copied()
            .collect()
    }

    /// Continues in the current phase, with no call in flight.
    pub(super) fn resume_phase(&mut self) {
        self.background_calls()
            .into_iter()
            .for_each(|call| self.find_child(call, 0));
        let reopened: Vec<_> = self.state.reopened_children.keys().copied().collect();
        for (call, index) in reopened {
            self.find_child(call, index);
        }
        match self.state.phase.clone() {
            Phase::Idle if self.state.mailbox.is_empty() => {}
            Phase::Idle => self.begin_turn(),
            Phase::Ready { stop_reason: None } => self.call_model(),
            Phase::Ready {
                stop_reason: Some(stop),
            } => self.handle_stop_reason(stop),
            Phase::Thinking { call } => {
                // A late summary may have used up the rest of the budget.
                if self.end_or_pause_at_limit() {
                    return self.record_lost_calls();
                }
                self.emit(CallFact::ModelCalled { call });
                self.schedule_model_call(call);
            }
            Phase::Acting { .. } => self.start_open_calls(),
            Phase::Ended { exit } => self.schedule(Effect::Report(Report::Exit { exit })),
        }
    }

    /// Repeats a call that was in flight when the kernel stopped.
    pub(super) fn repeat_call(&mut self, call: CallId, tool: &BoundTool) {
        self.emit(CallFact::ToolCalled { call });
        self.execute_call(call, tool);
    }

    /// Answers a call that was in flight when the kernel stopped and is not repeatable.
    pub(super) fn answer_effect_unknown(&mut self, call: CallId) {
        self.answer_call(call, Answer::failed(EFFECT_UNKNOWN), 0);
    }
}
