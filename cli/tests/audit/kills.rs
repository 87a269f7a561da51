//! kill -9 of the program in any command that writes, again and again on the same stores: nothing
//! that was there or was told is lost, no call of a tool that must not be repeated runs twice, and
//! nothing half done is left.
//!
//! A plan follows from its seed, as far as the clock lets it. It uses two stores: `here` runs,
//! branches, collects, repairs and exports, and `there` imports. A command is killed after a random
//! time, after so many lines that it printed, or after so many changes that it made to files. After
//! each command everything is looked at from outside; in the end all that was begun goes on to its
//! end. `DORMOUSE_KILLS` says how often is killed, `DORMOUSE_SEED` runs a plan again.

pub(crate) mod kept;
pub(crate) mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use dormouse::id::Pid;
use dormouse::process::ProcessRow;
use dormouse_tests::random::Random;
use serde_json::Value;

use self::kept::{Kept, Known};
use self::place::{HERE, Moment, Place, Ran, THERE};
use crate::crash::{kills, seed};

/// So many kills until the stores are brought to their end, and others are begun.
const KILLS_OF_A_PLAN: u64 = 24;

/// What a command that writes is called with. Pids, facts and files are chosen when it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Run,
    Resume,
    Branch,
    Collect,
    DropEnded,
    Repair,
    Export,
    Import,
}

use Verb::{Branch, Collect, DropEnded, Export, Import, Repair, Resume, Run};

const VERBS: [Verb; 8] = [
    Run, Resume, Branch, Collect, DropEnded, Repair, Export, Import,
];

/// What all plans together came to.
#[derive(Debug, Default)]
struct Tally {
    kills: BTreeMap<Verb, u64>,
    /// Commands that came to their end, killed too late or not at all.
    whole: BTreeMap<Verb, u64>,
    /// Imports that were killed and are there, exports that were killed and are there.
    imported: u64,
    exported: u64,
    /// Calls of the tool that must not be repeated, its runs, and the calls of which it is not
    /// known whether they ran.
    calls: usize,
    runs: usize,
    unknown: usize,
}

impl Tally {
    fn killed(&self) -> u64 {
        self.kills.values().sum()
    }
}

/// A plan at work.
struct Plan {
    place: Place,
    random: Random,
    /// How long each command takes that nobody kills.
    typical: BTreeMap<Verb, Duration>,
    exports: u32,
    known: Known,
}

impl Plan {
    fn new(seed: u64, number: u64) -> Self {
        let (place, random) = (Place::new(), Random::of(&[seed, number]));
        Self {
            place,
            random,
            typical: BTreeMap::new(),
            exports: 0,
            known: Known::default(),
        }
    }

    /// The words of a command. None where there is nothing yet that it could be about.
    fn words(&mut self, verb: Verb) -> Option<String> {
        let pids: Vec<_> = self
            .known
            .here
            .facts
            .iter()
            .map(|(pid, facts)| (pid.0, facts.len() as u64))
            .collect();
        let point = |random: &mut Random| {
            let (pid, facts) = random.pick(&pids)?;
            Some(format!("{pid}@{}", random.below(facts + 1)))
        };
        Some(match verb {
            Run => format!(
                "run p.toml --input go --json {} --store {HERE}",
                place::ALLOWED
            ),
            Resume if !self.known.there.rows.is_empty() && self.random.percent(50) => {
                format!(
                    "resume --imported --json {} --store {THERE}",
                    place::ALLOWED
                )
            }
            Resume if pids.is_empty() => return None,
            Resume => format!("resume --json {} --store {HERE}", place::ALLOWED),
            Branch => format!(
                "branch {} --json {} --store {HERE}",
                point(&mut self.random)?,
                place::ALLOWED
            ),
            Collect => format!("gc --live-percent 100 --store {HERE}"),
            DropEnded => format!("gc --live-percent 100 --drop-ended 0s --store {HERE}"),
            Repair => {
                // The index holds nothing that the log lacks: that it is gone is what a repair has
                // to mend.
                let _ = std::fs::remove_dir_all(self.place.path(HERE).join("index"));
                format!("fsck --repair --store {HERE}")
            }
            Export => {
                self.exports += 1;
                format!(
                    "export {} x{}.dormouse --tree --store {HERE}",
                    point(&mut self.random)?,
                    self.exports
                )
            }
            Import => {
                let files: Vec<_> = (1..=self.exports)
                    .filter(|number| self.place.export(*number).exists())
                    .collect();
                format!(
                    "import x{}.dormouse --store {THERE}",
                    self.random.pick(&files)?
                )
            }
        })
    }

