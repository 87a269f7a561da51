//! The host of the simulated kernel: starts processes, speaks, hands over contents, calls tools,
//! sends back, forks, signals, and pulls the plug.

use dormouse_content::CappedBytes;
use dormouse_kernel::process::{
    Birth, CheckpointImage, CheckpointInfo, HostRequest, Input, Preloads, Signal, Verdict,
    initial_image,
};
use dormouse_proto::alarm::AlarmId;
use dormouse_proto::budget::Budget;
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::process::{Origin, Priority};
use dormouse_proto::record::{HoldReason, Lifetime};
use dormouse_proto::tool::Access;

use crate::event::{Event, SupervisorMessage};
use crate::invariants::Held;
use crate::process::Running;
use crate::schedule::{HOST, SUPERVISOR};
use crate::store::From;
use crate::supervisor::table::place;
use crate::world::World;

const MOST_LIVING: usize = 14;
/// What a person raises limits by.
pub(crate) const RAISE: Budget = Budget {
    input_tokens: None,
    output_tokens: Some(60),
    cost_nanos: None,
    wall_time_ms: Some(2_000),
    processes: None,
    depth: None,
    resident_bytes: None,
};

impl World {
    pub(crate) fn act(&mut self) -> Held {
        let living = self.supervisor.table.living();
        let all = self.supervisor.table.all();
        let (Some(pid), Some(any)) = (self.random.pick(&living), self.random.pick(&all)) else {
            self.start_root();
            return Ok(());
        };
        if self.random.percent(25) {
            self.answer_any_held();
        }
        if self.random.percent(12) {
            self.raise_any_paused();
        }
        if self.random.percent(4) {
            self.raise_any_label();
        }
        match self.random.below(1_000) {
            0..35 if living.len() < MOST_LIVING => self.start_root(),
            0..305 => self.speak(pid),
            // One that has ended is opened again.
            305..330 => self.speak(any),
            330..430 => self.open(pid),
            430..600 => self.call_tool(pid),
            600..635 => self.send_back(pid),
            635..650 => self.take_back(pid)?,
            650..700 => self.signal(pid, Signal::Interrupt),
            700..740 => self.signal(pid, Signal::Stop),
            740..810 => self.signal(pid, Signal::Continue),
            810..835 => self.signal(pid, Signal::Kill),
            835..870 => self.signal_tree_of(pid),
            870..890 if living.len() < MOST_LIVING => self.fork_any(any),
            890..905 if living.len() < MOST_LIVING => self.restore_any(any)?,
            905..920 => self.fault(pid),
            920..923 => self.fault_again_and_again(pid),
            923..931 => self.schedule.after(0, Event::Crash),
            931..940 => self.speak(pid),
            940..950 => self.cancel_alarm(pid),
            950..980 => self.ask_supervisor(SupervisorMessage::Hibernate { pid }),
            _ => self.ask_supervisor(SupervisorMessage::Resume { pid }),
        }
        Ok(())
    }

    pub(crate) fn start_root(&mut self) {
        self.tally.count("processes started");
        let at = self.random.index(self.programs.roots.len());
        let program = self.programs.roots[at].clone();
        let lifetime = if self.random.percent(65) {
            Lifetime::Session
        } else {
            Lifetime::Task
        };
        let access = self
            .random
            .pick(&[Access::Admin, Access::Admin, Access::Admin, Access::Write])
            .unwrap_or(Access::Admin);
        let said = format!("Begin {}.", self.tokens.make(None)).as_str().into();
        let (priority, preloads) = (Priority::Normal, &Preloads::default());
        let birth = Birth {
            access,
            depth: 0,
            lifetime,
            priority,
            preloads,
            input: Some(&said),
        };
        let image = Box::new(initial_image(
            &program,
            &self.programs.around,
            birth,
            self.time_ms(),
        ));
        let name = self
            .random
            .pick(&[None, None, Some("planner"), Some("archive")])
            .flatten()
            .map(Into::into);
        self.ask_supervisor(SupervisorMessage::Start {
            program,
            image,
            origin: Origin::Started,
            name,
        });
    }

    fn ask_supervisor(&mut self, message: SupervisorMessage) {
        let delay = self.delay();
        self.schedule
            .send(HOST, SUPERVISOR, delay, Event::Supervisor(message));
    }

    fn tell(&mut self, pid: Pid, input: Input) {
        self.ask_supervisor(SupervisorMessage::Deliver {
            pid,
            input: Box::new(input),
        });
    }

    fn speak(&mut self, pid: Pid) {
        let text = self.words(pid);
        let from = if self.random.percent(20) {
            Sender::Process(Pid(77))
        } else {
            Sender::Host
        };
        self.tell(
            pid,
            Input::UserInput {
                from,
                user_input: text.as_str().into(),
            },
        );
    }

