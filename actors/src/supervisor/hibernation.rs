//! Hibernation, as decided by the supervisor: which processes hibernate, when, and what wakes them.
//!
//! A process reports when it becomes *quiescent*: nothing is pending for it. The supervisor asks it
//! to hibernate on request of the host, after it was quiescent for the configured time, or when too
//! many processes are loaded; those that were quiescent longest hibernate first. The process itself
//! decides, because only it knows whether something is pending. From the request until the answer,
//! inputs wait in the table: if the process declines it gets them in order, and if it hibernates
//! they wake it. No input is lost or delivered twice. A process whose snapshot could not be written
//! is asked again later.
//!
//! A hibernated process consists of its journal and its row in the table. A message, a signal, the
//! end of a child, a time (`wake_times.rs`), or a caller that waits for it wakes it under its pid.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_kernel::process::State;
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::{Origin, ProcessRow};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Supervisor;
use super::entry::{ProcessEntry, Rest, RunState};
use crate::error::{KernelError, NotFound, ProcessError, StoreFailure};
use crate::event::{Event, ProcessView};
use crate::process::{HibernationBlocker, ProcessMessage};

/// The pause until a process whose snapshot could not be written is asked again. Each time costs a
/// snapshot.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Receives the result of a request to hibernate.
pub(crate) type HibernateReply = oneshot::Sender<Result<(), KernelError>>;

/// The quiescent processes, in the order in which they became quiescent.
#[derive(Default)]
pub(super) struct QuiescentQueue {
    order: BTreeMap<u64, Pid>,
    next_number: u64,
    /// Whether a timer runs for the process that was quiescent longest.
    is_timer_running: bool,
}

impl QuiescentQueue {
    /// Removes a process that has received an input.
    pub(super) fn remove(&mut self, entry: &mut ProcessEntry) {
        if let Some((number, _)) = entry.live_mut().and_then(|live| live.quiescent.take()) {
            self.order.remove(&number);
        }
    }

    /// Adds a process that has become quiescent.
    pub(super) fn insert(&mut self, pid: Pid, entry: &mut ProcessEntry) {
        self.remove(entry);
        if let Some(live) = entry.live_mut() {
            live.quiescent = Some((self.next_number, Instant::now()));
            self.order.insert(self.next_number, pid);
            self.next_number += 1;
        }
    }
}

/// Reports and requests about hibernation.
pub(crate) enum HibernationMessage {
    /// Nothing is pending for a process.
    Quiescent { pid: Pid },
    /// The process that was quiescent longest may have to hibernate now.
    TimerExpired,
    /// The host requests that a process hibernates.
    Hibernate { pid: Pid, reply: HibernateReply },
    /// All facts of a process are durable, and its actor stops.
    Hibernated { pid: Pid },
    /// A process was asked to hibernate and cannot.
    HibernationDeclined {
        pid: Pid,
        blocker: HibernationBlocker,
    },
    /// Begin or go on to drain the kernel. Replies with the number of processes that are at work.
    Drain { reply: oneshot::Sender<usize> },
    /// A caller waits for a process.
    Wake { pid: Pid },
    /// All handles of a process were dropped.
    HandlesDropped { pid: Pid },
}

impl Supervisor {
    pub(super) fn handle_hibernation(&mut self, message: HibernationMessage) {
        match message {
            HibernationMessage::Quiescent { pid } => self.on_quiescent(pid),
            HibernationMessage::TimerExpired => self.on_timer_expired(),
            HibernationMessage::Hibernate { pid, reply } => self.hibernate(pid, reply),
            HibernationMessage::Hibernated { pid } => self.on_hibernated(pid),
            HibernationMessage::HibernationDeclined { pid, blocker } => {
                self.on_hibernation_declined(pid, &blocker)
            }
            HibernationMessage::Drain { reply } => self.go_on_draining(reply),
            HibernationMessage::Wake { pid } => self.wake_if_hibernated(pid),
            HibernationMessage::HandlesDropped { pid } => self.on_handles_dropped(pid),
        }
    }

