//! kill -9 of the program around and within every state in which a process waits: for the answer to a
//! question, for an approval, for a larger budget, for an alarm, for a message after its end, and
//! while its conversation is compacted. Nothing that was acknowledged is lost: no verdict is asked for
//! twice, each pause is raised once, each alarm fires once, each message is heard once, and no call
//! that must not be repeated runs twice.
//!
//! A plan leads one process through several days. Each day it notes something, asks a question, has
//! to be approved, is paused at its budget, sleeps, and ends; a message opens it again for the next
//! day. `DORMOUSE_KILLS` says how often is killed, `DORMOUSE_SEED` runs a plan again.

mod pauses;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse::Fact;
use dormouse::message::Block;
use dormouse::process::Exit;
use dormouse::record::{CallFact, codec};
use dormouse_tests::random::Random;
use serde_json::Value;

use self::pauses::Pauses;
use crate::crash::{kills, seed};
use crate::kills::kept::Known;
use crate::kills::place::{ALLOWED, HERE, Moment, Place, Ran};

/// How many days a process lives.
const DAYS: u32 = 4;

/// What is left of the output tokens after a raise: less than what the model thinks in a day, so that
/// each day has a pause, and more than all its other replies, so that no day ends at the limit.
const LEFT_AFTER_RAISE: u64 = 200;

const PROGRAM: &str = r#"
[tools]
enabled = ["ask_user", "wake_at"]
ask = [{ tool = "note", when = { argument = "id", matches = "approved" } }]
[context]
window = 4000
compact_at = 0.5
keep_messages = 2
[budget]
output_tokens = 200
at_limit = "pause"
"#;

/// What the model says before the call that has to be approved, in place of `THOUGHTS`.
fn thoughts() -> String {
    "I think. ".repeat(120)
}

/// The script looks at the last message only: a compaction takes the others away.
const SCRIPT: &str = r#"
[[capture]]
name = "today"
pattern = 'day [0-9]+'
from = "last"
[[capture]]
name = "noted"
pattern = 'noted (?<day>day [0-9]+)'
from = "last"
[[capture]]
name = "woken"
pattern = 'woke on (?<day>day [0-9]+)'
from = "last"
[[turn]]
when.tool = "wake_at"
text = "asleep"
[[turn]]
when.contains = "woke on day"
calls = [{ tool = "note", args = { id = "{{ woken.day }} woke" } }]
[[turn]]
when.matches = "noted day [0-9]+ woke"
text = "the day is over"
[[turn]]
when.matches = "noted day [0-9]+ approved"
calls = [{ tool = "wake_at", args = { in = "1s", note = "woke on {{ noted.day }}" } }]
[[turn]]
when.matches = "noted day [0-9]+ begun"
text = "THOUGHTS"
calls = [{ tool = "note", args = { id = "{{ noted.day }} approved" } }]
[[turn]]
when.contains = "ffect is unknown"
text = "the effect of a call is unknown"
[[turn]]
calls = [{ tool = "note", args = { id = "{{ today }} begun" } }, { tool = "big" }, { tool = "ask_user", args = { question = "{{ today }}?" } }]
"#;

/// A kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Run,
    Resume,
    Answer,
    Approve,
    Raise,
    Send,
}

#[derive(Debug, Default)]
struct Tally {
    kills: BTreeMap<Verb, u64>,
    compactions: usize,
    pauses: usize,
    /// Calls of which it is not known whether they ran.
    unknown: usize,
}

impl Tally {
    fn killed(&self) -> u64 {
        self.kills.values().sum()
    }
}

struct Plan {
    place: Place,
    random: Random,
    known: Known,
    /// The held calls that were answered by a command that came to its end.
    answered: BTreeSet<String>,
    /// How many messages were accepted.
    days: u32,
}

impl Plan {
    fn new(seed: u64, number: u64) -> Self {
        Self {
            place: Place::with(PROGRAM, &SCRIPT.replace("THOUGHTS", &thoughts())),
            random: Random::of(&[seed, number]),
            known: Known::default(),
            answered: BTreeSet::new(),
            days: 0,
        }
    }