    fn cancel_alarm(&mut self, pid: Pid) {
        let request_id = self.new_ticket();
        let id = AlarmId(1 + self.random.below(3) as u32);
        let request = HostRequest::CancelAlarm(id);
        self.tell(
            pid,
            Input::Host {
                request_id,
                request,
            },
        );
    }

    fn new_ticket(&mut self) -> std::sync::Arc<str> {
        self.last_use += 1;
        format!("host:{}", self.last_use).into()
    }

    fn open(&mut self, pid: Pid) {
        let (request_id, token) = (self.new_ticket(), self.tokens.make(Some(pid)));
        let text = format!("handed over {token}\n").repeat(self.random.index(6));
        let capped = CappedBytes {
            bytes: text.into(),
            cut_bytes: self.random.below(2),
        };
        let page_chars = self.random.pick(&[None, Some(7), Some(30)]).flatten();
        self.tell(
            pid,
            Input::Host {
                request_id,
                request: HostRequest::Open {
                    capped,
                    source: "file:notes".to_owned(),
                    page_chars,
                },
            },
        );
    }

    fn call_tool(&mut self, pid: Pid) {
        let Some(running) = self.running.get(&pid) else {
            return;
        };
        let state = running.state.clone();
        let (tool, args) = self.call(&state);
        let request_id = self.new_ticket();
        let gives_up = self.random.percent(15);
        self.tell(
            pid,
            Input::Host {
                request_id: request_id.clone(),
                request: HostRequest::Call { tool, args },
            },
        );
        if gives_up {
            self.tell(
                pid,
                Input::Host {
                    request_id,
                    request: HostRequest::Cancel,
                },
            );
        }
    }

    /// A verdict on a call that a process holds. At times it comes twice, or goes to another
    /// process.
    fn answer_any_held(&mut self) {
        let held = self.running.iter().flat_map(|(pid, running)| {
            let calls = running.state.phase().held_calls();
            calls.map(|(pending_call, hold)| (*pid, pending_call.call, hold.reason.clone()))
        });
        let held: Vec<_> = held.collect();
        if held.is_empty() {
            return;
        }
        let (pid, call, reason) = held[self.random.index(held.len())].clone();
        if reason == HoldReason::Speculation && self.random.percent(80) {
            return self.choose(pid);
        }
        let is_question = reason == HoldReason::Question;
        let is_repeated = matches!(reason, HoldReason::Repeats { effect: Some(_) });
        let verdict = match self.random.below(10) {
            0 => Verdict::Refuse {
                why: "not now".to_owned(),
            },
            _ if reason == HoldReason::Speculation => Verdict::Recall,
            1..8 if is_question => Verdict::Answer {
                value: "yes".into(),
            },
            1..5 if is_repeated => Verdict::Recall,
            1..3 => Verdict::Approve {
                args: Some("{\"query\": \"edited\"}".to_owned()),
            },
            _ => Verdict::Approve { args: None },
        };
        let others: Vec<_> = self.running.keys().copied().collect();
        let to = match self.random.percent(10) {
            true => self.random.pick(&others).unwrap_or(pid),
            false => pid,
        };
        let times = if self.random.percent(20) { 2 } else { 1 };
        for _ in 0..times {
            let request_id = self.new_ticket();
            if matches!(verdict, Verdict::Approve { .. }) {
                self.approved.insert((to, call));
            }
            let verdict = verdict.clone();
            self.tell(
                to,
                Input::Host {
                    request_id,
                    request: HostRequest::AnswerHeld { call, verdict },
                },
            );
        }
    }

    /// Raises the limits of a process that is paused, or of any. It may not be enough.
    fn raise_any_paused(&mut self) {
        let is_chosen = |running: &&Running| running.state.paused().is_some();
        let paused: Vec<_> = self.running.values().filter(is_chosen).collect();
        let any: Vec<_> = self.running.values().collect();
        let from = match paused.is_empty() {
            true => any,
            false => paused,
        };
        let Some(running) = self.random.pick(&from) else {
            return;
        };
        let limits = *running.state.budget().limits();
        let by = match running.state.paused() {
            Some(paused) => Budget::default().with(paused.amount, RAISE.limit(paused.amount)),
            None => RAISE,
        };
        self.raise(running.pid(), by, limits);
    }

    /// Raises limits. The share of a child is raised first.
    pub(crate) fn raise(&mut self, pid: Pid, by: Budget, limits: Budget) {
        let request_id = self.new_ticket();
        let row = self.supervisor.table.row(pid);
        let parent = row.and_then(|row| Some((row.parent?, place(&row.origin)?)));
        let Some((parent, (call, index))) = parent else {
            let expected = None;
            let request = HostRequest::Raise { by, expected };
            return self.tell(
                pid,
                Input::Host {
                    request_id,
                    request,
                },
            );
        };
        self.raises.insert(request_id.clone(), (pid, by, limits));
        let limits = limits.raised_by(&by);
        let request = HostRequest::RaiseShare {
            call,
            index,
            limits,
        };
        self.tell(
            parent,
            Input::Host {
                request_id,
                request,
            },
        );
    }

