//! A line of the process table. What only a process needs that runs or is watched stands apart, is
//! made on demand, and goes when nobody needs it any more: one that sleeps, or has ended, costs a
//! few words.

use std::sync::Arc;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow, Restored};
use ractor::ActorRef;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;

use crate::error::KernelError;
use crate::event::View;
use crate::process::{Delivery, ProcessMessage};
use crate::supervisor::HandleReply;

pub(super) struct ProcessEntry {
    /// 0: none. Pids count from 1.
    parent: u64,
    program: Arc<str>,
    rare: Option<Box<Rare>>,
    live: Option<Box<Live>>,
    /// The call that made it, where its origin says one, and which of the call's children it is.
    call: CallId,
    index: u32,
    origin: OriginKind,
    pub(super) run: Run,
    /// Its tree was stopped: children that it makes are born stopped.
    pub(super) stop_inherited: bool,
    /// It is to be killed, whatever became of the message that says so.
    pub(super) kill_pending: bool,
}

/// How a process ended; or why it is held, and does not end now.
pub(crate) type Ended = Result<Exit, Arc<str>>;

/// How an entry of the table runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Its birth is on its way to the disk, its journal is being read, or it pauses after a fault.
    Loading,
    /// It is only its journal since the kernel was opened, or since it had to stop. What it was
    /// doing is yet to be taken up.
    Held,
    /// It is only its journal, and has nothing to do before somebody speaks to it.
    Hibernated {
        /// It was stopped when it fell asleep.
        is_stopped: bool,
    },
    Running,
    /// Its actor was told to hibernate. What arrives waits until it has, or has said that it
    /// cannot.
    Hibernating,
    Ended,
}

/// How a process was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginKind {
    Started,
    Forked,
    Spawned,
    Copied,
}

/// What few processes have, or only at their end.
#[derive(Default)]
struct Rare {
    name: Option<Arc<str>>,
    copied: Option<(Pid, FactNumber)>,
    restored: Option<Restored>,
    exit: Option<Exit>,
    /// How it stood last, where there is no journal to read that from.
    last: Option<View>,
}

/// What a process has that runs, is about to, or is watched.
pub(super) struct Live {
    pub(super) actor: Option<ActorRef<ProcessMessage>>,
    /// How it ended, or why it is held; none while it goes on.
    pub(super) exit: watch::Sender<Option<Ended>>,
    pub(super) view: watch::Sender<Option<View>>,
    pub(super) inbox: Arc<Semaphore>,
    pub(super) waiting: Vec<Delivery>,
    pub(super) faults: Vec<Instant>,
    /// Who waits for it to run.
    pub(super) run_waiters: Vec<HandleReply>,
    /// Who asked it to hibernate.
    pub(super) to_hibernate: Vec<oneshot::Sender<Result<(), KernelError>>>,
    /// Its number among those at rest, and since when it is.
    pub(super) quiescent: Option<(u64, Instant)>,
    /// It is being read because it was woken.
    pub(super) is_waking: bool,
}

impl ProcessEntry {
    pub(super) fn new(row: ProcessRow, run: Run) -> Self {
        let ProcessRow {
            parent,
            program,
            name,
            origin,
            restored,
            exit,
            ..
        } = row;
        let (call, index) = child_slot(&origin).unwrap_or((CallId { epoch: 0, seq: 0 }, 0));
        let (origin, copied) = match origin {
            Origin::Started => (OriginKind::Started, None),
            Origin::Forked { .. } => (OriginKind::Forked, None),
            Origin::Spawned { .. } => (OriginKind::Spawned, None),
            Origin::Copied { from, at } => (OriginKind::Copied, Some((from, at))),
        };
        let is_plain = name.is_none() && copied.is_none() && restored.is_none() && exit.is_none();
        let rare = (!is_plain).then(|| {
            Box::new(Rare {
                name,
                copied,
                restored,
                exit,
                last: None,
            })
        });
        let parent = parent.map_or(0, |parent| parent.0);
        Self {
            parent,
            program,
            rare,
            live: None,
            call,
            index,
            origin,
            run,
            stop_inherited: false,
            kill_pending: false,
        }
    }

    /// The row of it, which is that of process `pid`.
    pub(super) fn row(&self, pid: Pid) -> ProcessRow {
        let (parent, program) = (self.parent(), self.program.clone());
        let (name, exit) = (self.name().cloned(), self.exit().cloned());
        ProcessRow {
            pid,
            parent,
            program,
            name,
            origin: self.origin(),
            restored: self.restored(),
            exit,
        }
    }

    pub(super) fn origin(&self) -> Origin {
        let copied = self.rare.as_ref().and_then(|rare| rare.copied);
        match (self.origin, copied) {
            (OriginKind::Forked, _) => Origin::Forked {
                call: self.call,
                index: self.index,
            },
            (OriginKind::Spawned, _) => Origin::Spawned { call: self.call },
            (OriginKind::Copied, Some((from, at))) => Origin::Copied { from, at },
            (OriginKind::Started | OriginKind::Copied, _) => Origin::Started,
        }
    }

    /// What it goes on from, as one of a branch.
    pub(super) fn restored(&self) -> Option<Restored> {
        self.rare.as_ref()?.restored
    }

    pub(super) fn parent(&self) -> Option<Pid> {
        (self.parent != 0).then_some(Pid(self.parent))
    }

    pub(super) fn program(&self) -> &Arc<str> {
        &self.program
    }

    pub(super) fn name(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.name.as_ref()
    }

    /// How it ended, durably.
    pub(super) fn exit(&self) -> Option<&Exit> {
        self.rare.as_ref()?.exit.as_ref()
    }

