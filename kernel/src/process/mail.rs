//! Messages between processes: said once, heard once, whatever stops in between.
//!
//! The sender's outbox is its open call: until the receiver has acknowledged, the call is not answered, and after a restart
//! it is made again. The receiver's receipt is a fact, [`Fact::MessageReceived`], which names the sender's call, so that what
//! is sent again is acknowledged and not heard a second time. What waits in the mailbox is heard when the next turn begins,
//! or earlier, where a tool shows it (`waiting`).
//!
//! Nobody is ended by what another says: a message that finds no room, in the mailbox or in the budget, is refused.

use std::sync::Arc;

use dormouse_proto::budget::Amount;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Address, Neighbour};
use dormouse_proto::message::Message;
use dormouse_proto::record::{Entry, Phase};
use dormouse_proto::spoken::Spoken;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::{Effect, Fact, State};
use crate::content::ReadQuota;
use crate::syscall::{Handed, Letter, list_fds, list_processes, send_message};
use crate::table::admission;

impl State {
    /// The receipt of a message that this process took; none where it did not. Also of one that has ended: who sends a message again
    /// after a restart learns what became of the first time.
    #[must_use]
    pub fn receipt(&self, from: Pid, call: CallId) -> Option<Answer> {
        self.heard.get(&from).filter(|heard| heard.has(call.seq)).map(|_| receipt_of(self.pid))
    }
}

fn receipt_of(to: Pid) -> Answer {
    Answer::shown(Element::new("message_sent").attribute("to", to))
}

impl Draft {
    pub(super) fn send_message(&mut self, call: CallId) {
        match send_message::pending(&self.slot(call).args, &self.state.program, &self.state.table) {
            Err(message) => self.answer_whole(call, Answer::failed(message)),
            Ok(mut pending) => {
                if let Address::Process(pid) = pending.to
                    && self.state.heard.contains_key(&pid)
                {
                    pending.to = Address::Correspondent(pid);
                }
                let settled = self.state.slots().first().map_or(call.seq, |slot| slot.call.seq);
                self.intend(call);
                self.perform(Effect::Send { call, settled, pending });
            }
        }
    }

    /// Another process says something.
    pub(super) fn receive(&mut self, ticket: Arc<str>, (from, call): (Pid, CallId), settled: u32, letter: &Letter) {
        let answer = match (self.state.receipt(from, call), self.refusal(letter)) {
            (Some(receipt), _) => receipt,
            (None, Some(why)) => Answer::failed(why),
            (None, None) => {
                let message = self.admit_letter(from, letter);
                self.emit(Fact::MessageReceived { from, call, settled, message });
                receipt_of(self.state.pid)
            }
        };
        self.perform(Effect::AnswerHost { ticket, answer });
        self.notice();
    }

    /// Why a further message is not taken.
    fn refusal(&self, letter: &Letter) -> Option<String> {
        let (pid, program) = (self.state.pid, &self.state.program);
        let limit = program.limits().max_mailbox;
        if self.state.mailbox.len() >= limit as usize {
            return Some(format!(
                "Process {pid} takes no message now: {limit} wait for it (limits.max_mailbox of program '{}'). Nothing was \
                 kept. Let it hear some of them, then send yours again.",
                program.name()
            ));
        }
        let is_readable = letter.descriptors.is_empty() || program.descriptors().is_some();
        if !is_readable {
            return Some(format!(
                "Process {pid} has no descriptors, since program '{}' switches them off. Nothing was kept: say in the text \
                 what it is to know.",
                program.name()
            ));
        }
        let bytes = self.opened_bytes(letter);
        let left = self.state.budget.left(Amount::ResidentBytes).filter(|left| 0 < bytes && *left <= bytes)?;
        Some(format!(
            "Process {pid} cannot take {bytes} bytes: {left} are left of what it and all below it may hold \
             (budget.resident_bytes), and it would end. Nothing was kept: hand over a smaller part, such as \"fd:1 lines \
             10-40\", or say it in few words."
        ))
    }

    /// How many bytes a message brings into the table: what is handed over counts for who holds it, as if it had opened it.
    fn opened_bytes(&self, letter: &Letter) -> u64 {
        let handed = letter.descriptors.iter().map(|handed| handed.entry.content.len_bytes());
        let is_large = |chars| self.state.settings().is_some_and(|settings| chars > settings.max_direct_output_chars);
        let text = if is_large(letter.text.chars().count() as u64) { letter.text.len() as u64 } else { 0 };
        handed.fold(text, u64::saturating_add)
    }

    /// The message as it is heard; a large text and what is handed over become descriptors.
    fn admit_letter(&mut self, from: Pid, letter: &Letter) -> Arc<Message> {
        let mut element = Element::new("process_message").attribute("from", from).attribute("program", &letter.program);
        if !letter.text.is_empty() {
            let (table, settings) = (&self.state.table, self.state.settings());
            let source = format!("process:{from}");
            let admission = admission::admit_shared(table, &letter.text, &source, settings, self.now_ms);
            let text = self.shown_in(Element::new("message"), admission);
            element = element.child(text);
        }
        for handed in &letter.descriptors {
            element = element.child(self.open_handed(from, handed));
        }
        Arc::new(Message::user(element.to_xml()))
    }

    /// Opens what another process hands over, under a number of this one, and says so.
    fn open_handed(&mut self, from: Pid, Handed { id: origin, part, entry }: &Handed) -> Element {
        let part = part.as_ref().map(|part| format!(" {part}")).unwrap_or_default();
        let mut entry =
            Entry { source: format!("{from}/{origin}{part}").into(), opened_ms: self.now_ms, ..entry.clone() };
        // A name means one descriptor.
        entry.notes.name = entry.notes.name.filter(|name| self.state.table.named(name).is_none());
        let id = self.state.table.next_id();
        self.open(id.clone(), entry.clone());
        list_fds::element(&id, &entry, &self.settings(), ReadQuota::unlimited())
    }

    /// What was said to this process in another's name, by the host.
    pub(super) fn admit_spoken_by(&mut self, from: Pid, spoken: &Spoken) -> Arc<Message> {
        let mut element = Element::new("process_message").attribute("from", from);
        for part in &spoken.parts {
            let admission = admission::admit_input(&self.state.table, part, self.state.settings(), self.now_ms);
            let text = self.shown_in(Element::new("message"), admission);
            element = element.child(text);
        }
        Arc::new(Message::user(element.to_xml()))
    }

    /// Something came into the mailbox: an idle process begins a turn with it, a tool that waits for it shows it.
    pub(super) fn notice(&mut self) {
        if self.state.phase == Phase::Idle {
            if !self.state.mailbox.is_empty() {
                self.begin_turn();
            }
            return;
        }
        self.settle(self.caller());
    }

    pub(super) fn list_processes(&mut self, call: CallId) {
        match list_processes::check(&self.slot(call).args) {
            Err(message) => self.answer_whole(call, Answer::failed(message)),
            Ok(()) => {
                self.intend(call);
                self.perform(Effect::ListProcesses { call });
            }
        }
    }

    pub(super) fn take_list(&mut self, call: CallId, known: Vec<Neighbour>, hidden: usize) {
        let me = self.state.pid;
        self.complete(call, |draft| draft.answer_whole(call, list_processes::answer(me, known, hidden)));
    }
}
