//! The shell of one process, as `actors/src/process.rs` is: feeds the machine, sends its facts on
//! their way, and performs its effects once they are durable. A step of the simulation is one input
//! that is decided here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dormouse_content::ReadQuota;
use dormouse_kernel::labels::LabelChange;
use dormouse_kernel::process::{
    Completion, Decision, Effect, Fact, Input, Read, Reopening, Signal, State, Work, decide,
    evolve, image_of_copy, with_effects_of, with_speculation,
};
use dormouse_proto::effect::RepeatRule;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::Origin;
use dormouse_proto::record::{Phase, Speculation};
use dormouse_proto::tool::{ExternalTool, ToolPolicy};

use crate::defect::Defect;
use crate::event::{Ack, Event, ProcessMessage, SupervisorMessage, completes, name, request_id};
use crate::invariants::Held;
use crate::schedule::{HOST, SUPERVISOR};
use crate::store::{Entry, From, encode_fact, encode_image};
use crate::world::World;

const SNAPSHOT_AFTER: u64 = 24;

/// One life of a process.
pub(crate) struct Running {
    pub(crate) life: u64,
    pub(crate) state: State,
    pub(crate) root: Pid,
    last: u64,
    snapshot_at: u64,
    /// Siblings that wait for its first word.
    siblings: Vec<Pid>,
    pub(crate) undurable: VecDeque<Pending>,
    pub(crate) in_flight: BTreeMap<CallId, u64>,
    /// Arrivals whose reads are pending, one after the other; the first is being read.
    arrivals: VecDeque<Read>,
    pub(crate) tickets: BTreeSet<Arc<str>>,
    /// The time that a timer of the supervisor runs for.
    pub(crate) wake_at: Option<u64>,
    /// When this life began, a process above it was paused, and that has not been raised since.
    pub(crate) begins_below_paused: bool,
    /// Usage of the last step that is not journalled.
    used: Usage,
}

/// What waits for facts to become durable.
pub(crate) struct Pending {
    pub(crate) up_to: u64,
    state: State,
    effects: Vec<Effect>,
    is_copy: bool,
}

/// Whether a process goes on after an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoesOn,
    Ends,
}

impl Running {
    pub(crate) fn new(
        life: u64,
        state: State,
        root: Pid,
        last: u64,
        snapshot_at: u64,
        siblings: Vec<Pid>,
    ) -> Self {
        Self {
            life,
            state,
            root,
            last,
            snapshot_at,
            siblings,
            undurable: VecDeque::new(),
            in_flight: BTreeMap::new(),
            arrivals: VecDeque::new(),
            tickets: BTreeSet::new(),
            wake_at: None,
            begins_below_paused: false,
            used: Usage::default(),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.state.pid()
    }

    /// The number of its last fact, durable or not.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// What was decided but not yet begun for a call that is given up is never begun.
    fn forget_abandoned(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Abandon { calls } = effect {
                self.undurable.iter_mut().for_each(|pending| {
                    pending
                        .effects
                        .retain(|effect| !effect.starts_work_for(calls))
                });
            }
        }
    }
}

impl World {
    pub(crate) fn process(&mut self, pid: Pid, life: u64, message: ProcessMessage) -> Held {
        let Some(mut running) = self.running.remove(&pid) else {
            return Ok(());
        };
        if running.life != life {
            self.running.insert(pid, running);
            return Ok(());
        }
        let after = match message {
            ProcessMessage::Input(input) => self.take(&mut running, *input),
            ProcessMessage::Committed { up_to } => self.committed(&mut running, up_to),
            ProcessMessage::Copy => self.copy(&mut running),
            ProcessMessage::Hibernate => self
                .check_before(&running)
                .map(|()| self.hibernate(&mut running)),
            ProcessMessage::Imaged => self
                .check_before(&running)
                .map(|()| self.fall_asleep(&mut running)),
        }?;
        match after {
            After::GoesOn => drop(self.running.insert(pid, running)),
            After::Ends => self.drop_life(running),
        }
        Ok(())
    }

    /// Goes to sleep on an image at its last fact, if nothing is pending. Nothing is delivered
    /// until that is answered.
    fn hibernate(&mut self, running: &mut Running) -> After {
        let (pid, life) = (running.pid(), running.life);
        let is_pending = !running.in_flight.is_empty() || !running.undurable.is_empty();
        if running.state.busy_reason().is_some() || is_pending {
            self.tally.count("processes that stayed awake");
            let delay = self.delay();
            let message = SupervisorMessage::StaysAwake { pid, life };
            self.schedule
                .send(pid.0, SUPERVISOR, delay, Event::Supervisor(message));
            return After::GoesOn;
        }
        if running.snapshot_at == running.last {
            return self.fall_asleep(running);
        }
        let mut entries = Vec::new();
        let image = encode_image(running.state.image(), &mut entries);
        entries.push(Entry::Snapshot {
            pid,
            at: running.last,
            image,
        });
        self.append(entries, Ack::Imaged { pid, life });
        After::GoesOn
    }

