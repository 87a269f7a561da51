//! Decides whether a process can be hibernated (unloaded from memory until its next input arrives).
//! A process can be hibernated only if it has nothing to do before that input.

use std::fmt;

use dormouse_proto::process::Waiting;
use dormouse_proto::record::{PendingCall, Phase, Speculation};

use super::alarms::next_alarm_of_image_ms;
use super::{Image, State};
use crate::tool::ProcessHandler;

/// Why a process cannot be hibernated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyReason {
    /// The process has ended.
    Ended,
    /// The process is in the middle of a turn or of a host call.
    Turn,
    /// Messages are in the mailbox or being read.
    Mail,
    /// A model summarizes a descriptor of the process.
    Summary,
}

impl State {
    /// Why the process cannot be hibernated; `None` if it can: it *rests*, and its wall time stands
    /// still. A stopped process can be hibernated in the middle of its turn, since it starts
    /// nothing. So can a process whose open calls only wait: for a person, whose answer wakes it, or
    /// for children, whose end wakes it.
    #[must_use]
    pub fn busy_reason(&self) -> Option<BusyReason> {
        let may_rest = self.is_stopped() || self.only_waits();
        match self.phase {
            Phase::Ended { .. } => Some(BusyReason::Ended),
            Phase::Thinking { .. } | Phase::Ready { .. } | Phase::Acting { .. } if !may_rest => {
                Some(BusyReason::Turn)
            }
            _ if self.pending_reads.has_arrivals() => Some(BusyReason::Mail),
            // At a limit messages wait until it is raised.
            _ if !self.mailbox.is_empty() && !self.is_held_by_limit() => Some(BusyReason::Mail),
            _ if self.pending_reads.has_summaries() => Some(BusyReason::Summary),
            _ => None,
        }
    }

    /// Whether each open call of the turn waits for a person or for children, and nothing else is
    /// under way.
    fn only_waits(&self) -> bool {
        let mut open = self
            .pending_calls()
            .iter()
            .filter(|pending_call| pending_call.answer.is_none())
            .peekable();
        open.peek().is_some()
            && !self.pending_reads.has_call_reads()
            && open.all(|pending_call| {
                self.waits_for_person(pending_call) || self.waits_for_children(pending_call)
            })
    }

    /// Whether a call has started its children and waits for their end.
    fn waits_for_children(&self, pending_call: &PendingCall) -> bool {
        let binding = self.toolbox.find(&pending_call.tool);
        let handler = binding.and_then(|binding| binding.tool.process_handler());
        let args = &pending_call.args;
        pending_call.started
            && match handler {
                Some(ProcessHandler::Fork { .. } | ProcessHandler::Explore { .. }) => {
                    self.budget.has_shares(pending_call.call)
                }
                // A spawn that does not wait is answered as soon as its child runs.
                Some(ProcessHandler::Spawn { waits, .. }) => {
                    waits(args) && self.budget.has_shares(pending_call.call)
                }
                Some(ProcessHandler::Wait(arguments)) => {
                    arguments(args).is_ok_and(|arguments| arguments.timeout_ms.is_none())
                }
                _ => false,
            }
    }
}

impl State {
    /// What the process waits for, for its row in the process table. Costs a pass over the open
    /// calls of the turn.
    ///
    /// A process whose row says `Alarm` or `Person` is resumed without being loaded. So `Person` is
    /// not said of a process that is stopped, paused or below a paused process, since what holds it
    /// up may have ended meanwhile; nor of one whose children may not have been made; nor of a
    /// speculative one, whose calls nobody approves. No alarm wakes a speculative process.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        let is_speculative = self.speculation != Speculation::None;
        if let Some(due_ms) = self.next_alarm_ms().filter(|_| !is_speculative) {
            return Waiting::Alarm { due_ms };
        }
        if self.phase.held_calls().next().is_none() {
            return Waiting::Nothing;
        }
        let mut open = self
            .pending_calls()
            .iter()
            .filter(|pending_call| pending_call.answer.is_none());
        let only_asks = !is_speculative
            && !self.is_stopped()
            && self.busy_reason().is_none()
            && open.all(|pending_call| self.waits_for_person(pending_call));
        match only_asks {
            true => Waiting::Person {
                expires_ms: self.phase.next_expiry_ms(),
            },
            false => Waiting::Unknown,
        }
    }
}

/// What a process waits for that begins with this image. Whether its other calls only wait is known
/// once it is loaded.
#[must_use]
pub fn waiting_of_image(image: &Image) -> Waiting {
    let is_speculative = image.speculation != Speculation::None;
    if let Some(due_ms) = next_alarm_of_image_ms(image).filter(|_| !is_speculative) {
        return Waiting::Alarm { due_ms };
    }
    match image.phase.held_calls().next() {
        Some(_) => Waiting::Unknown,
        None => Waiting::Nothing,
    }
}

impl fmt::Display for BusyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "it has ended",
            Self::Turn => "it is in the middle of a turn",
            Self::Mail => "messages wait for it",
            Self::Summary => "one of its descriptors is being summarized",
        })
    }
}