    /// Handles the request of the host to hibernate a process.
    pub(super) fn hibernate(&mut self, pid: Pid, reply: HibernateReply) {
        let result = match self.table.run_state(pid) {
            None => Err(self.or_lost_record(KernelError::NotFound(NotFound::Process(pid)))),
            Some(_) if !self.context.has_store => Err(StoreFailure::NoStore.into()),
            Some(RunState::Ended) => Err(ProcessError::Ended(pid).into()),
            // It is not loaded, so it has left memory already.
            Some(RunState::Held | RunState::Hibernated { .. }) => Ok(()),
            Some(RunState::Loading) => Err(ProcessError::Pending {
                pid,
                what: "it is being loaded".to_owned(),
            }
            .into()),
            Some(run_state @ (RunState::Running | RunState::Hibernating)) => {
                if let Some(live) = self.table.live_mut(pid) {
                    live.hibernate_replies.push(reply);
                }
                if run_state == RunState::Running {
                    self.begin_hibernation(pid);
                }
                return;
            }
        };
        // The requester has dropped its receiver if it no longer waits.
        let _ = reply.send(result);
    }

    /// Whether a new process hibernates without having been loaded: it was started with nothing to
    /// do, and more processes than permitted are loaded. Loading it would only unload another one.
    pub(super) fn hibernates_from_birth(&self, row: &ProcessRow, state: &State) -> bool {
        let max_loaded = self.context.limits.max_loaded;
        let is_over_limit = max_loaded.is_some_and(|max| self.table.loaded_count() > max);
        is_over_limit
            && self.context.has_store
            && row.origin == Origin::Started
            && row.branched_from.is_none()
            && !self.table.has_pending_input(row.pid)
            && !self.table.has_run_waiters(row.pid)
            && !state.is_stopped()
            && state.busy_reason().is_none()
    }

    /// Leaves a new process unloaded, as if it had been loaded and had hibernated.
    pub(super) fn leave_hibernated(&mut self, row: ProcessRow, state: &State) {
        let ProcessRow {
            pid,
            parent,
            program,
            ..
        } = row;
        if let Some(live) = self.table.live_mut(pid) {
            let mut view = ProcessView::of(state, FactNumber(0));
            view.mark_hibernated();
            live.watched
                .send_modify(|watched| watched.view = Some(view));
        }
        let rest = Rest::Waiting;
        self.table.set_run_state(pid, RunState::Hibernated { rest });
        self.context.publish(Event::Started {
            pid,
            parent,
            program,
        });
        self.context.publish(Event::Hibernated { pid });
        self.wake_due_processes();
    }

    /// Adds a process to the queue of quiescent processes.
    pub(super) fn on_quiescent(&mut self, pid: Pid) {
        self.table.mark_quiescent(pid);
        self.hibernate_due_processes();
    }

    /// Hibernates processes that were quiescent for the configured time, and as many as exceed the
    /// limit of loaded processes.
    pub(super) fn hibernate_due_processes(&mut self) {
        let after = self.context.limits.hibernate_after;
        let max_loaded = self.context.limits.max_loaded;
        while let Some((pid, since)) = self.longest_quiescent() {
            let is_due = after.is_some_and(|after| since.elapsed() >= after);
            let is_over_limit = max_loaded.is_some_and(|max| self.table.loaded_count() > max);
            if is_due || is_over_limit {
                self.begin_hibernation(pid);
            } else {
                return self.start_timer(after.map(|after| after.saturating_sub(since.elapsed())));
            }
        }
    }

    fn longest_quiescent(&self) -> Option<(Pid, Instant)> {
        let pid = *self.table.quiescent.order.values().next()?;
        Some((pid, self.table.get(pid)?.live()?.quiescent?.1))
    }