    fn fall_asleep(&mut self, running: &mut Running) -> After {
        let (pid, life) = (running.pid(), running.life);
        self.note(|now| format!("{now}: {pid} hibernates"));
        let delay = self.delay();
        self.schedule.send(
            pid.0,
            SUPERVISOR,
            delay,
            Event::Supervisor(SupervisorMessage::Asleep { pid, life }),
        );
        After::Ends
    }

    /// A life is over, by its end, a fault or a crash: nothing of it goes on.
    pub(crate) fn drop_life(&mut self, mut running: Running) {
        self.return_posts(running.pid(), Some(running.life));
        self.return_openings(running.pid(), Some(running.life));
        self.say_first_word(&mut running);
        for task in running.in_flight.values() {
            self.tasks.remove(task);
        }
    }

    pub(crate) fn say_first_word(&mut self, running: &mut Running) {
        let pids = std::mem::take(&mut running.siblings);
        if !pids.is_empty() {
            let delay = self.delay();
            self.schedule.after(
                delay,
                Event::Supervisor(SupervisorMessage::Release { pids }),
            );
        }
    }

    fn take(
        &mut self,
        running: &mut Running,
        input: Input,
    ) -> Result<After, crate::invariants::Violation> {
        if matches!(input, Input::Signal(Signal::Release)) && self.is_exhausted(running.pid()) {
            self.hold_by_label(running.pid());
            return Ok(After::GoesOn);
        }
        if self.must_suspend(running, &input) && self.suspend(running)? == After::Ends {
            return Ok(After::Ends);
        }
        self.steps += 1;
        let word = name(&input);
        self.tally.count_of("input", word);
        self.note(|now| {
            format!(
                "{now}: {} takes {word} {:?}",
                running.pid(),
                completes(&input)
            )
        });
        running.tickets.extend(request_id(&input));
        // As the shell does: the task is forgotten, and goes on if it is another one of the call.
        if let Input::Completed { call, .. } = &input {
            running.in_flight.remove(call);
        }
        if matches!(
            input,
            Input::Completed {
                result: Completion::Model(_),
                ..
            }
        ) {
            self.say_first_word(running);
        }
        if matches!(input, Input::Placed(_)) {
            running.arrivals.pop_front();
            self.read_arrival(running);
        }
        self.check_before(running)?;
        self.check_input(running.pid(), &input)?;
        let mut before = running.state.clone();
        let is_completion = completes(&input).is_some();
        let resumes = matches!(input, Input::Signal(Signal::Resume));
        if matches!(input, Input::WakeDue) {
            running.wake_at = None;
        }
        let now = self.time_ms();
        // What is read within the handler is decided on in the same step; what is not comes back
        // later. A tampered state is made of facts, which do not say what is being read.
        let reads_all = self.defect.is_some();
        let inline = if self.random.percent(70) { u64::MAX } else { 0 };
        let decide = |state: &State, input| match decide(state, input, now) {
            decision if reads_all => decision.read_all(now),
            decision => decision.read_inline(inline, now),
        };
        let mut known = self.tampered_state(&running.state, &input);
        let mut decision = decide(known.as_ref().unwrap_or(&running.state), input.clone());
        self.charge(running, &decision);
        if decision.begins_work() && self.must_suspend(running, &input) {
            // The decision has used the budget of a label up: it is made in a suspended process.
            if self.suspend(running)? == After::Ends {
                return Ok(After::Ends);
            }
            before = running.state.clone();
            known = self.tampered_state(&running.state, &input);
            decision = decide(known.as_ref().unwrap_or(&running.state), input);
        }
        let Decision {
            facts,
            state,
            reads,
            mut effects,
            reopening,
        } = decision;
        let decided = facts.clone();
        let facts = self.tampered(&before, facts);
        // Only `decide` knows which calls wait to be repeated: facts alone do not say it. What a
        // tampered state lacks is not lost for good.
        if facts == decided && known.is_none() {
            running.state = state;
        } else {
            facts
                .iter()
                .for_each(|fact| evolve(&mut running.state, fact));
        }
        if is_completion && facts.is_empty() {
            self.tally.count("stale completions");
        }
        if resumes && self.defect == Some(Defect::StartsAToolAgain) {
            effects.extend(begun_again(&before));
        }
        if self.defect == Some(Defect::LeaksIntoTheParent) {
            self.leak(running.pid(), &facts);
        }
        if self.defect == Some(Defect::ChangesAContent) {
            self.change_a_content(running);
        }
        self.check_step(running, &before, &facts, &effects)?;
        running.used = running.state.usage().saturating_sub(before.usage());
        let after = self.persist(running, &facts, effects, reopening)?;
        if running.wake_at != running.state.waiting().wake_ms() {
            running.wake_at = running.state.waiting().wake_ms();
            self.set_timer(running.pid(), running.wake_at);
        }
        for read in reads {
            match read.call() {
                Some(call) => self.read(running, call, &read),
                None => {
                    running.arrivals.push_back(read);
                    if running.arrivals.len() == 1 {
                        self.read_arrival(running);
                    }
                }
            }
        }
        Ok(after)
    }

