//! kill -9 of a swarm at random moments: nothing acknowledged is lost, nothing that must not run
//! twice runs twice, and the swarm comes to the end that it comes to when nobody kills it.
//!
//! Each life is a process of the operating system. It runs no programs, so that its death is the
//! death of all. `KILLS` says how often one is killed, `KILLS_SEED` runs the same plan again, as
//! far as the clock lets it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dormouse::record::CallFact;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dormouse::message::Block;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{Event, Fact, Kernel};
use dormouse_tests::random::Random;
use dormouse_tests::swarm::{
    self, ACKNOWLEDGED, BEGUN, Held, Ledger, Line, OPENED, RESULT, RESUMED, STORE, Snapshots,
};
use dormouse_tests::{FnModel, events_until, lines, program, says, within};

/// How long a life that nobody kills may take: far beyond what it needs, since a hang is what this
/// is to find.
const PATIENCE: Duration = Duration::from_secs(60);

/// A life that is killed is killed within so many microseconds after all was resumed.
const LONGEST_LIFE: u64 = 200_000;

/// So many of a hundred are killed earlier: within so many microseconds after they have begun to
/// open the store.
const EARLY: (u64, u64) = (20, 250_000);

/// A swarm is killed at most so often, then left to come to its end.
const KILLS_OF_A_SWARM: u64 = 24;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().expect("a number"))
}

fn entropy() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
}

/// What all swarms together came to.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    /// Of these, before all was resumed.
    while_opening: u64,
    swarms: u64,
    /// Facts that were acknowledged.
    facts: usize,
    /// Runs of the tool that must not run twice.
    ran: usize,
    /// Calls of it that were in flight when a life ended, of the swarms whose every fact can be
    /// read,
    interrupted: usize,
    /// and of these those that had run.
    interrupted_after_running: usize,
    slowest_opening: Duration,
    slowest_resuming: Duration,
}

/// When a life is killed: so long after it has said what begins with these words.
#[derive(Clone, Copy, Debug)]
struct Kill {
    after: Duration,
    words: &'static str,
}

impl Kill {
    fn any(random: &mut Random) -> Self {
        let (words, longest) = if random.percent(EARLY.0) {
            (BEGUN, EARLY.1)
        } else {
            (RESUMED, LONGEST_LIFE)
        };
        Self {
            after: Duration::from_micros(random.below(longest)),
            words,
        }
    }
}

/// How a life ended.
enum End {
    Killed,
    Result(String),
}

/// One life, and what it says.
struct Life {
    child: Child,
    lines: Receiver<String>,
    told: Vec<String>,
}

impl Life {
    fn begin(folder: &Path, snapshots: Snapshots) -> Self {
        let stderr = File::create(folder.join("stderr")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm"));
        command
            .arg(folder)
            .arg(snapshots.word())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let mut child = command.spawn().unwrap();
        let lines = lines(BufReader::new(child.stdout.take().unwrap()));
        Self {
            child,
            lines,
            told: Vec::new(),
        }
    }

    /// Listens until it has said what begins with these words, or has ended.
    fn await_words(&mut self, words: &str) {
        while self.value(words).is_none() {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.told.push(line),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it never said '{words}': {:#?}", self.told)
                }
            }
        }
    }

    /// Listens until it has ended, or for so long.
    fn listen(&mut self, time: Duration) -> Result<(), RecvTimeoutError> {
        let until = Instant::now() + time;
        loop {
            match self
                .lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.told.push(line),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(error @ RecvTimeoutError::Timeout) => return Err(error),
            }
        }
    }

    fn value(&self, before: &str) -> Option<&str> {
        self.told.iter().find_map(|line| line.strip_prefix(before))
    }

    /// What it told of what is durable.
    fn acknowledged(&self) -> impl Iterator<Item = &String> {
        let is_other = |line: &&String| {
            [BEGUN, OPENED, RESUMED, RESULT]
                .iter()
                .any(|words| line.starts_with(words))
        };
        self.told.iter().filter(move |line| !is_other(line))
    }
}

