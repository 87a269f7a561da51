//! TREE-1 under random runs of a whole tree: processes that fork, spawn, overshoot, are
//! interrupted, killed, restarted, and told of ends late, twice or never. After each step no
//! account has given away more than it had, and the tree has used no more than its root may, but
//! for what single calls overshot.

use std::collections::BTreeMap;

use crate::budget_support::{process, program};
use dormouse_kernel::process::{
    Child, ChildEvent, Completion, Decision, Effect, Fact, Input, Report, Signal, State, Work,
    decide, evolve,
};
use dormouse_proto::budget::Amount;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, StopReason, Usage};
use dormouse_proto::process::{Exit, ExitStatus, Origin};
use dormouse_proto::record::{Lifetime, Phase};
use proptest::prelude::*;

const BUDGET: &str = "[budget]\ninput_tokens = 3000\noutput_tokens = 900\ncost = \
\"0.000003\"\nprocesses = 12\ndepth = 4\nresident_bytes = 5000\n";
const COUNTED: [Amount; 3] = [Amount::InputTokens, Amount::OutputTokens, Amount::Cost];

#[derive(Clone, Debug)]
enum Step {
    Reply(u8, u64, u64, Vec<u8>),
    Deliver(u8),
    Again(u8),
    Lose(u8),
    Interrupt(u8),
    Kill(u8),
    GiveUp(u8),
    Restart(u8),
    Speak,
}

fn step() -> impl Strategy<Value = Step> {
    let reply = (
        any::<u8>(),
        0_u64..60,
        0_u64..25,
        prop::collection::vec(any::<u8>(), 0..4),
    );
    prop_oneof![
        30 => reply.prop_map(|(which, input, output, calls)| Step::Reply(which, input, output, calls)),
        40 => any::<u8>().prop_map(Step::Deliver),
        4 => any::<u8>().prop_map(Step::Again),
        3 => any::<u8>().prop_map(Step::Lose),
        3 => any::<u8>().prop_map(Step::Interrupt),
        2 => any::<u8>().prop_map(Step::Kill),
        1 => any::<u8>().prop_map(Step::GiveUp),
        4 => any::<u8>().prop_map(Step::Restart),
        4 => Just(Step::Speak),
    ]
}

/// A process and what its journal holds.
struct Node {
    first: State,
    state: State,
    journal: Vec<Fact>,
    parent: Option<(u64, CallId, u32)>,
    exit: Option<Exit>,
}

impl Node {
    fn of(state: State, parent: Option<(u64, CallId, u32)>) -> Self {
        Self {
            first: state.clone(),
            state,
            journal: Vec::new(),
            parent,
            exit: None,
        }
    }
}

/// The supervisor of the tree, and what is on its way.
struct Tree {
    nodes: BTreeMap<u64, Node>,
    waiting: Vec<(u64, Input)>,
    ends: Vec<(u64, Input)>,
    overshot: BTreeMap<Amount, u64>,
    uses: u32,
}

impl Tree {
    fn new() -> Self {
        let root = Node::of(process(program(BUDGET), Lifetime::Session), None);
        let nodes = BTreeMap::from([(1, root)]);
        let mut tree = Self {
            nodes,
            waiting: Vec::new(),
            ends: Vec::new(),
            overshot: BTreeMap::new(),
            uses: 0,
        };
        tree.feed(1, Input::Signal(Signal::Resume));
        tree
    }

    fn feed(&mut self, pid: u64, input: Input) {
        let node = self
            .nodes
            .get_mut(&pid)
            .expect("only known processes are told");
        let resumed = matches!(input, Input::Signal(Signal::Resume));
        let Decision {
            facts,
            state,
            effects,
            ..
        } = decide(&node.state, input, 7).read_all(7);
        node.state = state;
        node.journal.extend(facts);
        for effect in effects {
            self.perform(pid, effect, resumed);
        }
    }

