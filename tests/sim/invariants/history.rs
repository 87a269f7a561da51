//! HIST-1, FORK-2 and HISTORY: what was sent to a model is how the next request begins, and a
//! provider would take it.

use dormouse_proto::record::TurnFact;
use std::sync::Arc;

use dormouse_kernel::process::{Child, Fact};
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Request;
use dormouse_proto::process::Origin;
use dormouse_tests::fault_of;

use super::ledger::Sent;
use super::{Held, ensure};
use crate::model::PAUSED;
use crate::world::World;

impl World {
    /// A request is about to be sent.
    pub(crate) fn check_request(&mut self, pid: Pid, request: &Request) -> Held {
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        let (by, sent) = (ledger.sent.by, &mut ledger.sent);
        let is_same = same_text(&sent.system, &request.system)
            && (Arc::ptr_eq(&sent.tools, &request.tools) || sent.tools == request.tools);
        ensure(is_same, by, || {
            format!("the system prompt or the tools of {pid} changed")
        })?;
        let at = sent
            .messages
            .iter()
            .enumerate()
            .find(|(at, message)| !is_message(request.messages.get(*at), message));
        ensure(at.is_none(), by, || {
            format!(
                "message {:?} of {pid} is sent otherwise",
                at.map(|(at, _)| at + 1)
            )
        })?;
        // What was sent before is one, so that only what is new can make it invalid.
        sent.tools = request.tools.clone();
        sent.messages.clone_from(&request.messages);
        sent.by = "HIST-1";
        let mut whole = request.clone();
        if whole
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant && is_paused(last))
        {
            whole.messages.push(Message::user("Go on.").into());
        }
        let fault = fault_of(&whole);
        ensure(fault.is_none(), "HISTORY", || {
            format!("{pid}: {}", fault.unwrap_or_default())
        })
    }

    /// FORK-2: a forked child goes on from what its parent sent.
    pub(crate) fn check_fork(&self, parent: Pid, child: &Child) -> Held {
        let (Origin::Forked { .. }, Some(ledger)) = (&child.origin, self.ledgers.get(&parent))
        else {
            return Ok(());
        };
        let (sent, image) = (&ledger.sent, &child.image);
        let is_same = same_text(&sent.system, &image.system) && *sent.tools == *image.tools;
        ensure(is_same, "FORK-2", || {
            format!("a child of {parent} has another system prompt or other tools")
        })?;
        let is_start = sent
            .messages
            .iter()
            .enumerate()
            .all(|(at, message)| is_message(image.messages.get(at), message));
        ensure(is_start, "FORK-2", || {
            format!("a child of {parent} does not start with its bytes")
        })
    }

    /// One that went back sends another history from there on.
    /// `last_compacted` is the number of the last message that was compacted before.
    pub(super) fn note_return(&mut self, pid: Pid, fact: &Fact, last_compacted: u32) {
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return;
        };
        match fact {
            Fact::Turn(TurnFact::WentTo { to, .. }) => {
                let before = last_compacted.saturating_sub(1);
                ledger.sent.messages.truncate((*to - before) as usize);
            }
            Fact::Restored { image, .. } => ledger.sent.goes_on_as(|at| image.messages.get(at)),
            Fact::WentToCompacted { messages, .. } => ledger.sent.goes_on_as(|at| messages.get(at)),
            Fact::Compacted { summary, .. } => {
                ledger.sent.goes_on_as(|at| (at == 0).then_some(summary));
            }
            _ => {}
        }
    }
}

impl Sent {
    /// Another conversation follows. What both begin with is as it was: the fact may be lost yet.
    fn goes_on_as<'a>(&mut self, message: impl Fn(usize) -> Option<&'a Arc<Message>>) {
        let same = |(at, sent): &(usize, &Arc<Message>)| is_message(message(*at), sent);
        let common = self.messages.iter().enumerate().take_while(same).count();
        self.messages.truncate(common);
    }
}

fn is_paused(message: &Message) -> bool {
    matches!(message.blocks.last(), Some(Block::Text { text, .. }) if **text == *PAUSED)
}

fn same_text(left: &Arc<str>, right: &Arc<str>) -> bool {
    Arc::ptr_eq(left, right) || left == right
}

fn is_message(found: Option<&Arc<Message>>, message: &Arc<Message>) -> bool {
    found.is_some_and(|found| Arc::ptr_eq(found, message) || found == message)
}
