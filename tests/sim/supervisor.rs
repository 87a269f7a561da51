//! The supervisor of the simulated kernel: births, loads, faults, signals, as
//! `actors/src/supervisor/` does them.

pub(crate) mod family;
mod pausing;
pub(crate) mod reopening;
pub(crate) mod table;

use std::collections::BTreeMap;

use dormouse_kernel::process::{Completion, Image, Input, Signal, State, waiting_of_image};
use dormouse_kernel::program::{ForkRelease, Program};
use dormouse_proto::id::Pid;
use dormouse_proto::process::{Exit, ExitStatus, Origin, ProcessRow, Waiting};
use dormouse_proto::record::Control;

use self::reopening::Openings;
use self::table::{Run, Table};
use crate::event::{Ack, Event, NewProcess, ProcessMessage, SupervisorMessage};
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
    held_back: BTreeMap<Pid, NewProcess>,
    openings: Openings,
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
                let mut new_process = self.new_process(None, program, image, origin);
                new_process.row.name =
                    name.filter(|name| self.supervisor.table.named(name).is_none());
                new_process.row.labels = match new_process.row.origin {
                    Origin::Copied { from, .. } => self.labels_of(from),
                    _ => self.pick_labels(),
                };
                self.create(vec![new_process])
            }
            SupervisorMessage::StartChildren { parent, children } => {
                self.start_children(parent, children)
            }
            SupervisorMessage::Created { new_processes } => self.on_created(new_processes),
            SupervisorMessage::Loaded { pid } => self.loaded(pid),
            SupervisorMessage::Deliver { pid, input } => {
                self.deliver_or_reopen(pid, *input);
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
                reopenings,
            } => self.find_child(parent, call, index, reopenings),
            SupervisorMessage::EndedRead { pid } => self.ended_read(pid),
            SupervisorMessage::Reopened { pid, answer } => {
                self.reopened(pid, answer);
                Ok(())
            }
            SupervisorMessage::SetPaused { pid, is_paused } => {
                self.pause_below(pid, is_paused);
                Ok(())
            }
            SupervisorMessage::KillChildren { parent, calls } => {
                self.kill_children(parent, |call| calls.contains(&call));
                Ok(())
            }
            SupervisorMessage::KillChildrenExcept { parent, calls } => {
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
            SupervisorMessage::WakeDue { pid } => {
                let run = self.supervisor.table.run_of(pid);
                // What is held is not woken.
                if !matches!(run, Some(Run::Held) | None) {
                    self.deliver(pid, Input::WakeDue);
                }
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

    pub(crate) fn new_process(
        &mut self,
        parent: Option<Pid>,
        program: Program,
        image: Box<Image>,
        origin: Origin,
    ) -> NewProcess {
        let pid = self.supervisor.table.next_pid();
        let row = ProcessRow {
            parent,
            origin,
            waiting: waiting_of_image(&image),
            is_paused: image.pausing.paused.is_some(),
            reopenings: image.reopenings,
            ..ProcessRow::started(pid, program.name())
        };
        NewProcess {
            row,
            program,
            image,
        }
    }

    /// Makes births durable, all together; they run once they are. In a tree that was stopped they
    /// are born stopped.
    pub(crate) fn create(&mut self, mut new_processes: Vec<NewProcess>) -> Held {
        let mut entries = Vec::new();
        for created in new_processes
            .iter_mut()
            .filter(|created| self.supervisor.table.is_halted(created.row.parent))
        {
            self.tally.count("children born stopped");
            created.image.control = Control::Stopped;
        }
        for created in &new_processes {
            self.check_birth(created)?;
            self.note_speculation(created.row.pid, created.image.speculation);
            let image = encode_image((*created.image).clone(), &mut entries);
            entries.push(Entry::Created {
                row: created.row.clone(),
                image,
            });
            self.supervisor.table.reserve(&created.row);
        }
        self.append(entries, Ack::Created { new_processes });
        Ok(())
    }

    fn on_created(&mut self, new_processes: Vec<NewProcess>) -> Held {
        let rows: Vec<_> = new_processes
            .iter()
            .map(|created| created.row.clone())
            .collect();
        let holds = new_processes.len() > 1 && new_processes.iter().all(waits_for_its_sibling);
        let mut new_processes = new_processes.into_iter();
        if holds && let Some(first) = new_processes.next() {
            self.hold_back(first, new_processes.collect())?;
        } else {
            new_processes.try_for_each(|created| self.first_run(created, Vec::new()))?;
        }
        rows.iter().for_each(|row| self.report_start(row));
        Ok(())
    }

    fn hold_back(&mut self, first: NewProcess, others: Vec<NewProcess>) -> Held {
        self.tally.count("siblings held back");
        let pids: Vec<_> = others.iter().map(|created| created.row.pid).collect();
        self.supervisor
            .held_back
            .extend(others.into_iter().map(|created| (created.row.pid, created)));
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
            if let Some(created) = self.supervisor.held_back.remove(&pid) {
                self.first_run(created, Vec::new())?;
            }
        }
        Ok(())
    }

    fn first_run(&mut self, created: NewProcess, siblings: Vec<Pid>) -> Held {
        let pid = created.row.pid;
        match State::from_image(
            pid,
            created.program,
            self.programs.around.clone(),
            *created.image,
        ) {
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
        let (waiting, is_paused) = (self.with_hold(waiting, &state), state.paused().is_some());
        self.lives += 1;
        let life = self.lives;
        self.begin_ledger(&state, last);
        let mut running = Running::new(life, state, root, last, snapshot_at, siblings);
        running.begins_below_paused =
            self.is_below_paused_on_disk(pid) && self.supervisor.table.is_below_paused(pid);
        self.running.insert(pid, running);
        self.supervisor.table.set_run(pid, Run::Running(life));
        // The message that said so may be lost with an earlier life.
        self.pause_below(pid, is_paused);
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
        self.check_row(pid, &state)?;
        self.tally.count("journals read");
        self.begin_ledger(&state, last);
        self.check_lives(&state)?;
        self.begin(state, last, last, Vec::new());
        Ok(())
    }

    /// A held process runs again; one that only waits for an alarm or a person is not read.
    pub(crate) fn resume(&mut self, pid: Pid) {
        let table = &self.supervisor.table;
        let row = table.row(pid);
        let waiting = row.map_or(Waiting::Unknown, |row| row.waiting);
        if !waiting.is_resting() || table.has_children(pid) {
            return self.wake(pid);
        }
        self.tally.count(match waiting {
            Waiting::Person { .. } => "processes resumed that wait for a person",
            _ => "processes resumed asleep",
        });
        self.supervisor.table.set_run(pid, Run::Hibernated);
        self.set_timer(pid, waiting.wake_ms());
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
            self.note_opening(pid, life, &input);
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
        let row = self.supervisor.table.row(pid);
        let exit = Exit {
            reopenings: row.map_or(0, |row| row.reopenings),
            ..Exit::new(ExitStatus::Faulted, reason)
        };
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
            openings: Openings::new(),
        };
        self.read_labels();
    }
}

fn waits_for_its_sibling(created: &NewProcess) -> bool {
    matches!(created.row.origin, Origin::Forked { .. })
        && created.program.limits().fork_release == ForkRelease::First
}
