//! The process table of the simulated kernel: who there is, who runs, what waits for whom.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::{Exit, Origin, ProcessRow, Waiting};

#[derive(Default)]
pub(crate) struct Table {
    last_pid: u64,
    entries: BTreeMap<Pid, Entry>,
    children: BTreeMap<(Pid, CallId, u32), Pid>,
}

struct Entry {
    row: ProcessRow,
    run: Run,
    waiting: Vec<Input>,
    faults: u32,
    halted: bool,
    doomed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Loading,
    Held,
    Hibernated,
    Running(u64),
    FallingAsleep(u64),
    Ended,
}

impl Table {
    pub(crate) fn new(rows: Vec<ProcessRow>) -> Self {
        let mut table = Self {
            last_pid: rows.iter().map(|row| row.pid.0).max().unwrap_or(0),
            ..Self::default()
        };
        let ended: BTreeSet<Pid> = rows
            .iter()
            .filter(|row| row.exit.is_some())
            .map(|row| row.pid)
            .collect();
        for row in rows {
            let run = if row.exit.is_some() {
                Run::Ended
            } else {
                Run::Held
            };
            let doomed =
                row.exit.is_none() && row.parent.is_some_and(|parent| ended.contains(&parent));
            let pid = row.pid;
            table.insert(row, run);
            if let Some(entry) = table.entries.get_mut(&pid) {
                entry.doomed = doomed;
            }
        }
        table
    }

    pub(crate) fn next_pid(&mut self) -> Pid {
        self.last_pid += 1;
        Pid(self.last_pid)
    }

    fn insert(&mut self, row: ProcessRow, run: Run) {
        if let (Some(parent), Some((call, index))) = (row.parent, place(&row.origin)) {
            self.children.insert((parent, call, index), row.pid);
        }
        let entry = Entry {
            run,
            waiting: Vec::new(),
            faults: 0,
            halted: false,
            doomed: false,
            row,
        };
        self.entries.insert(entry.row.pid, entry);
    }

    /// Takes in a process whose birth is not yet durable.
    pub(crate) fn reserve(&mut self, row: &ProcessRow) {
        let is_halted = self.is_halted(row.parent);
        self.insert(row.clone(), Run::Loading);
        self.halt(row.pid, is_halted);
    }

    /// Whether the tree of a process was stopped.
    pub(crate) fn is_halted(&self, parent: Option<Pid>) -> bool {
        parent
            .and_then(|parent| self.entries.get(&parent))
            .is_some_and(|parent| parent.halted)
    }

    /// A process that runs is to sleep: its life, where it does.
    pub(crate) fn fall_asleep(&mut self, pid: Pid) -> Option<u64> {
        let entry = self.entries.get_mut(&pid)?;
        let Run::Running(life) = entry.run else {
            return None;
        };
        entry.run = Run::FallingAsleep(life);
        Some(life)
    }

    /// It does not: what arrived meanwhile.
    pub(crate) fn stays_awake(&mut self, pid: Pid, life: u64) -> Vec<Input> {
        let entry = self
            .entries
            .get_mut(&pid)
            .filter(|entry| entry.run == Run::FallingAsleep(life));
        let Some(entry) = entry else {
            return Vec::new();
        };
        entry.run = Run::Running(life);
        std::mem::take(&mut entry.waiting)
    }

    pub(crate) fn has_waiting(&self, pid: Pid) -> bool {
        self.entries
            .get(&pid)
            .is_some_and(|entry| !entry.waiting.is_empty())
    }

    /// Whether a process is paused at a limit. Returns whether that is news.
    pub(crate) fn set_paused(&mut self, pid: Pid, is_paused: bool) -> bool {
        let entry = self.entries.get_mut(&pid);
        let Some(entry) = entry.filter(|entry| entry.run != Run::Ended) else {
            return false;
        };
        std::mem::replace(&mut entry.row.is_paused, is_paused) != is_paused
    }

