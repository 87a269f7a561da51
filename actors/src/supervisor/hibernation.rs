//! Hibernation: who goes to sleep and when, and what wakes it.
//!
//! A process says when it has come to rest; the supervisor decides. It goes to sleep when it is
//! told to, after it rested for so long, or where more are in memory than there may be: those that
//! rest longest first. Only the process knows whether something is pending, so it has the last
//! word. From the moment it is told until it has answered, what arrives for it waits here: where it
//! stays awake it gets that in order, where it sleeps that wakes it. So nothing is lost, and
//! nothing comes twice.
//!
//! One that sleeps is its journal and a line of the table. A message, a signal, the end of a child
//! and somebody who waits for it wake it, under its pid.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_proto::id::Pid;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Supervisor;
use super::entry::{ProcessEntry, Run};
use crate::error::{KernelError, NotFound, ProcessError, StoreFailure};
use crate::event::Event;
use crate::process::{HibernationBlocker, ProcessMessage};

/// Where the answer to a wish to hibernate goes.
pub(crate) type HibernateReply = oneshot::Sender<Result<(), KernelError>>;

/// Those at rest, in the order in which they came to it.
#[derive(Default)]
pub(super) struct QuiescentQueue {
    order: BTreeMap<u64, Pid>,
    next: u64,
    /// A timer runs for the first of them.
    is_timed: bool,
}

impl QuiescentQueue {
    /// A process is no longer at rest, as far as is known.
    pub(super) fn remove(&mut self, entry: &mut ProcessEntry) {
        if let Some((number, _)) = entry.live_mut().and_then(|live| live.quiescent.take()) {
            self.order.remove(&number);
        }
    }

    /// A process is at rest from now on.
    pub(super) fn insert(&mut self, pid: Pid, entry: &mut ProcessEntry) {
        self.remove(entry);
        if let Some(live) = entry.live_mut() {
            live.quiescent = Some((self.next, Instant::now()));
            self.order.insert(self.next, pid);
            self.next += 1;
        }
    }
}

