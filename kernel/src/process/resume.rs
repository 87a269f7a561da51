//! Beginning to run: a process that was just born, or one that comes back from its journal.

use dormouse_proto::message::Role;
use dormouse_proto::model::StopReason;
use dormouse_proto::process::ExitStatus;
use dormouse_proto::record::Phase;
use dormouse_proto::tool::Answer;

use super::Effect;
use super::decide::Draft;
use super::toolbox::Kind;

const UNKNOWN: &str = "Interrupted: the kernel stopped while this call ran. Its effect is unknown. \
                       Look before you call it again.";

impl Draft {
    /// A model call that was pending is issued again, under the same id. A tool call that was in flight is not, unless
    /// that is harmless (CALL-2); children are looked up by their origin, so that none is made twice.
    pub(super) fn resume(&mut self) {
        match self.state.phase.clone() {
            Phase::Idle if self.state.mailbox.is_empty() => {}
            Phase::Idle => self.begin_turn(),
            Phase::Ready => self.ask_or_end(),
            Phase::Thinking { call } => self.call_model(call),
            Phase::Acting { .. } => match self.state.unfinished {
                Some(stop) => self.decline_cut_calls(stop, self.last_words()),
                None => self.act(),
            },
            Phase::Ended { exit } => self.perform(Effect::ReportExit { exit }),
        }
    }

    /// A process that stopped between two facts of one decision goes on from where it was.
    fn ask_or_end(&mut self) {
        let last = self.state.messages.last().map_or(Role::User, |message| message.role);
        match (last, self.state.unfinished) {
            (Role::User, None | Some(StopReason::MaxTokens)) => self.ask_model(),
            (Role::Assistant, None) => self.end_turn(ExitStatus::Done, self.last_words()),
            (_, Some(stop)) => self.stop_or_pause(stop, self.last_words()),
        }
    }

    fn last_words(&self) -> String {
        let replies = self.state.messages.iter().rev();
        replies
            .filter(|message| message.role == Role::Assistant)
            .map(|message| message.text())
            .next()
            .unwrap_or_default()
    }

    /// A call that had been made when the kernel stopped: made again where that is harmless, else answered.
    pub(super) fn repeat_or_answer(&mut self, call: dormouse_proto::id::CallId, kind: &Kind) {
        if kind.may_repeat() || self.is_repeatable_write(call) {
            self.perform_call(call, kind);
        } else {
            self.answer(call, Answer::error(UNKNOWN), 0);
        }
    }
}