    /// Whether a process above this one is paused.
    pub(crate) fn is_below_paused(&self, pid: Pid) -> bool {
        let parent = |pid: Pid| self.row(pid).and_then(|row| row.parent);
        let mut above = std::iter::successors(parent(pid), |pid| parent(*pid));
        above.any(|pid| self.row(pid).is_some_and(|row| row.is_paused))
    }

    pub(crate) fn halt(&mut self, pid: Pid, halted: bool) {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.halted = halted;
        }
    }

    pub(crate) fn is_spoken_to(&self, pid: Pid) -> bool {
        self.entries
            .get(&pid)
            .is_some_and(|entry| entry.doomed || !entry.waiting.is_empty())
    }

    /// Whether it is to be killed, but may not know it yet.
    pub(crate) fn is_doomed(&self, pid: Pid) -> bool {
        self.entries.get(&pid).is_some_and(|entry| entry.doomed)
    }

    pub(crate) fn root(&self, pid: Pid) -> Pid {
        let parent = |pid: &Pid| self.entries.get(pid).and_then(|entry| entry.row.parent);
        std::iter::successors(Some(pid), parent)
            .last()
            .unwrap_or(pid)
    }

    pub(crate) fn child(&self, parent: Pid, origin: &Origin) -> Option<ProcessRow> {
        let (call, index) = place(origin)?;
        self.child_at(parent, call, index)
    }

    pub(crate) fn child_at(&self, parent: Pid, call: CallId, index: u32) -> Option<ProcessRow> {
        let pid = self.children.get(&(parent, call, index))?;
        self.entries.get(pid).map(|entry| entry.row.clone())
    }

    pub(crate) fn row(&self, pid: Pid) -> Option<&ProcessRow> {
        self.entries.get(&pid).map(|entry| &entry.row)
    }

    /// The living process of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Pid> {
        self.living().into_iter().find(|pid| {
            self.row(*pid)
                .is_some_and(|row| row.name.as_deref() == Some(name))
        })
    }

    pub(crate) fn has_children(&self, parent: Pid) -> bool {
        self.children.keys().any(|(of, ..)| *of == parent)
    }

    pub(crate) fn living_children(&self, parent: Pid) -> Vec<(Pid, CallId)> {
        let first = (parent, CallId { epoch: 0, seq: 0 }, 0);
        let children = self
            .children
            .range(first..)
            .take_while(|((of, ..), _)| *of == parent);
        children
            .filter(|(_, pid)| self.lives(**pid))
            .map(|((_, call, _), pid)| (*pid, *call))
            .collect()
    }

    pub(crate) fn tree(&self, root: Pid) -> Vec<Pid> {
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            tree.extend(
                self.living_children(parent)
                    .into_iter()
                    .map(|(child, _)| child),
            );
            next += 1;
        }
        tree
    }

    pub(crate) fn run_of(&self, pid: Pid) -> Option<Run> {
        self.entries.get(&pid).map(|entry| entry.run)
    }

    pub(crate) fn set_run(&mut self, pid: Pid, run: Run) {
        if let Some(entry) = self.entries.get_mut(&pid) {
            entry.run = run;
        }
    }

    pub(crate) fn lives(&self, pid: Pid) -> bool {
        self.run_of(pid).is_some_and(|run| run != Run::Ended)
    }

    pub(crate) fn hears(&self, pid: Pid) -> bool {
        !matches!(self.run_of(pid), None | Some(Run::Held | Run::Ended))
    }

    pub(crate) fn living(&self) -> Vec<Pid> {
        self.entries
            .keys()
            .copied()
            .filter(|pid| self.lives(*pid))
            .collect()
    }

    pub(crate) fn all(&self) -> Vec<Pid> {
        self.entries.keys().copied().collect()
    }

    pub(crate) fn loading(&mut self, pid: Pid) {
        if self.lives(pid) {
            self.set_run(pid, Run::Loading);
        }
    }

    /// What a process gets when it begins to run: signals that waited, then its start, then all
    /// else that waited.
    pub(crate) fn begin(&mut self, pid: Pid) -> Option<Vec<Input>> {
        let entry = self
            .entries
            .get_mut(&pid)
            .filter(|entry| entry.run == Run::Loading)?;
        let mut waiting = std::mem::take(&mut entry.waiting);
        let continued = waiting
            .iter()
            .position(|input| matches!(input, Input::Signal(Signal::Continue)));
        let later = waiting.split_off(continued.unwrap_or(waiting.len()));
        let is_signal = |input: &Input| {
            matches!(
                input,
                Input::Signal(Signal::Interrupt | Signal::Stop | Signal::Kill)
            )
        };
        let (signals, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_signal);
        let doom = entry.doomed.then_some(Input::Signal(Signal::Kill));
        let before_resume = |input| match input {
            Input::Signal(signal) => Input::SignalBeforeResume(signal),
            input => input,
        };
        Some(
            doom.into_iter()
                .chain(signals)
                .map(before_resume)
                .chain([Input::Signal(Signal::Resume)])
                .chain(rest)
                .chain(later)
                .collect(),
        )
    }

    /// None where the process has ended or never was; what it takes at once, and in which life,
    /// where it runs.
    pub(crate) fn deliver(
        &mut self,
        pid: Pid,
        input: Input,
        is_alive: impl Fn(u64) -> bool,
    ) -> Option<Option<(u64, Input)>> {
        let entry = self.entries.get_mut(&pid)?;
        entry.doomed |= matches!(input, Input::Signal(Signal::Kill));
        entry.halted &= !matches!(input, Input::Signal(Signal::Continue));
        match entry.run {
            Run::Running(life) if is_alive(life) => return Some(Some((life, input))),
            Run::Running(_)
            | Run::FallingAsleep(_)
            | Run::Loading
            | Run::Held
            | Run::Hibernated => {
                entry.waiting.push(input);
            }
            Run::Ended => return None,
        }
        Some(None)
    }

    /// How often it has faulted; none where that is no news.
    pub(crate) fn fault(&mut self, pid: Pid, life: u64) -> Option<u32> {
        let is_its = |run| run == Run::Running(life) || run == Run::FallingAsleep(life);
        let entry = self
            .entries
            .get_mut(&pid)
            .filter(|entry| is_its(entry.run))?;
        entry.run = Run::Loading;
        entry.faults += 1;
        Some(entry.faults)
    }

    /// An ended process is opened again, and held until it is read. One whose parent has ended
    /// meanwhile is to be killed. Returns whether it had ended.
    pub(crate) fn reopen(&mut self, pid: Pid) -> bool {
        let parent = self.row(pid).and_then(|row| row.parent);
        let is_orphan = parent.is_some_and(|parent| !self.lives(parent));
        let Some(entry) = self
            .entries
            .get_mut(&pid)
            .filter(|entry| entry.run == Run::Ended)
        else {
            return false;
        };
        entry.run = Run::Held;
        entry.row.exit = None;
        entry.row.waiting = Waiting::Nothing;
        entry.row.reopenings += 1;
        entry.doomed = is_orphan;
        true
    }

    pub(crate) fn end(&mut self, pid: Pid, exit: &Exit) -> Option<ProcessRow> {
        let entry = self
            .entries
            .get_mut(&pid)
            .filter(|entry| entry.run != Run::Ended)?;
        entry.run = Run::Ended;
        entry.row.is_paused = false;
        entry.row.exit = Some(exit.clone());
        entry.waiting.clear();
        Some(entry.row.clone())
    }
}

/// The call that made a process, and which of its children it is.
pub(crate) fn place(origin: &Origin) -> Option<(CallId, u32)> {
    match origin {
        Origin::Forked { call, index } | Origin::Judge { call, index } => Some((*call, *index)),
        Origin::Spawned { call } => Some((*call, 0)),
        Origin::Started | Origin::Copied { .. } => None,
    }
}
