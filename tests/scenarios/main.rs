//! Scenarios: whole kernels in small worlds of paused time. Models, tools and the host do what a seed says, a store is closed
//! or cut off in the middle, and another kernel goes on with what it holds. What must hold at the end is asserted of what
//! could be seen from outside: requests, events, views, the process table.
//!
//! A world's seed says what is asked for and when. In which order threads of the store answer is not part of it, so that a
//! seed is not quite a run. `SCENARIO_SEED` runs one world again, `SCENARIO_WORLDS` says how many there are.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checks;
mod host;
mod mind;
mod place;
mod random;
mod tally;
mod tools;
mod world;

use crate::tally::Tally;
use crate::world::World;

const WORLDS: u64 = 30;

/// What must have happened somewhere, so that the worlds show something.
const HAPPENS: &[&str] = &[];

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
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[tokio::test(start_paused = true)]
async fn small_worlds_keep_their_promises_whatever_happens_in_them() {
    let one = variable("SCENARIO_SEED");
    let count = variable("SCENARIO_WORLDS").unwrap_or(WORLDS);
    let tally = Tally::default();
    for seed in one.map_or(0..count, |seed| seed..seed + 1) {
        let named = Seed(seed);
        let began = std::time::Instant::now();
        World::new(seed, tally.clone()).run().await;
        println!("{seed} {:?}", began.elapsed());
        drop(named);
    }
    let all = tally.all();
    println!("{all:#?}");
    if one.is_none() {
        let missing: Vec<_> = HAPPENS.iter().filter(|what| !all.contains_key(**what)).collect();
        assert!(missing.is_empty(), "nothing of this happened: {missing:?}; what did: {all:#?}");
    }
}
