//! Signals: interrupt, kill, stop, continue.
//!
//! A stopped process begins nothing: no model call, no tool call, no turn. What was in flight when
//! it was stopped comes back and is recorded, and what is said to it waits. That it is stopped is a
//! fact, so that it still is when it comes back from its journal; whatever had been in flight is
//! taken up when it is continued, as after any restart.

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{Caller, Control, ControlFact, Phase, TurnFact};
use dormouse_proto::tool::Answer;

use super::Effect;
use super::decide::Draft;

const GIVEN_UP: &str =
    "Interrupted: this call was cancelled before it was done. Its effect is unknown.";

impl Draft {
    pub(super) fn stop(&mut self) {
        if self.state.control == Control::Running {
            self.emit(ControlFact::Stopped);
        }
    }

    pub(super) fn go_on_after_stop(&mut self) {
        let before = self.state.control;
        if before == Control::Running {
            return;
        }
        self.emit(ControlFact::Continued);
        match before {
            Control::Frozen => self.take_up(),
            _ => self.begin_what_waits(),
        }
    }

    /// What came up while the process was stopped. Calls that were in flight then are answered, or
    /// still are in flight.
    fn begin_what_waits(&mut self) {
        match self.state.phase {
            Phase::Thinking { .. } => {}
            Phase::Acting { .. } => self.begin_uncalled(),
            _ => self.take_up(),
        }
    }

    pub(super) fn interrupt(&mut self) {
        let caller = self.caller();
        if !self.abandon(
            "Interrupted: the turn was ended before this call was done. Its effect is unknown.",
        ) {
            return;
        }
        match caller {
            Caller::Model => self.end_turn(
                ExitStatus::Interrupted,
                "the turn was interrupted".to_owned(),
            ),
            Caller::Host => self.settle(caller),
        }
        if self.state.exit().is_none() {
            self.ask_after_lost();
        }
    }

    pub(super) fn kill(&mut self) {
        self.abandon(
            "Interrupted: the process was killed before this call was done. Its effect is unknown.",
        );
        self.end(Exit::new(ExitStatus::Killed, "the process was killed"));
    }

    /// Gives up all calls in flight; each open tool use is answered by `text`. False where there is
    /// no turn to give up.
    pub(super) fn abandon(&mut self, text: &str) -> bool {
        let (calls, tickets): (_, Vec<Arc<str>>) = match &self.state.phase {
            Phase::Thinking { call } => (vec![*call], Vec::new()),
            Phase::Acting { caller, slots } => {
                let tickets = slots
                    .iter()
                    .filter(|_| *caller == Caller::Host)
                    .map(|slot| slot.id.clone())
                    .collect();
                // A child that its call does not wait for is not given up with the turn.
                let calls = slots.iter().map(|slot| slot.call);
                (
                    calls
                        .filter(|call| !self.state.background.contains_key(call))
                        .collect::<Vec<CallId>>(),
                    tickets,
                )
            }
            Phase::Ready { .. } => (Vec::new(), Vec::new()),
            Phase::Idle | Phase::Ended { .. } => return false,
        };
        let answer = Answer::failed(text);
        self.state.reading.end_calls();
        self.emit(TurnFact::Interrupted {
            answer: answer.clone(),
        });
        self.perform(Effect::Abandon { calls });
        for ticket in tickets {
            self.perform(Effect::AnswerHost {
                ticket,
                answer: answer.clone(),
            });
        }
        true
    }

    /// Gives up one call of the host, and answers it. Others that run beside it go on, and so does
    /// a child that it does not wait for.
    pub(super) fn give_up(&mut self, ticket: &str) {
        let Phase::Acting {
            caller: Caller::Host,
            slots,
        } = &self.state.phase
        else {
            return;
        };
        let Some(call) = slots
            .iter()
            .find(|slot| *slot.id == *ticket)
            .map(|slot| slot.call)
        else {
            return;
        };
        if !self.state.background.contains_key(&call) {
            self.perform(Effect::Abandon { calls: vec![call] });
        }
        self.answer(call, Answer::failed(GIVEN_UP), 0);
        self.settle(Caller::Host);
        if self.state.exit().is_none() {
            self.ask_after_lost();
        }
    }
}
