//! A process that is fed: it keeps its facts, and checks after each input that they give the state again.

use dormouse_kernel::process::{Decision, Effect, Fact, Input, State, decide, evolve};

pub(crate) struct Replay {
    pub(crate) first: State,
    now_ms: u64,
    pub(crate) state: State,
    pub(crate) facts: Vec<Fact>,
    /// What the last input asked for.
    pub(crate) effects: Vec<Effect>,
}

impl Replay {
    /// From a state that has not begun to run, at a time that stands still.
    pub(crate) fn of(state: State, now_ms: u64) -> Self {
        let mut replay = Self { first: state.clone(), now_ms, state, facts: Vec::new(), effects: Vec::new() };
        replay.feed(Input::Resumed);
        replay
    }

    pub(crate) fn feed(&mut self, input: Input) {
        let Decision { facts, effects } = decide(&self.state, input, self.now_ms);
        facts.iter().for_each(|fact| evolve(&mut self.state, fact));
        self.facts.extend(facts);
        self.effects = effects;
        assert_eq!(self.replayed(), self.state, "DUR-2");
    }

    /// The state that the facts give.
    pub(crate) fn replayed(&self) -> State {
        let mut state = self.first.clone();
        self.facts.iter().for_each(|fact| evolve(&mut state, fact));
        state
    }
}
