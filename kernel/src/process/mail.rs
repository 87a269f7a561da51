//! Messages between processes: said once, heard once, whatever stops in between.
//!
//! The sender's outbox is its open call: until the receiver has acknowledged, the call is not answered, and after a restart
//! it is made again. The receiver's receipt is a fact, [`Fact::MessageReceived`], which names the sender's call, so that what
//! is sent again is acknowledged and not heard a second time. What waits in the mailbox is heard when the next turn begins,
//! or earlier, where a tool shows it: then it leaves the mailbox by the same commit that answers the tool.
//!
//! Nobody is ended by what another says: a message that finds no room, in the mailbox or in the budget, is refused.

use std::sync::Arc;

use dormouse_proto::budget::Amount;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Address, Mail, Neighbour, Speaker};
use dormouse_proto::message::Message;
use dormouse_proto::record::{Entry, Phase, Slot};
use dormouse_proto::spoken::Spoken;
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::toolbox::Kind;
use super::{Effect, Fact};
use crate::syscall::wait::Wait;
use crate::syscall::{Handed, Letter, list_fds, list_processes, receive_messages, send_message, spawn, wait};
use crate::table::admission;

impl Draft {
    pub(super) fn send_message(&mut self, call: CallId) {
        match send_message::pending(&self.slot(call).args, &self.state.program, &self.state.table) {
            Err(message) => self.answer_whole(call, Answer::error(message)),
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
        let answer = match self.refusal(letter) {
            _ if self.state.heard.get(&from).is_some_and(|heard| heard.has(call.seq)) => self.receipt(),
            Some(why) => Answer::error(why),
            None => {
                let message = self.admit_letter(from, letter);
                self.emit(Fact::MessageReceived { from, call, settled, message });
                self.receipt()
            }
        };
        self.perform(Effect::AnswerHost { ticket, answer });
        self.notice();
    }

    fn receipt(&self) -> Answer {
        Answer::ok(Element::new("message_sent").attribute("to", self.state.pid).to_xml())
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
        let handed = letter.descriptors.iter().map(|handed| handed.entry.content.bytes().len() as u64);
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
        list_fds::element(&id, &entry, &self.settings())
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

    /// Answers the calls that wait for mail, or for ends that come as mail, as far as it has come.
    pub(super) fn answer_waiting(&mut self) {
        let open = self.state.slots().iter().filter(|slot| slot.called && slot.answer.is_none());
        let is_waiting = |slot: &&Slot| matches!(self.kind_of(slot), Some(Kind::ReceiveMessages | Kind::Wait));
        let calls: Vec<_> = open.filter(is_waiting).map(|slot| slot.call).collect();
        for call in calls {
            match self.kind(call) {
                Some(Kind::Wait) => drop(self.answer_waited(call)),
                _ => drop(self.answer_received(call)),
            }
        }
    }

    pub(super) fn receive_messages(&mut self, call: CallId) {
        match receive_messages::timeout_ms(&self.slot(call).args) {
            Err(message) => self.answer_whole(call, Answer::error(message)),
            Ok(_) if self.answer_received(call) => {}
            Ok(0) => self.answer_whole(call, messages(&Said::default())),
            Ok(timeout_ms) => {
                self.intend(call);
                self.perform(Effect::Await { call, timeout_ms });
            }
        }
    }

    /// Answers with all that other processes said, if they said anything.
    fn answer_received(&mut self, call: CallId) -> bool {
        let said = self.take_mail(|_| true);
        let is_anything = !said.texts.is_empty();
        if is_anything {
            self.answer_whole(call, messages(&said));
        }
        is_anything
    }

    pub(super) fn wait(&mut self, call: CallId) {
        // One that comes back from the journal was checked when it was first made, and has had news of its children since.
        let check = |asked: &Wait| if self.slot(call).called { Ok(()) } else { self.check_wait(asked) };
        let asked = wait::asked(&self.slot(call).args).and_then(|asked| check(&asked).map(|()| asked));
        match asked {
            Err(message) => self.answer_whole(call, Answer::error(message)),
            Ok(_) if self.answer_waited(call) => {}
            Ok(Wait { timeout_ms, .. }) => {
                self.intend(call);
                if let Some(timeout_ms) = timeout_ms {
                    self.perform(Effect::Await { call, timeout_ms });
                }
            }
        }
    }

    /// Whether each child that is named runs in the background, or has ended unheard.
    fn check_wait(&self, Wait { pids, .. }: &Wait) -> Result<(), String> {
        let said = |pid: &Pid| self.state.mailbox.iter().any(|mail| mail.from == Speaker::Process(*pid));
        let is_known = |pid: &&Pid| self.state.background.values().any(|child| child == *pid) || said(pid);
        let Some(stranger) = pids.iter().flatten().find(|pid| !is_known(pid)) else { return Ok(()) };
        let running: Vec<_> = self.state.background.values().map(Pid::to_string).collect();
        let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
        Err(format!(
            "Process {stranger} is no child of this process that runs in the background, or you have heard of its end. \
             Those that run: {running}."
        ))
    }

    /// Answers once none of those that are waited for runs any more.
    fn answer_waited(&mut self, call: CallId) -> bool {
        let Ok(asked) = wait::asked(&self.slot(call).args) else { return false };
        let is_over = self.awaited(&asked).is_empty() && (asked.pids.is_some() || !self.is_spawning());
        if is_over {
            self.answer_wait(call, &asked, Element::new("wait_result"));
        }
        is_over
    }

    /// The children that are waited for and still run.
    fn awaited(&self, Wait { pids, .. }: &Wait) -> Vec<Pid> {
        let is_meant = |pid: &&Pid| pids.as_ref().is_none_or(|pids| pids.contains(pid));
        self.state.background.values().filter(is_meant).copied().collect()
    }

    /// Whether a child for the background is on its way.
    fn is_spawning(&self) -> bool {
        let mut open = self.state.slots().iter().filter(|slot| slot.answer.is_none());
        open.any(|slot| self.kind_of(slot) == Some(&Kind::Spawn) && !spawn::waits(&slot.args))
    }

    fn answer_wait(&mut self, call: CallId, Wait { pids, .. }: &Wait, element: Element) {
        let said = self.take_mail(|pid| pids.as_ref().is_none_or(|pids| pids.contains(&pid)));
        self.answer_whole(call, Answer::ok(said.shown_in(element).to_xml()));
    }

    /// Takes the messages of these processes out of the mailbox: as many of them as one answer may hold, and at least one.
    fn take_mail(&mut self, is_meant: impl Fn(Pid) -> bool) -> Said {
        let is_meant = |mail: &Mail| matches!(mail.from, Speaker::Process(pid) if is_meant(pid));
        let (room, mut chars) = (self.settings().max_read_chars, 0);
        let (mut said, mut at) = (Said::default(), Vec::new());
        for (place, mail) in (0..).zip(&self.state.mailbox).filter(|(_, mail)| is_meant(mail)) {
            // What follows one that has no room is counted, and not read.
            if said.more > 0 {
                said.more += 1;
                continue;
            }
            let text = mail.message.text();
            chars += text.chars().count() as u64;
            if chars > room && !at.is_empty() {
                said.more += 1;
            } else {
                said.texts.push(text);
                at.push(place);
            }
        }
        if !at.is_empty() {
            self.emit(Fact::MailTaken { at });
        }
        said
    }

    /// The time of a call that waits is over: it is answered with what there is.
    pub(super) fn take_timeout(&mut self, call: CallId) {
        self.complete(call, |draft| match draft.kind(call) {
            Some(Kind::Wait) => {
                let asked = wait::asked(&draft.slot(call).args).unwrap_or(Wait { pids: None, timeout_ms: None });
                let running: Vec<_> = draft.awaited(&asked).iter().map(Pid::to_string).collect();
                let element = Element::new("wait_result").attribute("timed_out", true);
                draft.answer_wait(call, &asked, element.attribute("running", running.join(" ")));
            }
            _ => draft.answer_whole(call, messages(&Said::default())),
        });
    }

    pub(super) fn list_processes(&mut self, call: CallId) {
        match list_processes::check(&self.slot(call).args) {
            Err(message) => self.answer_whole(call, Answer::error(message)),
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

/// Messages that a tool shows: what each says is one element.
#[derive(Default)]
struct Said {
    texts: Vec<String>,
    /// How many there are beside them, for which there was no room.
    more: usize,
}

impl Said {
    fn shown_in(&self, element: Element) -> Element {
        let element = element.attribute_if("waiting", (self.more > 0).then_some(self.more));
        if self.texts.is_empty() { element } else { element.rendered(self.texts.join("\n  ")) }
    }
}

/// What `receive_messages` shows.
fn messages(said: &Said) -> Answer {
    Answer::ok(said.shown_in(Element::new("process_messages").attribute("count", said.texts.len())).to_xml())
}
