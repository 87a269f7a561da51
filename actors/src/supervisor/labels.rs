//! Processes that begin nothing because a label of their tree has used up its budget.
//!
//! Each process looks at the labels of its tree before it decides (`process/labels.rs`), so that
//! nobody has to be told of a label that is used up. The supervisor knows who is held, and releases
//! them when the next period begins or the budget is raised. All of this follows from the records of
//! the labels and the clock: after a restart, a process is told when it is loaded.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_kernel::labels::{BudgetRest, ExhaustedLabel};
use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::Pid;
use tokio::task::JoinHandle;

use super::Supervisor;
use super::entry::RunState;
use super::wake_times::{MAX_PAUSE, WakeMessage};
use crate::clock::now_ms;
use crate::event::Event;

/// The processes that labels hold up.
#[derive(Default)]
pub(super) struct HeldByLabels {
    /// Each with whether the budget was used up when that was last looked at: only that is an event.
    pids: BTreeMap<Pid, BudgetRest>,
    /// The time for which a timer runs, and its task.
    timer: Option<(u64, JoinHandle<()>)>,
}

impl Supervisor {
    /// The label of a process's tree whose budget is used up.
    pub(super) fn exhausted_label(&self, pid: Pid) -> Option<ExhaustedLabel> {
        self.context.labels.exhausted(&self.table.labels(pid))
    }

    /// A process reports that it begins nothing because of a label. The budget may have been raised
    /// since it looked.
    pub(super) fn on_held_by_label(&mut self, pid: Pid, exhausted: ExhaustedLabel) {
        self.hold_by_label(pid, exhausted);
        if self.exhausted_label(pid).is_none() {
            self.release_from_label(pid);
        }
    }

    /// Remembers that a process begins nothing because of a label.
    pub(super) fn hold_by_label(&mut self, pid: Pid, exhausted: ExhaustedLabel) {
        let ExhaustedLabel {
            label,
            reached,
            until_ms,
            rest,
        } = exhausted;
        let before = self.held_by_labels.pids.insert(pid, rest);
        if rest == BudgetRest::UsedUp && before != Some(rest) {
            self.context.publish(Event::LabelReached {
                pid,
                label,
                reached,
                until_ms,
            });
        }
        let timer = self.held_by_labels.timer.as_ref();
        let earliest = timer.map_or(until_ms, |(at_ms, _)| until_ms.min(*at_ms));
        self.start_label_timer(Some(earliest));
    }

    /// Releases the processes whose labels have a budget left, and sets the timer for the next period
    /// of the others.
    pub(super) fn release_from_labels(&mut self) {
        let mut next_ms = None;
        let held: Vec<Pid> = self.held_by_labels.pids.keys().copied().collect();
        for pid in held {
            match self.exhausted_label(pid) {
                Some(exhausted) => {
                    let earliest = next_ms.unwrap_or(u64::MAX);
                    next_ms = Some(exhausted.until_ms.min(earliest));
                    self.hold_by_label(pid, exhausted);
                }
                None => self.release_from_label(pid),
            }
        }
        self.start_label_timer(next_ms);
    }

    fn release_from_label(&mut self, pid: Pid) {
        self.held_by_labels.pids.remove(&pid);
        let is_unloaded = matches!(
            self.table.run_state(pid),
            None | Some(RunState::Held | RunState::Ended)
        );
        let is_held = self.drain.is_some() || self.table.is_below_paused(pid);
        if !is_unloaded && !is_held {
            self.deliver_internal(pid, Input::Signal(Signal::Release));
        }
    }

    /// Starts the timer for a time, unless one for the same time runs.
    fn start_label_timer(&mut self, next_ms: Option<u64>) {
        let timer = &mut self.held_by_labels.timer;
        if timer.as_ref().map(|(at_ms, _)| *at_ms) == next_ms {
            return;
        }
        if let Some((_, task)) = timer.take() {
            task.abort();
        }
        let Some(at_ms) = next_ms else { return };
        // The timer counts the time that passes, while periods follow the clock of the machine.
        let left = Duration::from_millis(at_ms.saturating_sub(now_ms()));
        let pause = left.clamp(Duration::from_millis(1), MAX_PAUSE);
        let myself = self.myself.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(WakeMessage::LabelTimerExpired.into());
        });
        *timer = Some((at_ms, task));
    }

    pub(super) fn on_label_timer_expired(&mut self) {
        self.held_by_labels.timer = None;
        self.release_from_labels();
    }
}

impl Drop for HeldByLabels {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.timer {
            task.abort();
        }
    }
}
