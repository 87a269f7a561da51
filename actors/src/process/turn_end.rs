//! Follows inputs to the end of their turns, for callers that wait for it.
//!
//! An input waits in the mailbox until a turn begins, and each turn begins with the whole mailbox.
//! The progress of an input is derived from facts alone, so the journal of a process that was
//! loaded again gives the same answer as the running process.

use std::sync::Arc;

use dormouse_kernel::process::{Fact as ProcessFact, State};
use dormouse_proto::id::FactNumber;
use dormouse_proto::message::Role;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{Caller, Fact, MailFact, TurnFact};
use tokio::sync::oneshot;

/// How the turn with an input ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The turn ended, and the process continues.
    Turn(Exit),
    /// The process ended.
    Process,
}

/// Whether an input still waits or is part of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputProgress {
    /// In the mailbox.
    Waiting,
    /// In the conversation.
    InTurn,
}

impl InputProgress {
    /// Applies a fact that follows the one that queued the input. Returns the end of the turn with
    /// this input if the fact ends it; `last_reply` is the last reply of the model then.
    pub(crate) fn apply<C: Clone>(
        &mut self,
        fact: &Fact<C>,
        last_reply: impl FnOnce() -> Arc<str>,
    ) -> Option<TurnEnd> {
        let (status, message) = match (fact, *self) {
            (Fact::Exited { .. }, _) => return Some(TurnEnd::Process),
            (Fact::Turn(TurnFact::Began), Self::Waiting) => {
                *self = Self::InTurn;
                return None;
            }
            (_, Self::Waiting) => return None,
            (Fact::Turn(TurnFact::Ended { status, reason }), Self::InTurn) => {
                (*status, reason.clone().unwrap_or_else(last_reply))
            }
            // A task that is done and has mail begins the next turn at once.
            (Fact::Turn(TurnFact::Began), Self::InTurn) => (ExitStatus::Done, last_reply()),
            (
                Fact::Turn(TurnFact::WentTo {
                    by: Caller::Host, ..
                })
                | Fact::Restored {
                    by: Caller::Host, ..
                },
                Self::InTurn,
            ) => (
                ExitStatus::Interrupted,
                "the host took the conversation back before this turn was done".into(),
            ),
            (_, Self::InTurn) => return None,
        };
        Some(TurnEnd::Turn(Exit::new(status, message)))
    }
}

/// A request to be notified of the end of the turn with an input. If the process stops first, both
/// channels are dropped.
pub(crate) struct TurnRequest {
    /// Receives the number of the fact that queues the input, which may not be durable yet.
    pub(crate) queued: oneshot::Sender<FactNumber>,
    /// Notified when the end of the turn is durable.
    pub(crate) ended: oneshot::Sender<TurnEnd>,
}

/// The callers that wait for the ends of turns of one process.
#[derive(Default)]
pub(super) struct TurnWaiters(Vec<TurnWaiter>);

struct TurnWaiter {
    progress: InputProgress,
    ended: oneshot::Sender<TurnEnd>,
}

/// The callers to notify once the facts of a decision are durable.
pub(super) type EndedTurns = Vec<(oneshot::Sender<TurnEnd>, TurnEnd)>;

impl TurnWaiters {
    /// Applies the facts of a decision, of which `first` is the first, and returns the callers
    /// whose turns they end. `state` is the state after the facts. Costs the facts for each caller
    /// that waits.
    pub(super) fn apply(
        &mut self,
        facts: &[ProcessFact],
        first: FactNumber,
        state: &State,
        request: Option<TurnRequest>,
    ) -> EndedTurns {
        let mut ended = EndedTurns::new();
        let waiting = std::mem::take(&mut self.0).into_iter();
        let waiting = waiting.map(|waiter| (waiter, facts));
        let is_queued = |fact: &ProcessFact| matches!(fact, Fact::Mail(MailFact::Queued { .. }));
        let queued = request.and_then(|TurnRequest { queued, ended }| {
            let at = facts.iter().position(is_queued)?;
            // The requester has dropped its receiver if it no longer waits.
            let _ = queued.send(first.plus(at));
            let progress = InputProgress::Waiting;
            Some((TurnWaiter { progress, ended }, &facts[at + 1..]))
        });
        for (mut waiter, facts) in waiting.chain(queued) {
            if waiter.ended.is_closed() {
                continue;
            }
            let mut ends = facts
                .iter()
                .filter_map(|fact| waiter.progress.apply(fact, || last_reply(state)));
            match ends.next() {
                Some(TurnEnd::Turn(exit)) => {
                    let end = TurnEnd::Turn(exit.after(state.budget().spent()));
                    ended.push((waiter.ended, end));
                }
                Some(TurnEnd::Process) => ended.push((waiter.ended, TurnEnd::Process)),
                None => self.0.push(waiter),
            }
        }
        ended
    }
}

/// The text of the model's last reply.
fn last_reply(state: &State) -> Arc<str> {
    let mut replies = state.messages().iter().rev();
    let last = replies.find(|message| message.role == Role::Assistant);
    last.map(|message| message.text())
        .unwrap_or_default()
        .into()
}