    /// A label of its tree has used up its budget: the process begins nothing.
    fn suspend(&mut self, running: &mut Running) -> Result<After, crate::invariants::Violation> {
        self.hold_by_label(running.pid());
        self.take(running, Input::Signal(Signal::Suspend))
    }

    /// The first arrival is read on the pool: it comes back later.
    fn read_arrival(&mut self, running: &mut Running) {
        let Some(read) = running.arrivals.front() else {
            return;
        };
        self.tally.count("arrivals read on the pool");
        let placed = read
            .perform(ReadQuota::unlimited())
            .expect("nothing limits it");
        let (pid, life) = (running.pid(), running.life);
        let delay = self.random.below(60);
        let message = ProcessMessage::Input(Box::new(placed));
        self.schedule
            .after(delay, Event::Process { pid, life, message });
    }

    fn persist(
        &mut self,
        running: &mut Running,
        facts: &[Fact],
        effects: Vec<Effect>,
        reopening: Option<Reopening>,
    ) -> Result<After, crate::invariants::Violation> {
        running.forget_abandoned(&effects);
        let first = running.last + 1;
        running.last += facts.len() as u64;
        let pending = Pending {
            up_to: running.last,
            state: running.state.clone(),
            effects,
            is_copy: false,
        };
        let hasty = self.defect == Some(Defect::ActsBeforeItIsDurable);
        if hasty || (facts.is_empty() && running.undurable.is_empty()) {
            if !facts.is_empty() {
                self.journal(running, first, facts, reopening)?;
            }
            return self.settle(running, pending);
        }
        running.undurable.push_back(pending);
        if !facts.is_empty() {
            self.journal(running, first, facts, reopening)?;
        }
        Ok(After::GoesOn)
    }

    fn journal(
        &mut self,
        running: &mut Running,
        first: u64,
        facts: &[Fact],
        reopening: Option<Reopening>,
    ) -> Held {
        let (pid, up_to) = (running.pid(), running.last);
        let mut entries = Vec::new();
        let facts = facts
            .iter()
            .map(|fact| encode_fact(fact, &mut entries))
            .collect();
        entries.push(Entry::Facts { pid, first, facts });
        let usage = std::mem::take(&mut running.used);
        if usage != Usage::default() {
            let labels = self.labels_of(pid);
            entries.push(Entry::Label(LabelChange::Used { labels, usage }));
        }
        let waiting = running.state.waiting();
        let is_paused = running.state.paused().is_some();
        entries.push(Entry::Waiting {
            pid,
            waiting,
            is_paused,
        });
        if let Some(exit) = running.state.exit() {
            entries.push(Entry::Ended {
                pid,
                exit: exit.clone(),
            });
        } else if up_to - running.snapshot_at >= SNAPSHOT_AFTER {
            self.tally.count("snapshots");
            running.snapshot_at = up_to;
            let image = encode_image(running.state.image(), &mut entries);
            entries.push(Entry::Snapshot {
                pid,
                at: up_to,
                image,
            });
        }
        let reopened = reopening.map(|reopening| self.open_entries(reopening, &mut entries));
        let reopened = reopened.transpose()?;
        self.append(
            entries,
            Ack::Facts {
                pid,
                life: running.life,
                up_to,
                reopened,
            },
        );
        Ok(())
    }

    fn committed(
        &mut self,
        running: &mut Running,
        up_to: u64,
    ) -> Result<After, crate::invariants::Violation> {
        while let Some(pending) = running
            .undurable
            .pop_front_if(|pending| pending.up_to <= up_to)
        {
            if self.settle(running, pending)? == After::Ends {
                return Ok(After::Ends);
            }
        }
        Ok(After::GoesOn)
    }

