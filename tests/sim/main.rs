//! A deterministic simulation of the kernel: many process machines in a world without a runtime,
//! threads, a clock or files.
//!
//! The world plays the shell as `actors` does, and its models, tools, store and host do whatever a
//! seed says: reply late or twice, hang, fail, crash. After every step, one input decided by a
//! machine, the invariants are asserted for what it touched. The same seed is the same run.
//!
//! `SIM_SEED=… SIM_STEPS=… cargo test -p dormouse-tests --test sim -- --nocapture` runs worlds from
//! a seed on, so many steps in all: what a failure prints runs that world again. `SIM_STEPS=250000`
//! alone makes a million steps in four shards, which takes two and a half minutes of one core.

mod defect;
mod event;
mod files;
mod host;
mod invariants;
mod labels;
mod model;
mod outside;
mod perform;
mod post;
mod process;
mod programs;
mod schedule;
mod store;
mod supervisor;
mod tally;
mod tampering;
mod tokens;
mod world;

use std::io::Write;
use std::rc::Rc;
use std::time::Instant;

use crate::defect::Defect;
use crate::programs::Programs;
use crate::tally::Tally;
use crate::world::{Failure, World};
use dormouse_tests::random::Random;

/// Steps of a shard unless others are asked for: enough for everything in [`KINDS`] to happen.
const STEPS: u64 = 100_000;
/// A defect that is not found within so many steps is not found.
const MOST_STEPS_OF_A_DEFECT: u64 = 20_000;
/// The worlds in which a defect is looked for, until it is found by its name.
const SEEDS_OF_DEFECTS: [u64; 6] = [4, 5, 6, 7, 8, 9];

/// What must have happened in a shard, or it covers less than it says.
const KINDS: &[&str] = &[
    "input spoke",
    "input opened",
    "input host_called",
    "input model_replied",
    "input tool_returned",
    "input file_written",
    "input summarized",
    "input temp_file_done",
    "input sent_back",
    "input fetched",
    "input child_started",
    "input no_child",
    "input child_ended",
    "input resumed",
    "input interrupted",
    "input stopped",
    "input continued",
    "input killed",
    "input messaged",
    "input message_sent",
    "input listed",
    "input timed_out",
    "input time_up",
    "input wake_due",
    "input asked_to_reopen",
    "fact reopened",
    "fact child_reopened",
    "fact child_reported_again",
    "processes opened again",
    "messages that open nothing",
    "reopenings refused by a parent",
    "input host_cancelled_alarm",
    "fact message_queued",
    "fact message_received",
    "fact mail_taken",
    "fact turn_began",
    "fact result_submitted",
    "fact result_refused",
    "fact result_requested",
    "fact descriptor_opened",
    "fact descriptor_annotated",
    "fact model_called",
    "fact model_replied",
    "fact host_called",
    "fact tool_called",
    "fact child_ended",
    "fact child_started",
    "fact child_reported",
    "fact budget_reserved",
    "fact budget_returned",
    "fact budget_used",
    "fact budget_warned",
    "fact tool_returned",
    "fact held",
    "fact approved",
    "fact effect_recalled",
    "input recalled",
    "effects repeated with leave",
    "fact budget_clock",
    "fact budget_paused",
    "fact budget_raised",
    "fact budget_unpaused",
    "fact suspended",
    "fact released",
    "shares raised",
    "processes held up by a label",
    "budgets of labels raised",
    "raises refused by a parent",
    "input approved",
    "input approved_with_others",
    "input refused",
    "input question_answered",
    "calls held",
    "held calls answered",
    "approved calls begun",
    "input chosen",
    "fact speculation_ended",
    "writes of chosen branches",
    "writes proposed",
    "fact interrupted",
    "fact turn_ended",
    "fact exited",
    "fact went_to",
    "fact compacted",
    "fact went_to_compacted",
    "summaries of compacted messages",
    "input descriptor_summarized",
    "compacted messages read back",
    "fact stopped",
    "fact frozen",
    "fact continued",
    "fact alarm_set",
    "fact alarm_cancelled",
    "fact alarm_fired",
    "crashes",
    "faults",
    "forks",
    "spawns",
    "judges",
    "forks by the host",
    "restores",
    "snapshots",
    "commits",
    "batches written but not acknowledged",
    "journals read",
    "processes that hibernated",
    "processes that stayed awake",
    "processes that woke",
    "processes resumed asleep",
    "processes resumed that wait for a person",
    "inputs that met a process on its way to sleep",
    "journals replayed and compared",
    "stale completions",
    "completions told twice",
    "completions of calls that were given up",
    "calls given up in flight",
    "calls made again",
    "model calls tried again",
    "model calls that failed for good",
    "tools that hung until their deadline",
    "large outputs",
    "temporary files changed",
    "temporary files looked at",
    "children found again",
    "children looked for in vain",
    "children killed by their parent's fate",
    "children born stopped",
    "siblings held back",
    "signals to a tree",
    "hosts answered",
    "answers parsed",
    "texts given back",
    "pages read",
    "messages kept",
    "messages refused",
    "messages refused by their receiver",
    "messages sent again",
    "messages that came twice",
    "receipts lost",
    "mail shown by a tool",
    "ends told again",
    "limits overshot by a call",
    "trees added up",
    "times at rest",
    "processes given up",
    "calls of goto",
    "calls of explore",
    "calls of fork",
    "calls of spawn",
    "calls of no_such_tool",
    "ended as done",
    "ended as truncated",
    "ended as iteration_limit",
    "ended as refused",
    "ended as model_failed",
    "ended as interrupted",
    "ended as killed",
    "ended as faulted",
    "ended as budget_exhausted",
];

