//! A run of one process under a budget: it keeps its facts, and checks after each step that they
//! replay.

use dormouse_kernel::budget::Account;
use dormouse_kernel::process::{
    Child, ChildEvent, Completion, Decision, Effect, Fact, Input, Signal, State, Work, decide,
    evolve,
};
use dormouse_proto::budget::Change;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, Request, StopReason, Usage};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{Lifetime, Phase};
use dormouse_proto::tool::ToolOutput;

use crate::budget_support::{process, program};

pub(crate) struct Run {
    pub(crate) first: State,
    pub(crate) state: State,
    pub(crate) facts: Vec<Fact>,
    /// What the last input led to.
    pub(crate) news: Vec<Fact>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) now_ms: u64,
    uses: u32,
}

impl Run {
    pub(crate) fn new(lifetime: Lifetime, budget: &str) -> Self {
        Self::of(process(program(budget), lifetime))
    }

    pub(crate) fn of(state: State) -> Self {
        let (facts, news, effects) = (Vec::new(), Vec::new(), Vec::new());
        let mut run = Self {
            first: state.clone(),
            state,
            facts,
            news,
            effects,
            now_ms: 0,
            uses: 0,
        };
        run.feed(Input::Signal(Signal::Resume));
        run
    }

    pub(crate) fn feed(&mut self, input: Input) {
        let Decision {
            facts,
            state,
            effects,
            ..
        } = decide(&self.state, input, self.now_ms).read_all(self.now_ms);
        self.state = state;
        self.facts.extend(facts.iter().cloned());
        (self.news, self.effects) = (facts, effects);
        let mut replayed = self.first.clone();
        self.facts
            .iter()
            .for_each(|fact| evolve(&mut replayed, fact));
        assert_eq!(replayed, self.state, "DUR-2");
        let stored = Account::new(self.state.image().budget, self.state.image().usage);
        assert_eq!(stored, **self.state.budget(), "an image holds all of it");
    }

    pub(crate) fn reply(&mut self, usage: Usage, calls: &[(&str, &str)]) {
        let Phase::Thinking { call } = *self.state.phase() else {
            panic!("it asks: {:?}", self.state.phase())
        };
        let mut blocks = vec![Block::text("hm")];
        for (name, args) in calls {
            self.uses += 1;
            let id = format!("u{}", self.uses).into();
            blocks.push(Block::ToolUse {
                id,
                name: (*name).into(),
                args: (*args).into(),
                raw: None,
            });
        }
        let stop = if calls.is_empty() {
            StopReason::EndTurn
        } else {
            StopReason::ToolUse
        };
        self.feed(Input::Completed {
            call,
            result: Completion::Model(Ok(Reply {
                blocks,
                stop,
                usage,
            })),
        });
    }

    /// The model calls grep, which finds `found`.
    pub(crate) fn grep(&mut self, usage: Usage, found: &str) {
        self.reply(usage, &[("grep", "{}")]);
        let call = self.effects.iter().find_map(|effect| match effect {
            Effect::StartWork {
                call,
                work: Work::Tool { .. },
            } => Some(*call),
            _ => None,
        });
        self.feed(Input::Completed {
            call: call.expect("grep is called"),
            result: Completion::Tool(ToolOutput::ok(found.to_owned())),
        });
    }

    pub(crate) fn request(&self) -> Option<Request> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::StartWork {
                work: Work::Model { request, .. },
                ..
            } => Some(request.clone()),
            _ => None,
        })
    }

    pub(crate) fn children(&self) -> Vec<Child> {
        let started = self.effects.iter().filter_map(|effect| match effect {
            Effect::StartChildren { children, .. } => Some(children.clone()),
            _ => None,
        });
        started.flatten().collect()
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        let changes = self.news.iter().filter_map(|fact| match fact {
            Fact::Budget(change) => Some(change.clone()),
            _ => None,
        });
        changes.collect()
    }

    pub(crate) fn finds(&self) -> Vec<(CallId, u32)> {
        let finds = self.effects.iter().filter_map(|effect| match effect {
            Effect::FindChild { call, index, .. } => Some((*call, *index)),
            _ => None,
        });
        finds.collect()
    }

    pub(crate) fn end_child(&mut self, call: CallId, index: u32, spent: Option<Usage>) {
        let exit = Exit {
            spent: spent.map(Box::new),
            ..Exit::new(ExitStatus::Done, "found")
        };
        self.feed(Input::Child {
            call,
            event: ChildEvent::Ended {
                index,
                child: Pid(2 + u64::from(index)),
                exit,
            },
        });
    }

    /// How it ended, and what it said of that.
    pub(crate) fn exit(&self) -> Option<(ExitStatus, String)> {
        self.state
            .exit()
            .map(|exit| (exit.status, exit.message.to_string()))
    }

    /// The tool results of the last message.
    pub(crate) fn answers(&self) -> Vec<String> {
        let last = self.state.messages().last().expect("there is a message");
        let text = |block: &Block| match block {
            Block::ToolResult { text, .. } => Some(text.to_string()),
            _ => None,
        };
        last.blocks.iter().filter_map(text).collect()
    }
}

/// What was used, without its cost.
pub(crate) fn tokens(spent: Option<Usage>) -> Option<u64> {
    spent.map(|spent| spent.output_tokens)
}

pub(crate) fn output(output_tokens: u64) -> Usage {
    Usage {
        output_tokens,
        ..Usage::default()
    }
}

pub(crate) const FORK_3: (&str, &str) = ("fork", r#"{"prompts": ["a", "b", "c"]}"#);
pub(crate) const SPAWN_ME: (&str, &str) = ("spawn", r#"{"program_name": "me", "query": "q"}"#);
pub(crate) const SPAWN_SMALL: (&str, &str) = (
    "spawn",
    r#"{"program_name": "small", "query": "q", "wait": false}"#,
);