    /// What was decided is durable: whoever waits for it is told, and its effects begin.
    fn settle(
        &mut self,
        running: &mut Running,
        pending: Pending,
    ) -> Result<After, crate::invariants::Violation> {
        let pid = running.pid();
        self.check_acknowledged(pid, pending.up_to, &pending.effects)?;
        if pending.is_copy {
            self.fork_for_host(pid, pending.up_to, &pending.state);
        }
        if let Some(ledger) = self.ledgers.get_mut(&pid) {
            ledger.witness = Some((pending.up_to, pending.state));
        }
        for effect in pending.effects {
            if self.perform(running, effect)? == After::Ends {
                return Ok(After::Ends);
            }
        }
        Ok(After::GoesOn)
    }

    fn copy(&mut self, running: &mut Running) -> Result<After, crate::invariants::Violation> {
        let state = running.state.clone();
        let pending = Pending {
            up_to: running.last,
            state,
            effects: Vec::new(),
            is_copy: true,
        };
        if running.undurable.is_empty() {
            return self.settle(running, pending);
        }
        running.undurable.push_back(pending);
        Ok(After::GoesOn)
    }

    fn fork_for_host(&mut self, pid: Pid, at: u64, state: &State) {
        self.tally.count("forks by the host");
        self.restart_as_new(pid, at, state);
    }

    /// A new process from any fact of a journal.
    pub(crate) fn restore(&mut self, pid: Pid, at: Option<u64>) -> Held {
        if self.store.disk.journals.contains_key(&pid) {
            let (state, at) =
                self.store
                    .disk
                    .read(&self.programs, pid, at, From::Snapshot, self.defect)?;
            self.tally.count("restores");
            self.restart_as_new(pid, at, &state);
        }
        Ok(())
    }

    fn restart_as_new(&mut self, from: Pid, at: u64, state: &State) {
        self.note(|now| {
            format!(
                "{now}: {from} goes on as another from fact {at}, {:?}",
                state.phase()
            )
        });
        let at = dormouse_proto::id::FactNumber(at);
        let origin = Origin::Copied { from, at };
        // What the original does until now lies beyond an earlier state.
        let present = match self.running.get(&from) {
            Some(running) => Some((running.state.clone(), running.last())),
            None => {
                let disk = &mut self.store.disk;
                let read = disk.read(&self.programs, from, None, From::Snapshot, self.defect);
                read.ok()
            }
        };
        let effects = present.as_ref().map(|(state, _)| state.effects());
        let known = present.as_ref().map_or(0, |(_, last)| *last);
        let image = with_effects_of(state.image(), effects, None);
        let image = image_of_copy(image, self.time_ms());
        let speculation = match self.random.percent(30) {
            true => Speculation::Branch,
            false => Speculation::None,
        };
        let image = with_speculation(image, speculation);
        self.note_copy(from, at, &image, known);
        let message = SupervisorMessage::Start {
            program: state.program().clone(),
            image: Box::new(image),
            origin,
            name: None,
        };
        let delay = self.delay();
        self.schedule
            .send(HOST, SUPERVISOR, delay, Event::Supervisor(message));
    }

    /// A fault of one process: its life is lost, and the supervisor hears of it.
    pub(crate) fn fault(&mut self, pid: Pid) {
        if let Some(running) = self.running.remove(&pid) {
            self.tally.count("faults");
            self.note(|now| format!("{now}: {pid} faults"));
            let life = running.life;
            self.drop_life(running);
            let delay = self.delay();
            self.schedule.send(
                pid.0,
                SUPERVISOR,
                delay,
                Event::Supervisor(SupervisorMessage::Faulted { pid, life }),
            );
        }
    }
}

/// The tools that were in flight, as a shell would start them that does not ask the machine.
fn begun_again(state: &State) -> Vec<Effect> {
    let Phase::Acting { pending_calls, .. } = state.phase() else {
        return Vec::new();
    };
    let open = pending_calls.iter().filter(|pending_call| {
        pending_call.started && pending_call.answer.is_none() && &*pending_call.tool == "grep"
    });
    let begin = open.map(|pending_call| Effect::StartWork {
        call: pending_call.call,
        work: Work::Tool {
            tool: ExternalTool {
                name_for_model: pending_call.tool.clone(),
                server: None,
                name: pending_call.tool.clone(),
                policy: ToolPolicy::default(),
                repeat: RepeatRule::default(),
            },
            args: pending_call.args.clone(),
            written: pending_call.args.clone(),
        },
    });
    begin.collect()
}
