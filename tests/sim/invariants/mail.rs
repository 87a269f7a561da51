//! MAIL-1: a message of a call is received once at most, and once where its sender was told that it
//! was kept; what was received is heard, in the conversation or as a tool shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_kernel::process::{Fact, State};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::{Mail, Sender};
use dormouse_proto::message::{Block, Message};
use dormouse_proto::record::{AlarmFact, CallFact, ChildFact, MailFact, Phase, TurnFact};

use super::{Held, ensure};
use crate::world::World;

/// What a process was told by others, beside its machine.
#[derive(Default)]
pub(super) struct Letters {
    /// What was received of whom, by which call, and the fact that says so.
    received: BTreeMap<(Pid, CallId), u64>,
    /// What waits in the mailbox.
    waiting: Vec<Mail>,
}

impl Letters {
    /// A life begins after fact `last`.
    pub(super) fn begin(&mut self, state: &State, last: u64) {
        self.received.retain(|_, at| *at <= last);
        self.waiting = state.image().mailbox;
    }
}

impl World {
    /// `facts` are those of a step that took a process from `before` to `after`, numbered from
    /// `first`.
    pub(super) fn mail_1(
        &mut self,
        before: &State,
        after: &State,
        first: u64,
        facts: &[Fact],
    ) -> Held {
        for (at, fact) in facts.iter().enumerate() {
            match fact {
                Fact::Mail(MailFact::Queued { from, message }) => {
                    self.mail_queued(after.pid(), *from, message)
                }
                Fact::Mail(MailFact::Received {
                    from,
                    call,
                    message,
                    ..
                }) => {
                    self.mail_received(after.pid(), (*from, *call), first + at as u64)?;
                    self.mail_queued(after.pid(), Sender::Process(*from), message);
                }
                Fact::Child(ChildFact::Reported { call, message }) => {
                    let child = before.background().get(call).copied().unwrap_or(Pid(0));
                    self.mail_queued(after.pid(), Sender::Process(child), message);
                }
                Fact::Alarm(AlarmFact::Fired {
                    id,
                    message: Some(message),
                    ..
                }) => self.mail_queued(after.pid(), Sender::Alarm(*id), message),
                // Made again: what came of it before is lost.
                Fact::Call(CallFact::ToolCalled { call }) => {
                    self.refused.remove(&(after.pid(), *call));
                }
                Fact::Mail(MailFact::Taken { at: places }) => {
                    self.mail_shown(after.pid(), places, &facts[at..])?
                }
                Fact::Restored { image, .. } => self.mail_again(after.pid(), &image.mailbox),
                Fact::Turn(TurnFact::Began) => self.mail_said(after)?,
                Fact::Call(CallFact::ToolReturned { call, answer, .. })
                    if is_letter(before, *call) =>
                {
                    self.mail_answered(after.pid(), *call, &answer.text)?;
                }
                _ => {}
            }
        }
        let waiting = self
            .ledgers
            .get(&after.pid())
            .map_or(0, |ledger| ledger.letters.waiting.len());
        let found = after.waiting_messages();
        ensure(waiting == found, "MAIL-1", || {
            format!("{} has {found} messages of {waiting}", after.pid())
        })
    }

    /// What waited at the point that it went back to, and was heard since, waits again.
    fn mail_again(&mut self, pid: Pid, then: &[Mail]) {
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return;
        };
        let mut waiting = ledger.letters.waiting.clone();
        let mut again: Vec<Mail> = Vec::new();
        for mail in then {
            match waiting.iter().position(|other| other == mail) {
                Some(at) => drop(waiting.remove(at)),
                None => again.push(mail.clone()),
            }
        }
        ledger.letters.waiting.splice(0..0, again);
    }

    fn mail_queued(&mut self, pid: Pid, from: Sender, message: &Arc<Message>) {
        if let Some(ledger) = self.ledgers.get_mut(&pid) {
            ledger.letters.waiting.push(Mail {
                from,
                message: message.clone(),
            });
        }
    }

    fn mail_received(&mut self, pid: Pid, key: (Pid, CallId), number: u64) -> Held {
        ensure(!self.refused.contains(&key), "MAIL-1", || {
            format!("{pid} receives {key:?}, which was refused")
        })?;
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        let before = ledger.letters.received.insert(key, number);
        ensure(before.is_none(), "MAIL-1", || {
            format!("{pid} receives {key:?} at {number}, and did at {before:?}")
        })
    }

    /// What leaves the mailbox for a tool stands in its answer.
    fn mail_shown(&mut self, pid: Pid, places: &[u32], rest: &[Fact]) -> Held {
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for (place, mail) in (0..).zip(ledger.letters.waiting.drain(..)) {
            if places.contains(&place) {
                taken.push(mail)
            } else {
                kept.push(mail)
            }
        }
        ledger.letters.waiting = kept;
        let answer = rest.iter().find_map(|fact| match fact {
            Fact::Call(CallFact::ToolReturned { answer, .. }) => Some(&*answer.text),
            _ => None,
        });
        let lost = taken
            .iter()
            .find(|mail| !answer.is_some_and(|answer| answer.contains(&mail.message.text())));
        self.tally.count("mail shown by a tool");
        ensure(lost.is_none(), "MAIL-1", || {
            format!("{pid} takes mail that no tool shows: {lost:?}")
        })
    }

    /// A turn begins with all that waits.
    fn mail_said(&mut self, after: &State) -> Held {
        let Some(ledger) = self.ledgers.get_mut(&after.pid()) else {
            return Ok(());
        };
        let mail = std::mem::take(&mut ledger.letters.waiting);
        let blocks: Vec<Block> = mail
            .iter()
            .flat_map(|mail| mail.message.blocks.clone())
            .collect();
        let is_said = after
            .messages()
            .iter()
            .rev()
            .take(3)
            .any(|message| message.blocks.starts_with(&blocks));
        ensure(is_said, "MAIL-1", || {
            format!(
                "{} begins a turn without what was said to it: {blocks:?}",
                after.pid()
            )
        })
    }

    /// The sender is told what came of its message: it is so, durably.
    fn mail_answered(&mut self, from: Pid, call: CallId, answer: &str) -> Held {
        let key = (from, call);
        if let Some(to) = answer
            .strip_prefix("<message_sent to=\"")
            .and_then(|rest| rest.split('"').next())
        {
            let to = Pid(to.parse().unwrap_or(0));
            let at = self
                .ledgers
                .get(&to)
                .and_then(|ledger| ledger.letters.received.get(&key).copied());
            let is_kept = at.is_some_and(|at| at <= self.store.disk.last(to));
            return ensure(is_kept, "MAIL-1", || {
                format!("{from} is told that {to} has {call}, received at {at:?}")
            });
        }
        if answer.contains("Nothing was kept") {
            self.tally.count("messages refused by their receiver");
            self.refused.insert(key);
            let heard = self
                .ledgers
                .iter()
                .find(|(_, ledger)| ledger.letters.received.contains_key(&key));
            let heard = heard.map(|(pid, _)| *pid);
            return ensure(heard.is_none(), "MAIL-1", || {
                format!("{from} is told {answer}, and {heard:?} has {call}")
            });
        }
        Ok(())
    }
}

/// Whether a call in flight says something to another process.
fn is_letter(state: &State, call: CallId) -> bool {
    let Phase::Acting { pending_calls, .. } = state.phase() else {
        return false;
    };
    pending_calls
        .iter()
        .any(|pending_call| pending_call.call == call && &*pending_call.tool == "send_message")
}