    fn exit(&self) -> Option<Exit> {
        self.known.here.rows.values().next()?.exit.clone()
    }

    fn is_paused(&self) -> bool {
        let row = self.known.here.rows.values().next();
        row.is_some_and(|row| row.is_paused)
    }

    fn pauses(&self) -> Pauses {
        let facts = self.known.all.values().flatten();
        Pauses::of(facts.map(|fact| codec::decode(fact).unwrap()))
    }

    /// How many messages the process has got, as its row says.
    fn days_in_store(&self) -> u32 {
        let row = self.known.here.rows.values().next();
        row.map_or(0, |row| row.reopenings + 1)
    }

    /// The held calls: the id of each, and whether it is a question.
    fn pending(&self) -> Vec<(String, bool)> {
        let listed = self
            .place
            .run(&format!("pending --json --store {HERE}"), None);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let calls = listed.lines.iter();
        let calls = calls.map(|line| serde_json::from_str::<Value>(line).unwrap());
        calls
            .map(|call| {
                let id = call["call"].as_str().unwrap().to_owned();
                (id, call["tool"] == "ask_user")
            })
            .collect()
    }

    /// What a user does next.
    fn next_command(&self) -> Option<(Verb, String)> {
        if self.known.here.rows.is_empty() {
            let words = format!("run p.toml --input-file day {ALLOWED} --store {HERE}");
            std::fs::write(self.place.path("day"), "day 1").unwrap();
            return Some((Verb::Run, words));
        }
        if let Some(exit) = self.exit() {
            assert_eq!(exit.status.word(), "done", "{exit:?}");
            if self.days == DAYS {
                return None;
            }
            std::fs::write(self.place.path("day"), format!("day {}", self.days + 1)).unwrap();
            let words = format!("send 1 --input-file day {ALLOWED} --store {HERE}");
            return Some((Verb::Send, words));
        }
        if self.is_paused() {
            let missing = self.pauses().missing(LEFT_AFTER_RAISE).unwrap();
            let words = format!("raise 1 --output-tokens {missing} --store {HERE}");
            return Some((Verb::Raise, words));
        }
        let pending = self.pending();
        for (id, _) in &pending {
            assert!(
                !self.answered.contains(id),
                "{id} was answered, and is asked for again"
            );
        }
        Some(match pending.first() {
            Some((id, true)) => (Verb::Answer, format!("answer {id} yes --store {HERE}")),
            Some((id, false)) => (Verb::Approve, format!("approve {id} --store {HERE}")),
            None => (
                Verb::Resume,
                format!("resume --wait {ALLOWED} --store {HERE}"),
            ),
        })
    }

    fn moment(&mut self) -> Moment {
        match self.random.below(2) {
            0 => Moment::Change(1 + self.random.index(40)),
            _ => Moment::After(Duration::from_micros(self.random.below(900_000))),
        }
    }

    /// One command, killed or not, and all that must be true after it. Returns false in the end.
    fn step(&mut self, is_killed: bool, tally: &mut Tally) -> bool {
        let Some((verb, words)) = self.next_command() else {
            return false;
        };
        let moment = is_killed.then(|| self.moment());
        let ran = self.place.run(&words, moment);
        let what = format!("{words} ({moment:?}): {ran:?}");
        if ran.is_killed {
            *tally.kills.entry(verb).or_default() += 1;
        } else {
            check_code(verb, &ran, &what);
        }
        if let (Verb::Answer | Verb::Approve, false) = (verb, ran.is_killed) {
            let id = words.split_whitespace().nth(1).unwrap();
            self.answered.insert(id.to_owned());
        }
        let raised_before = self.pauses().raised;
        let before = std::mem::take(&mut self.known);
        self.known = before.look_again(&self.place, &what);
        self.known.check_kept(&before, false, &what);
        self.known.calls().check(&self.place.ledger(), &what);
        // A raise that was not acknowledged may be recorded, but only once.
        let raised = self.pauses().raised - raised_before;
        let is_valid = match (verb, ran.is_killed) {
            (Verb::Raise, false) => raised == 1,
            (Verb::Raise, true) => raised <= 1,
            _ => raised == 0,
        };
        assert!(is_valid, "{raised} raises: {what}");
        // A message that was not acknowledged may have been accepted, but only once.
        let days = self.days_in_store();
        assert!(
            (self.days..=self.days + 1).contains(&days),
            "{days}: {what}"
        );
        if matches!(verb, Verb::Run | Verb::Send) && !ran.is_killed {
            assert_eq!(days, self.days + 1, "{what}");
        }
        self.days = days;
        true
    }

