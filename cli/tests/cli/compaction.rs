//! A run whose conversation was too long: what commands show of it.

use std::fs;

use crate::dormouse::{dormouse, succeeds};

const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \
\"script.toml\"\n[tools]\nenabled = [\"read_fd\"]\n";
const SCRIPT: &str = r#"
[[turn]]
when.contains = "<compacted_messages"
text = "I go on."
[[turn]]
fail = "context_overflow"
"#;

#[test]
fn a_compacted_conversation_is_shown_as_the_model_has_it_and_as_it_was() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let at = folder.path();
    let input = format!("Begin. {}The end.", "Then go on with it. ".repeat(200));
    let program = format!("{PROGRAM}[prompt]\nuser = \"{input}\"\n");
    fs::write(at.join("p.toml"), &program).expect("it can be written");
    fs::write(at.join("script.toml"), SCRIPT).expect("it can be written");
    assert_eq!(succeeds(at, "run p.toml --store s"), "I go on.\n");

    let seen = succeeds(at, "messages 1 --store s");
    assert!(
        seen.starts_with("── summary of 1-1\n<compacted_messages"),
        "{seen}"
    );
    assert!(seen.contains("── 2 assistant\nI go on."), "{seen}");
    let all = succeeds(at, "messages 1 --all --store s");
    assert!(all.starts_with(&format!("── 1 user\n{input}\n")), "{all}");
    assert!(all.contains("── 2 assistant\nI go on."), "{all}");
    let lines = dormouse(at, "messages 1 --json --store s").json_lines();
    assert_eq!(lines[0]["summary_of"], serde_json::json!([1, 1]));
    assert_eq!(
        (&lines[0]["message"], &lines[1]["message"]),
        (&serde_json::Value::Null, &2.into())
    );
    let log = succeeds(at, "log 1 --store s");
    assert!(
        log.contains("compacted") && log.contains("into history:1, 0 kept"),
        "{log}"
    );
    let listed = dormouse(at, "ps --json --store s").json_lines();
    assert_eq!(listed[0]["messages"], 2, "{listed:?}");

    // Switched off, the turn ends.
    let off = format!("{program}[context]\nenabled = false\n");
    fs::write(at.join("p.toml"), off).expect("it can be written");
    let ran = dormouse(at, "run p.toml --store t");
    assert!(ran.code == 1 && ran.err.contains("too long"), "{ran:?}");
}
