//! The supervisor of the simulated kernel: births, loads, faults, signals, as
//! `actors/src/supervisor/` does them.

pub(crate) mod family;
pub(crate) mod table;

use std::collections::BTreeMap;

use dormouse_kernel::process::{Completion, Image, Input, Signal, State};
use dormouse_kernel::program::{ForkRelease, Program};
use dormouse_proto::id::Pid;
use dormouse_proto::process::{Exit, ExitStatus, Origin, ProcessRow};
use dormouse_proto::record::Control;

use self::table::{Run, Table};
use crate::event::{Ack, Event, Newborn, ProcessMessage, SupervisorMessage};
use crate::invariants::Held;
use crate::process::Running;
use crate::schedule::SUPERVISOR;
use crate::store::{Entry, From, encode_image};
use crate::world::World;

const LONGEST_HOLD_MS: u64 = 2_000;
const MOST_FAULTS: u32 = 4;

#[derive(Default)]
pub(crate) struct Supervisor {
    pub(crate) table: Table,
    held_back: BTreeMap<Pid, Newborn>,
}

impl World {
    pub(crate) fn supervise(&mut self, message: SupervisorMessage) -> Held {
        match message {
            SupervisorMessage::Start {
                program,
                image,
                origin,
                name,
            } => {
                let mut newborn = self.newborn(None, program, image, origin);
                newborn.row.name = name.filter(|name| self.supervisor.table.named(name).is_none());
                self.bear(vec![newborn])
            }
            SupervisorMessage::StartChildren { parent, children } => {
                self.start_children(parent, children)
            }
            SupervisorMessage::Born { newborns } => self.born(newborns),
            SupervisorMessage::Loaded { pid } => self.loaded(pid),
            SupervisorMessage::Deliver { pid, input } => {
                self.deliver(pid, *input);
                Ok(())
            }
            SupervisorMessage::SignalTree { root, signal } => {
                self.signal_tree(root, signal);
                Ok(())
            }
            SupervisorMessage::Release { pids } => self.release(pids),
            SupervisorMessage::Copy { pid } => self.copy_of(pid),
            SupervisorMessage::FindChild {
                parent,
                call,
                index,
            } => {
                self.find_child(parent, call, index);
                Ok(())
            }
            SupervisorMessage::Abandon { parent, calls } => {
                self.kill_children(parent, |call| calls.contains(&call));
                Ok(())
            }
            SupervisorMessage::KeepChildren { parent, calls } => {
                self.kill_children(parent, |call| !calls.contains(&call));
                Ok(())
            }
            SupervisorMessage::Ended { pid, exit } => self.ended(pid, &exit),
            SupervisorMessage::Faulted { pid, life } => {
                self.faulted(pid, life);
                Ok(())
            }
            SupervisorMessage::Restart { pid } => {
                self.load(pid);
                Ok(())
            }
            SupervisorMessage::Resume { pid } => {
                self.wake(pid);
                Ok(())
            }
            SupervisorMessage::Hibernate { pid } => {
                self.send_to_sleep(pid);
                Ok(())
            }
            SupervisorMessage::Asleep { pid, life } => {
                self.asleep(pid, life);
                Ok(())
            }
            SupervisorMessage::StaysAwake { pid, life } => {
                let waiting = self.supervisor.table.stays_awake(pid, life);
                waiting
                    .into_iter()
                    .for_each(|input| self.deliver(pid, input));
                Ok(())
            }
            SupervisorMessage::Post(post) => {
                self.post(*post);
                Ok(())
            }
            SupervisorMessage::ListNeighbours {
                of,
                life,
                call,
                task,
            } => {
                let known = self.neighbours(of);
                self.finish(
                    of,
                    life,
                    call,
                    task,
                    0,
                    Completion::Listed { known, hidden: 0 },
                );
                Ok(())
            }
        }
    }

    pub(crate) fn newborn(
        &mut self,
        parent: Option<Pid>,
        program: Program,
        image: Box<Image>,
        origin: Origin,
    ) -> Newborn {
        let pid = self.supervisor.table.next_pid();
        let row = ProcessRow {
            parent,
            origin,
            ..ProcessRow::started(pid, program.name())
        };
        Newborn {
            row,
            program,
            image,
        }
    }

