//! kill -9 of a race between branches (SPEC-1): a branch that was not chosen has written nothing, one
//! that was chosen writes once, and a further race from the same point has one winner.
//!
//! All races of a plan begin at the same process, which has ended. Each has wishes of its own, so that
//! the ledger tells which branch of which race has written. `DORMOUSE_KILLS` says how often is killed,
//! `DORMOUSE_SEED` runs a plan again.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse::Fact;
use dormouse::id::Pid;
use dormouse::process::ProcessRow;
use dormouse::record::{CallFact, ControlFact, codec};
use dormouse_tests::random::Random;

use crate::crash::{kills, seed};
use crate::kills::kept::{Known, noted};
use crate::kills::place::{ALLOWED, HERE, Moment, Place};

/// So many races are killed until a store is brought to its end, and another one is begun.
const KILLS_OF_A_PLAN: u64 = 4;

/// What the branches of a race wish to note.
const WISHES: [&str; 3] = ["one", "two", "three"];

const PROGRAM: &str = r#"
[[tools.command]]
name = "look"
description = "Looks around."
argv = ["sh", "-c", "echo looked"]
access = "read"
"#;

/// A branch looks, and notes its wish.
const SCRIPT: &str = r#"
[[turn]]
when.prompt = "^go$"
text = "Ready."
[[turn]]
when.tool = "look"
calls = [{ tool = "note", args = { id = "{{ prompt }}" } }]
[[turn]]
when.tool = "note"
text = "done with {{ prompt }}"
[[turn]]
calls = [{ tool = "look" }]
"#;

/// Passes the second wish, after a while in which the race can be killed.
const JUDGE: &str = r#"
sleep 0.05
read -r branch
case "$branch" in *-two*) exit 0 ;; esac
exit 1
"#;

/// A branch of a race.
struct Branch {
    pid: Pid,
    /// What its model asked to note.
    wish: Option<String>,
    is_chosen: bool,
    has_ended: bool,
}

impl Branch {
    /// What the journal of a branch says. None for the process that the races begin at.
    fn of(row: &ProcessRow, facts: &[Vec<u8>]) -> Option<Self> {
        row.branched_from.as_ref()?;
        let mut branch = Self {
            pid: row.pid,
            wish: None,
            is_chosen: false,
            has_ended: row.exit.is_some(),
        };
        for fact in facts {
            match codec::decode::<Fact>(fact).unwrap() {
                Fact::Call(CallFact::ModelReplied { blocks, .. }) => {
                    let wish = blocks.iter().find_map(noted);
                    branch.wish = branch.wish.or(wish);
                }
                Fact::Control(ControlFact::SpeculationEnded) => branch.is_chosen = true,
                _ => {}
            }
        }
        Some(branch)
    }
}

struct Plan {
    place: Place,
    random: Random,
    known: Known,
    races: u32,
    /// How long a race takes that nobody kills.
    typical: Duration,
}

impl Plan {
    fn new(seed: u64, number: u64) -> Self {
        let place = Place::with(PROGRAM, SCRIPT);
        std::fs::write(place.path("judge"), JUDGE).unwrap();
        let words = format!("run p.toml --input go {ALLOWED} --store {HERE}");
        let ran = place.run(&words, None);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        Self {
            known: Known::default().look_again(&place, &words),
            place,
            random: Random::of(&[seed, number]),
            races: 0,
            typical: Duration::from_secs(1),
        }
    }

    fn branches(&self) -> Vec<Branch> {
        let here = &self.known.here;
        let rows = here.rows.values();
        rows.filter_map(|row| Branch::of(row, &here.facts[&row.pid]))
            .collect()
    }

    fn moment(&mut self) -> Moment {
        let longest = self.typical.as_micros() as u64;
        match self.random.below(2) {
            0 => Moment::Change(1 + self.random.index(40)),
            _ => Moment::After(Duration::from_micros(
                self.random.below(longest * 6 / 5 + 1),
            )),
        }
    }

