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
use super::entry::{Entry, Run};
use crate::error::{KernelError, NotFound, ProcessError, StoreFailure};
use crate::event::Event;
use crate::process::{ProcessMessage, StaysAwake};

/// Where the answer to a wish to hibernate goes.
pub(crate) type HibernateReply = oneshot::Sender<Result<(), KernelError>>;

/// Those at rest, in the order in which they came to it.
#[derive(Default)]
pub(super) struct Resting {
    order: BTreeMap<u64, Pid>,
    next: u64,
    /// A timer runs for the first of them.
    is_timed: bool,
}

impl Resting {
    /// A process is no longer at rest, as far as is known.
    pub(super) fn forget(&mut self, entry: &mut Entry) {
        if let Some((number, _)) = entry.live_mut().and_then(|live| live.resting.take()) {
            self.order.remove(&number);
        }
    }

    /// A process is at rest from now on.
    pub(super) fn note(&mut self, pid: Pid, entry: &mut Entry) {
        self.forget(entry);
        if let Some(live) = entry.live_mut() {
            live.resting = Some((self.next, Instant::now()));
            self.order.insert(self.next, pid);
            self.next += 1;
        }
    }
}

/// What is said of processes that rest, sleep and wake.
pub(crate) enum RestMessage {
    /// A process has nothing to do.
    Rests { pid: Pid },
    /// The time of the one that rests longest may be over.
    Due,
    /// The host wants a process to hibernate.
    Hibernate { pid: Pid, reply: HibernateReply },
    /// A process is durable and gone.
    Asleep { pid: Pid },
    /// It was to hibernate and cannot.
    StaysAwake { pid: Pid, why: StaysAwake },
    /// Somebody waits for a process.
    LookAt { pid: Pid },
    /// All handles of a process were dropped.
    HandlesDropped { pid: Pid },
}

impl Supervisor {
    pub(super) fn handle_rest(&mut self, message: RestMessage) {
        match message {
            RestMessage::Rests { pid } => self.rests(pid),
            RestMessage::Due => self.timer_rang(),
            RestMessage::Hibernate { pid, reply } => self.hibernate(pid, reply),
            RestMessage::Asleep { pid } => self.asleep(pid),
            RestMessage::StaysAwake { pid, why } => self.stays_awake(pid, &why),
            RestMessage::LookAt { pid } => self.look_at(pid),
            RestMessage::HandlesDropped { pid } => self.handles_dropped(pid),
        }
    }

    /// The host wants a process to hibernate.
    pub(super) fn hibernate(&mut self, pid: Pid, reply: HibernateReply) {
        let known = match self.table.run_of(pid) {
            None => Err(self.or_lost(KernelError::NotFound(NotFound::Process(pid)))),
            Some(_) if !self.context.is_kept => Err(StoreFailure::NoStore.into()),
            Some(Run::Ended) => Err(ProcessError::Ended(pid).into()),
            Some(Run::Held | Run::Hibernated { .. }) => Ok(()),
            Some(Run::Loading) => Err(ProcessError::Pending {
                pid,
                what: "it begins to run".to_owned(),
            }
            .into()),
            Some(run @ (Run::Running | Run::FallingAsleep)) => {
                if let Some(live) = self.table.live_mut(pid) {
                    live.to_hibernate.push(reply);
                }
                if run == Run::Running {
                    self.send_to_sleep(pid);
                }
                return;
            }
        };
        // Who no longer waits has dropped its side.
        let _ = reply.send(known);
    }

    /// A process has nothing to do.
    pub(super) fn rests(&mut self, pid: Pid) {
        self.table.rests(pid);
        self.hibernate_due();
    }