    /// Makes births durable, all together; they run once they are. In a tree that was stopped they
    /// are born stopped.
    pub(crate) fn bear(&mut self, mut newborns: Vec<Newborn>) -> Held {
        let mut entries = Vec::new();
        for born in newborns
            .iter_mut()
            .filter(|born| self.supervisor.table.is_halted(born.row.parent))
        {
            self.tally.count("children born stopped");
            born.image.control = Control::Stopped;
        }
        for born in &newborns {
            self.check_birth(born)?;
            let image = encode_image((*born.image).clone(), &mut entries);
            entries.push(Entry::Born {
                row: born.row.clone(),
                image,
            });
            self.supervisor.table.reserve(&born.row);
        }
        self.append(entries, Ack::Born { newborns });
        Ok(())
    }

    fn born(&mut self, newborns: Vec<Newborn>) -> Held {
        let rows: Vec<_> = newborns.iter().map(|born| born.row.clone()).collect();
        let holds = newborns.len() > 1 && newborns.iter().all(waits_for_its_sibling);
        let mut newborns = newborns.into_iter();
        if holds && let Some(first) = newborns.next() {
            self.hold_back(first, newborns.collect())?;
        } else {
            newborns.try_for_each(|born| self.first_run(born, Vec::new()))?;
        }
        rows.iter().for_each(|row| self.report_start(row));
        Ok(())
    }

    fn hold_back(&mut self, first: Newborn, others: Vec<Newborn>) -> Held {
        self.tally.count("siblings held back");
        let pids: Vec<_> = others.iter().map(|born| born.row.pid).collect();
        self.supervisor
            .held_back
            .extend(others.into_iter().map(|born| (born.row.pid, born)));
        self.first_run(first, pids.clone())?;
        let spoken_to = pids
            .iter()
            .copied()
            .filter(|pid| self.supervisor.table.is_spoken_to(*pid))
            .collect();
        self.release(spoken_to)?;
        self.schedule.after(
            LONGEST_HOLD_MS,
            Event::Supervisor(SupervisorMessage::Release { pids }),
        );
        Ok(())
    }

    fn release(&mut self, pids: Vec<Pid>) -> Held {
        for pid in pids {
            if let Some(born) = self.supervisor.held_back.remove(&pid) {
                self.first_run(born, Vec::new())?;
            }
        }
        Ok(())
    }

    fn first_run(&mut self, born: Newborn, siblings: Vec<Pid>) -> Held {
        let pid = born.row.pid;
        match State::from_image(pid, born.program, self.programs.around.clone(), *born.image) {
            Ok(state) => self.begin(state, 0, 0, siblings),
            Err(error) => self.give_up(pid, &error.to_string()),
        }
        Ok(())
    }

    /// Starts a life of a process: it takes the signals that waited for it, resumes, then takes the
    /// rest.
    fn begin(&mut self, state: State, last: u64, snapshot_at: u64, siblings: Vec<Pid>) {
        let pid = state.pid();
        let root = self.supervisor.table.root(pid);
        let Some(waiting) = self.supervisor.table.begin(pid) else {
            return;
        };
        self.lives += 1;
        let life = self.lives;
        self.begin_ledger(&state, last);
        self.running.insert(
            pid,
            Running::new(life, state, root, last, snapshot_at, siblings),
        );
        self.supervisor.table.set_run(pid, Run::Running(life));
        waiting
            .into_iter()
            .for_each(|input| self.deliver(pid, input));
    }

    fn send_to_sleep(&mut self, pid: Pid) {
        if let Some(life) = self.supervisor.table.fall_asleep(pid) {
            let delay = self.delay();
            let message = ProcessMessage::Hibernate;
            self.schedule.send(
                SUPERVISOR,
                pid.0,
                delay,
                Event::Process { pid, life, message },
            );
        }
    }

    /// A process is only its journal. What arrived meanwhile wakes it.
    fn asleep(&mut self, pid: Pid, life: u64) {
        if self.supervisor.table.run_of(pid) != Some(Run::FallingAsleep(life)) {
            return;
        }
        self.tally.count("processes that hibernated");
        self.supervisor.table.set_run(pid, Run::Hibernated);
        if self.supervisor.table.has_waiting(pid) {
            self.tally
                .count("inputs that met a process on its way to sleep");
            self.wake(pid);
        }
    }

