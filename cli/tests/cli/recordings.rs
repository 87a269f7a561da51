//! A run that was recorded is repeated offline, without its secrets.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str =
    "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \"script.toml\"\n[tools]\nenabled = [\"fork\"]\n";
const SCRIPT: &str = r#"
[[turn]]
when = { prompt = "^go", round = 0 }
calls = [{ tool = "fork", args = { prompts = ["one", "two"] } }]
[[turn]]
text = "{{ prompt }}: the password is hunter2."
"#;

fn dormouse(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    let words = line.split_whitespace();
    command.args(words).current_dir(folder).env_remove("DORMOUSE_LOG").output().expect("the program can be run")
}

#[test]
fn a_recorded_run_is_repeated_without_the_model_and_without_its_secrets() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let at = folder.path();
    fs::write(at.join("p.toml"), PROGRAM).expect("it can be written");
    fs::write(at.join("script.toml"), SCRIPT).expect("it can be written");
    let recorded = dormouse(at, "run p.toml --input go --record run.jsonl --redact hunter[0-9]");
    assert!(recorded.status.success(), "{recorded:?}");
    assert!(String::from_utf8_lossy(&recorded.stdout).contains("hunter2"), "the run itself is as it is");
    let recording = fs::read_to_string(at.join("run.jsonl")).expect("it was recorded");
    assert!(!recording.contains("hunter2"), "{recording}");
    // The script may change: it is not asked.
    fs::write(at.join("script.toml"), "[[turn]]\ntext = \"something else\"\n").expect("it can be written");
    for _ in 0..2 {
        let repeated = dormouse(at, "run p.toml --input go --replay run.jsonl --redact hunter[0-9]");
        assert_eq!(String::from_utf8_lossy(&repeated.stdout), "go: the password is *******.\n", "{repeated:?}");
    }
    let other = dormouse(at, "run p.toml --input gone --replay run.jsonl");
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.code() == Some(1) && said.contains("of message 1: recorded «"), "{said}");
    let again = dormouse(at, "run p.toml --input go --record run.jsonl");
    assert_eq!(again.status.code(), Some(2), "a recording is not written over: {again:?}");
}
