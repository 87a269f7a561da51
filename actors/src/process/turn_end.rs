//! Notifies callers when the turns that handle their inputs end.

use dormouse_kernel::process::{Fact as ProcessFact, InputProgress, State, TurnEnd};
use dormouse_proto::id::FactNumber;
use dormouse_proto::record::{Fact, MailFact};
use tokio::sync::oneshot;

/// A request to be notified when the turn that handles an input ends. If the process stops first,
/// both channels are dropped.
pub(crate) struct TurnRequest {
    /// Receives the number of the fact that queues the input. That fact may not be durable yet.
    pub(crate) queued_reply: oneshot::Sender<FactNumber>,
    /// Notified when the end of the turn is durable.
    pub(crate) end_reply: oneshot::Sender<TurnEnd>,
}

/// The callers that wait for the ends of turns of one process.
#[derive(Default)]
pub(super) struct TurnWaiters(Vec<TurnWaiter>);

struct TurnWaiter {
    progress: InputProgress,
    end_reply: oneshot::Sender<TurnEnd>,
}

/// The callers to notify once the facts of a decision are durable.
pub(super) type EndedTurns = Vec<(oneshot::Sender<TurnEnd>, TurnEnd)>;

impl TurnWaiters {
    /// Applies the facts of a decision and returns the callers whose turns they end. `first` is the
    /// number of the first fact, and `state` is the state after the facts. O(facts x waiting
    /// callers).
    pub(super) fn apply(
        &mut self,
        facts: &[ProcessFact],
        first: FactNumber,
        state: &State,
        request: Option<TurnRequest>,
    ) -> EndedTurns {
        let mut ended_turns = EndedTurns::new();
        let waiters = std::mem::take(&mut self.0).into_iter();
        let waiters = waiters.map(|waiter| (waiter, facts));
        let is_queued = |fact: &ProcessFact| matches!(fact, Fact::Mail(MailFact::Queued { .. }));
        let new_waiter = request.and_then(
            |TurnRequest {
                 queued_reply,
                 end_reply,
             }| {
                let at = facts.iter().position(is_queued)?;
                // The requester has dropped its receiver if it no longer waits.
                let _ = queued_reply.send(first.plus(at));
                let progress = InputProgress::Waiting;
                Some((
                    TurnWaiter {
                        progress,
                        end_reply,
                    },
                    &facts[at + 1..],
                ))
            },
        );
        for (mut waiter, facts) in waiters.chain(new_waiter) {
            if waiter.end_reply.is_closed() {
                continue;
            }
            let mut ends = facts
                .iter()
                .filter_map(|fact| waiter.progress.apply(fact, || state.last_reply()));
            match ends.next() {
                Some(TurnEnd::Turn(exit)) => {
                    let end = TurnEnd::Turn(exit.with_usage(state.budget().spent()));
                    ended_turns.push((waiter.end_reply, end));
                }
                Some(TurnEnd::Process) => ended_turns.push((waiter.end_reply, TurnEnd::Process)),
                None => self.0.push(waiter),
            }
        }
        ended_turns
    }
}