    fn perform(&mut self, pid: u64, effect: Effect, resumed: bool) {
        match effect {
            Effect::StartWork {
                work: Work::Model { request, .. },
                ..
            } => {
                let account = self.nodes[&pid].state.budget();
                let is_dry = COUNTED
                    .iter()
                    .any(|amount| account.remaining(*amount) == Some(0));
                assert!(
                    resumed || !is_dry,
                    "process {pid} begins beyond its limit: {account:?}"
                );
                let capped = request.parameters["max_tokens"].as_u64();
                assert!(resumed || capped <= account.remaining(Amount::OutputTokens));
            }
            Effect::StartChildren { children, .. } => children
                .into_iter()
                .for_each(|child| self.start(pid, child)),
            Effect::FindChild { call, index, .. } => match self.child(pid, call, index) {
                Some(child) => self.found(pid, call, child),
                None => self.waiting.push((
                    pid,
                    Input::Child {
                        call,
                        event: ChildEvent::Absent { index },
                    },
                )),
            },
            Effect::Abandon { calls } => self.kill_children(pid, |call| calls.contains(&call)),
            Effect::KillChildrenExcept { calls } => {
                self.kill_children(pid, |call| !calls.contains(&call))
            }
            Effect::Report(Report::Exit { exit }) => self.ended(pid, exit),
            Effect::AnswerHost { .. }
            | Effect::Report(Report::Switch { .. } | Report::Turn { .. }) => {}
            other => panic!("nothing else is asked for: {other:?}"),
        }
    }

    fn child(&self, parent: u64, call: CallId, index: u32) -> Option<u64> {
        self.nodes
            .iter()
            .find(|(_, node)| node.parent == Some((parent, call, index)))
            .map(|(pid, _)| *pid)
    }

    fn start(
        &mut self,
        parent: u64,
        Child {
            origin,
            program,
            image,
        }: Child,
    ) {
        let (call, index) = match origin {
            Origin::Forked { call, index } => (call, index),
            Origin::Spawned { call } => (call, 0),
            other => panic!("{other:?} is no child"),
        };
        if let Some(child) = self.child(parent, call, index) {
            return self.found(parent, call, child);
        }
        let pid = self.nodes.len() as u64 + 1;
        let around = crate::budget_support::around(1_000_000);
        let state = State::from_image(Pid(pid), program, around, image).expect("a child is valid");
        self.nodes
            .insert(pid, Node::of(state, Some((parent, call, index))));
        self.waiting.push((pid, Input::Signal(Signal::Resume)));
        self.waiting.push((
            parent,
            Input::Child {
                call,
                event: ChildEvent::Started { child: Pid(pid) },
            },
        ));
    }

    fn found(&mut self, parent: u64, call: CallId, child: u64) {
        self.waiting.push((
            parent,
            Input::Child {
                call,
                event: ChildEvent::Started { child: Pid(child) },
            },
        ));
        self.report(child);
    }

    fn report(&mut self, pid: u64) {
        let node = &self.nodes[&pid];
        if let (Some((parent, call, index)), Some(exit)) = (node.parent, node.exit.clone()) {
            self.waiting.push((
                parent,
                Input::Child {
                    call,
                    event: ChildEvent::Ended {
                        index,
                        child: Pid(pid),
                        exit,
                    },
                },
            ));
        }
    }

    fn ended(&mut self, pid: u64, exit: Exit) {
        let node = self.nodes.get_mut(&pid).expect("it is known");
        if node.exit.replace(exit).is_none() {
            self.report(pid);
            self.kill_children(pid, |_| true);
        }
    }

    fn kill_children(&mut self, parent: u64, of: impl Fn(CallId) -> bool) {
        let children = self.nodes.iter().filter(|(_, node)| node.exit.is_none());
        let children = children.filter(|(_, node)| {
            node.parent
                .is_some_and(|(pid, call, _)| pid == parent && of(call))
        });
        let killed: Vec<_> = children
            .map(|(pid, _)| (*pid, Input::Signal(Signal::Kill)))
            .collect();
        self.waiting.extend(killed);
    }

