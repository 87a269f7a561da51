//! A turn: one model call after another, from the first message to the final reply. `reply.rs`
//! records the replies, and `tools.rs` executes their tool calls in between. Before each model
//! call, `result.rs` looks for a submitted result, `budget.rs` checks the limits, and
//! `compaction.rs` makes room in a full context. `fallback.rs` chooses the model that follows a
//! failed one.

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::message::Role;
use dormouse_proto::model::{ModelError, StopReason};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{CallFact, Lifetime, TurnFact};

use super::compaction::CompactionCause;
use super::decide::Draft;
use super::{Effect, Fact, Report, Work};

impl Draft {
    pub(super) fn begin_turn(&mut self) {
        // `Signal::Resume` begins it: a call that this decision began would be taken for one that
        // was in flight when the kernel stopped, and made a second time.
        if self.state.is_stopped() || self.is_before_resume {
            return;
        }
        self.emit(TurnFact::Began);
        self.call_model();
    }

    /// Calls the model after messages were added that the model has not seen. Ends the turn or the
    /// process instead if the result was submitted or a limit is reached.
    pub(super) fn call_model(&mut self) {
        if self.may_call_model() {
            self.warn_of_limits();
            self.start_model_call();
        }
    }

    /// Checks the result and the limits before a model call, and ends the turn or the process if the
    /// result was submitted or a limit is reached. Returns whether the model may be called.
    fn may_call_model(&mut self) -> bool {
        if self.state.is_stopped() || self.state.is_compacting() {
            return false;
        }
        if self.end_turn_with_result() {
            return false;
        }
        let limit = self.state.program.model().max_iterations;
        if self.state.iterations >= limit {
            let message =
                format!("the turn reached its limit of {limit} model calls (max_iterations)");
            self.end_turn(ExitStatus::IterationLimit, message);
            return false;
        }
        self.check_budget()
    }

    fn start_model_call(&mut self) {
        self.add_output_notice();
        if self.state.is_compaction_due() {
            return self.request_compaction(CompactionCause::Threshold);
        }
        self.start_model_call_at_once();
    }

    /// Calls the model, however many tokens the conversation has.
    pub(super) fn start_model_call_at_once(&mut self) {
        let call = self.state.next_call();
        self.emit(CallFact::ModelCalled { call });
        self.schedule_model_call(call);
    }

    pub(super) fn schedule_model_call(&mut self, call: CallId) {
        let request = self.state.request();
        let media = self.state.media();
        let model = self.state.model().clone();
        self.schedule(Effect::StartWork {
            call,
            work: Work::Model {
                request,
                media,
                model,
            },
        });
    }

    /// Calls the next model of the program after a failure, or ends the turn with `message`.
    pub(super) fn handle_model_failure(&mut self, error: &ModelError, message: String) {
        match self.next_fallback_model(error) {
            Some(to) => self.switch_model(to, error),
            None => self.end_turn(ExitStatus::ModelFailed, message),
        }
    }

    fn switch_model(&mut self, to: u32, error: &ModelError) {
        let reason = Arc::from(error.to_string());
        let from = self.state.model().name.as_str().into();
        self.emit(CallFact::ModelSwitched {
            to,
            reason: Arc::clone(&reason),
        });
        let to = self.state.model().name.as_str().into();
        self.schedule(Effect::Report(Report::Switch { from, to, reason }));
        self.call_model_without_warning();
    }

    /// Continues after a reply without tools to run: the reply called no tool, or it was truncated,
    /// so that its tool calls were declined.
    pub(super) fn handle_stop_reason(&mut self, stop: StopReason) {
        if self.state.is_stopped() || self.state.is_compacting() {
            return;
        }
        let last_role = self.state.messages.last().map(|message| message.role);
        let text = self.state.last_reply();
        match stop {
            // The reply is unfinished, so no warning may be appended before the next call.
            StopReason::Pause => self.call_model_without_warning(),
            StopReason::MaxTokens if last_role == Some(Role::User) => {
                self.call_model_without_warning()
            }
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse
                if self.request_result() => {}
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse => {
                let media = self.state.describe_reply_media();
                let message = match (text.is_empty(), media.is_empty()) {
                    (_, true) => text,
                    (true, false) => media.into(),
                    (false, false) => format!("{text}\n\n{media}").into(),
                };
                self.end_turn(ExitStatus::Done, message);
            }
            StopReason::MaxTokens => self.end_turn(ExitStatus::Truncated, text),
            StopReason::Refusal => self.end_turn(ExitStatus::Refused, text),
            StopReason::ContextWindow if self.state.program.context().enabled => {
                self.request_compaction(CompactionCause::CutReply);
            }
            StopReason::ContextWindow => {
                self.end_turn(
                    ExitStatus::ModelFailed,
                    "the conversation is too long for the model".to_owned(),
                );
            }
        }
    }

    /// Calls the model without a warning that limits are near. The last message may be the model's
    /// own, to which nothing may be appended.
    pub(super) fn call_model_without_warning(&mut self) {
        if self.may_call_model() {
            self.start_model_call();
        }
    }

    /// Ends the turn. A session then waits for input. A task ends with its turn, except that it
    /// begins another turn if messages are waiting, and waits for its background children and alarms
    /// if it has some. A speculative root that is done waits to be chosen. A task that failed ends at
    /// once, and its children end with it.
    pub(super) fn end_turn(&mut self, status: ExitStatus, message: impl Into<Arc<str>>) {
        self.finish_turn(Exit::new(status, message));
    }

    /// Ends the turn with this exit, as [`end_turn`](Self::end_turn) does.
    pub(super) fn finish_turn(&mut self, exit: Exit) {
        let exit = exit.with_usage(self.state.budget.spent());
        let status = exit.status;
        let has_mail = !self.state.mailbox.is_empty();
        match self.state.lifetime {
            Lifetime::Task if has_mail && status == ExitStatus::Done => self.begin_turn(),
            Lifetime::Task if status != ExitStatus::Done || !self.state.waits_after_turn() => {
                self.end_process(exit)
            }
            Lifetime::Task | Lifetime::Session => {
                let last_reply = self.state.last_reply();
                let is_known = exit.is_result
                    || Arc::ptr_eq(&exit.message, &last_reply)
                    || exit.message == last_reply;
                let reason = (!is_known).then(|| exit.message.clone());
                self.emit(TurnFact::Ended { status, reason });
                self.schedule(Effect::Report(Report::Turn { outcome: exit }));
                if has_mail {
                    self.begin_turn();
                }
            }
        }
    }

    /// Ends the process. The whole share of the budget that each running child was given counts as
    /// used, since its actual usage is not reported after the end of the parent.
    pub(super) fn end_process(&mut self, exit: Exit) {
        let budget = &self.state.budget;
        let is_limited = budget.limits().wall_time_ms.is_some();
        let ran_ms = is_limited.then(|| budget.ran_ms(self.now_ms));
        let exit = Exit {
            ran_ms: ran_ms.unwrap_or(0),
            reopenings: self.state.reopenings,
            ..exit.with_usage(self.state.budget.spent_at_most())
        };
        self.emit(Fact::Exited { exit: exit.clone() });
        self.schedule(Effect::Report(Report::Exit { exit }));
    }
}
