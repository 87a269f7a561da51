//! Wakes hibernated processes when their held calls expire.
//!
//! The time of an expiry is part of the hold, which is durable. This queue is not: it holds the
//! processes that hibernated since the kernel was opened. A process that was not loaded since then
//! refuses what has expired when it is resumed.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_proto::id::Pid;
use ractor::ActorRef;
use tokio::task::JoinHandle;

use super::{HibernationMessage, SupervisorMessage};
use crate::clock::now_ms;

/// The processes that hibernate with held calls that expire, by the time of the next expiry.
#[derive(Default)]
pub(super) struct Expiries {
    /// Milliseconds since the epoch, UTC.
    times: BTreeSet<(u64, Pid)>,
    /// The timer for the first time. It runs exactly while there are times.
    timer: Option<Timer>,
}

struct Timer {
    at_ms: u64,
    task: JoinHandle<()>,
}

impl Expiries {
    /// Adds a process. An entry that was added before stays: waking a process too early does no
    /// harm.
    pub(super) fn insert(
        &mut self,
        pid: Pid,
        at_ms: u64,
        supervisor: &ActorRef<SupervisorMessage>,
    ) {
        self.times.insert((at_ms, pid));
        self.set_timer(supervisor);
    }

    /// Removes and returns the processes whose time has come.
    pub(super) fn take_due(
        &mut self,
        now_ms: u64,
        supervisor: &ActorRef<SupervisorMessage>,
    ) -> Vec<Pid> {
        let later = self.times.split_off(&(now_ms.saturating_add(1), Pid(0)));
        let due = std::mem::replace(&mut self.times, later);
        self.timer = None;
        self.set_timer(supervisor);
        due.into_iter().map(|(_, pid)| pid).collect()
    }

    /// Starts the timer for the first time, unless it runs for that time or an earlier one.
    fn set_timer(&mut self, supervisor: &ActorRef<SupervisorMessage>) {
        let Some((at_ms, _)) = self.times.first().copied() else {
            return;
        };
        if self
            .timer
            .as_ref()
            .is_some_and(|timer| timer.at_ms <= at_ms)
        {
            return;
        }
        let pause = Duration::from_millis(at_ms.saturating_sub(now_ms()));
        let supervisor = supervisor.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = supervisor.cast(HibernationMessage::ExpiryDue.into());
        });
        self.timer = Some(Timer { at_ms, task });
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
