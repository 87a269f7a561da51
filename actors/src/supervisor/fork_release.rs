//! Delayed start of forked siblings. A program can request that the first child of a fork runs
//! alone until it has produced output: the requests of all siblings begin with the same bytes,
//! which the provider then has in its prompt cache.
//!
//! No sibling waits for long: the end of the first child releases the others too, and after
//! [`MAX_START_DELAY`] they run in any case. A signal or a message releases the process that it is
//! addressed to.

use std::time::Duration;

use dormouse_kernel::program::ForkRelease;
use dormouse_proto::id::Pid;
use dormouse_proto::process::Origin;

use super::{BirthMessage, PendingProcess, Supervisor};
use crate::process::StartedSignal;

/// The longest delay of a start.
const MAX_START_DELAY: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Runs processes whose birth records are durable.
    pub(super) async fn run_pending(&mut self, pending: Vec<PendingProcess>) {
        let delays_siblings =
            pending.len() > 1 && pending.iter().all(PendingProcess::is_released_after_first);
        let mut pending = pending.into_iter();
        if delays_siblings && let Some(first) = pending.next() {
            return self.delay_siblings(first, pending.collect()).await;
        }
        for process in pending {
            self.run_new_process(process, None).await;
        }
    }

    async fn delay_siblings(&mut self, first: PendingProcess, others: Vec<PendingProcess>) {
        let (started_signal, started_receiver) = StartedSignal::new();
        let pids: Vec<_> = others.iter().map(|process| process.row.pid).collect();
        self.delayed_starts
            .extend(others.into_iter().map(|process| (process.row.pid, process)));
        self.run_new_process(first, Some(started_signal)).await;
        self.release_delayed(
            pids.iter()
                .copied()
                .filter(|pid| self.table.has_pending_input(*pid))
                .collect(),
        )
        .await;
        let myself = self.myself.clone();
        tokio::spawn(async move {
            // A timeout releases the siblings too.
            let _ = tokio::time::timeout(MAX_START_DELAY, started_receiver).await;
            let _ = myself.cast(BirthMessage::Release { pids }.into());
        });
    }

    /// Runs each of these processes whose start is still delayed.
    pub(super) async fn release_delayed(&mut self, pids: Vec<Pid>) {
        for pid in pids {
            if let Some(process) = self.delayed_starts.remove(&pid) {
                self.run_new_process(process, None).await;
            }
        }
    }

    /// Starts a delayed process that has received an input.
    pub(super) fn release_for_delivery(&self, pid: Pid) {
        if self.delayed_starts.contains_key(&pid) {
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = self
                .myself
                .cast(BirthMessage::Release { pids: vec![pid] }.into());
        }
    }
}

impl PendingProcess {
    fn is_released_after_first(&self) -> bool {
        let is_forked = matches!(self.row.origin, Origin::Forked { .. });
        is_forked && self.program.limits().fork_release == ForkRelease::First
    }
}