    /// Starts the timer unless it runs. When it expires, the queue is examined again, whichever
    /// process it was started for.
    fn start_timer(&mut self, pause: Option<Duration>) {
        let Some(pause) = pause.filter(|_| !self.table.quiescent.is_timer_running) else {
            return;
        };
        self.table.quiescent.is_timer_running = true;
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(HibernationMessage::TimerExpired.into());
        });
    }

    pub(super) fn on_timer_expired(&mut self) {
        self.table.quiescent.is_timer_running = false;
        self.hibernate_due_processes();
    }

    pub(super) fn begin_hibernation(&mut self, pid: Pid) {
        // Leaving `Running` also removes the process from the quiescent queue, so that the loop of
        // `hibernate_due_processes` ends.
        self.table.set_run_state(pid, RunState::Hibernating);
        let actor = self
            .table
            .get(pid)
            .and_then(|entry| entry.live()?.actor.clone());
        // An actor that has just faulted, ended, or failed to commit does not answer. The report of
        // that ends the hibernation instead.
        let _ = actor.map(|actor| actor.cast(ProcessMessage::Hibernate));
    }

    /// Records that the process has left memory. Inputs that arrived in the meantime wake it.
    pub(super) fn on_hibernated(&mut self, pid: Pid) {
        let Some(live) = self.live_if_hibernating(pid) else {
            return;
        };
        let mut rest = Rest::Waiting;
        live.watched.send_modify(|watched| {
            if let Some(view) = &mut watched.view {
                view.mark_hibernated();
                if view.stopped {
                    rest = Rest::Stopped;
                }
            }
        });
        let replies = std::mem::take(&mut live.hibernate_replies);
        let has_waiting = !live.waiting_inputs.is_empty();
        self.table.set_run_state(pid, RunState::Hibernated { rest });
        self.context.publish(Event::Hibernated { pid });
        // The requester has dropped its receiver if it no longer waits.
        replies
            .into_iter()
            .for_each(|reply| drop(reply.send(Ok(()))));
        if has_waiting {
            self.wake(pid);
        }
    }

    /// Records that the process stays loaded, and delivers the inputs that arrived in the meantime.
    pub(super) fn on_hibernation_declined(&mut self, pid: Pid, blocker: &HibernationBlocker) {
        let Some(live) = self.live_if_hibernating(pid) else {
            return;
        };
        let replies = std::mem::take(&mut live.hibernate_replies);
        let waiting = std::mem::take(&mut live.waiting_inputs);
        self.table.set_run_state(pid, RunState::Running);
        self.suspend_for_drain(pid, blocker);
        replies
            .into_iter()
            .for_each(|reply| drop(reply.send(Err(blocker.error(pid)))));
        waiting
            .into_iter()
            .for_each(|delivery| self.deliver(pid, delivery));
        if matches!(blocker, HibernationBlocker::SnapshotFailed(_)) {
            self.queue_again_later(pid);
        }
        // The process did not count as loaded during the request, so another one may have to
        // hibernate now.
        self.hibernate_due_processes();
    }

    /// Adds a process to the quiescent ones again after a pause. It reports that nothing is pending
    /// only once, and one that has work by then declines.
    fn queue_again_later(&self, pid: Pid) {
        if !self.context.is_hibernation_enabled() {
            return;
        }
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RETRY_PAUSE).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(HibernationMessage::Quiescent { pid }.into());
        });
    }

    fn live_if_hibernating(&mut self, pid: Pid) -> Option<&mut super::entry::LiveState> {
        self.table
            .get_mut(pid)
            .filter(|entry| entry.run_state == RunState::Hibernating)?
            .live_mut()
    }

    /// Wakes a hibernated process, so that a caller can wait for it. A process that was not resumed
    /// stays unloaded.
    pub(super) fn wake_if_hibernated(&mut self, pid: Pid) {
        if matches!(self.table.run_state(pid), Some(RunState::Hibernated { .. })) {
            self.wake(pid);
        }
    }

    /// The last handle of a process was dropped.
    pub(super) fn on_handles_dropped(&mut self, pid: Pid) {
        if let Some(entry) = self.table.get_mut(pid) {
            entry.drop_live_if_unused();
        }
    }
}
