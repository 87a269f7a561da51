//! A run that was recorded is repeated offline, without its secrets.

use std::fs;

use crate::dormouse::{dormouse, refuses};

const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \
\"script.toml\"\n[tools]\nenabled = [\"fork\"]\n";
const SCRIPT: &str = r#"
[[turn]]
when = { prompt = "^go", round = 0 }
calls = [{ tool = "fork", args = { prompts = ["one", "two"] } }]
[[turn]]
text = "{{ prompt }}: the password is hunter2."
"#;

#[test]
fn a_recorded_run_is_repeated_without_the_model_and_without_its_secrets() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let at = folder.path();
    fs::write(at.join("p.toml"), PROGRAM).expect("it can be written");
    fs::write(at.join("script.toml"), SCRIPT).expect("it can be written");
    let recorded = dormouse(
        at,
        "run p.toml --input go --record run.jsonl --redact hunter[0-9]",
    );
    assert!(
        recorded.code == 0 && recorded.out.contains("hunter2"),
        "{recorded:?}"
    );
    let recording = fs::read_to_string(at.join("run.jsonl")).expect("it was recorded");
    assert!(!recording.contains("hunter2"), "{recording}");
    // The script may change: it is not asked.
    fs::write(
        at.join("script.toml"),
        "[[turn]]\ntext = \"something else\"\n",
    )
    .expect("it can be written");
    for _ in 0..2 {
        let repeated = dormouse(
            at,
            "run p.toml --input go --replay run.jsonl --redact hunter[0-9]",
        );
        assert_eq!(
            repeated.out, "go: the password is *******.\n",
            "{repeated:?}"
        );
    }
    let other = dormouse(at, "run p.toml --input gone --replay run.jsonl");
    assert!(
        other.code == 1 && other.err.contains("of message 1: recorded «"),
        "{other:?}"
    );
    // A recording is not overwritten.
    refuses(at, "run p.toml --input go --record run.jsonl");
}