    fn moment(&mut self, verb: Verb) -> Moment {
        let longest = self
            .typical
            .get(&verb)
            .copied()
            .unwrap_or(Duration::from_millis(300));
        let prints = matches!(verb, Run | Resume | Branch);
        match self.random.below(3) {
            0 if prints => Moment::Line(1 + self.random.index(100)),
            0 | 1 => Moment::Change(1 + self.random.index(if prints { 60 } else { 6 })),
            _ => Moment::After(Duration::from_micros(
                self.random.below(longest.as_micros() as u64 * 6 / 5 + 1),
            )),
        }
    }

    /// One command, killed or not, and all that must be true after it.
    fn step(&mut self, verb: Verb, is_killed: bool, tally: &mut Tally) {
        let Some(words) = self.words(verb) else {
            return;
        };
        let moment = is_killed.then(|| self.moment(verb));
        let ran = self.place.run(&words, moment);
        let what = format!("{words} ({moment:?}): {ran:?}");
        if ran.is_killed {
            *tally.kills.entry(verb).or_default() += 1;
        } else {
            *tally.whole.entry(verb).or_default() += 1;
            assert_eq!(ran.code, Some(0), "{what}");
            self.typical.insert(verb, ran.took);
        }
        let before = std::mem::take(&mut self.known);
        self.known = before.look_again(&self.place, &what);
        self.known.check_kept(&before, verb == DropEnded, &what);
        self.check_told(
            &ran,
            if words.ends_with(THERE) {
                &self.known.there
            } else {
                &self.known.here
            },
            &what,
        );
        match verb {
            Export => tally.exported += u64::from(self.check_export(&ran, &what)),
            Import => tally.imported += u64::from(self.check_import(&words, &ran, &before, &what)),
            _ => {}
        }
        self.place.check_nothing_left(self.exports, &what);
        self.known.calls().check(&self.place.ledger(), &what);
    }