    /// Notes how it ended, and how it stood last.
    pub(super) fn record_exit(&mut self, exit: Exit, last: Option<View>) {
        let rare = self.rare.get_or_insert_default();
        (rare.exit, rare.last) = (Some(exit), last);
    }

    pub(super) fn live(&self) -> Option<&Live> {
        self.live.as_deref()
    }

    pub(super) fn live_mut(&mut self) -> Option<&mut Live> {
        self.live.as_deref_mut()
    }

    /// What it has as one that runs or is watched; made where it has none.
    pub(super) fn live_or_create(&mut self, inbox: usize) -> &mut Live {
        let Self { live, rare, .. } = self;
        live.get_or_insert_with(|| {
            let rare = rare.as_ref();
            Box::new(Live {
                actor: None,
                exit: watch::Sender::new(rare.and_then(|rare| rare.exit.clone()).map(Ok)),
                view: watch::Sender::new(rare.and_then(|rare| rare.last.clone())),
                inbox: Arc::new(Semaphore::new(inbox)),
                waiting: Vec::new(),
                faults: Vec::new(),
                run_waiters: Vec::new(),
                to_hibernate: Vec::new(),
                quiescent: None,
                is_waking: false,
            })
        })
    }

    /// Lets go of what nobody needs: it neither runs nor is it about to, and nobody holds a handle
    /// on it or waits for it.
    pub(super) fn drop_live_if_unused(&mut self) {
        let does_not_run = matches!(self.run, Run::Held | Run::Hibernated { .. } | Run::Ended);
        if does_not_run && self.live().is_some_and(|live| live.is_unused(self.run)) {
            self.live = None;
        }
    }

    /// How it stands in detail, as far as that is in memory.
    pub(super) fn view(&self) -> Option<View> {
        match (self.run, &self.live) {
            (Run::Hibernated { .. }, _) => None,
            (_, Some(live)) => live.view.borrow().clone(),
            (_, None) => self.rare.as_ref()?.last.clone(),
        }
    }

    /// The word for how it stands.
    pub(super) fn status(&self) -> &'static str {
        match (self.exit(), self.run) {
            (Some(exit), _) => exit.status.word(),
            (None, Run::Held) => "held",
            (None, Run::Hibernated { is_stopped: true }) => "stopped",
            (None, Run::Hibernated { is_stopped: false }) => "hibernated",
            (None, Run::Loading | Run::Running | Run::Hibernating | Run::Ended) => {
                let view = self.live().map(|live| live.view.borrow());
                view.as_ref()
                    .and_then(|view| view.as_ref())
                    .map_or("starting", View::status)
            }
        }
    }

    /// What a process gets when it begins to run: signals that waited, then its start, then all
    /// else that waited. Where it is to be continued, what comes after that keeps its place.
    pub(super) fn take_startup_inputs(&mut self) -> Vec<Delivery> {
        let mut waiting = self
            .live_mut()
            .map(|live| std::mem::take(&mut live.waiting))
            .unwrap_or_default();
        let continued = waiting
            .iter()
            .position(|delivery| matches!(delivery.input, Input::Signal(Signal::Continue)));
        let later = waiting.split_off(continued.unwrap_or(waiting.len()));
        let (signals, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(Delivery::is_signal);
        // Whoever waits to hear that the process was killed is not to come behind its end.
        let is_signalled = signals
            .iter()
            .any(|delivery| matches!(delivery.input, Input::Signal(Signal::Kill)));
        let kill = (self.kill_pending && !is_signalled)
            .then(|| Delivery::internal(Input::Signal(Signal::Kill)));
        let start = Delivery::internal(Input::Signal(Signal::Resume));
        kill.into_iter()
            .chain(signals)
            .chain([start])
            .chain(rest)
            .chain(later)
            .collect()
    }
}

impl Live {
    fn is_unused(&self, run: Run) -> bool {
        let has_subscribers = self.exit.receiver_count() > 0 || self.view.receiver_count() > 0;
        // One that had to stop says why, to whoever asks.
        let has_failed = run == Run::Held && self.exit.borrow().is_some();
        !has_subscribers && !has_failed && self.waiting.is_empty() && self.run_waiters.is_empty()
    }
}

/// The call that made a process, and which of its children it is.
pub(super) fn child_slot(origin: &Origin) -> Option<(CallId, u32)> {
    match origin {
        Origin::Forked { call, index } => Some((*call, *index)),
        Origin::Spawned { call } => Some((*call, 0)),
        Origin::Started | Origin::Copied { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process costs that sleeps: beside this a child stands in the map of children, by 32
    /// bytes in nodes that may be half full.
    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Option<ProcessEntry>>(), 56);
    }

    #[test]
    fn a_row_survives_its_entry() {
        let call = CallId { epoch: 3, seq: 4 };
        let origins = [
            Origin::Started,
            Origin::Forked { call, index: 2 },
            Origin::Spawned { call },
            Origin::Copied {
                from: Pid(9),
                at: FactNumber(8),
            },
        ];
        let exit = Exit::new(dormouse_proto::process::ExitStatus::Killed, "why");
        for origin in origins {
            for (parent, name, exit) in [
                (None, None, None),
                (Some(Pid(2)), Some("n".into()), Some(exit.clone())),
            ] {
                let restored = parent.map(|from| Restored {
                    from,
                    at: FactNumber(3),
                    known_as: Pid(1),
                    foreign: None,
                });
                let (program, origin) = ("p".into(), origin.clone());
                let row = ProcessRow {
                    pid: Pid(7),
                    parent,
                    program,
                    name,
                    origin,
                    restored,
                    exit,
                };
                assert_eq!(ProcessEntry::new(row.clone(), Run::Held).row(Pid(7)), row);
            }
        }
    }
}
