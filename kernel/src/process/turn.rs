//! A turn: from the first message to the last word, one model call after the other.

use dormouse_proto::id::CallId;
use dormouse_proto::message::text_of;
use dormouse_proto::model::{ModelError, Reply, StopReason};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{Caller, Lifetime, Phase};
use dormouse_proto::tool::Answer;

use super::decide::Draft;
use super::{Effect, Fact};

impl Draft {
    pub(super) fn begin_turn(&mut self) {
        self.emit(Fact::TurnBegan);
        self.ask_model();
    }

    pub(super) fn ask_model(&mut self) {
        let limit = self.state.program.model().max_iterations;
        if self.state.iterations >= limit {
            let message = format!("the turn reached its limit of {limit} model calls (max_iterations)");
            return self.end_turn(ExitStatus::IterationLimit, message);
        }
        let call = self.state.next_call();
        self.emit(Fact::ModelCalled { call });
        self.call_model(call);
    }

    pub(super) fn call_model(&mut self, call: CallId) {
        let request = self.state.request();
        self.perform(Effect::CallModel { call, request });
    }

    pub(super) fn take_reply(&mut self, call: CallId, result: Result<Reply, ModelError>) {
        if self.state.phase != (Phase::Thinking { call }) {
            return;
        }
        match result {
            Ok(reply) => self.go_on(call, reply),
            Err(error) => self.end_turn(ExitStatus::ModelFailed, error.to_string()),
        }
    }

    fn go_on(&mut self, call: CallId, Reply { blocks, stop, usage }: Reply) {
        let text = text_of(&blocks);
        self.emit(Fact::ModelReplied { call, blocks, stop, usage });
        let complete = !matches!(stop, StopReason::MaxTokens | StopReason::Refusal | StopReason::ContextWindow);
        match (self.state.slots().is_empty(), complete) {
            (false, true) => self.act(),
            (false, false) => self.decline_cut_calls(stop, text),
            (true, _) => self.stop_or_pause(stop, text),
        }
    }

    pub(super) fn stop_or_pause(&mut self, stop: StopReason, text: String) {
        match stop {
            StopReason::Pause => self.ask_model(),
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse => {
                self.end_turn(ExitStatus::Done, text)
            }
            StopReason::MaxTokens => self.end_turn(ExitStatus::Truncated, text),
            StopReason::Refusal => self.end_turn(ExitStatus::Refused, text),
            StopReason::ContextWindow => {
                self.end_turn(ExitStatus::ModelFailed, "the conversation is too long for the model".to_owned());
            }
        }
    }

    /// Tool uses of a reply that was cut may be cut themselves: they are answered, never run.
    pub(super) fn decline_cut_calls(&mut self, stop: StopReason, text: String) {
        let text_for_model = "Not run: the reply was cut before it was complete. Ask again in a shorter reply.";
        let open = self.state.slots().iter().filter(|slot| slot.answer.is_none());
        let calls: Vec<_> = open.map(|slot| slot.call).collect();
        for call in calls {
            self.emit(Fact::ToolReturned { call, answer: Answer::error(text_for_model), produced_chars: 0 });
        }
        if stop == StopReason::MaxTokens { self.ask_model() } else { self.stop_or_pause(stop, text) }
    }

    /// The turn is over. A task ends with it, unless more was said to it in the meantime; a session waits.
    pub(super) fn end_turn(&mut self, status: ExitStatus, message: String) {
        let exit = Exit { status, message: message.into() };
        let more = !self.state.mailbox.is_empty();
        match self.state.lifetime {
            Lifetime::Task if more && status == ExitStatus::Done => self.begin_turn(),
            Lifetime::Task => self.end(exit),
            Lifetime::Session => {
                self.emit(Fact::TurnEnded { outcome: exit.clone() });
                self.perform(Effect::ReportTurn { outcome: exit });
                if more {
                    self.begin_turn();
                }
            }
        }
    }

    pub(super) fn end(&mut self, exit: Exit) {
        self.emit(Fact::Exited { exit: exit.clone() });
        self.perform(Effect::ReportExit { exit });
    }

    pub(super) fn interrupt(&mut self) {
        let caller = self.caller();
        if !self.abandon("Interrupted: the turn was ended before this call was done. Its effect is unknown.") {
            return;
        }
        match caller {
            Caller::Model => self.end_turn(ExitStatus::Interrupted, "the turn was interrupted".to_owned()),
            Caller::Host => self.settle(caller),
        }
    }

    pub(super) fn kill(&mut self) {
        self.abandon("Interrupted: the process was killed before this call was done. Its effect is unknown.");
        self.end(Exit { status: ExitStatus::Killed, message: "the process was killed".into() });
    }

    /// Gives up all calls in flight; each open tool use is answered by `text`. False where there is no turn to give up.
    fn abandon(&mut self, text: &str) -> bool {
        let (calls, ticket) = match &self.state.phase {
            Phase::Thinking { call } => (vec![*call], None),
            Phase::Acting { caller, slots } => {
                let ticket = slots.first().filter(|_| *caller == Caller::Host).map(|slot| slot.id.clone());
                (slots.iter().map(|slot| slot.call).collect(), ticket)
            }
            Phase::Ready => (Vec::new(), None),
            Phase::Idle | Phase::Ended { .. } => return false,
        };
        let answer = Answer::error(text);
        self.emit(Fact::Interrupted { answer: answer.clone() });
        self.perform(Effect::Abandon { calls });
        if let Some(ticket) = ticket {
            self.perform(Effect::AnswerHost { ticket, answer });
        }
        true
    }
}