    /// A parent has reserved a larger share for a child, or has not.
    pub(crate) fn share_is_raised(&mut self, request_id: &str, is_refused: bool) {
        let Some((pid, by, limits)) = self.raises.remove(request_id) else {
            return;
        };
        if is_refused {
            return self.tally.count("raises refused by a parent");
        }
        self.tally.count("shares raised");
        let request_id = self.new_ticket();
        let expected = Some(limits);
        let request = HostRequest::Raise { by, expected };
        self.tell(
            pid,
            Input::Host {
                request_id,
                request,
            },
        );
    }

    /// A branch wins.
    fn choose(&mut self, pid: Pid) {
        let (request_id, request) = (self.new_ticket(), HostRequest::EndSpeculation);
        self.chosen.insert(pid);
        self.tell(
            pid,
            Input::Host {
                request_id,
                request,
            },
        );
    }

    fn send_back(&mut self, pid: Pid) {
        let (request_id, message) = (self.new_ticket(), self.words(pid));
        let position = format!("msg:{}", 1 + self.random.below(8));
        self.tell(
            pid,
            Input::Host {
                request_id,
                request: HostRequest::Goto { position, message },
            },
        );
    }

    /// Back to how it stood after any fact that is on the disk, in place.
    fn take_back(&mut self, pid: Pid) -> Held {
        let last = self.store.disk.last(pid);
        if self.store.disk.journals.contains_key(&pid) {
            let at = self.random.below(last + 1);
            let (state, at) =
                self.store
                    .disk
                    .read(&self.programs, pid, Some(at), From::Snapshot, self.defect)?;
            let (request_id, at) = (self.new_ticket(), FactNumber(at));
            let kept = CheckpointInfo {
                id: CheckpointId(self.last_use),
                label: "any".into(),
                at,
                scope: Scope::Process,
            };
            let standing = Box::new(CheckpointImage {
                checkpoint: kept,
                image: state.image(),
            });
            self.tell(
                pid,
                Input::Host {
                    request_id,
                    request: HostRequest::Restore(standing),
                },
            );
        }
        Ok(())
    }

    fn signal(&mut self, pid: Pid, signal: Signal) {
        self.tell(pid, Input::Signal(signal));
    }

    fn signal_tree_of(&mut self, pid: Pid) {
        self.tally.count("signals to a tree");
        let signals = [
            Signal::Stop,
            Signal::Stop,
            Signal::Continue,
            Signal::Continue,
            Signal::Interrupt,
            Signal::Kill,
        ];
        if let Some(signal) = self.random.pick(&signals) {
            let root = self.supervisor.table.root(pid);
            self.ask_supervisor(SupervisorMessage::SignalTree { root, signal });
        }
    }

    /// A process that does not get better: its supervisor gives it up.
    fn fault_again_and_again(&mut self, pid: Pid) {
        (0..8).for_each(|time| self.schedule.after(time * 1_500, Event::Fault { pid }));
    }

    /// A stop of a whole tree that races with a birth in it.
    pub(crate) fn stop_tree_of(&mut self, pid: Pid) {
        let root = self.supervisor.table.root(pid);
        self.ask_supervisor(SupervisorMessage::SignalTree {
            root,
            signal: Signal::Stop,
        });
    }

    fn fork_any(&mut self, pid: Pid) {
        self.ask_supervisor(SupervisorMessage::Copy { pid });
    }

    /// Time travel: a new process from any fact that is on the disk.
    fn restore_any(&mut self, pid: Pid) -> Held {
        let at = self.random.below(self.store.disk.last(pid) + 1);
        self.restore(pid, Some(at))
    }

    /// Lets everything go on that was stopped or sleeps, so that the world can come to rest.
    pub(crate) fn let_all_go_on(&mut self) {
        self.lift_labels();
        for pid in self.supervisor.table.living() {
            self.ask_supervisor(SupervisorMessage::Resume { pid });
            self.signal(pid, Signal::Continue);
            if self.speculative.contains(&pid) && self.random.percent(50) {
                self.choose(pid);
            }
        }
        let limits = self
            .running
            .values()
            .filter(|running| running.state.paused().is_some())
            .map(|running| (running.pid(), *running.state.budget().limits()));
        for (pid, limits) in limits.collect::<Vec<_>>() {
            self.raise(pid, RAISE, limits);
        }
    }

    pub(crate) fn kill_all(&mut self) {
        for pid in self.supervisor.table.living() {
            self.signal(pid, Signal::Kill);
        }
    }
}
