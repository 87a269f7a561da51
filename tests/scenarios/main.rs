//! Scenarios: whole kernels in small worlds of paused time. Models, tools and the host do what a
//! seed says, a store is closed or cut off in the middle, and another kernel goes on with what it
//! holds. A person approves calls, refuses them, or leaves them to a later kernel. What must hold at the end is asserted of what could be seen from outside: requests,
//! events, views, the process table.
//!
//! A world's seed says what is asked for and when. In which order threads of the store answer is
//! not part of it, so that a seed is not quite a run. `SCENARIO_SEED` runs one world again,
//! `SCENARIO_WORLDS` says how many there are.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checks;
mod host;
mod mind;
mod person;
mod place;
mod tally;
mod tools;
mod world;

use crate::tally::Tally;
use crate::world::World;

const WORLDS: u64 = 30;

/// What must have happened somewhere, so that the worlds show something.
const HAPPENS: &[&str] = &[
    "an ended process is opened again",
    "a call is made again",
    "a held call runs",
    "a model fails: CutStream, no hint",
    "a model fails: InvalidRequest, no hint",
    "a model fails: Overloaded, hint",
    "a model fails: Overloaded, no hint",
    "a model hangs",
    "a model is asked again",
    "a request after somebody went back",
    "a request with what another process said",
    "answer: <fd_result",
    "answer: Its effect is unknown",
    "answer: No further children",
    "answer: did not finish within",
    "answer: it panicked",
    "answer: output reached the limit",
    "ended: budget_exhausted",
    "ended: done",
    "ended: interrupted",
    "ended: iteration_limit",
    "ended: killed",
    "ended: model_failed",
    "fact: approved",
    "fact: budget_reserved",
    "fact: budget_returned",
    "fact: budget_warned",
    "fact: child_ended",
    "fact: child_reported",
    "fact: child_started",
    "fact: continued",
    "fact: descriptor_annotated",
    "fact: descriptor_opened",
    "fact: exited",
    "fact: frozen",
    "fact: held",
    "fact: host_called",
    "fact: interrupted",
    "fact: mail_taken",
    "fact: message_queued",
    "fact: message_received",
    "fact: model_called",
    "fact: model_replied",
    "fact: stopped",
    "fact: tool_called",
    "fact: tool_returned",
    "fact: turn_began",
    "fact: turn_ended",
    "fact: went_to",
    "held: approve with others: done",
    "held: approve: done",
    "held: in a later life",
    "held: left",
    "held: refuse: done",
    "host: call: done",
    "host: continue a tree: done",
    "host: fork: done",
    "host: goto: done",
    "host: interrupt a tree: done",
    "host: kill a tree: done",
    "host: restore: done",
    "host: start: not durable",
    "host: stop a tree: done",
    "the first request of a forked child",
    "used up: output_tokens",
    "used up: wall_time",
];

/// Says which world it was if that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was SCENARIO_SEED={}", self.0);
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().expect("a number"))
}

#[tokio::test(start_paused = true)]
async fn small_worlds_keep_their_promises_whatever_happens_in_them() {
    let one = variable("SCENARIO_SEED");
    let count = variable("SCENARIO_WORLDS").unwrap_or(WORLDS);
    let tally = Tally::default();
    for seed in one.map_or(0..count, |seed| seed..seed + 1) {
        let named = Seed(seed);
        World::new(seed, tally.clone()).run().await;
        drop(named);
    }
    let all = tally.all();
    if one.is_none() && count >= WORLDS {
        let missing: Vec<_> = HAPPENS
            .iter()
            .filter(|what| !all.contains_key(**what))
            .collect();
        assert!(
            missing.is_empty(),
            "nothing of this happened: {missing:?}; what did: {all:#?}"
        );
    }
}