    /// One race, and all that must be true after it. Whether it was killed.
    fn race(&mut self, moment: Option<Moment>) -> bool {
        self.races += 1;
        let number = self.races;
        let policy = self.random.one_of(&["first", "best"]);
        let inputs = WISHES.map(|wish| format!("--input {number}-{wish}"));
        let words = format!(
            "race 1 --branches 3 {} --policy {policy} {ALLOWED} --store {HERE}",
            inputs.join(" ")
        );
        let judge = ["--judge-command", "sh judge"];
        let args: Vec<&str> = words.split_whitespace().chain(judge).collect();
        let ran = self.place.run_args(&args, moment);
        let what = format!("{words} ({moment:?}): {ran:?}");
        self.look_again(&what);
        if !ran.is_killed {
            assert_eq!(ran.code, Some(0), "{what}");
            self.typical = ran.took;
            self.check_won(number, &what);
        }
        ran.is_killed
    }

    fn look_again(&mut self, what: &str) {
        let before = std::mem::take(&mut self.known);
        self.known = before.look_again(&self.place, what);
        self.known.check_kept(&before, false, what);
        let ledger = self.place.ledger();
        self.known.calls().check(&ledger, what);
        let chosen = self
            .branches()
            .into_iter()
            .filter(|branch| branch.is_chosen);
        let chosen: Vec<String> = chosen.filter_map(|branch| branch.wish).collect();
        let wishes: BTreeSet<&String> = chosen.iter().collect();
        assert_eq!(wishes.len(), chosen.len(), "{chosen:?}: {what}");
        let is_passed = |wish: &String| wish.ends_with("-two");
        assert!(chosen.iter().all(is_passed), "{chosen:?}: {what}");
        for (wish, runs) in &ledger {
            assert!(
                wishes.contains(wish) && *runs == 1,
                "{runs} of {wish}, and chosen are {chosen:?}: {what}"
            );
        }
    }

    /// A race that came to its end has one winner, which has written, and its other branches have
    /// ended.
    fn check_won(&self, number: u32, what: &str) {
        let is_of_race = |wish: &String| wish.starts_with(&format!("{number}-"));
        let branches = self.branches();
        let mut of_race = branches
            .iter()
            .filter(|branch| branch.wish.as_ref().is_some_and(is_of_race));
        let mut chosen = of_race.clone().filter(|branch| branch.is_chosen);
        let winner = chosen.next().and_then(|branch| branch.wish.clone());
        assert_eq!(winner, Some(format!("{number}-two")), "{what}");
        assert!(chosen.next().is_none(), "{what}");
        assert!(of_race.all(|branch| branch.has_ended), "{what}");
        let written = self.place.ledger().get(&format!("{number}-two")).copied();
        assert_eq!(written, Some(1), "{what}");
    }

    /// What was chosen goes on to its end, and nothing else runs.
    fn finish(mut self) {
        let before = self.known.here.facts.clone();
        let words = format!("resume --wait {ALLOWED} --store {HERE}");
        // The code says how the newest process ended, or that all wait to be judged.
        let ran = self.place.run(&words, None);
        self.look_again(&format!("{words}: {ran:?}"));
        let ledger = self.place.ledger();
        let (mut chosen, mut written) = (0, 0);
        for branch in self.branches() {
            if branch.is_chosen {
                assert!(branch.has_ended, "{} was chosen: {ran:?}", branch.pid);
                chosen += 1;
                written += usize::from(branch.wish.is_some_and(|wish| ledger.contains_key(&wish)));
            } else {
                let facts = &self.known.here.facts[&branch.pid];
                assert_eq!(facts, &before[&branch.pid], "{}: {ran:?}", branch.pid);
            }
        }
        let unknown = self.known.calls().unknown();
        assert!(
            chosen <= written + unknown,
            "{chosen}, {written}, {unknown}"
        );
    }
}

#[test]
fn however_a_race_is_killed_only_what_was_chosen_is_written() {
    let kills = kills(8);
    let seed = seed();
    println!("DORMOUSE_SEED={seed}");
    let (mut killed, mut number) = (0, 0);
    while killed < kills {
        let mut plan = Plan::new(seed, number);
        let until = (killed + KILLS_OF_A_PLAN).min(kills);
        while killed < until {
            let moment = plan.moment();
            killed += u64::from(plan.race(Some(moment)));
            plan.race(None);
        }
        plan.finish();
        number += 1;
        println!("{killed} kills, {number} plans");
    }
}
