//! Beginning to run: a process that was just born, or one that comes back from its journal.
//!
//! The phase decides. A pending model call is made again. A tool call that was in flight is made
//! again only if that is harmless; otherwise it is answered as "effect unknown". What is made again
//! has its intent journalled once more, so that nothing begins in a store without room. A fork or
//! spawn finds its children by parent and call, so that no child is made twice; a spawn that had
//! begun looks for its child before it reads its files again (`FindChild`, answered by the child's
//! end or by `Absent`). A stopped process does none of this before it is continued.

use dormouse_proto::id::CallId;
use dormouse_proto::record::{CallFact, Control, ControlFact, Phase};
use dormouse_proto::tool::Answer;

use super::decide::Draft;
use super::toolbox::Kind;
use super::{Effect, Report};

const UNKNOWN: &str = "Interrupted: this call was begun and its result never came. Its effect is \
unknown. Look before you call it again.";

impl Draft {
    /// A model call that was pending is issued again, under the same id. A tool call that was in
    /// flight is not, unless that is harmless (CALL-2); children are looked up by their origin, so
    /// that none is made twice. One that was stopped takes nothing up.
    ///
    /// What is made again has its intent journalled again: nothing begins while the store takes no
    /// facts.
    pub(super) fn resume(&mut self) {
        if self.state.control == Control::Stopped && self.state.exit().is_none() {
            self.emit(ControlFact::Frozen);
        }
        let open = self
            .state
            .slots()
            .iter()
            .filter(|slot| slot.answer.is_none())
            .map(|slot| slot.call);
        let calls = open.chain(self.unheard()).collect();
        self.perform(Effect::KeepChildren { calls });
        if self.state.exit().is_none() {
            self.ask_after_lost();
            if !self.keep_time() {
                return;
            }
        }
        if !self.state.is_stopped() || self.state.exit().is_some() {
            self.take_up();
        }
    }

    /// The calls whose children run in the background, beside those that are still to be answered.
    fn unheard(&self) -> Vec<CallId> {
        let is_open = |call: &CallId| {
            self.state
                .slots()
                .iter()
                .any(|slot| slot.call == *call && slot.answer.is_none())
        };
        self.state
            .background
            .keys()
            .filter(|call| !is_open(call))
            .copied()
            .collect()
    }

    /// Goes on where the process stands, with nothing in flight.
    pub(super) fn take_up(&mut self) {
        self.unheard()
            .into_iter()
            .for_each(|call| self.perform(Effect::FindChild { call, index: 0 }));
        match self.state.phase.clone() {
            Phase::Idle if self.state.mailbox.is_empty() => {}
            Phase::Idle => self.begin_turn(),
            Phase::Ready { stopped: None } => self.ask_model(),
            Phase::Ready {
                stopped: Some(stop),
            } => self.follow(stop),
            Phase::Thinking { call } => {
                // A summary that came late may have used up what was left when the model was asked.
                if self.ends_at_limit() {
                    return;
                }
                self.emit(CallFact::ModelCalled { call });
                self.call_model(call);
            }
            Phase::Acting { .. } => self.act(),
            Phase::Ended { exit } => self.perform(Effect::Report(Report::Exit { exit })),
        }
    }

    /// A call that had been made when the kernel stopped: made again where that is harmless, else
    /// answered.
    pub(super) fn repeat_or_answer(&mut self, call: CallId, kind: &Kind) {
        if self.is_repeatable(call, kind) {
            self.emit(CallFact::ToolCalled { call });
            self.perform_call(call, kind);
        } else {
            self.answer(call, Answer::failed(UNKNOWN), 0);
        }
    }
}
