//! Beginning to run: a process that was just born, or one that comes back from its journal.

use dormouse_proto::id::CallId;
use dormouse_proto::record::Phase;
use dormouse_proto::tool::Answer;

use super::Effect;
use super::decide::Draft;
use super::toolbox::Kind;

const UNKNOWN: &str = "Interrupted: this call was begun and its result never came. Its effect is unknown. \
                       Look before you call it again.";

impl Draft {
    /// A model call that was pending is issued again, under the same id. A tool call that was in flight is not, unless
    /// that is harmless (CALL-2); children are looked up by their origin, so that none is made twice.
    pub(super) fn resume(&mut self) {
        let open = self.state.slots().iter().filter(|slot| slot.answer.is_none()).map(|slot| slot.call);
        let open: Vec<CallId> = open.collect();
        let background: Vec<CallId> =
            self.state.background.keys().filter(|call| !open.contains(call)).copied().collect();
        self.perform(Effect::KeepChildren { calls: open.into_iter().chain(background.iter().copied()).collect() });
        background.into_iter().for_each(|call| self.perform(Effect::FindChild { call }));
        match self.state.phase.clone() {
            Phase::Idle if self.state.mailbox.is_empty() => {}
            Phase::Idle => self.begin_turn(),
            Phase::Ready { stopped: None } => self.ask_model(),
            Phase::Ready { stopped: Some(stop) } => self.follow(stop),
            Phase::Thinking { call } => self.call_model(call),
            Phase::Acting { .. } => self.act(),
            Phase::Ended { exit } => self.perform(Effect::ReportExit { exit }),
        }
    }

    /// A call that had been made when the kernel stopped: made again where that is harmless, else answered.
    pub(super) fn repeat_or_answer(&mut self, call: CallId, kind: &Kind) {
        if self.is_repeatable(call, kind) {
            self.perform_call(call, kind);
        } else {
            self.answer(call, Answer::error(UNKNOWN), 0);
        }
    }
}