    /// Sends to sleep who has rested for so long, and whoever there is no room for.
    pub(super) fn hibernate_due(&mut self) {
        let (after, most) = (
            self.context.limits.hibernate_after,
            self.context.limits.max_awake,
        );
        while let Some((pid, since)) = self.longest_at_rest() {
            let is_due = after.is_some_and(|after| since.elapsed() >= after);
            let is_crowded = most.is_some_and(|most| self.table.awake() > most);
            if is_due || is_crowded {
                self.send_to_sleep(pid);
            } else {
                return self.set_timer(after.map(|after| after.saturating_sub(since.elapsed())));
            }
        }
    }

    fn longest_at_rest(&self) -> Option<(Pid, Instant)> {
        let pid = *self.table.resting.order.values().next()?;
        Some((pid, self.table.get(pid)?.live()?.resting?.1))
    }

    /// One timer at a time: whoever it rings for, the next is looked for then.
    fn set_timer(&mut self, pause: Option<Duration>) {
        let Some(pause) = pause.filter(|_| !self.table.resting.is_timed) else {
            return;
        };
        self.table.resting.is_timed = true;
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // Where the supervisor is gone, the kernel is.
            let _ = myself.cast(RestMessage::Due.into());
        });
    }

    /// The timer rang.
    pub(super) fn timer_rang(&mut self) {
        self.table.resting.is_timed = false;
        self.hibernate_due();
    }

    fn send_to_sleep(&mut self, pid: Pid) {
        self.table.set_run(pid, Run::FallingAsleep);
        let actor = self
            .table
            .get(pid)
            .and_then(|entry| entry.live()?.actor.clone());
        // An actor that has just faulted or ended does not answer: what becomes of it is told by
        // its end.
        let _ = actor.map(|actor| actor.cast(ProcessMessage::Hibernate));
    }

    /// A process is only its journal from here on. What arrived meanwhile wakes it.
    pub(super) fn asleep(&mut self, pid: Pid) {
        let Some(live) = self.falling_asleep(pid) else {
            return;
        };
        let mut is_stopped = false;
        live.view.send_modify(|view| {
            if let Some(view) = view {
                view.hibernate();
                is_stopped = view.stopped;
            }
        });
        let replies = std::mem::take(&mut live.to_hibernate);
        let is_awaited = !live.waiting.is_empty();
        self.table.set_run(pid, Run::Hibernated { is_stopped });
        self.context.report(Event::Hibernated { pid });
        // Who no longer waits has dropped its side.
        replies
            .into_iter()
            .for_each(|reply| drop(reply.send(Ok(()))));
        if is_awaited {
            self.wake(pid);
        }
    }

    /// A process has something to do, or could not be written. It gets what arrived meanwhile.
    pub(super) fn stays_awake(&mut self, pid: Pid, why: &StaysAwake) {
        let Some(live) = self.falling_asleep(pid) else {
            return;
        };
        let (replies, waiting) = (
            std::mem::take(&mut live.to_hibernate),
            std::mem::take(&mut live.waiting),
        );
        self.table.set_run(pid, Run::Running);
        replies
            .into_iter()
            .for_each(|reply| drop(reply.send(Err(why.error(pid)))));
        waiting
            .into_iter()
            .for_each(|delivery| self.deliver(pid, delivery));
        // It did not count while it was asked, so another one may have to hibernate in its place.
        self.hibernate_due();
    }

    fn falling_asleep(&mut self, pid: Pid) -> Option<&mut super::entry::Live> {
        self.table
            .get_mut(pid)
            .filter(|entry| entry.run == Run::FallingAsleep)?
            .live_mut()
    }

    /// Somebody waits for a process: one that sleeps wakes, so that it can be looked at. One that
    /// is held stays so.
    pub(super) fn look_at(&mut self, pid: Pid) {
        if matches!(self.table.run_of(pid), Some(Run::Hibernated { .. })) {
            self.wake(pid);
        }
    }

    /// The last handle of somebody on a process is gone.
    pub(super) fn handles_dropped(&mut self, pid: Pid) {
        if let Some(entry) = self.table.get_mut(pid) {
            entry.let_go();
        }
    }
}
