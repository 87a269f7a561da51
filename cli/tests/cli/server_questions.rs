//! Tool servers that ask the user: at a terminal the user answers field by field, and where nobody
//! can answer, the question is declined at once.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::dormouse::{command, dormouse};
use crate::terminal::{strange, terminal};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/asking_server.py");

/// A program that calls a tool of the server once, and says what it returned.
fn program(folder: &Path, tool: &str) {
    let program = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \"s.toml\"\n[mcp.servers.s]\n\
         command = \"python3\"\nargs = [\"-B\", \"{SERVER}\"]\n[tools.mcp]\ns = \"all\"\n"
    );
    fs::write(folder.join("p.toml"), program).unwrap();
    let script = format!(
        "[[turn]]\nwhen.round = 0\ncalls = [{{ tool = \"s__{tool}\" }}]\n[[turn]]\ntext = \"{{{{ \
         last }}}}\"\n"
    );
    fs::write(folder.join("s.toml"), script).unwrap();
}

/// The answer that the server got, which the run prints.
fn answer_in(out: &str) -> Value {
    let last = out.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {out}"))
}

const RUN: &str = "run p.toml --input go --allow-run=python3 --allow-unconfined=python3";

/// A run at a terminal, at which a user types.
struct AtTerminal {
    child: Child,
    ours: File,
    shown: String,
}

impl AtTerminal {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let (ours, theirs) = terminal();
        let mut command = command(folder);
        command.args(RUN.split_whitespace()).args(more);
        command.env("NO_COLOR", "1").env("TERM", "xterm");
        command
            .stdin(theirs.try_clone().unwrap())
            .stderr(theirs)
            .stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        Self {
            child,
            ours,
            shown: String::new(),
        }
    }

    /// Waits until the terminal shows a text, and types a line then.
    fn when(&mut self, prompt: &str, line: &str) {
        let mut part = [0; 4096];
        while !self.shown.contains(prompt) {
            let read = self.ours.read(&mut part).unwrap_or_default();
            assert!(read > 0, "{prompt:?} is not shown: {}", self.shown);
            self.shown += &String::from_utf8_lossy(&part[..read]);
        }
        // What follows is shown after this line.
        let after = self.shown.find(prompt).unwrap() + prompt.len();
        assert_eq!(strange(&self.shown[..after]), None);
        self.shown.drain(..after);
        self.ours.write_all(line.as_bytes()).unwrap();
    }

    /// The answer that the server got.
    fn answer(mut self) -> Value {
        // Nobody reads the terminal any more, which would hold up what shows the rest.
        let mut ours = self.ours;
        let rest = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(1..) = ours.read(&mut part) {}
        });
        let mut out = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut out).unwrap();
        assert!(self.child.wait().unwrap().success(), "{out}");
        rest.join().unwrap();
        answer_in(&out)
    }
}

#[test]
fn the_user_answers_a_tool_server_field_by_field() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "release");
    let mut run = AtTerminal::start(folder.path(), &[]);
    run.when("The tool server s asks: What is released?", "");
    run.when("copies (integer, default 2): ", "0\n");
    run.when("copies (integer, default 2): ", "\n");
    run.when("notify (boolean, optional): ", "yes\n");
    run.when("stage (test | live): ", "prod\n");
    run.when("stage (test | live): ", "live\n");
    run.when("version - Which one (string): ", "\n");
    run.when("A value is required.", "");
    run.when("version - Which one (string): ", "2.0\n");
    let content = json!({ "copies": 2, "notify": true, "stage": "live", "version": "2.0" });
    assert_eq!(
        run.answer(),
        json!({ "action": "accept", "content": content })
    );
}

#[test]
fn the_user_answers_by_json_agrees_or_declines() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "release");
    let mut run = AtTerminal::start(folder.path(), &[]);
    // The stage is missing, so the form begins again.
    run.when("copies (integer, default 2): ", "{\"version\": \"1\"}\n");
    let whole = json!({ "version": "1", "stage": "test" });
    run.when("copies (integer, default 2): ", &format!("{whole}\n"));
    assert_eq!(
        run.answer(),
        json!({ "action": "accept", "content": whole })
    );

    // Ctrl-D.
    let mut run = AtTerminal::start(folder.path(), &[]);
    run.when("copies (integer, default 2): ", "\u{4}");
    run.when("declined, since you gave no answer", "");
    assert_eq!(run.answer(), json!({ "action": "decline" }));

    program(folder.path(), "open");
    let mut run = AtTerminal::start(folder.path(), &[]);
    run.when("open https://login.example/", "");
    run.when("Agree? [y/N] ", "y\n");
    assert_eq!(run.answer(), json!({ "action": "accept" }));
}

#[test]
fn where_nobody_can_answer_a_question_is_declined_at_once() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "release");
    let ran = dormouse(folder.path(), RUN);
    assert_eq!(ran.code, 0, "{ran:?}");
    let declined = json!({ "action": "decline" });
    assert_eq!(answer_in(&ran.out), declined, "{ran:?}");
    assert!(
        ran.err
            .contains("The tool server s asks: What is released?")
            && ran.err.contains("declined, since nobody can answer here"),
        "{ran:?}"
    );
    let ran = dormouse(folder.path(), &format!("{RUN} --json"));
    let asked = ran.json_lines();
    let asked = asked.iter().find(|line| line["event"] == "server_asks");
    assert!(asked.is_some(), "{ran:?}");
    assert!(ran.err.contains("declined"), "{ran:?}");

    let mut run = AtTerminal::start(folder.path(), &["--unattended"]);
    run.when("declined, since nobody can answer here", "");
    assert_eq!(run.answer(), declined);
}
