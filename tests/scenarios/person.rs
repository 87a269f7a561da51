//! The person of a small world: approves held calls, some with other arguments, refuses some, and
//! leaves some to a later life of the kernel. What the person decides follows from the seed alone.

use std::collections::{BTreeMap, BTreeSet};

use dormouse::id::{CallId, Pid, ProcessCallId};
use dormouse::record::{CallFact, HoldReason};
use dormouse::{Event, Fact, HeldCall, Kernel, KernelError, ProcessError, Verdict};
use dormouse_tests::random::Random;
use serde_json::Value;

use crate::tally::Tally;
use crate::world::{Life, World};

/// The tool whose calls have to be approved.
pub(crate) const ASKED: &str = "asked";

/// How the person goes through the calls that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// Some are left.
    OfSome,
    /// Each gets a verdict.
    OfAll,
}

/// Who is asked, and what was decided in all lives.
pub(crate) struct Person {
    random: Random,
    /// The life in which a call was first seen, and whether it is left for that life.
    seen: BTreeMap<ProcessCallId, (usize, bool)>,
    /// The calls that have a verdict which was acknowledged.
    answered: BTreeSet<ProcessCallId>,
    /// What may run: the arguments of each approval, acknowledged or not, by process.
    approved: BTreeSet<(Pid, String)>,
    /// The keys of the calls whose refusal was acknowledged, by process.
    refused: BTreeSet<(Pid, String)>,
}

impl Person {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::of(&[seed, u64::from(u32::MAX)]),
            seen: BTreeMap::new(),
            answered: BTreeSet::new(),
            approved: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Looks at a call that waits. Whether it is left for this life.
    fn leaves(&mut self, call: &HeldCall, life: usize, tally: &Tally) -> bool {
        assert!(
            !self.answered.contains(&call.id),
            "HELD-1: {call:?} was answered, and waits again"
        );
        if let Some((first, is_left)) = self.seen.get(&call.id) {
            if *first < life {
                tally.count("held: in a later life");
            }
            return *is_left && *first == life;
        }
        let is_left = self.random.percent(30);
        self.seen.insert(call.id, (life, is_left));
        is_left
    }

    /// The verdict on a call, and the word for it; `None` if the person has not decided yet.
    fn decide(&mut self, call: &HeldCall, rounds: Rounds) -> Option<(&'static str, Verdict)> {
        let why = "the person said no".to_owned();
        let edited = Some(edited(&call.args)).filter(|_| is_asked(call));
        Some(match self.random.below(100) {
            0..30 => ("approve", Verdict::Approve { args: None }),
            30..50 => ("approve with others", Verdict::Approve { args: edited }),
            50..70 => ("refuse", Verdict::Refuse { why }),
            _ if rounds == Rounds::OfAll => ("approve", Verdict::Approve { args: None }),
            _ => return None,
        })
    }
}

impl World {
    /// Decides about the calls that wait.
    pub(crate) async fn answer_held(&mut self, kernel: &Kernel, rounds: Rounds) {
        let pending = kernel.pending().await.unwrap();
        for call in pending.calls {
            let (life, tally) = (self.life, self.tally.clone());
            let is_left = self.person.leaves(&call, life, &tally) && rounds == Rounds::OfSome;
            let decided = self.person.decide(&call, rounds).filter(|_| !is_left);
            let Some((word, verdict)) = decided else {
                tally.count("held: left");
                continue;
            };
            let (pid, is_refused) = (call.id.pid, matches!(verdict, Verdict::Refuse { .. }));
            if let Verdict::Approve { args } = &verdict {
                let args = args.as_deref().unwrap_or(&call.args);
                self.person.approved.insert((pid, canonical(args)));
            }
            let done = kernel.record_verdict(call.id, verdict).await;
            if done.is_ok() {
                self.person.answered.insert(call.id);
                if is_refused && is_asked(&call) {
                    self.person.refused.insert((pid, key(&call.args)));
                }
            }
            tally.count(format!("held: {word}: {}", outcome(done)));
        }
    }

    /// HELD-1: no call of the tool ran unanswered or with other arguments than those approved, none
    /// ran that was refused, and each approval was recorded once.
    pub(crate) fn check_held(&self, lives: &[Life]) {
        let mut approvals: BTreeSet<(Pid, CallId)> = BTreeSet::new();
        for event in lives.iter().flat_map(|life| &life.events) {
            match event {
                Event::ToolCalled { pid, tool, args } if **tool == *ASKED => {
                    self.tally.count("a held call runs");
                    let person = &self.person;
                    assert!(
                        person.approved.contains(&(*pid, canonical(args))),
                        "HELD-1: {args} of {pid} was not approved"
                    );
                    assert!(
                        !person.refused.contains(&(*pid, key(args))),
                        "HELD-1: {args} of {pid} was refused"
                    );
                }
                Event::Fact { pid, fact, .. } => {
                    if let Fact::Call(CallFact::Approved { call, .. }) = &**fact {
                        let is_first = approvals.insert((*pid, *call));
                        assert!(is_first, "HELD-1: {call} of {pid} is approved twice");
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether a rule of the program holds the call.
fn is_asked(call: &HeldCall) -> bool {
    &*call.tool == ASKED && matches!(call.reason, HoldReason::Rule { .. })
}

/// The arguments of a call as the person changes them: the same work in another time.
fn edited(args: &str) -> String {
    let mut args: Value = serde_json::from_str(args).unwrap();
    args["ms"] = 5.into();
    args.to_string()
}

fn canonical(args: &str) -> String {
    let args: Value = serde_json::from_str(args).unwrap();
    args.to_string()
}

fn key(args: &str) -> String {
    let args: Value = serde_json::from_str(args).unwrap();
    args["key"].to_string()
}

/// What came of a verdict: errors that a host must reckon with, and no others.
fn outcome(done: Result<(), KernelError>) -> &'static str {
    match done {
        Ok(()) => "done",
        Err(KernelError::Process(ProcessError::NotAnswered { .. })) => "too late",
        Err(KernelError::Process(ProcessError::Ended(_))) => "ended",
        Err(KernelError::Process(ProcessError::Held { .. })) => "held",
        Err(KernelError::Process(ProcessError::Unanswered(_))) => "unanswered",
        Err(KernelError::Store(_)) => "not durable",
        Err(error) => panic!("{error:?}"),
    }
}
