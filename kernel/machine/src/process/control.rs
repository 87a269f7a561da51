//! Signals: interrupt, kill, stop, continue. (`pausing.rs` handles `Suspend` and `Release`,
//! `resume.rs` handles `Resume`.)
//!
//! A stopped process starts no model call, no tool call and no turn. Results of calls in flight are
//! recorded, and messages wait in the mailbox. A stop is a fact and therefore survives a restart.
//! The calls that were in flight at a restart are then *lost*: no completion comes for them, and
//! they are made again when the process is continued.

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{Caller, Control, ControlFact, Phase, TurnFact};
use dormouse_proto::tool::Answer;

use super::Effect;
use super::decide::Draft;

/// Answer to a host call that the host cancels.
const CANCELLED: &str =
    "Interrupted: this call was cancelled before it was done. Its effect is unknown.";

impl Draft {
    pub(super) fn stop_process(&mut self) {
        if self.state.control == Control::Running {
            self.emit(ControlFact::Stopped);
        }
    }

    pub(super) fn continue_after_stop(&mut self) {
        if self.state.control == Control::Running {
            return;
        }
        let has_lost_calls = self.state.has_lost_calls();
        self.emit(ControlFact::Continued);
        self.go_on(has_lost_calls);
    }

    /// Starts what was held back, unless the process is still stopped for another reason. Calls that
    /// are in flight are not started again, except if they are lost.
    pub(super) fn go_on(&mut self, has_lost_calls: bool) {
        match self.state.phase {
            _ if self.state.is_stopped() => {}
            _ if has_lost_calls => self.resume_phase(),
            Phase::Thinking { .. } => {}
            Phase::Acting { .. } => self.start_unstarted_calls(),
            _ => self.resume_phase(),
        }
    }

    /// Records that the calls that were in flight are lost, if the process is stopped: they are made
    /// again when it goes on.
    pub(super) fn record_lost_calls(&mut self) {
        let is_alive = self.state.exit().is_none();
        if is_alive && self.state.is_stopped() && !self.state.has_lost_calls() {
            self.emit(ControlFact::StoppedWithoutCalls);
        }
    }

    pub(super) fn interrupt_turn(&mut self) {
        let caller = self.caller();
        if !self.abandon_calls(
            "Interrupted: the turn was ended before this call was done. Its effect is unknown.",
        ) {
            return;
        }
        match caller {
            Caller::Model => self.end_turn(
                ExitStatus::Interrupted,
                "the turn was interrupted".to_owned(),
            ),
            Caller::Host => self.continue_turn(caller),
        }
        if self.state.exit().is_none() {
            self.find_children_of_answered_calls();
        }
    }

    pub(super) fn kill_process(&mut self) {
        self.abandon_calls(
            "Interrupted: the process was killed before this call was done. Its effect is unknown.",
        );
        self.end_process(Exit::new(ExitStatus::Killed, "the process was killed"));
    }

    /// Abandons all calls in flight and answers each open tool call with `text`. Returns false if
    /// the process is neither in a turn nor in a host call.
    pub(super) fn abandon_calls(&mut self, text: &str) -> bool {
        let mut calls: Vec<CallId> = Vec::new();
        let mut request_ids: Vec<Arc<str>> = Vec::new();
        match &self.state.phase {
            Phase::Thinking { call } => calls.push(*call),
            Phase::Acting {
                caller,
                pending_calls,
            } => {
                for pending_call in pending_calls {
                    // Background children survive the end of the turn.
                    if !self.state.runs_in_background(pending_call.call) {
                        calls.push(pending_call.call);
                    }
                    if *caller == Caller::Host {
                        request_ids.push(pending_call.id.clone());
                    }
                }
            }
            Phase::Ready { .. } => {}
            Phase::Idle | Phase::Ended { .. } => return false,
        }
        let answer = Answer::failed(text);
        self.state.pending_reads.drop_call_reads();
        self.emit(TurnFact::Interrupted {
            answer: answer.clone(),
        });
        self.record_usage_of_abandoned_reply();
        self.schedule(Effect::Abandon { calls });
        for request_id in request_ids {
            self.schedule(Effect::AnswerHost {
                request_id,
                answer: answer.clone(),
            });
        }
        true
    }

    /// Cancels one host call and answers it. Other host calls and background children are not
    /// affected.
    pub(super) fn cancel_request(&mut self, request_id: &str) {
        let Phase::Acting {
            caller: Caller::Host,
            pending_calls,
        } = &self.state.phase
        else {
            return;
        };
        let Some(call) = pending_calls
            .iter()
            .find(|pending_call| *pending_call.id == *request_id)
            .map(|pending_call| pending_call.call)
        else {
            return;
        };
        if !self.state.runs_in_background(call) {
            self.schedule(Effect::Abandon { calls: vec![call] });
        }
        self.answer_call(call, Answer::failed(CANCELLED), 0);
        self.continue_turn(Caller::Host);
        if self.state.exit().is_none() {
            self.find_children_of_answered_calls();
        }
    }
}