/// A swarm in a folder of its own.
struct Swarm {
    folder: tempfile::TempDir,
    snapshots: Snapshots,
}

impl Swarm {
    fn new(snapshots: Snapshots) -> Self {
        let folder = tempfile::tempdir().unwrap();
        swarm::prepare(folder.path()).unwrap();
        Self { folder, snapshots }
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    /// Lives once: until it is killed, or to its end.
    fn live(&self, kill: Option<Kill>, tally: &mut Tally) -> End {
        let mut life = Life::begin(self.folder.path(), self.snapshots);
        if let Some(kill) = kill {
            life.await_words(kill.words);
        }
        let heard = life.listen(kill.map_or(PATIENCE, |kill| kill.after));
        if heard.is_err() {
            life.child.kill().unwrap();
            life.listen(PATIENCE).unwrap();
        }
        let status = life.child.wait().unwrap();
        let mut file = OpenOptions::new()
            .append(true)
            .open(self.folder.path().join(ACKNOWLEDGED))
            .unwrap();
        life.acknowledged()
            .for_each(|line| writeln!(file, "{line}").unwrap());
        tally.facts += life
            .acknowledged()
            .filter(|line| line.starts_with("fact "))
            .count();
        let time = |words| {
            life.value(words)
                .map(|time| Duration::from_micros(time.parse().unwrap()))
        };
        let resumed = time(RESUMED);
        tally.slowest_opening = tally.slowest_opening.max(time(OPENED).unwrap_or_default());
        tally.slowest_resuming = tally.slowest_resuming.max(resumed.unwrap_or_default());
        match life.value(RESULT) {
            Some(result) => End::Result(result.to_owned()),
            None if kill.is_some() && status.signal() == Some(9) => {
                tally.kills += 1;
                tally.while_opening += u64::from(resumed.is_none());
                End::Killed
            }
            None => {
                let (stderr, last) = (
                    self.read("stderr"),
                    life.told.split_off(life.told.len().saturating_sub(30)),
                );
                panic!("it came to no end ({status}): {stderr}\nthe last that it told: {last:#?}")
            }
        }
    }

    /// What is to be true of a swarm that has come to its end.
    fn check(&self, tally: &mut Tally) {
        let acknowledged = self.read(ACKNOWLEDGED);
        let held = Held::of(&LogStore::open(self.folder.path().join(STORE)).unwrap()).unwrap();
        assert_eq!(held.lost(&acknowledged), None, "DUR-1");
        let ran = Ledger::of(self.folder.path()).ids().unwrap();
        let once: BTreeSet<_> = ran.iter().cloned().collect();
        assert_eq!(ran.len(), once.len(), "CALL-2: {ran:?}");
        let things: BTreeSet<_> = ran.iter().filter_map(|id| id.split(" #").next()).collect();
        assert_eq!(
            ran.len(),
            things.len(),
            "who was interrupted looks before it calls again: {ran:?}"
        );
        tally.ran += ran.len();
        if let Some(facts) = held.all_facts() {
            let calls = Calls::of(facts.map(Result::unwrap));
            assert!(
                calls.answered.is_subset(&once),
                "what was answered was run: {calls:?}, {ran:?}"
            );
            assert!(
                once.is_subset(&calls.asked),
                "what was run was asked for: {calls:?}, {ran:?}"
            );
            let unanswered = calls.asked.difference(&calls.answered).count();
            assert_eq!(
                calls.interrupted, unanswered,
                "each other call was answered as interrupted: {calls:?}"
            );
            tally.interrupted += calls.interrupted;
            tally.interrupted_after_running += once.difference(&calls.answered).count();
        }
    }
}

/// The calls of `record`, as the journals tell them.
#[derive(Debug, Default)]
struct Calls {
    asked: BTreeSet<String>,
    answered: BTreeSet<String>,
    /// Answers that the effect is unknown. No other tool of the swarm is answered so.
    interrupted: usize,
}

impl Calls {
    fn of(facts: impl Iterator<Item = Fact>) -> Self {
        let mut calls = Self::default();
        for fact in facts {
            match fact {
                Fact::Call(CallFact::ModelReplied { blocks, .. }) => {
                    calls.asked.extend(blocks.iter().filter_map(recorded))
                }
                Fact::Call(CallFact::ToolReturned { answer, .. })
                    if answer.text.contains("Its effect is unknown") =>
                {
                    calls.interrupted += 1;
                }
                Fact::Call(CallFact::ToolReturned { answer, .. }) => {
                    calls
                        .answered
                        .extend(answer.text.strip_prefix("recorded ").map(str::to_owned));
                }
                _ => {}
            }
        }
        calls
    }
}

/// The id that a call of `record` is about.
fn recorded(block: &Block) -> Option<String> {
    let Block::ToolUse { name, args, .. } = block else {
        return None;
    };
    let args: serde_json::Value = serde_json::from_str(args).unwrap();
    (**name == *"record").then(|| args["id"].as_str().unwrap().to_owned())
}

/// Says which plan it was if it fails.
struct Seed(u64, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was swarm {} of KILLS_SEED={}", self.1, self.0);
        }
    }
}