    /// What it printed as done is done.
    fn check_told(&self, ran: &Ran, kept: &Kept, what: &str) {
        for line in ran
            .lines
            .iter()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            let pid = Pid(line["pid"].as_u64().unwrap_or_default());
            let facts = || kept.facts.get(&pid).map_or(0, Vec::len) as u64;
            let exit = || {
                kept.rows
                    .get(&pid)
                    .and_then(|row| row.exit.as_ref())
                    .map(|exit| exit.status.word())
            };
            match line["event"].as_str() {
                Some("started") => assert!(kept.rows.contains_key(&pid), "{pid} was born: {what}"),
                Some("fact") => assert!(
                    line["number"].as_u64().unwrap() <= facts(),
                    "{line} was told: {what}"
                ),
                Some("exited") => {
                    assert_eq!(exit(), line["status"].as_str(), "{line} was told: {what}")
                }
                _ => {}
            }
        }
    }

    /// An export is there whole, or it is not there. Whether it is there.
    fn check_export(&self, ran: &Ran, what: &str) -> bool {
        let name = format!("x{}.dormouse", self.exports);
        let is_there = self.place.export(self.exports).exists();
        assert!(is_there || ran.is_killed, "{what}");
        if is_there {
            let shown = self.place.run(&format!("show {name}"), None);
            assert_eq!(shown.code, Some(0), "{what}: {shown:?}");
        }
        is_there && ran.is_killed
    }

    /// All processes of an import are there, or none is. Whether they are there.
    fn check_import(&self, words: &str, ran: &Ran, before: &Known, what: &str) -> bool {
        let news = |pid: &&Pid| !before.there.rows.contains_key(*pid);
        let from = |kept: &Kept, pid: &Pid| {
            kept.rows[pid]
                .branched_from
                .as_ref()
                .map(|restored| restored.pid)
        };
        let found: BTreeSet<_> = self
            .known
            .there
            .rows
            .keys()
            .filter(news)
            .map(|pid| from(&self.known.there, pid))
            .collect();
        let elsewhere = tempfile::tempdir().unwrap();
        let whole = words.replace(THERE, &elsewhere.path().join("s").display().to_string());
        let again = self.place.run(&whole, None);
        assert_eq!(again.code, Some(0), "{what}: {again:?}");
        let whole = Kept::of(&elsewhere.path().join("s")).unwrap();
        let whole: BTreeSet<_> = whole.rows.keys().map(|pid| from(&whole, pid)).collect();
        assert!(
            found == whole || (found.is_empty() && ran.is_killed),
            "{found:?} of {whole:?}: {what}"
        );
        !found.is_empty() && ran.is_killed
    }

    /// All that was begun comes to its end.
    fn finish(mut self, tally: &mut Tally) {
        for (kept, flag, store) in [
            (&self.known.here, "--json", HERE),
            (&self.known.there, "--imported", THERE),
        ] {
            if !kept.rows.is_empty() {
                let ran = self.place.run(
                    &format!("resume {flag} {} --store {store}", place::ALLOWED),
                    None,
                );
                assert_eq!(ran.code, Some(0), "{ran:?}");
            }
        }
        let what = "in the end";
        self.known = self.known.look_again(&self.place, what);
        // A branch is born stopped. One that was killed then is named by `resume`, and continues
        // only if it is named there.
        let roots = self
            .known
            .here
            .rows
            .values()
            .filter(|row| row.parent.is_none() && row.exit.is_none());
        let stopped = roots
            .map(|row| row.pid.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        if !stopped.is_empty() {
            let ran = self.place.run(
                &format!("resume {stopped} {} --store {HERE}", place::ALLOWED),
                None,
            );
            assert_eq!(ran.code, Some(0), "{ran:?}");
            self.known = self.known.look_again(&self.place, what);
        }
        for (name, kept) in [(HERE, &self.known.here), (THERE, &self.known.there)] {
            let undone = |row: &&ProcessRow| {
                row.exit
                    .as_ref()
                    .is_none_or(|exit| exit.status.word() != "done")
            };
            let undone: Vec<_> = kept.rows.values().filter(undone).collect();
            if !undone.is_empty() {
                let listed = self.place.run(&format!("ps --store {name}"), None).lines;
                panic!(
                    "in {name} these have not done their work: {undone:#?}\n{listed:#?}\n{}",
                    self.place.keep().display()
                );
            }
        }
        // What was left is removed or replaced when a store is opened, as those were that hold
        // processes.
        for (name, kept) in [(HERE, &self.known.here), (THERE, &self.known.there)] {
            if !kept.rows.is_empty() {
                self.place.check_store_files(name);
            }
        }
        let (calls, ledger) = (self.known.calls(), self.place.ledger());
        calls.check(&ledger, what);
        assert_eq!(calls.open(), 0, "each call was answered");
        tally.calls += calls.asked();
        tally.runs += ledger.values().sum::<usize>();
        tally.unknown += calls.unknown();
    }
}

#[test]
fn whatever_command_is_killed_nothing_is_lost_doubled_or_left_half_done() {
    let kills = kills(40);
    let seed = seed();
    println!("DORMOUSE_SEED={seed}");
    let (mut tally, mut number) = (Tally::default(), 0);
    while tally.killed() < kills {
        let mut plan = Plan::new(seed, number);
        let until = (tally.killed() + KILLS_OF_A_PLAN).min(kills);
        plan.step(Run, false, &mut tally);
        while tally.killed() < until {
            let verb = plan.random.one_of(&VERBS);
            let is_killed = plan.random.percent(85);
            plan.step(verb, is_killed, &mut tally);
        }
        plan.finish(&mut tally);
        number += 1;
        println!("{} kills, {number} plans", tally.killed());
    }
    println!("{number} plans: {tally:#?}");
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: &std::fs::DirEntry| entry.metadata().map_or(0, |metadata| metadata.len());
    entries
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                size(&entry),
            )
        })
        .collect()
}
