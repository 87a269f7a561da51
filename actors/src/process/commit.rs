//! The commits of a process: appends the facts of a decision, and does what waits for them once
//! they are durable.
//!
//! Commits are finished in the order of their facts, so that effects keep their order.

use std::sync::Arc;

use dormouse_kernel::process::{Effect, Fact, Reopening, Report};
use dormouse_proto::id::FactNumber;
use tokio::sync::OwnedSemaphorePermit;

use super::turn_end::EndedTurns;
use super::{CopyReply, DurableReply, ProcessCopy, ProcessMessage, RunningProcess};
use crate::checkpoint::{AppendSize, CommitError, LogRecord, SnapshotOutcome};
use crate::event::ProcessView;
use crate::in_use::HistoryGuard;
use crate::recovery::StoredWait;
use crate::supervisor::{ReopeningCommit, RunMessage};

/// The effects and replies that wait until a commit is durable.
pub(super) struct PendingCommit {
    pub(super) up_to: FactNumber,
    pub(super) facts: Arc<[Fact]>,
    pub(super) effects: Vec<Effect>,
    pub(super) view: ProcessView,
    pub(super) durable_reply: Option<DurableReply>,
    pub(super) ended_turns: EndedTurns,
    /// Inbox slots that are released once the facts are durable.
    pub(super) inbox_slots: Vec<OwnedSemaphorePermit>,
    /// Keeps the contents of a state of the past, to which the facts refer, until the facts are
    /// durable.
    pub(super) history: Option<HistoryGuard>,
    /// The process at this fact, and the requester of the copy.
    pub(super) copy: Option<(CopyReply, ProcessCopy)>,
}

impl RunningProcess {
    /// Appends the facts; their effects follow once the facts are durable, or at once if there is
    /// no store. A decision without facts waits for the commits before it, so that effects keep
    /// their order.
    pub(super) fn persist(
        &mut self,
        (facts, reopening, label_usage): (Vec<Fact>, Option<ReopeningCommit>, Option<LogRecord>),
        effects: Vec<Effect>,
        durable_reply: Option<DurableReply>,
        ended_turns: EndedTurns,
        (inbox_slots, history): (Vec<OwnedSemaphorePermit>, Option<HistoryGuard>),
    ) {
        self.cancel_abandoned_calls(&effects);
        let facts: Arc<[Fact]> = facts.into();
        let first = self.last_fact.plus(1);
        let up_to = self.last_fact.plus(facts.len());
        let view = ProcessView::of(&self.state, up_to);
        self.last_fact = up_to;
        let pending = PendingCommit {
            up_to,
            facts: facts.clone(),
            effects,
            view,
            durable_reply,
            ended_turns,
            inbox_slots,
            history,
            copy: None,
        };
        let ends_hold =
            |effect: &Effect| matches!(effect, Effect::Report(Report::HeldAnswered { .. }));
        let verdict = pending
            .effects
            .iter()
            .any(ends_hold)
            .then_some(LogRecord::VerdictGiven);
        let is_durable = facts.is_empty() || !self.context.has_store;
        if let Some(LogRecord::Label(change)) = &label_usage
            && !self.context.has_store
        {
            self.context.labels.apply(change);
        }
        if is_durable && self.pending_commits.is_empty() {
            return self.finish_commit(pending);
        }
        self.pending_commits.push_back(pending);
        if !facts.is_empty() {
            let further = verdict.into_iter().chain(label_usage);
            self.append_facts(first, facts, reopening, further);
        }
    }