/// What is said of processes that rest, sleep and wake.
pub(crate) enum HibernationMessage {
    /// A process has nothing to do.
    Quiescent { pid: Pid },
    /// The time of the one that rests longest may be over.
    TimerExpired,
    /// The host wants a process to hibernate.
    Hibernate { pid: Pid, reply: HibernateReply },
    /// A process is durable and gone.
    Hibernated { pid: Pid },
    /// It was to hibernate and cannot.
    HibernationDeclined {
        pid: Pid,
        blocker: HibernationBlocker,
    },
    /// Somebody waits for a process.
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
            HibernationMessage::Wake { pid } => self.wake_if_hibernated(pid),
            HibernationMessage::HandlesDropped { pid } => self.handles_dropped(pid),
        }
    }

    /// The host wants a process to hibernate.
    pub(super) fn hibernate(&mut self, pid: Pid, reply: HibernateReply) {
        let known = match self.table.run_of(pid) {
            None => Err(self.or_lost_record(KernelError::NotFound(NotFound::Process(pid)))),
            Some(_) if !self.context.has_store => Err(StoreFailure::NoStore.into()),
            Some(Run::Ended) => Err(ProcessError::Ended(pid).into()),
            Some(Run::Held | Run::Hibernated { .. }) => Ok(()),
            Some(Run::Loading) => Err(ProcessError::Pending {
                pid,
                what: "it begins to run".to_owned(),
            }
            .into()),
            Some(run @ (Run::Running | Run::Hibernating)) => {
                if let Some(live) = self.table.live_mut(pid) {
                    live.to_hibernate.push(reply);
                }
                if run == Run::Running {
                    self.begin_hibernation(pid);
                }
                return;
            }
        };
        // The requester has dropped its receiver if it no longer waits.
        let _ = reply.send(known);
    }

    /// A process has nothing to do.
    pub(super) fn on_quiescent(&mut self, pid: Pid) {
        self.table.mark_quiescent(pid);
        self.hibernate_due();
    }

    /// Sends to sleep who has rested for so long, and whoever there is no room for.
    pub(super) fn hibernate_due(&mut self) {
        let (after, most) = (
            self.context.limits.hibernate_after,
            self.context.limits.max_awake,
        );
        while let Some((pid, since)) = self.longest_quiescent() {
            let is_due = after.is_some_and(|after| since.elapsed() >= after);
            let is_crowded = most.is_some_and(|most| self.table.loaded() > most);
            if is_due || is_crowded {
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

    /// One timer at a time: whoever it rings for, the next is looked for then.
    fn start_timer(&mut self, pause: Option<Duration>) {
        let Some(pause) = pause.filter(|_| !self.table.quiescent.is_timed) else {
            return;
        };
        self.table.quiescent.is_timed = true;
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(HibernationMessage::TimerExpired.into());
        });
    }

    /// The timer rang.
    pub(super) fn on_timer_expired(&mut self) {
        self.table.quiescent.is_timed = false;
        self.hibernate_due();
    }

    fn begin_hibernation(&mut self, pid: Pid) {
        self.table.set_run(pid, Run::Hibernating);
        let actor = self
            .table
            .get(pid)
            .and_then(|entry| entry.live()?.actor.clone());
        // An actor that has just faulted or ended does not answer: what becomes of it is told by
        // its end.
        let _ = actor.map(|actor| actor.cast(ProcessMessage::Hibernate));
    }

    /// A process is only its journal from here on. What arrived meanwhile wakes it.
    pub(super) fn on_hibernated(&mut self, pid: Pid) {
        let Some(live) = self.hibernating(pid) else {
            return;
        };
        let mut is_stopped = false;
        live.view.send_modify(|view| {
            if let Some(view) = view {
                view.mark_hibernated();
                is_stopped = view.stopped;
            }
        });
        let replies = std::mem::take(&mut live.to_hibernate);
        let has_waiting = !live.waiting.is_empty();
        self.table.set_run(pid, Run::Hibernated { is_stopped });
        self.context.publish(Event::Hibernated { pid });
        // The requester has dropped its receiver if it no longer waits.
        replies
            .into_iter()
            .for_each(|reply| drop(reply.send(Ok(()))));
        if has_waiting {
            self.wake(pid);
        }
    }

    /// A process has something to do, or could not be written. It gets what arrived meanwhile.
    pub(super) fn on_hibernation_declined(&mut self, pid: Pid, blocker: &HibernationBlocker) {
        let Some(live) = self.hibernating(pid) else {
            return;
        };
        let (replies, waiting) = (
            std::mem::take(&mut live.to_hibernate),
            std::mem::take(&mut live.waiting),
        );
        self.table.set_run(pid, Run::Running);
        replies
            .into_iter()
            .for_each(|reply| drop(reply.send(Err(blocker.error(pid)))));
        waiting
            .into_iter()
            .for_each(|delivery| self.deliver(pid, delivery));
        // It did not count while it was asked, so another one may have to hibernate in its place.
        self.hibernate_due();
    }

    fn hibernating(&mut self, pid: Pid) -> Option<&mut super::entry::Live> {
        self.table
            .get_mut(pid)
            .filter(|entry| entry.run == Run::Hibernating)?
            .live_mut()
    }

    /// Somebody waits for a process: one that sleeps wakes, so that it can be looked at. One that
    /// is held stays so.
    pub(super) fn wake_if_hibernated(&mut self, pid: Pid) {
        if matches!(self.table.run_of(pid), Some(Run::Hibernated { .. })) {
            self.wake(pid);
        }
    }

    /// The last handle of somebody on a process is gone.
    pub(super) fn handles_dropped(&mut self, pid: Pid) {
        if let Some(entry) = self.table.get_mut(pid) {
            entry.drop_live_if_unused();
        }
    }
}
