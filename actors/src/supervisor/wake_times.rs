//! The times at which processes have to be woken: their next alarm is due, or a held call of theirs
//! expires.
//!
//! A process reports what it waits for, and does not need to be in memory until then: a hibernated
//! process is woken by [`Input::WakeDue`], like by a message. The process itself decides what is
//! due, because its journal is the truth, so that waking it too early or twice does no harm. There
//! is one timer, for the earliest time of all. A loaded process has a timer of its own besides
//! (`process/wake_timer.rs`), for its wall time and for held calls that expire.
//!
//! Held processes are not woken: nothing runs before the host has resumed it. A process that only
//! waits for its next alarm or for a person is resumed without being loaded.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_kernel::labels::ExhaustedLabel;
use dormouse_kernel::process::Input;
use dormouse_proto::id::Pid;
use dormouse_proto::process::Waiting;
use tokio::task::JoinHandle;

use super::Supervisor;
use crate::clock::now_ms;

/// How many processes are woken concurrently, so that a thousand that are due at once do not all
/// read their journals at once.
const MAX_WAKING: usize = 32;
/// The longest pause until the clock is read again. The timer counts the time that passes, while
/// alarms and expiries follow the clock of the machine, which may be set.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The processes that wait for a time.
#[derive(Default)]
pub(super) struct WakeQueue {
    /// When each is woken (milliseconds since the epoch, UTC).
    due: BTreeSet<(u64, Pid)>,
    /// Processes that were woken and have not reported since.
    waking: BTreeSet<Pid>,
    /// The time for which a timer runs, and its task.
    timer: Option<(u64, JoinHandle<()>)>,
}

/// Reports about what processes wait for.
pub(crate) enum WakeMessage {
    /// A running process waits for something else than before.
    Changed { pid: Pid, waiting: Waiting },
    /// A process has handled [`Input::WakeDue`].
    Handled { pid: Pid, waiting: Waiting },
    /// The time of a process may have come.
    TimerExpired,
    /// A process begins nothing, since a label of its tree has used up its budget.
    HeldByLabel { pid: Pid, exhausted: ExhaustedLabel },
    /// The budget of a label was changed.
    LabelChanged,
    /// The next period of a label may have begun.
    LabelTimerExpired,
}

impl WakeQueue {
    /// Moves a process from one time to another. A process that is being woken waits for no time
    /// until it has handled the input that it was sent.
    pub(super) fn reschedule(&mut self, pid: Pid, from_ms: Option<u64>, to_ms: Option<u64>) {
        if let Some(from_ms) = from_ms {
            self.due.remove(&(from_ms, pid));
        }
        if !self.waking.contains(&pid) {
            self.due.extend(to_ms.map(|to_ms| (to_ms, pid)));
        }
    }

    /// Adds the times of processes that were held.
    pub(super) fn schedule(&mut self, due: Vec<(u64, Pid)>) {
        if self.due.is_empty() {
            // A set that is built at once takes half of the memory of one that grows.
            self.due = due.into_iter().collect();
        } else {
            self.due.extend(due);
        }
    }

    /// Makes room for another process to be woken.
    pub(super) fn finish_waking(&mut self, pid: Pid) {
        self.waking.remove(&pid);
    }

    /// The next process to be woken; `None` if none is due, or as many as allowed are being woken.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<Pid> {
        let is_due = |(due_ms, _): &(u64, Pid)| *due_ms <= now_ms;
        if self.waking.len() >= MAX_WAKING || !self.due.first().is_some_and(is_due) {
            return None;
        }
        let (_, pid) = self.due.pop_first()?;
        self.waking.insert(pid);
        Some(pid)
    }
}

impl Supervisor {
    pub(super) fn handle_wake(&mut self, message: WakeMessage) {
        match message {
            WakeMessage::Changed { pid, waiting } => self.table.set_waiting(pid, waiting),
            WakeMessage::Handled { pid, waiting } => {
                self.table.wake_queue.finish_waking(pid);
                self.table.set_waiting(pid, waiting);
            }
            WakeMessage::TimerExpired => self.table.wake_queue.timer = None,
            WakeMessage::HeldByLabel { pid, exhausted } => {
                return self.on_held_by_label(pid, exhausted);
            }
            WakeMessage::LabelChanged => return self.release_from_labels(),
            WakeMessage::LabelTimerExpired => return self.on_label_timer_expired(),
        }
        self.wake_due_processes();
    }

    /// Wakes the processes that are due, the earliest first and a few at a time, and sets the timer
    /// for the next one.
    pub(super) fn wake_due_processes(&mut self) {
        if self.drain.is_some() {
            return;
        }
        let now_ms = now_ms();
        while let Some(pid) = self.table.wake_queue.take_due(now_ms) {
            self.deliver_internal(pid, Input::WakeDue);
        }
        self.start_wake_timer(now_ms);
    }

    /// Starts the timer for the earliest time, unless one for the same time runs. While as many
    /// processes as allowed are being woken, their reports come first.
    fn start_wake_timer(&mut self, now_ms: u64) {
        let wake_queue = &mut self.table.wake_queue;
        let Some((first_ms, _)) = wake_queue.due.first() else {
            if let Some((_, task)) = wake_queue.timer.take() {
                task.abort();
            }
            return;
        };
        let first_ms = *first_ms;
        let is_running = |(at_ms, _): &(u64, JoinHandle<()>)| *at_ms == first_ms;
        if wake_queue.timer.as_ref().is_some_and(is_running) {
            return;
        }
        let pause = match first_ms.checked_sub(now_ms) {
            Some(left) => Duration::from_millis(left).min(MAX_PAUSE),
            None => MAX_PAUSE,
        };
        let myself = self.myself.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(WakeMessage::TimerExpired.into());
        });
        if let Some((_, replaced)) = wake_queue.timer.replace((first_ms, task)) {
            replaced.abort();
        }
    }
}

impl Drop for WakeQueue {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.timer {
            task.abort();
        }
    }
}
