//! When new processes begin to run: all at once, or, of a fork whose program wants it so, the first at
//! once and the others when something has come of it. What they send begins with the same bytes,
//! which the provider then has in its cache.
//!
//! Nobody is held back for long: the first's end counts as well, whatever ended it, and after
//! [`LONGEST_HOLD`] the others run in any case. A signal or a message releases the one that it is
//! for.

use std::time::Duration;

use dormouse_kernel::program::ForkRelease;
use dormouse_proto::id::Pid;
use dormouse_proto::process::Origin;

use super::{BirthMessage, PendingProcess, Supervisor};
use crate::process::StartedSignal;

/// After so long nothing is waited for any more.
const LONGEST_HOLD: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Runs processes whose births are durable.
    pub(super) async fn run_pending(&mut self, pending: Vec<PendingProcess>) {
        let holds = pending.len() > 1 && pending.iter().all(PendingProcess::waits_for_its_sibling);
        let mut pending = pending.into_iter();
        if holds && let Some(first) = pending.next() {
            return self.hold_back(first, pending.collect()).await;
        }
        for born in pending {
            self.first_run(born, None).await;
        }
    }

    async fn hold_back(&mut self, first: PendingProcess, others: Vec<PendingProcess>) {
        let (started, heard) = StartedSignal::new();
        let pids: Vec<_> = others.iter().map(|born| born.row.pid).collect();
        self.held_back
            .extend(others.into_iter().map(|born| (born.row.pid, born)));
        self.first_run(first, Some(started)).await;
        self.release(
            pids.iter()
                .copied()
                .filter(|pid| self.table.is_spoken_to(*pid))
                .collect(),
        )
        .await;
        let myself = self.myself.clone();
        tokio::spawn(async move {
            // Too late is as good as heard.
            let _ = tokio::time::timeout(LONGEST_HOLD, heard).await;
            let _ = myself.cast(BirthMessage::Release { pids }.into());
        });
    }

    /// Runs those of them that are still held back.
    pub(super) async fn release(&mut self, pids: Vec<Pid>) {
        for pid in pids {
            if let Some(born) = self.held_back.remove(&pid) {
                self.first_run(born, None).await;
            }
        }
    }

    /// A process that is held back hears a signal like any other.
    pub(super) fn release_for_delivery(&self, pid: Pid) {
        if self.held_back.contains_key(&pid) {
            // Where the supervisor is gone, the kernel is.
            let _ = self
                .myself
                .cast(BirthMessage::Release { pids: vec![pid] }.into());
        }
    }
}

impl PendingProcess {
    fn waits_for_its_sibling(&self) -> bool {
        let is_forked = matches!(self.row.origin, Origin::Forked { .. });
        is_forked && self.program.limits().fork_release == ForkRelease::First
    }
}
