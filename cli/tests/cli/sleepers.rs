//! What `resume --wait` says of trees that only waited for their alarms.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::dormouse::{command, dormouse};

const ROOT: &str = r#"
[model]
name = "m"
provider = "scripted"
script = "root.script.toml"
[tools]
enabled = ["spawn", "wake_at"]
[linked_programs]
child = { path = "child.toml", description = "Asks later." }
"#;

const ROOT_SCRIPT: &str = r#"
[[turn]]
when.contains = "<alarm id"
text = "I was woken."
[[turn]]
when.round = 0
calls = [
    { tool = "spawn", args = { program_name = "child", query = "Ask later.", wait = false } },
    { tool = "wake_at", args = { in = "6s", note = "Look." } },
]
[[turn]]
text = "I rest."
"#;

const CHILD: &str = r#"
[model]
name = "m"
provider = "scripted"
script = "child.script.toml"
[tools]
enabled = ["ask_user", "wake_at"]
"#;

const CHILD_SCRIPT: &str = r#"
[[turn]]
when.contains = "<alarm id"
calls = [{ tool = "ask_user", args = { question = "Go on?" } }]
[[turn]]
when.round = 0
calls = [{ tool = "wake_at", args = { in = "6s", note = "Ask." } }]
[[turn]]
text = "I rest."
"#;

/// A store with a tree that is asleep: its root, and a child in the background.
fn sleeping_tree(folder: &Path) {
    for (name, text) in [
        ("root.toml", ROOT),
        ("root.script.toml", ROOT_SCRIPT),
        ("child.toml", CHILD),
        ("child.script.toml", CHILD_SCRIPT),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    let ran = dormouse(folder, "run root.toml --input begin --store s");
    assert_eq!(ran.code, 5, "{ran:?}");
}

/// Runs the program with the words of this line, and ends it if it is not done after a minute. Returns
/// its exit code, and the lines that it printed.
fn ends(folder: &Path, line: &str) -> (Option<i32>, Vec<Value>) {
    let out = folder.join("out.jsonl");
    let mut running = command(folder)
        .args(line.split_whitespace())
        .stdout(File::create(&out).unwrap())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        match running.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > Duration::from_secs(60) => {
                running.kill().unwrap();
                running.wait().unwrap();
                panic!("{line} does not end");
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let printed = fs::read_to_string(&out).unwrap();
    let lines = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (status.code(), lines.collect())
}

#[test]
fn a_call_of_a_background_child_that_an_alarm_woke_is_told() {
    let folder = tempfile::tempdir().unwrap();
    sleeping_tree(folder.path());
    let (code, lines) = ends(folder.path(), "resume --wait --json --store s");
    assert_eq!(code, Some(4), "{lines:?}");
    let is_asked = |line: &Value| line["event"] == "pending" && line["tool"] == "ask_user";
    assert!(lines.iter().any(is_asked), "{lines:?}");
    let is_asking = |line: &Value| line["event"] == "result" && line["status"] == "asking";
    assert!(lines.iter().any(is_asking), "{lines:?}");
}
