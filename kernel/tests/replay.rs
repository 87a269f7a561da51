//! A process that is fed: it keeps its facts, and checks after each input that they give the state
//! again.

use dormouse_content::Content;
use dormouse_kernel::process::{
    Completion, Decision, Effect, Fact, Input, Reopening, Signal, State, Work, decide, evolve,
};
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, Request, StopReason, Usage};
use dormouse_proto::record::Phase;

pub(crate) struct Replay {
    pub(crate) first: State,
    pub(crate) now_ms: u64,
    pub(crate) state: State,
    pub(crate) facts: Vec<Fact>,
    /// What the last input asked for.
    pub(crate) effects: Vec<Effect>,
    /// The child that the last input opened again.
    pub(crate) reopening: Option<Reopening>,
}

impl Replay {
    /// From a state that has not begun to run, at a time that stands still.
    pub(crate) fn of(state: State, now_ms: u64) -> Self {
        let mut replay = Self {
            first: state.clone(),
            now_ms,
            state,
            facts: Vec::new(),
            effects: Vec::new(),
            reopening: None,
        };
        replay.feed(Input::Signal(Signal::Resume));
        replay
    }

    pub(crate) fn feed(&mut self, input: Input) {
        let Decision {
            facts,
            state,
            effects,
            reopening,
            ..
        } = decide(&self.state, input, self.now_ms).read_all(self.now_ms);
        self.state = state;
        self.facts.extend(facts);
        self.effects = effects;
        self.reopening = reopening;
        assert_eq!(self.replayed(), self.state, "DUR-2");
    }

    /// The state that the facts give.
    pub(crate) fn replayed(&self) -> State {
        let mut state = self.first.clone();
        self.facts.iter().for_each(|fact| evolve(&mut state, fact));
        state
    }

    /// The call of its model that it waits for.
    pub(crate) fn thinking(&self) -> CallId {
        let Phase::Thinking { call } = *self.state.phase() else {
            panic!("it asks its model: {:?}", self.state.phase())
        };
        call
    }

    /// The model replies with these calls, or with its last word.
    pub(crate) fn reply(&mut self, calls: &[(&str, &str)]) {
        let (call, number) = (self.thinking(), self.facts.len());
        let used = |(at, (name, args)): (usize, &(&str, &str))| Block::ToolUse {
            id: format!("u{number}.{at}").into(),
            name: (*name).into(),
            args: (*args).into(),
            raw: None,
        };
        let blocks = std::iter::once(Block::text("I think."))
            .chain(calls.iter().enumerate().map(used))
            .collect();
        let stop = if calls.is_empty() {
            StopReason::EndTurn
        } else {
            StopReason::ToolUse
        };
        let usage = Usage {
            input_tokens: 3,
            ..Usage::default()
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

    /// The tool call that the last input led to.
    pub(crate) fn called(&self) -> Option<CallId> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::StartWork {
                call,
                work: Work::Tool { .. },
            } => Some(*call),
            _ => None,
        })
    }

    /// What the model is asked after the last input.
    pub(crate) fn request(&self) -> Request {
        let request = self.effects.iter().find_map(|effect| match effect {
            Effect::StartWork {
                work: Work::Model { request, media, .. },
                ..
            } => {
                let read = |(fd, content): (&FdId, &Content)| {
                    Some((fd.clone(), content.bytes_if_resident()?))
                };
                Some(Request {
                    media: media.iter().filter_map(read).collect(),
                    ..request.clone()
                })
            }
            _ => None,
        });
        request.unwrap_or_else(|| panic!("it asks its model: {:?}", self.effects))
    }
}
