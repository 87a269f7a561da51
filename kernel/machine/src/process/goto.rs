//! `goto`: goes back in the conversation. The messages after a position are removed, and a new
//! message is appended there.
//!
//! A model must call `goto` as the only tool of its reply, since the answers of other calls would
//! be removed before the model reads them. The turn keeps counting its model calls, so that a loop
//! of gotos ends at `max_iterations`. The host can use goto at any time: calls in flight are
//! abandoned, and a turn begins with the host's message.
//!
//! `goto/destination.rs` finds the message that a position means.
//!
//! Messages that were compacted can be gone back to as well. They are read from their content, and
//! the conversation is again as it was before that compaction.

mod destination;

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::record::{Caller, CompactedMessages, TurnFact, codec};
use dormouse_proto::tool::Answer;
use dormouse_proto::user_input::InputPart;
use dormouse_proto::xml::Element;
use imbl::Vector;

use self::destination::{Destination, Messages, find_destination, last_user_message_number};
use super::arrival::Arrival;
use super::decide::Draft;
use super::{Effect, Fact};
use crate::table::placement::{Placement, Placer};
use dormouse_content::{Content, ReadQuota};

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
    /// The conversation up to the last message that is kept, if that message was compacted.
    earlier: Option<EarlierConversation>,
}

/// A conversation as it was before a compaction.
struct EarlierConversation {
    messages: Vector<Arc<Message>>,
    forked_at: Vec<u32>,
}

/// A goto to a message that was compacted. The messages have to be read first.
#[derive(Clone, Debug)]
pub struct GotoRead {
    caller: GotoCaller,
    position: String,
    /// Placement of the message that is appended.
    message: Placement,
    /// The messages among which the position is.
    compacted: CompactedMessages<Content>,
}

/// Who asked for a goto that has to read messages.
#[derive(Clone, Debug)]
enum GotoCaller {
    /// A call of the tool.
    Call(CallId),
    /// A request of the host.
    Request(Arc<str>),
}

impl GotoRead {
    /// Id of the request of the host; `None` for a call of the tool.
    pub(super) fn request_id(&self) -> Option<&Arc<str>> {
        match &self.caller {
            GotoCaller::Request(request_id) => Some(request_id),
            GotoCaller::Call(_) => None,
        }
    }

    /// Reads the conversation before the compaction. The error says why it cannot be read.
    pub(super) fn read_messages(
        &self,
        quota: &ReadQuota,
    ) -> Result<Vector<Arc<Message>>, Arc<str>> {
        let content = &self.compacted.messages;
        let len = usize::try_from(content.len_bytes()).unwrap_or(usize::MAX);
        let charged = quota.charge(len.saturating_mul(2));
        let bytes = charged.and_then(|()| content.reader(quota).bytes());
        let bytes = bytes.map_err(|error| error.to_string())?;
        codec::decode(&bytes).map_err(|error| error.to_string().into())
    }
}

impl Draft {
    /// Executes the `goto` tool. A call by the host is not part of the conversation, so the host
    /// gets an answer first, and then a turn begins.
    pub(super) fn goto(
        &mut self,
        call: CallId,
        parse_arguments: fn(&str) -> Result<GotoArguments, GotoError>,
    ) {
        match parse_arguments(&self.pending_call(call).args) {
            Ok(GotoArguments { position, message }) => {
                let part = InputPart::text(message);
                // The message has at most `MAX_ARGUMENT_BYTES`.
                let message = Placer::unlimited(self.state.settings(), self.now_ms).input(&part);
                self.goto_for_call(call, position, message, None);
            }
            Err(error) => self.answer_in_full(call, error.answer()),
        }
    }

    fn goto_for_call(
        &mut self,
        call: CallId,
        position: String,
        message: Placement,
        read: Option<ReadMessages>,
    ) {
        let by = self.caller();
        let from = match by {
            _ if self.state.pending_calls().len() > 1 => {
                return self.answer_in_full(call, GotoError::NotAlone.answer());
            }
            Caller::Model => last_user_message_number(self.numbered_messages()),
            Caller::Host => self.state.last_message_number(),
        };
        let plan = match self.plan_goto(GotoCaller::Call(call), from, (position, message), read) {
            Ok(Some(plan)) => plan,
            Ok(None) => return,
            Err(error) => return self.answer_in_full(call, error.answer()),
        };
        if by == Caller::Model {
            return self.record_goto(plan, by);
        }
        self.answer_in_full(call, goto_answer(&plan));
        self.record_goto(plan, by);
        self.call_model();
    }

