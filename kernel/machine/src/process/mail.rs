//! Messages between processes. MAIL-1: a message is delivered once, even if the sender, the
//! receiver or the kernel restarts.
//!
//! * The sender has no outbox apart from its open call: the call is answered when the receiver has
//!   acknowledged the message, and is repeated after a restart.
//! * The receiver's receipt is the fact
//!   [`MailFact::Received`](dormouse_proto::record::MailFact::Received), which names the sender's
//!   call: a repeated message is acknowledged and not delivered again.
//! * Messages in the mailbox are delivered to the model when the next turn begins, or earlier by a
//!   tool (`waiting.rs`).
//!
//! A message never ends its receiver: if the mailbox or the budget has no room, the message is
//! refused.
//!
//! `envelope.rs` holds a message as data. The supervisor (`actors/src/supervisor/mail.rs`) decides
//! who may write to whom, and finds the receiver.

use std::sync::Arc;

use dormouse_proto::budget::Amount;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Address, ReachableProcess};
use dormouse_proto::message::Message;
use dormouse_proto::record::{MailFact, Phase};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::{Effect, PendingMessage, PlacedDescriptor, PlacedEnvelope, State, Work, process_list};
use crate::table::listing;
use crate::table::placement::Placement;
use crate::tool::Refusal;

impl State {
    /// The receipt for a message; `None` if this process has not received the message. An ended
    /// process still returns receipts, so that a sender that repeats a message after a restart
    /// learns that it was delivered.
    #[must_use]
    pub fn receipt(&self, from: Pid, call: CallId) -> Option<Answer> {
        self.receipts
            .get(&from)
            .filter(|receipts| receipts.contains(call.seq))
            .map(|_| receipt_answer(self.pid))
    }
}

/// The answer that acknowledges a message.
fn receipt_answer(to: Pid) -> Answer {
    Answer::shown(Element::new("message_sent").attribute("to", to))
}

impl Draft {
    /// Sends a checked message, or answers the call with the reason why the check refused it.
    pub(super) fn handle_checked_message(
        &mut self,
        call: CallId,
        pending: Result<PendingMessage, Refusal>,
    ) {
        match pending {
            Err(refusal) => self.answer_in_full(call, refusal.into()),
            Ok(mut pending) => {
                // A process may always answer a process that it has received a message from.
                if let Address::Process(pid) = pending.to
                    && self.state.receipts.contains_key(&pid)
                {
                    pending.to = Address::Correspondent(pid);
                }
                // Calls are numbered in order, so that every call before the first pending one is
                // answered.
                let acked_below = self
                    .state
                    .pending_calls()
                    .first()
                    .map_or(call.seq, |pending_call| pending_call.call.seq);
                self.record_intent(call);
                self.schedule(Effect::StartWork {
                    call,
                    work: Work::Send {
                        acked_below,
                        pending,
                    },
                });
            }
        }
    }

    /// Handles a message of another process: records or refuses it, and answers the sender.
    pub(super) fn receive_message(
        &mut self,
        request_id: Arc<str>,
        (from, call): (Pid, CallId),
        acked_below: u32,
        envelope: PlacedEnvelope,
    ) {
        let answer = match (
            self.state.receipt(from, call),
            self.find_message_refusal(&envelope),
        ) {
            (Some(receipt), _) => receipt,
            (None, Some(why)) => Answer::failed(why),
            (None, None) => {
                self.record_message((from, call), acked_below, envelope);
                receipt_answer(self.state.pid)
            }
        };
        self.schedule(Effect::AnswerHost { request_id, answer });
        self.handle_new_mail();
    }

    /// Queues a message of another process, without a reaction. The fact is its receipt.
    pub(super) fn record_message(
        &mut self,
        (from, call): (Pid, CallId),
        acked_below: u32,
        envelope: PlacedEnvelope,
    ) {
        let message = self.render_message(from, envelope);
        self.emit(MailFact::Received {
            from,
            call,
            acked_below,
            message,
        });
    }