    /// Removes the pending effects of calls that are abandoned, so that they never start.
    fn cancel_abandoned_calls(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Abandon { calls } = effect {
                self.pending_commits.iter_mut().for_each(|pending| {
                    pending
                        .effects
                        .retain(|effect| !effect.starts_work_for(calls))
                });
            }
        }
    }

    /// Appends the facts, together with those that open a child again and with further records.
    fn append_facts(
        &mut self,
        first: FactNumber,
        facts: Arc<[Fact]>,
        reopening: Option<ReopeningCommit>,
        further: impl Iterator<Item = LogRecord>,
    ) {
        let pid = self.pid();
        let up_to = self.last_fact;
        self.journal_tail = self.journal_tail.with_facts(facts.len() as u64, 0);
        let mut records = vec![LogRecord::Facts { pid, first, facts }];
        let wait = StoredWait::of(&self.state);
        if wait != self.stored_wait && self.state.exit().is_none() {
            self.stored_wait = wait;
            records.push(wait.record(pid));
        }
        records.extend(further);
        if let Some(exit) = self.state.exit() {
            records.push(LogRecord::Ended {
                pid,
                exit: exit.clone(),
            });
        } else if let Some(max_bytes) = self.context.limits.snapshot_limit(self.journal_tail) {
            self.journal_tail = self.journal_tail.with_pending_image();
            records.push(LogRecord::Snapshot {
                pid,
                at: self.last_fact,
                image: Box::new(self.state.image()),
                max_bytes,
            });
        }
        let (of_child, finish_reopening) = reopening.map(ReopeningCommit::into_parts).unzip();
        records.extend(of_child.into_iter().flatten());
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result: Result<AppendSize, CommitError>| {
            if let Some(finish_reopening) = finish_reopening {
                finish_reopening(&result);
            }
            // If the actor has stopped, its successor reads the journal instead.
            let _ = myself.cast(ProcessMessage::Committed { up_to, result });
        });
        self.context.append_records(records, acknowledge);
    }

    /// The commit that opens a child again. Its requester is answered once it is durable, even if
    /// this actor stops before.
    pub(super) fn reopening_commit(&mut self, reopening: Reopening) -> ReopeningCommit {
        let requester = self.host_requests.remove(&reopening.request_id);
        let reply = requester.map(|requester| requester.reply);
        ReopeningCommit::new(self.context.clone(), reopening, reply)
    }

    /// Finishes every pending commit up to fact `up_to`.
    pub(super) fn on_committed(&mut self, up_to: FactNumber, size: AppendSize) {
        while let Some(pending) = self
            .pending_commits
            .pop_front_if(|pending| pending.up_to <= up_to)
        {
            self.finish_commit(pending);
        }
        self.journal_tail = match size.snapshot {
            SnapshotOutcome::None => self.journal_tail.with_facts(0, size.facts),
            SnapshotOutcome::Written(image) => self.journal_tail.after_image(image),
            SnapshotOutcome::Skipped => self
                .journal_tail
                .with_facts(0, size.facts)
                .without_pending_image(),
        };
    }

    /// Publishes the new state, executes the effects of a durable commit, and answers the senders.
    /// The effects come first: the supervisor is told of an end before its requester, who may ask
    /// the supervisor next.
    pub(super) fn finish_commit(&mut self, pending: PendingCommit) {
        self.watched
            .send_modify(|watched| watched.view = Some(pending.view));
        let first = FactNumber(pending.up_to.0 + 1 - pending.facts.len() as u64);
        self.context
            .publish_facts(self.pid(), first, &pending.facts);
        for effect in pending.effects {
            self.execute_effect(effect);
        }
        if let Some(durable_reply) = pending.durable_reply {
            // The requester has dropped its receiver if it no longer waits.
            let _ = durable_reply.send(Ok(()));
        }
        for (reply, end) in pending.ended_turns {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(end);
        }
        if let Some((reply, process_copy)) = pending.copy {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(process_copy);
        }
        drop((pending.inbox_slots, pending.history));
    }

    /// Stops the process after a failed commit. It cannot continue, because its next effects could
    /// follow from facts that are not in its journal.
    pub(super) fn stop_after_failed_commit(&mut self, error: &CommitError) {
        self.cast_to_supervisor(RunMessage::NotDurable {
            pid: self.pid(),
            error: error.clone(),
        });
        self.myself.kill();
    }
}