    fn living(&self) -> Vec<u64> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.exit.is_none())
            .map(|(pid, _)| *pid)
            .collect()
    }

    fn one(&self, which: u8) -> Option<u64> {
        let living = self.living();
        living
            .get(usize::from(which) % living.len().max(1))
            .copied()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Reply(which, input_tokens, output_tokens, calls) => {
                let usage = Usage {
                    input_tokens,
                    output_tokens,
                    ..Usage::default()
                };
                self.reply(which, usage, &calls);
            }
            Step::Deliver(which) if !self.waiting.is_empty() => {
                let (pid, input) = self.waiting.remove(usize::from(which) % self.waiting.len());
                if matches!(
                    input,
                    Input::Child {
                        event: ChildEvent::Ended { .. },
                        ..
                    }
                ) {
                    self.ends.push((pid, input.clone()));
                }
                self.feed(pid, input);
            }
            Step::Again(which) if !self.ends.is_empty() => {
                let (pid, input) = self.ends[usize::from(which) % self.ends.len()].clone();
                self.feed(pid, input);
            }
            // What was on its way to a process that is restarted is gone; it asks for what it
            // needs.
            Step::Lose(which) => {
                if let Some(pid) = self.one(which) {
                    self.waiting.retain(|(to, input)| {
                        *to != pid || matches!(input, Input::Signal(Signal::Kill))
                    });
                    self.restart(pid);
                }
            }
            Step::Restart(which) => {
                if let Some(pid) = self.one(which) {
                    self.restart(pid);
                }
            }
            Step::Interrupt(which) => self.signal(which, Input::Signal(Signal::Interrupt)),
            Step::Kill(which) if which > 1 => self.signal(which, Input::Signal(Signal::Kill)),
            Step::GiveUp(which) => {
                if let Some(pid) = self.one(which).filter(|pid| *pid != 1) {
                    self.ended(pid, Exit::new(ExitStatus::Faulted, "it faulted too often"));
                }
            }
            Step::Speak => {
                if self.nodes[&1].exit.is_none() {
                    self.feed(
                        1,
                        Input::UserInput {
                            from: Sender::Host,
                            user_input: "go on".into(),
                        },
                    );
                }
            }
            Step::Deliver(_) | Step::Again(_) | Step::Kill(_) => {}
        }
    }

    fn signal(&mut self, which: u8, input: Input) {
        if let Some(pid) = self.one(which) {
            self.feed(pid, input);
        }
    }

    fn restart(&mut self, pid: u64) {
        let node = self.nodes.get_mut(&pid).expect("it is known");
        let mut replayed = node.first.clone();
        node.journal
            .iter()
            .for_each(|fact| evolve(&mut replayed, fact));
        assert_eq!(replayed, node.state, "DUR-2");
        self.feed(pid, Input::Signal(Signal::Resume));
    }

    fn reply(&mut self, which: u8, usage: Usage, calls: &[u8]) {
        let thinking =
            self.living()
                .into_iter()
                .filter_map(|pid| match self.nodes[&pid].state.phase() {
                    Phase::Thinking { call } => Some((pid, *call)),
                    _ => None,
                });
        let thinking: Vec<_> = thinking.collect();
        let Some((pid, call)) = thinking
            .get(usize::from(which) % thinking.len().max(1))
            .copied()
        else {
            return;
        };
        let blocks: Vec<_> = calls.iter().map(|call| self.tool_use(*call)).collect();
        let stop = if blocks.is_empty() {
            StopReason::EndTurn
        } else {
            StopReason::ToolUse
        };
        let account = self.nodes[&pid].state.budget();
        let spent = [
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens + usage.output_tokens,
        ];
        for (amount, used) in COUNTED.into_iter().zip(spent) {
            let over = account
                .remaining(amount)
                .map_or(0, |left| used.saturating_sub(left));
            *self.overshot.entry(amount).or_default() += over;
        }
        self.feed(
            pid,
            Input::Completed {
                call,
                result: Completion::Model(Ok(Reply {
                    blocks,
                    stop,
                    usage,
                })),
            },
        );
    }

    fn tool_use(&mut self, which: u8) -> Block {
        self.uses += 1;
        let (name, args) = match which % 4 {
            0 => ("fork", r#"{"prompts": ["a", "b"]}"#),
            1 => ("spawn", r#"{"program_name": "me", "query": "q"}"#),
            2 => (
                "spawn",
                r#"{"program_name": "me", "query": "q", "wait": false}"#,
            ),
            _ => (
                "spawn",
                r#"{"program_name": "small", "query": "q", "wait": false}"#,
            ),
        };
        Block::ToolUse {
            id: format!("u{}", self.uses).into(),
            name: name.into(),
            args: args.into(),
            raw: None,
        }
    }

    fn check(&self) {
        let living = self.living();
        for (pid, node) in &self.nodes {
            let account = node.state.budget();
            if node.exit.is_none() {
                let children = living.iter().filter_map(|child| {
                    let (parent, call, index) = self.nodes[child].parent?;
                    (parent == *pid)
                        .then(|| ((call, index), self.nodes[child].state.budget().as_ref()))
                });
                account
                    .check(children)
                    .unwrap_or_else(|breach| panic!("process {pid}: {breach}"));
            }
            for amount in COUNTED {
                let overshot = self.overshot.get(&amount).copied().unwrap_or(0);
                assert!(
                    account.overdrawn(amount) <= overshot,
                    "process {pid}, {amount:?}: {account:?}"
                );
            }
            assert_eq!(account.overdrawn(Amount::Processes), 0, "process {pid}");
        }
        // Processes that outlive their parent for a moment are on their way to their end, and stand
        // in nobody's account.
        let rooted = living.iter().filter(|pid| self.is_rooted(**pid)).count();
        assert!(rooted <= 12, "{rooted} live");
        let root = self.nodes[&1].state.budget().limits();
        for amount in COUNTED {
            let used: u64 = self
                .nodes
                .values()
                .map(|node| of(node.state.usage(), amount))
                .sum();
            let limit = root.limit(amount).expect("it is limited");
            assert!(
                used <= limit + self.overshot.get(&amount).copied().unwrap_or(0),
                "{amount:?}: {used} of {limit}"
            );
        }
    }

    /// Whether all above it live.
    fn is_rooted(&self, pid: u64) -> bool {
        match self.nodes[&pid].parent {
            Some((parent, ..)) => self.nodes[&parent].exit.is_none() && self.is_rooted(parent),
            None => true,
        }
    }

    /// Delivers all that is on its way, and kills what still lives, so that nothing can stay
    /// reserved.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if let Some(pid) = self.living().into_iter().rev().find(|pid| *pid != 1)
                && self.waiting.is_empty()
            {
                self.feed(pid, Input::Signal(Signal::Kill));
            }
            if self.waiting.is_empty() {
                break;
            }
            let (pid, input) = self.waiting.remove(0);
            self.feed(pid, input);
            self.check();
        }
        let account = self.nodes[&1].state.budget();
        assert_eq!(account.shares().count(), 0, "all shares came back");
    }
}

fn of(usage: Usage, amount: Amount) -> u64 {
    match amount {
        Amount::InputTokens => usage.all_input_tokens(),
        Amount::OutputTokens => usage.output_tokens,
        _ => usage.cost_nanos,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_stays_within_its_roots_budget(steps in prop::collection::vec(step(), 0..150)) {
        let mut tree = Tree::new();
        for step in steps {
            tree.step(step);
            tree.check();
        }
        tree.settle();
    }
}