    /// Why the message is refused; `None` if it is accepted.
    pub(super) fn find_message_refusal(&self, envelope: &PlacedEnvelope) -> Option<String> {
        let pid = self.state.pid;
        let program = &self.state.program;
        let limit = program.limits().max_mailbox;
        if self.state.mailbox.len() >= limit as usize {
            return Some(format!(
                "Process {pid} takes no message now: {limit} wait for it (limits.max_mailbox of \
                 program '{}'). Nothing was kept. Let it hear some of them, then send yours again.",
                program.name()
            ));
        }
        let can_hold_descriptors =
            envelope.descriptors.is_empty() || program.descriptors().is_some();
        if !can_hold_descriptors {
            return Some(format!(
                "Process {pid} has no descriptors, since program '{}' switches them off. Nothing \
                 was kept: say in the text what it is to know.",
                program.name()
            ));
        }
        let bytes = envelope.opened_bytes();
        // A process that exceeds this limit ends, so a message that would reach it is refused.
        let left = self
            .state
            .budget
            .remaining(Amount::ResidentBytes)
            .filter(|left| 0 < bytes && *left <= bytes)?;
        Some(format!(
            "Process {pid} cannot take {bytes} bytes: {left} are left of what it and all below it \
             may hold (budget.resident_bytes), and it would end. Nothing was kept: hand over a \
             smaller part, such as \"fd:1 lines 10-40\", or say it in few words."
        ))
    }

    /// Renders the message as XML. A large text and each transferred descriptor are opened as
    /// descriptors of this process.
    fn render_message(&mut self, from: Pid, envelope: PlacedEnvelope) -> Arc<Message> {
        let mut element = Element::new("process_message")
            .attribute("from", from)
            .attribute("program", &envelope.program);
        if let Some(text) = envelope.text {
            let text = self.fill_element(Element::new("message"), text);
            element = element.child(text);
        }
        for transferred in envelope.descriptors {
            element = element.child(self.open_transferred(transferred));
        }
        Arc::new(Message::user(element.to_xml()))
    }

    /// Opens a transferred descriptor under a number of this process and returns its element.
    fn open_transferred(
        &mut self,
        PlacedDescriptor { mut entry, extent }: PlacedDescriptor,
    ) -> Element {
        // Names are unique within a table: a name that this process already uses is dropped.
        entry.notes.name = entry
            .notes
            .name
            .filter(|name| self.state.table.named(name).is_none());
        let id = self.state.table.next_id();
        self.open_under_id(id.clone(), entry.clone());
        listing::list_entry(&id, &entry, entry.notes.summary.as_deref(), extent).element()
    }

    /// Renders input that the host sends in the name of another process.
    pub(super) fn render_host_message(&mut self, from: Pid, parts: Vec<Placement>) -> Arc<Message> {
        let mut element = Element::new("process_message").attribute("from", from);
        for part in parts {
            let text = self.fill_element(Element::new("message"), part);
            element = element.child(text);
        }
        Arc::new(Message::user(element.to_xml()))
    }

    /// Reacts to new mail: an idle process begins a turn, and a tool that waits for mail is
    /// answered.
    pub(super) fn handle_new_mail(&mut self) {
        if self.state.phase == Phase::Idle {
            if !self.state.mailbox.is_empty() {
                self.begin_turn();
            }
            return;
        }
        self.continue_turn(self.caller());
    }

    pub(super) fn list_processes(&mut self, call: CallId, check: fn(&str) -> Result<(), Refusal>) {
        match check(&self.pending_call(call).args) {
            Err(refusal) => self.answer_in_full(call, refusal.into()),
            Ok(()) => {
                self.record_intent(call);
                self.schedule(Effect::StartWork {
                    call,
                    work: Work::ListProcesses,
                });
            }
        }
    }

    pub(super) fn handle_process_list(
        &mut self,
        call: CallId,
        processes: Vec<ReachableProcess>,
        hidden: usize,
    ) {
        let own_pid = self.state.pid;
        self.complete_call(call, |draft| {
            draft.answer_in_full(call, process_list::list_answer(own_pid, processes, hidden))
        });
    }
}
