//! Where commands are killed: a folder with a program, its stores, its exports, and the ledger of a
//! tool that must not be repeated.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_tests::lines;

use super::files;

pub(crate) const HERE: &str = "here";
pub(crate) const THERE: &str = "there";

/// What the program may do.
pub(crate) const ALLOWED: &str = "--allow-run=sh,cat --allow-read=. --allow-write=out";

/// What is in the folder beside exports.
const NAMES: [&str; 9] = [
    "day",
    "p.toml",
    "s.toml",
    "big.txt",
    "out",
    "temporary",
    "errors",
    HERE,
    THERE,
];

/// No command takes longer: what hangs is found.
const PATIENCE: Duration = Duration::from_secs(180);

/// How each program begins.
const MODEL: &str = r#"
[model]
name = "m"
provider = "scripted"
script = "s.toml"
"#;

/// How each program ends. `note` must not be repeated: its ledger counts how often it ran.
const COMMANDS: &str = r#"
[[tools.command]]
name = "note"
description = "Writes an id into the ledger."
argv = ["sh", "-c", "echo \"$1\" >> out/ledger; echo \"noted $1\"", "note", "{id}"]
access = "write"
parameters.id = { type = "string", description = "The id" }
[[tools.command]]
name = "big"
description = "Prints much."
argv = ["cat", "big.txt"]
access = "read"
"#;

const PROGRAM: &str = r#"
[tools]
enabled = ["fork", "create_temp_file"]
effects = "run"
"#;

/// A root that reads much, notes twice, and forks three that note three times each.
const SCRIPT: &str = r#"
[[turn]]
when = { prompt = "^go", round = 0 }
calls = [{ tool = "big" }, { tool = "create_temp_file", args = { content = "a note\n" } }]
[[turn]]
when = { prompt = "^go", round = 1 }
calls = [{ tool = "note", args = { id = "root {{ round }}" } }]
[[turn]]
when = { prompt = "^go", round = 2 }
calls = [{ tool = "fork", args = { prompts = ["a", "b", "c"] } }]
[[turn]]
when = { prompt = "^go", round = 3 }
calls = [{ tool = "note", args = { id = "root {{ round }}" } }]
[[turn]]
when.prompt = "^[abc]$"
when.holds = "round < 3"
calls = [{ tool = "note", args = { id = "{{ prompt }} {{ round }}" } }]
[[turn]]
text = "done with {{ prompt }}"
"#;

/// When a command is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// So long after it was begun.
    After(Duration),
    /// When it has printed so many lines.
    Line(usize),
    /// When names or sizes of files were seen to change so often.
    Change(usize),
}

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) is_killed: bool,
    pub(crate) code: Option<i32>,
    /// What it printed: whole lines.
    pub(crate) lines: Vec<String>,
    pub(crate) took: Duration,
    /// What it printed to standard error. Read where a test fails.
    #[expect(dead_code, reason = "shown by a test that fails")]
    errors: String,
}

pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(PROGRAM, SCRIPT)
    }

    /// A place for another program, `p.toml`, whose script is `s.toml`. What is given of the program
    /// is what stands between its model and the commands `note` and `big`.
    pub(crate) fn with(program: &str, script: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for folder in ["out", "temporary"] {
            std::fs::create_dir(place.path(folder)).unwrap();
        }
        let program = format!("{MODEL}{program}{COMMANDS}");
        std::fs::write(place.path("p.toml"), program).unwrap();
        std::fs::write(place.path("s.toml"), script).unwrap();
        let big: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
        std::fs::write(place.path("big.txt"), big).unwrap();
        place
    }

    /// Leaves the folder to whoever looks into a failure.
    pub(crate) fn keep(self) -> PathBuf {
        self.0.keep()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn export(&self, number: u32) -> PathBuf {
        self.path(&format!("x{number}.dormouse"))
    }

    /// Runs the program with these words, to its end or until it is killed.
    pub(crate) fn run(&self, words: &str, kill: Option<Moment>) -> Ran {
        let args: Vec<&str> = words.split_whitespace().collect();
        self.run_args(&args, kill)
    }

    /// As [`run`](Self::run), with arguments that may contain spaces.
    pub(crate) fn run_args(&self, args: &[&str], kill: Option<Moment>) -> Ran {
        let began = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command
            .args(args)
            .current_dir(self.0.path())
            .env("TMPDIR", self.path("temporary"));
        let errors = std::fs::File::create(self.path("errors")).unwrap();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let printed = lines(BufReader::new(child.stdout.take().unwrap()));
        let (mut told, mut changes, mut seen) = (Vec::new(), 0, self.seen());
        while child.try_wait().unwrap().is_none() {
            told.extend(printed.try_iter());
            let is_due = match kill {
                None => false,
                Some(Moment::After(time)) => began.elapsed() >= time,
                Some(Moment::Line(number)) => told.len() >= number,
                Some(Moment::Change(number)) => {
                    let now = self.seen();
                    changes += usize::from(now != seen);
                    seen = now;
                    changes >= number
                }
            };
            if began.elapsed() > PATIENCE {
                child.kill().unwrap();
                let kept = tempfile::tempdir().unwrap().keep();
                let copied = Command::new("cp")
                    .arg("-a")
                    .arg(self.0.path())
                    .arg(&kept)
                    .status();
                panic!(
                    "it hangs: {args:?}: {told:#?}\n{} has a copy of all: {copied:?}",
                    kept.display()
                );
            }
            if is_due {
                child.kill().unwrap();
                break;
            }
            std::thread::sleep(Duration::from_micros(if kill.is_some() {
                50
            } else {
                1_000
            }));
        }
        let status = child.wait().unwrap();
        told.extend(printed.iter());
        let errors = std::fs::read_to_string(self.path("errors")).unwrap();
        Ran {
            is_killed: status.signal() == Some(9),
            code: status.code(),
            lines: told,
            took: began.elapsed(),
            errors,
        }
    }

    /// Names and sizes of all files that a command may change.
    fn seen(&self) -> Vec<(String, u64)> {
        let folders = [
            ".",
            "here",
            "here/log",
            "here/index",
            "there",
            "there/log",
            "there/index",
        ];
        folders
            .iter()
            .flat_map(|folder| files(&self.path(folder)))
            .filter(|(name, _)| name != "errors")
            .collect()
    }

    /// How often the tool ran for each id.
    pub(crate) fn ledger(&self) -> BTreeMap<String, usize> {
        let mut runs = BTreeMap::new();
        for id in std::fs::read_to_string(self.path("out/ledger"))
            .unwrap_or_default()
            .lines()
        {
            *runs.entry(id.to_owned()).or_default() += 1;
        }
        runs
    }

    /// No file of a command that is no more is left; the guards of its programs may need a moment.
    pub(crate) fn check_nothing_left(&self, exports: u32, what: &str) {
        let is_known = |name: &str| {
            let is_export = |number: u32| name == format!("x{number}.dormouse");
            NAMES.contains(&name) || (1..=exports).any(is_export)
        };
        let unknown = || {
            files(self.0.path())
                .into_iter()
                .filter(|(name, _)| !is_known(name))
        };
        let temporary = || files(&self.path("temporary"));
        let began = Instant::now();
        while unknown().count() + temporary().len() > 0 && began.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let left: Vec<_> = unknown().chain(temporary()).collect();
        assert!(left.is_empty(), "{left:?} is left by {what}");
    }

    /// A store has its own files and no others.
    pub(crate) fn check_store_files(&self, store: &str) {
        for (name, _) in files(&self.path(store)) {
            assert!(
                ["HEAD", "HEAD2", "LOCK", "log", "index"].contains(&&*name),
                "{store}/{name}"
            );
        }
        // A collection that was killed may leave the stub that was to replace a segment. The next
        // one that compacts the segment replaces it.
        let log = self.path(store).join("log");
        for (name, _) in files(&log) {
            let is_stub = name
                .strip_suffix(".new")
                .is_some_and(|segment| log.join(format!("{segment}.seg")).exists());
            assert!(name.ends_with(".seg") || is_stub, "{store}/log/{name}");
        }
    }
}
