//! One simulated kernel and all around it: a loop over events, on one thread, in which nothing
//! happens but by the seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use dormouse_kernel::syscall;
use dormouse_proto::budget::Budget;
use dormouse_proto::id::{CallId, Pid};

use crate::defect::Defect;
use crate::event::{Event, SupervisorMessage};
use crate::files::Forest;
use crate::invariants::fence::{CopyKey, Deed};
use crate::invariants::labels::LabelUse;
use crate::invariants::ledger::Ledger;
use crate::invariants::plain_files::PlainFiles;
use crate::invariants::{Held, Violation, ensure};
use crate::labels::Labels;
use crate::perform::Gathering;
use crate::post::Posts;
use crate::process::Running;
use crate::programs::{HOST_TOOLS, Programs};
use crate::schedule::Schedule;
use crate::store::Store;
use crate::supervisor::Supervisor;
use crate::tally::Tally;
use crate::tokens::Tokens;
use dormouse_tests::random::Random;

/// Time begins here, three seconds before a full minute: milliseconds since the epoch.
const EPOCH_MS: u64 = 1_700_000_037_000;
/// How many of the last events are shown of a world that failed.
const LAST_EVENTS: usize = 40;
/// A world that has not come to rest after so many further steps never does.
const PATIENCE_STEPS: u64 = 30_000;

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) schedule: Schedule<Event>,
    pub(crate) programs: Rc<Programs>,
    pub(crate) names: Vec<String>,
    pub(crate) store: Store,
    pub(crate) supervisor: Supervisor,
    pub(crate) running: BTreeMap<Pid, Running>,
    pub(crate) forest: Forest,
    /// What runs beside the processes and was not given up.
    pub(crate) tasks: BTreeSet<u64>,
    pub(crate) posts: Posts,
    pub(crate) gatherings: BTreeMap<u64, Gathering>,
    /// What was started outside, whatever became of the kernel since.
    pub(crate) started: BTreeMap<(Pid, CallId), u32>,
    pub(crate) ledgers: BTreeMap<Pid, Ledger>,
    /// The calls that the host approved, of each process.
    pub(crate) approved: BTreeSet<(Pid, CallId)>,
    /// Children whose parents were asked for a larger share, what each limit is to be raised by, and
    /// the limits before, by the request.
    pub(crate) raises: BTreeMap<Arc<str>, (Pid, Budget, Budget)>,
    /// The processes that were born as speculative branches.
    pub(crate) speculative: BTreeSet<Pid>,
    /// Those of them that are children of the tool `explore`, or copies of such.
    pub(crate) explorers: BTreeSet<Pid>,
    /// The speculative processes that the host has chosen.
    pub(crate) chosen: BTreeSet<Pid>,
    /// What each process did outside of itself.
    pub(crate) deeds: BTreeMap<Pid, Vec<Deed>>,
    pub(crate) deeds_of_copies: BTreeMap<CopyKey, Vec<Deed>>,
    /// Messages whose senders were told that nothing was kept.
    pub(crate) refused: BTreeSet<(Pid, CallId)>,
    pub(crate) plain_files: BTreeMap<Pid, PlainFiles>,
    pub(crate) labels: Labels,
    /// What all trees with a label have used, beside the book of the kernel.
    pub(crate) label_use: LabelUse,
    pub(crate) tokens: Tokens,
    pub(crate) tally: Tally,
    pub(crate) defect: Option<Defect>,
    pub(crate) steps: u64,
    pub(crate) lives: u64,
    pub(crate) next_task: u64,
    pub(crate) last_use: u64,
    pub(crate) is_draining: bool,
    acts_left: u64,
    trace: VecDeque<String>,
}

/// What a world was that failed.
pub(crate) struct Failure {
    pub(crate) violation: Violation,
    pub(crate) last_events: Vec<String>,
}

impl World {
    pub(crate) fn new(programs: Rc<Programs>, seed: u64, defect: Option<Defect>) -> Self {
        let mut random = Random::new(seed);
        let acts_left = 60 + random.below(300);
        Self {
            random,
            schedule: Schedule::new(),
            programs,
            names: syscall::names()
                .chain(HOST_TOOLS)
                .map(str::to_owned)
                .collect(),
            store: Store::default(),
            supervisor: Supervisor::default(),
            running: BTreeMap::new(),
            forest: Forest::new(),
            tasks: BTreeSet::new(),
            posts: Posts::new(),
            gatherings: BTreeMap::new(),
            started: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            approved: BTreeSet::new(),
            raises: BTreeMap::new(),
            speculative: BTreeSet::new(),
            explorers: BTreeSet::new(),
            chosen: BTreeSet::new(),
            deeds: BTreeMap::new(),
            deeds_of_copies: BTreeMap::new(),
            refused: BTreeSet::new(),
            plain_files: BTreeMap::new(),
            labels: Labels::default(),
            label_use: LabelUse::new(),
            tokens: Tokens::default(),
            tally: Tally::default(),
            defect,
            steps: 0,
            lives: 0,
            next_task: 0,
            last_use: 0,
            is_draining: false,
            acts_left,
            trace: VecDeque::new(),
        }
    }

