//! `goto`: goes back in the conversation. The messages after a position are removed, and a new
//! message is appended there.
//!
//! A model must call `goto` as the only tool of its reply, since the answers of other calls would
//! be removed before the model reads them. The turn keeps counting its model calls, so that a loop
//! of gotos ends at `max_iterations`. The host can use goto at any time: calls in flight are
//! abandoned, and a turn begins with the host's message.

mod destination;

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::record::{Caller, TurnFact};
use dormouse_proto::tool::Answer;
use dormouse_proto::user_input::InputPart;
use dormouse_proto::xml::Element;

use self::destination::{find_destination, last_user_message_number};
use super::Effect;
use super::arrival::Arrival;
use super::decide::Draft;
use crate::table::placement::{Placement, Placer};

pub use self::destination::{GotoArguments, GotoError, check_goto_message};

/// Answer to a call that a goto of the host abandons.
const ABANDONED: &str =
    "Interrupted: the conversation went back before this call was done. Its effect is unknown.";

/// A checked goto.
struct GotoPlan {
    /// Number of the message that the goto starts from.
    from: usize,
    /// Number of the last message that is kept.
    to: u32,
    /// Placement of the message that is appended.
    message: Placement,
}

impl Draft {
    /// Executes the `goto` tool. A call by the host is not part of the conversation, so the host
    /// gets an answer first, and then a turn begins.
    pub(super) fn goto(
        &mut self,
        call: CallId,
        parse_arguments: fn(&str) -> Result<GotoArguments, GotoError>,
    ) {
        let by = self.caller();
        let arguments = parse_arguments(&self.pending_call(call).args);
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
            return Err(GotoError::NotAlone);
        }
        let from = match by {
            Caller::Model => last_user_message_number(&self.state.messages),
            Caller::Host => self.state.messages.len(),
        };
        let to = find_destination(&self.state.messages, from, &position)?;
        // The message has at most `MAX_ARGUMENT_BYTES`.
        let message =
            Placer::unlimited(self.state.settings(), self.now_ms).input(&InputPart::text(message));
        Ok(GotoPlan { from, to, message })
    }

    /// Handles the request of the host to go back: checks it, and requests the placement of its
    /// message.
    pub(super) fn request_goto(&mut self, request_id: Arc<str>, position: String, message: String) {
        let checked = check_goto_message(&message).and_then(|()| {
            find_destination(&self.state.messages, self.state.messages.len(), &position)
        });
        match checked {
            Ok(_) => self.request_arrival_placement(Arrival::Goto {
                request_id,
                position,
                message,
            }),
            Err(error) => self.schedule(Effect::AnswerHost {
                request_id,
                answer: error.answer(),
            }),
        }
    }

    /// Goes back at the request of the host, within a turn or between two turns. The conversation
    /// may have changed since the request.
    pub(super) fn goto_for_host(
        &mut self,
        request_id: Arc<str>,
        position: &str,
        message: Placement,
    ) {
        let from = self.state.messages.len();
        let plan = match find_destination(&self.state.messages, from, position) {
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
            self.find_children_of_answered_calls();
        }
    }

    fn record_goto(&mut self, GotoPlan { from, to, message }: GotoPlan, by: Caller) {
        let element = Element::new("goto")
            .attribute("from", format_position(from))
            .attribute("to", format_position(to));
        let element = self.fill_element(element, message);
        let message = Arc::new(Message {
            role: Role::User,
            blocks: vec![Block::text(element.to_xml())],
        });
        self.emit(TurnFact::WentTo { to, message, by });
    }
}

fn format_position(number: impl std::fmt::Display) -> String {
    format!("msg:{number}")
}

/// The answer that reports the goto to the host.
fn goto_answer(GotoPlan { from, to, .. }: &GotoPlan) -> Answer {
    Answer::shown(
        Element::new("goto")
            .attribute("from", format_position(from))
            .attribute("to", format_position(to)),
    )
}
