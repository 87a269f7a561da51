//! A turn: from the first message to the final reply, one model call after another.

use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::message::{Role, text_of};
use dormouse_proto::model::{ModelError, Reply, StopReason};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{CallFact, Entry, Lifetime, Phase, TurnFact};

use super::decide::Draft;
use super::{Effect, Fact, Report, Work};
use crate::references::references;
use dormouse_content::Content;

impl Draft {
    pub(super) fn begin_turn(&mut self) {
        if self.state.is_stopped() {
            return;
        }
        self.emit(TurnFact::Began);
        self.call_model();
    }

    /// Calls the model after messages were added that it has not seen. Ends the turn or the process
    /// instead if a limit is reached.
    pub(super) fn call_model(&mut self) {
        if self.may_call_model() {
            self.warn_of_limits();
            self.start_model_call();
        }
    }

    /// Checks the limits before a model call. Ends the turn or the process if one is reached.
    fn may_call_model(&mut self) -> bool {
        if self.state.is_stopped() {
            return false;
        }
        let limit = self.state.program.model().max_iterations;
        if self.state.iterations >= limit {
            let message =
                format!("the turn reached its limit of {limit} model calls (max_iterations)");
            self.end_turn(ExitStatus::IterationLimit, message);
            return false;
        }
        self.may_spend()
    }

    fn start_model_call(&mut self) {
        let call = self.state.next_call();
        self.emit(CallFact::ModelCalled { call });
        self.begin_model_call(call);
    }

    pub(super) fn begin_model_call(&mut self, call: CallId) {
        let request = self.state.request();
        let media = self.state.media();
        let model = self.state.model().clone();
        self.schedule(Effect::Begin {
            call,
            work: Work::Model {
                request,
                media,
                model,
            },
        });
    }

    pub(super) fn handle_model_reply(&mut self, call: CallId, result: Result<Reply, ModelError>) {
        let model = self.state.model().name.clone();
        if self.state.phase != (Phase::Thinking { call }) {
            return self.record_late_usage(call, &model, &result);
        }
        match result {
            Ok(mut reply) => {
                reply.usage = self.state.priced(&model, reply.usage);
                self.record_reply(call, reply);
            }
            Err(error) => match self.fallback(&error) {
                Some(to) => self.switch_model(to, &error),
                None => self.end_turn(ExitStatus::ModelFailed, error.to_string()),
            },
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
        self.call_model_again();
    }

    fn record_reply(&mut self, call: CallId, reply: Reply) {
        let Reply {
            blocks,
            stop,
            usage,
        } = reply;
        let text = text_of(&blocks);
        self.emit(CallFact::ModelReplied {
            call,
            blocks,
            stop,
            usage,
        });
        self.open_references(text);
        match self.state.phase {
            Phase::Ready {
                stopped: Some(stop),
            } => self.handle_stop_reason(stop),
            _ => self.start_open_calls(),
        }
    }

    /// Opens the parts that the model marked in its reply as descriptors. They share the bytes of
    /// the reply.
    fn open_references(&mut self, reply: String) {
        let Some(settings) = self
            .state
            .settings()
            .filter(|_| self.state.program.references())
            .copied()
        else {
            return;
        };
        let reply = Bytes::from(reply);
        let text = std::str::from_utf8(&reply).expect("a reply is text");
        for (id, range) in references(text) {
            let content = Content::new(reply.slice(range));
            content.unbounded().prepare(settings.page_chars);
            let entry = Entry::new(content, settings.page_chars, "reply", self.now_ms);
            self.open_as(FdId::Ref(id.to_owned()), entry);
        }
    }

    /// Continues after a reply that runs no tools: it called none, or it was truncated and its tool
    /// uses were declined.
    pub(super) fn handle_stop_reason(&mut self, stop: StopReason) {
        if self.state.is_stopped() {
            return;
        }
        let last = self.state.messages.last().map(|message| message.role);
        let text = self.last_words();
        match stop {
            // The reply may be unfinished, so no warning may be appended before the next call.
            StopReason::Pause => self.call_model_again(),
            StopReason::MaxTokens if last == Some(Role::User) => self.call_model_again(),
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse => {
                self.end_turn(ExitStatus::Done, text);
            }
            StopReason::MaxTokens => self.end_turn(ExitStatus::Truncated, text),
            StopReason::Refusal => self.end_turn(ExitStatus::Refused, text),
            StopReason::ContextWindow => {
                self.end_turn(
                    ExitStatus::ModelFailed,
                    "the conversation is too long for the model".to_owned(),
                );
            }
        }
    }

    fn call_model_again(&mut self) {
        if self.may_call_model() {
            self.start_model_call();
        }
    }

    /// Text of the model's last reply.
    fn last_words(&self) -> String {
        let mut replies = self
            .state
            .messages
            .iter()
            .rev()
            .filter(|message| message.role == Role::Assistant);
        replies
            .next()
            .map(|message| message.text())
            .unwrap_or_default()
    }

    /// Ends the turn. A session waits for input. A task ends with its turn, unless messages are
    /// waiting; if it has background children, it continues when they end. A task that failed ends
    /// at once, and its children with it.
    pub(super) fn end_turn(&mut self, status: ExitStatus, message: String) {
        let exit = Exit::new(status, message).after(self.state.budget.spent());
        let more = !self.state.mailbox.is_empty();
        match self.state.lifetime {
            Lifetime::Task if more && status == ExitStatus::Done => self.begin_turn(),
            Lifetime::Task if status != ExitStatus::Done || self.state.background.is_empty() => {
                self.end(exit)
            }
            Lifetime::Task | Lifetime::Session => {
                let reason = (*exit.message != *self.last_words()).then(|| exit.message.clone());
                self.emit(TurnFact::Ended { status, reason });
                self.schedule(Effect::Report(Report::Turn { outcome: exit }));
                if more {
                    self.begin_turn();
                }
            }
        }
    }

    /// Ends the process. What living children may still use counts as used, since their ends are
    /// not reported to anyone.
    pub(super) fn end(&mut self, exit: Exit) {
        let exit = exit.after(self.state.budget.spent_at_most());
        self.emit(Fact::Exited { exit: exit.clone() });
        self.schedule(Effect::Report(Report::Exit { exit }));
    }
}