    /// Runs until everything has ended, or `most_steps` were made.
    pub(crate) fn run(&mut self, most_steps: u64) -> Result<(), Failure> {
        self.live(most_steps).map_err(|violation| Failure {
            violation,
            last_events: std::mem::take(&mut self.trace).into(),
        })
    }

    fn live(&mut self, most_steps: u64) -> Held {
        self.set_first_budgets();
        self.start_root();
        self.schedule.after(5, Event::Host);
        if !self.until_rest(most_steps)? {
            return Ok(());
        }
        self.is_draining = true;
        for _ in 0..2 {
            self.check_rest()?;
            self.let_all_go_on();
            if !self.until_rest(most_steps)? {
                return Ok(());
            }
        }
        self.check_rest()?;
        self.kill_all();
        if !self.until_rest(most_steps)? {
            return Ok(());
        }
        self.check_over()
    }

    /// Until nothing is on its way; false where `most_steps` were made before.
    fn until_rest(&mut self, most_steps: u64) -> Result<bool, Violation> {
        let limit = self.steps + PATIENCE_STEPS;
        while let Some(event) = self.schedule.pop() {
            self.happen(event)?;
            if self.steps >= most_steps {
                return Ok(false);
            }
            ensure(self.steps < limit, "PROGRESS", || {
                "the world never comes to rest".to_owned()
            })?;
        }
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Held {
        match event {
            Event::Process { pid, life, message } => self.process(pid, life, message),
            Event::Supervisor(message) => self.supervise(message),
            Event::Files(message) => self.files(message),
            event @ Event::Done { .. } => {
                self.done(event);
                Ok(())
            }
            Event::Written => self.written(),
            Event::Spoke { pid, life } => {
                if let Some(mut running) = self.running.remove(&pid) {
                    if running.life == life {
                        self.say_first_word(&mut running);
                    }
                    self.running.insert(pid, running);
                }
                Ok(())
            }
            Event::Host => self.host_acts(),
            Event::Fault { pid } => {
                self.fault(pid);
                Ok(())
            }
            Event::Crash => self.crash(),
        }
    }

    fn host_acts(&mut self) -> Held {
        if self.acts_left > 0 {
            self.acts_left -= 1;
            let pause = self.random.below(60);
            self.schedule.after(pause, Event::Host);
            self.act()?;
        }
        Ok(())
    }

    /// The kernel dies; what was not committed is lost, and a new one reads every journal.
    fn crash(&mut self) -> Held {
        self.tally.count("crashes");
        self.note(|now| format!("{now}: the kernel dies"));
        self.schedule.clear();
        self.running.clear();
        self.tasks.clear();
        self.posts.clear();
        self.gatherings.clear();
        self.forest.clear();
        self.cut_store()?;
        self.forget_lost_deeds();
        self.new_supervisor();
        self.check_survivors()?;
        self.label_records()?;
        for pid in self.supervisor.table.living() {
            if self.random.percent(80) {
                self.resume(pid);
            }
        }
        if self.acts_left > 0 {
            self.schedule.after(20, Event::Host);
        }
        Ok(())
    }

    /// The timer of the supervisor for a process. Clocks are set: a time comes early, or late. Once
    /// the host acts no more, alarms fire no more either, so that the world comes to rest.
    pub(crate) fn set_timer(&mut self, pid: Pid, due_ms: Option<u64>) {
        let Some(due_ms) = due_ms.filter(|_| self.acts_left > 0) else {
            return;
        };
        let pause = due_ms.saturating_sub(self.time_ms());
        let delay = match self.random.below(3) {
            0 => pause.saturating_sub(self.random.below(300)),
            1 => pause,
            _ => pause + self.random.below(300),
        };
        let message = SupervisorMessage::WakeDue { pid };
        self.schedule.after(delay, Event::Supervisor(message));
    }

    /// Milliseconds since the epoch.
    pub(crate) fn time_ms(&self) -> u64 {
        EPOCH_MS + self.schedule.now
    }

    /// How long a message takes: mostly no time, at times long enough to be overtaken by anything.
    pub(crate) fn delay(&mut self) -> u64 {
        match self.random.below(20) {
            0..14 => self.random.below(2),
            14..19 => self.random.below(12),
            _ => self.random.below(150),
        }
    }

    pub(crate) fn note(&mut self, line: impl FnOnce(u64) -> String) {
        if self.trace.len() == LAST_EVENTS {
            self.trace.pop_front();
        }
        let line = line(self.schedule.now);
        self.trace.push_back(line);
    }
}