    fn load(&mut self, pid: Pid) {
        if self.supervisor.table.run_of(pid) == Some(Run::Hibernated) {
            self.tally.count("processes that woke");
        }
        self.supervisor.table.loading(pid);
        self.append(Vec::new(), Ack::Load { pid });
    }

    fn loaded(&mut self, pid: Pid) -> Held {
        let disk = &self.store.disk;
        let (state, last) = disk.read(&self.programs, pid, None, From::Snapshot, self.defect)?;
        self.check_recovered(&state, last)?;
        self.tally.count("journals read");
        self.begin(state, last, last, Vec::new());
        Ok(())
    }

    pub(crate) fn wake(&mut self, pid: Pid) {
        if matches!(
            self.supervisor.table.run_of(pid),
            Some(Run::Held | Run::Hibernated)
        ) {
            self.load(pid);
        }
    }

    /// Hands over an input: at once where the process runs, once it does where it is being read or
    /// sleeps.
    pub(crate) fn deliver(&mut self, pid: Pid, input: Input) {
        let is_alive = |life| {
            self.running
                .get(&pid)
                .is_some_and(|running| running.life == life)
        };
        let Some(taken) = self.supervisor.table.deliver(pid, input, is_alive) else {
            return self.return_posts(pid, None);
        };
        if let Some((life, input)) = taken {
            self.note_post(pid, life, &input);
            let message = ProcessMessage::Input(Box::new(input));
            let delay = self.delay();
            self.schedule.send(
                SUPERVISOR,
                pid.0,
                delay,
                Event::Process { pid, life, message },
            );
        }
        self.wake(pid);
        if self.supervisor.held_back.contains_key(&pid) {
            self.schedule.after(
                0,
                Event::Supervisor(SupervisorMessage::Release { pids: vec![pid] }),
            );
        }
    }

    fn signal_tree(&mut self, root: Pid, signal: Signal) {
        if !self.supervisor.table.lives(root) {
            return;
        }
        for pid in self.supervisor.table.tree(root) {
            if let Signal::Stop | Signal::Continue = signal {
                self.supervisor.table.halt(pid, signal == Signal::Stop);
            }
            self.deliver(pid, Input::Signal(signal));
        }
    }

    fn copy_of(&mut self, pid: Pid) -> Held {
        match self.running.get(&pid).map(|running| running.life) {
            Some(life) => {
                let delay = self.delay();
                let message = ProcessMessage::Copy;
                self.schedule.send(
                    SUPERVISOR,
                    pid.0,
                    delay,
                    Event::Process { pid, life, message },
                );
                Ok(())
            }
            None => self.restore(pid, None),
        }
    }

    fn faulted(&mut self, pid: Pid, life: u64) {
        let Some(faults) = self.supervisor.table.fault(pid, life) else {
            return;
        };
        if faults > MOST_FAULTS {
            return self.give_up(pid, "it faulted too often");
        }
        let pause = 50 << (faults - 1);
        self.schedule
            .after(pause, Event::Supervisor(SupervisorMessage::Restart { pid }));
    }

    fn give_up(&mut self, pid: Pid, reason: &str) {
        self.tally.count("processes given up");
        let exit = Exit::new(ExitStatus::Faulted, reason);
        self.append(
            vec![Entry::Ended {
                pid,
                exit: exit.clone(),
            }],
            Ack::GivenUp { pid, exit },
        );
    }

    /// The kernel is gone with all that it knew; a new one has the process table of the store.
    pub(crate) fn new_supervisor(&mut self) {
        let rows = self
            .store
            .disk
            .journals
            .values()
            .map(|journal| journal.row.clone())
            .collect();
        self.supervisor = Supervisor {
            table: Table::new(rows),
            held_back: BTreeMap::new(),
        };
    }
}

fn waits_for_its_sibling(born: &Newborn) -> bool {
    matches!(born.row.origin, Origin::Forked { .. })
        && born.program.limits().fork_release == ForkRelease::First
}
