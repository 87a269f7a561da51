//! kill -9 at any moment of the audit, then resume: the same report, and no tool call executed
//! twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::support::{Bench, Subject, cargo_that_repeats, root, shown};
use dormouse::id::CallId;
use dormouse::ports::Store;
use dormouse::record::{CallFact, ContentRef, Fact, codec};
use dormouse::store::LogStore;
use dormouse_tests::random::Random;

/// How often is killed, unless `DORMOUSE_KILLS` asks for another number.
pub(crate) fn kills(unless_asked: u64) -> u64 {
    std::env::var("DORMOUSE_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(unless_asked)
}

/// What a plan follows from. `DORMOUSE_SEED` runs one again.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("DORMOUSE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64
            | 1
    })
}

/// Of each call of every process: how often its intent and how often its result is journalled.
fn journalled(bench: &Bench) -> BTreeMap<(u64, CallId), (usize, usize)> {
    let store = LogStore::open(bench.path("store")).unwrap();
    let mut calls = BTreeMap::<_, (usize, usize)>::new();
    for row in store.processes().unwrap().rows {
        for fact in store.journal(row.pid, None).unwrap().facts {
            match codec::decode::<Fact<ContentRef>>(&fact).unwrap() {
                Fact::Call(CallFact::ToolCalled { call }) => {
                    calls.entry((row.pid.0, call)).or_default().0 += 1
                }
                Fact::Call(CallFact::ToolReturned { call, .. }) => {
                    calls.entry((row.pid.0, call)).or_default().1 += 1
                }
                _ => {}
            }
        }
    }
    calls
}

/// An audit with a command that runs for a while: kills are to fall into it.
fn bench() -> Bench {
    Bench::of(
        Subject::Live(root().join("Cargo.toml")),
        &cargo_that_repeats(),
    )
}

#[test]
fn an_audit_that_is_killed_at_any_moment_ends_with_the_same_report() {
    let whole = bench();
    let began = Instant::now();
    let output = whole.run().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let duration = began.elapsed().as_millis() as u64;
    let expected = whole.report();
    let seed = seed();
    println!("seed {seed}, an audit takes {duration} ms");
    let mut random = Random::new(seed);
    for kill in 1..=kills(20) {
        let after = Duration::from_millis(random.below(duration));
        println!("kill {kill}: {}", killed(&bench(), after, &expected));
    }
}

/// Kills one audit, resumes it, and says what it had come to.
fn killed(bench: &Bench, after: Duration, expected: &str) -> String {
    let mut audit = bench.run();
    std::thread::sleep(after);
    audit.kill().unwrap();
    audit.wait().unwrap();
    let before = bench.runs();
    let output = bench.resume();
    let unborn = output.status.code() == Some(2);
    let output = if unborn {
        bench.run().wait_with_output().unwrap()
    } else {
        output
    };
    assert!(
        output.status.success(),
        "killed after {after:?}: {}",
        shown(&output)
    );
    assert_eq!(bench.report(), expected, "killed after {after:?}");
    let calls = journalled(bench);
    // What may be repeated was begun again after the kill.
    assert!(
        calls
            .values()
            .all(|(called, returned)| *called <= 2 && *returned == 1),
        "{calls:?}"
    );
    let cargo = bench.runs();
    // Once before the kill, which it may outlive and be counted only then, and once after it.
    assert!(
        cargo <= 2,
        "cargo was asked {before} times before the kill and {cargo} in all"
    );
    let what = if unborn {
        "was not acknowledged yet, started anew"
    } else {
        "resumed"
    };
    format!(
        "after {} ms, {what}, cargo ran {before} + {} times",
        after.as_millis(),
        cargo - before
    )
}
