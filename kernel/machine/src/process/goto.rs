//! `goto`: going back in the conversation. The messages after a position are removed, and another
//! message follows the position.
//!
//! A model calls `goto` as the only tool of its reply, so that no answer is lost unread. The turn
//! keeps counting its model calls, so that a loop of gotos ends at `max_iterations`. The host sends
//! a process back at any time: calls in flight are abandoned, and a turn begins with the host's
//! message.

mod destination;

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::record::{Caller, TurnFact};
use dormouse_proto::tool::Answer;
use dormouse_proto::user_input::InputPart;
use dormouse_proto::xml::Element;

use self::destination::{destination, last_user_message};
use super::Effect;
use super::decide::Draft;

pub use self::destination::{GotoArguments, GotoError, check_goto_message};

const ABANDONED: &str =
    "Interrupted: the conversation went back before this call was done. Its effect is unknown.";

/// A checked goto.
struct GotoPlan {
    from: usize,
    to: u32,
    message: String,
}

impl Draft {
    /// The `goto` tool. A host call is not part of the conversation: the host gets its answer
    /// first, then a turn begins.
    pub(super) fn goto(
        &mut self,
        call: CallId,
        arguments: fn(&str) -> Result<GotoArguments, GotoError>,
    ) {
        let by = self.caller();
        let arguments = arguments(&self.pending_call(call).args);
        let plan = match arguments.and_then(|arguments| self.plan_goto(arguments, by)) {
            Ok(plan) => plan,
            Err(error) => return self.answer_in_full(call, error.answer()),
        };
        if by == Caller::Model {
            return self.record_goto(plan, by);
        }
        self.answer_in_full(call, goto_answer(&plan));
        self.record_goto(plan, by);
        self.call_model();
    }

    fn plan_goto(
        &self,
        GotoArguments { position, message }: GotoArguments,
        by: Caller,
    ) -> Result<GotoPlan, GotoError> {
        if self.state.pending_calls().len() > 1 {
            return Err(GotoError::Beside);
        }
        let from = match by {
            Caller::Model => last_user_message(&self.state.messages),
            Caller::Host => self.state.messages.len(),
        };
        let to = destination(&self.state.messages, from, &position)?;
        Ok(GotoPlan { from, to, message })
    }

    /// Goes back at the request of the host, within a turn or between two.
    pub(super) fn goto_for_host(&mut self, request_id: Arc<str>, position: &str, message: String) {
        let from = self.state.messages.len();
        let open = check_goto_message(&message);
        let plan = match open.and_then(|()| destination(&self.state.messages, from, position)) {
            Ok(to) => GotoPlan { from, to, message },
            Err(error) => {
                return self.schedule(Effect::AnswerHost {
                    request_id,
                    answer: error.answer(),
                });
            }
        };
        self.abandon_calls(ABANDONED);
        self.schedule(Effect::AnswerHost {
            request_id,
            answer: goto_answer(&plan),
        });
        self.record_goto(plan, Caller::Host);
        self.call_model();
        if self.state.exit().is_none() {
            self.find_lost_children();
        }
    }

    fn record_goto(&mut self, GotoPlan { from, to, message }: GotoPlan, by: Caller) {
        let part = InputPart::text(message);
        let element = Element::new("goto")
            .attribute("from", position(from))
            .attribute("to", position(to));
        let placement = self.placer().input(&part);
        let element = self.fill_element(element, placement);
        let message = Arc::new(Message {
            role: Role::User,
            blocks: vec![Block::text(element.to_xml())],
        });
        self.emit(TurnFact::WentTo { to, message, by });
    }
}

fn position(number: impl std::fmt::Display) -> String {
    format!("msg:{number}")
}

/// The answer that reports the goto to the host.
fn goto_answer(GotoPlan { from, to, .. }: &GotoPlan) -> Answer {
    Answer::shown(
        Element::new("goto")
            .attribute("from", position(from))
            .attribute("to", position(to)),
    )
}