#[test]
fn a_swarm_that_is_killed_at_any_moment_loses_nothing_and_comes_to_the_same_end() {
    let kills = variable("KILLS").unwrap_or(40);
    let seed = variable("KILLS_SEED").unwrap_or_else(entropy);
    let mut tally = Tally::default();
    let whole = Swarm::new(Snapshots::Often);
    let End::Result(expected) = whole.live(None, &mut tally) else {
        panic!("nobody kills it")
    };
    assert!(expected.starts_with("done: "), "{expected}");
    whole.check(&mut tally);
    eprintln!("KILLS_SEED={seed}; undisturbed: {expected}");
    tally = Tally::default();
    while tally.kills < kills {
        let named = Seed(seed, tally.swarms);
        let mut random = Random::of(&[seed, tally.swarms]);
        let swarm = Swarm::new(if tally.swarms.is_multiple_of(2) {
            Snapshots::Never
        } else {
            Snapshots::Often
        });
        let mut left = (1 + random.below(KILLS_OF_A_SWARM)).min(kills - tally.kills);
        let result = loop {
            let kill = (left > 0).then(|| Kill::any(&mut random));
            match swarm.live(kill, &mut tally) {
                End::Killed => left -= 1,
                End::Result(result) => break result,
            }
        };
        assert_eq!(result, expected);
        assert_eq!(swarm.read("out/report.txt"), whole.read("out/report.txt"));
        swarm.check(&mut tally);
        tally.swarms += 1;
        drop(named);
    }
    eprintln!("{tally:#?}");
}

#[tokio::test]
async fn what_is_not_there_as_it_was_told_is_found_to_be_lost() {
    let store = Arc::new(MemoryStore::new());
    let model = FnModel(|_| async { Ok(says("done")) });
    let kernel = Kernel::open(store.clone())
        .model("m", model)
        .build()
        .await
        .unwrap();
    let events = kernel.events();
    kernel
        .start(program(&kernel, ""))
        .input("go")
        .await
        .unwrap();
    let events = events_until(events, |event| matches!(event, Event::Exited { .. })).await;
    within(kernel.shutdown()).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| Line::of(event).unwrap())
        .map(|line| line.to_string())
        .collect();
    let (held, all) = (Held::of(&store).unwrap(), told.join("\n"));
    assert_eq!(held.lost(&all), None);
    assert!(
        all.contains("born 1\n") && all.contains("exited 1 done"),
        "{all}"
    );
    let changes = [
        ("born 1", "born 2"),
        ("fact 1 2 ", "fact 1 99 "),
        ("fact 1 2 ", "fact 1 2 0"),
        ("1 done", "1 killed"),
    ];
    for (is, was) in changes {
        let line = told
            .iter()
            .find(|line| line.contains(is))
            .unwrap()
            .replace(is, was);
        assert_eq!(held.lost(&format!("{all}\n{line}")), Some(&*line));
    }
}