    /// Each day happened once, and each of its calls ran once, unless that is not known.
    fn check_end(&self, tally: &mut Tally) {
        let calls = self.known.calls();
        let ledger = self.place.ledger();
        let parts = ["begun", "approved", "woke"];
        let ids = (1..=DAYS).flat_map(|day| parts.map(|part| format!("day {day} {part}")));
        let mut missing = 0;
        for id in ids {
            let asked = calls.asked.get(&id).copied().unwrap_or_default();
            let ran = ledger.get(&id).copied().unwrap_or_default();
            assert!(asked <= 1 && ran <= asked, "{id}: {ran} of {asked}");
            missing += 1 - ran;
        }
        // A day ends early if the effect of a call is unknown.
        assert!(missing <= 3 * calls.unknown(), "{ledger:?}");
        assert_eq!(calls.open(), 0, "each call was answered");
        let facts = self.known.all.values().flatten();
        let facts: Vec<Fact> = facts.map(|fact| codec::decode(fact).unwrap()).collect();
        let questions = facts.iter().filter_map(|fact| match fact {
            Fact::Call(CallFact::ModelReplied { blocks, .. }) => Some(blocks),
            _ => None,
        });
        let is_question =
            |block: &&Block| matches!(block, Block::ToolUse { name, .. } if **name == *"ask_user");
        assert_eq!(
            questions
                .flat_map(|blocks| blocks.iter())
                .filter(is_question)
                .count(),
            DAYS as usize
        );
        let is_compaction = |fact: &&Fact| matches!(fact, Fact::Compacted { .. });
        let pauses = self.pauses();
        let all = [pauses.paused; 2];
        assert_eq!([pauses.raised, pauses.ended], all, "{pauses:?}");
        tally.pauses += pauses.paused;
        tally.compactions += facts.iter().filter(is_compaction).count();
        tally.unknown += calls.unknown();
    }
}

/// 4: a person is asked, or a limit has to be raised. 5: an alarm is waited for.
fn check_code(verb: Verb, ran: &Ran, what: &str) {
    let is_valid = match verb {
        Verb::Answer | Verb::Approve | Verb::Raise => ran.code == Some(0),
        Verb::Run | Verb::Resume | Verb::Send => matches!(ran.code, Some(0 | 4 | 5)),
    };
    assert!(is_valid, "{what}");
}

#[test]
fn whatever_a_process_waits_for_a_kill_loses_nothing_and_doubles_nothing() {
    let kills = kills(16);
    let seed = seed();
    println!("DORMOUSE_SEED={seed}");
    let (mut tally, mut number) = (Tally::default(), 0);
    while tally.killed() < kills {
        let mut plan = Plan::new(seed, number);
        loop {
            let is_killed = tally.killed() < kills && plan.random.percent(70);
            if !plan.step(is_killed, &mut tally) {
                break;
            }
        }
        plan.check_end(&mut tally);
        number += 1;
        println!("{} kills, {number} plans", tally.killed());
    }
    assert!(tally.compactions > 0 && tally.pauses > 0, "{tally:?}");
    println!("{number} plans: {tally:#?}");
}