    /// Handles the request of the host to go back: checks it, and requests the placement of its
    /// message.
    pub(super) fn request_goto(&mut self, request_id: Arc<str>, position: String, message: String) {
        let from = self.state.last_message_number();
        let checked = check_goto_message(&message)
            .and_then(|()| find_destination(self.numbered_messages(), from, &position));
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
    pub(super) fn goto_for_request(
        &mut self,
        request_id: Arc<str>,
        position: String,
        message: Placement,
        read: Option<ReadMessages>,
    ) {
        let from = self.state.last_message_number();
        let caller = GotoCaller::Request(request_id.clone());
        let plan = match self.plan_goto(caller, from, (position, message), read) {
            Ok(Some(plan)) => plan,
            Ok(None) => return,
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

    /// Continues a goto whose messages were read. Between the request and now the conversation may
    /// have changed, so the goto is checked again.
    pub(super) fn handle_earlier_messages(
        &mut self,
        goto: GotoRead,
        messages: Result<Vector<Arc<Message>>, Arc<str>>,
    ) {
        let GotoRead {
            caller,
            position,
            message,
            compacted,
        } = goto;
        let read = Some((compacted, messages));
        match caller {
            GotoCaller::Request(request_id) => {
                self.goto_for_request(request_id, position, message, read);
            }
            GotoCaller::Call(call) => {
                // A stopped process executes the call again when it is continued.
                if self.state.is_open(call) && !self.state.is_stopped() {
                    let by = self.caller();
                    self.goto_for_call(call, position, message, read);
                    self.continue_turn(by);
                }
            }
        }
    }

    fn numbered_messages(&self) -> Messages<'_> {
        Messages {
            messages: &self.state.messages,
            last_compacted: self.state.last_compacted(),
        }
    }

    /// Checks a goto. Returns `None` if messages have to be read first, which is requested.
    fn plan_goto(
        &mut self,
        caller: GotoCaller,
        from: usize,
        (position, message): (String, Placement),
        read: Option<ReadMessages>,
    ) -> Result<Option<GotoPlan>, GotoError> {
        let messages = self.numbered_messages();
        let number = match find_destination(messages, from, &position)? {
            Destination::Kept(to) => {
                return Ok(Some(GotoPlan {
                    from,
                    to,
                    message,
                    earlier: None,
                }));
            }
            Destination::Compacted(number) => number,
        };
        let mut before = 0;
        let compacted = self.state.compacted.iter().find(|compacted| {
            let is_found = compacted.last >= number;
            if !is_found {
                before = compacted.last;
            }
            is_found
        });
        let compacted = compacted
            .expect("each compacted message belongs to a compaction")
            .clone();
        let Some((_, messages)) = read.filter(|(read, _)| *read == compacted) else {
            self.request_arrival_placement(Arrival::EarlierMessages(GotoRead {
                caller,
                position,
                message,
                compacted,
            }));
            return Ok(None);
        };
        let model = compacted.model;
        let (to, mut earlier) = earlier_conversation(before, number, compacted, messages)?;
        earlier.messages = self
            .state
            .messages_for_current_model(earlier.messages, model);
        Ok(Some(GotoPlan {
            from,
            to,
            message,
            earlier: Some(earlier),
        }))
    }

    fn record_goto(&mut self, plan: GotoPlan, by: Caller) {
        let GotoPlan {
            from,
            to,
            message,
            earlier,
        } = plan;
        let element = Element::new("goto")
            .attribute("from", format_position(from))
            .attribute("to", format_position(to));
        let element = self.fill_element(element, message);
        let message = Arc::new(Message {
            role: Role::User,
            blocks: vec![Block::text(element.to_xml())],
        });
        match earlier {
            None => self.emit(TurnFact::WentTo { to, message, by }),
            Some(EarlierConversation {
                messages,
                forked_at,
            }) => self.emit(Fact::WentToCompacted {
                to,
                messages,
                forked_at,
                message,
                by,
            }),
        }
    }
}

/// Compacted messages that were read for a goto.
type ReadMessages = (
    CompactedMessages<Content>,
    Result<Vector<Arc<Message>>, Arc<str>>,
);

/// The conversation up to message `requested`, or up to the next one after which no call is open.
/// `before` is the number of the last message that an earlier compaction removed.
fn earlier_conversation(
    before: u32,
    requested: u32,
    compacted: CompactedMessages<Content>,
    messages: Result<Vector<Arc<Message>>, Arc<str>>,
) -> Result<(u32, EarlierConversation), GotoError> {
    let unreadable = |why| GotoError::Unreadable { requested, why };
    let mut messages = messages.map_err(unreadable)?;
    let numbered = Messages {
        messages: &messages,
        last_compacted: before,
    };
    let to = numbered.finished_from(requested);
    let to = to.unwrap_or(compacted.last).min(compacted.last);
    let len = (to as usize).saturating_sub(before.saturating_sub(1) as usize);
    if messages.len() < len {
        let why = format!("{len} messages are expected, and {} found", messages.len());
        return Err(unreadable(why.into()));
    }
    messages.truncate(len);
    let mut forked_at = compacted.forked_at;
    forked_at.retain(|at| *at as usize <= len);
    Ok((
        to,
        EarlierConversation {
            messages,
            forked_at,
        },
    ))
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