/// Runs one world after the other until `steps` are made. A failure names the seed and the steps
/// that show it again.
fn run(
    first_seed: u64,
    steps: u64,
    defect: Option<Defect>,
) -> Result<(Tally, u64), (u64, u64, Failure)> {
    let programs = Rc::new(Programs::new());
    let (mut seed, mut made, mut worlds, mut tally) = (first_seed, 0, 0, Tally::default());
    while made < steps {
        let mut world = World::new(programs.clone(), seed, defect);
        let end = world.run(steps - made);
        made += world.steps;
        worlds += 1;
        tally.add(&world.tally);
        // What failed may follow the last step: to stop with the step after it shows the same.
        end.map_err(|failure| (seed, world.steps + 1, failure))?;
        seed = Random::new(seed).number();
    }
    Ok((tally, worlds))
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {value}"))
    })
}

fn report(line: &str) {
    // Past the harness, which keeps the words of a test that passes: what was covered is to be
    // seen.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn check_shard(shard: u64) {
    let (asked_seed, asked_steps) = (from_environment("SIM_SEED"), from_environment("SIM_STEPS"));
    if shard > 0 && asked_seed.is_some() {
        return;
    }
    let seed = asked_seed.unwrap_or(0xD0_0000 + shard);
    let steps = asked_steps.unwrap_or(STEPS);
    let began = Instant::now();
    match run(seed, steps, None) {
        Ok((tally, worlds)) => {
            let pace = steps as f64 / began.elapsed().as_secs_f64();
            report(&format!(
                "sim: seed {seed}, {steps} steps in {worlds} worlds, {pace:.0} a second: {tally}"
            ));
            let missing: Vec<_> = KINDS.iter().filter(|kind| tally.of(kind) == 0).collect();
            assert!(
                steps < STEPS || missing.is_empty(),
                "never happened: {missing:?}"
            );
        }
        Err((seed, steps, failure)) => panic!(
            "{}: {}\nthe last events:\n{}\nrun it again: SIM_SEED={seed} SIM_STEPS={steps}",
            failure.violation.invariant,
            failure.violation.what,
            failure.last_events.join("\n")
        ),
    }
}

#[test]
fn every_invariant_holds_in_the_first_shard() {
    check_shard(0);
}

#[test]
fn every_invariant_holds_in_the_second_shard() {
    check_shard(1);
}

#[test]
fn every_invariant_holds_in_the_third_shard() {
    check_shard(2);
}

#[test]
fn every_invariant_holds_in_the_fourth_shard() {
    check_shard(3);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let once = || {
        run(7, 5_000, None)
            .map(|(tally, worlds)| (tally.to_string(), worlds))
            .map_err(|(.., it)| it.violation)
    };
    assert_eq!(once().expect("it holds"), once().expect("it holds"));
}

/// A simulation that cannot fail shows nothing: each broken keeper is found, and by its name.
#[test]
fn each_defect_is_found_and_named() {
    let mut wrong = Vec::new();
    for (defect, invariant) in Defect::ALL {
        // In some worlds another invariant notices a defect first.
        let mut found = Vec::new();
        for first_seed in SEEDS_OF_DEFECTS {
            match run(first_seed, MOST_STEPS_OF_A_DEFECT, Some(defect)) {
                Ok(_) => found.push(format!("nothing from seed {first_seed} on")),
                Err((seed, steps, Failure { violation, .. })) => {
                    report(&format!(
                        "sim: {defect:?} is {} in step {steps} of seed {seed}",
                        violation.invariant
                    ));
                    if violation.invariant == invariant {
                        found.clear();
                        break;
                    }
                    found.push(format!("{}: {}", violation.invariant, violation.what));
                }
            }
        }
        if !found.is_empty() {
            wrong.push(format!("{defect:?} is not {invariant}, but {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
