//! Typed results on the command line: the example that ends with a value, and a run that does not.

use std::process::{Command, Output};

use dormouse_tests::book::{page, root};
use serde_json::{Value, json};

fn dormouse(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dormouse"))
        .current_dir(root())
        .env_remove("DORMOUSE_LOG")
        .arg("run")
        .args(words)
        .output()
        .unwrap()
}

/// The example submits a wrong value first; what is wrong with it tells its script to go on.
#[test]
fn the_example_ends_with_a_value() {
    let packages = page("Cargo.lock")
        .lines()
        .filter(|line| line.starts_with("name = "))
        .count();
    let expected = json!({ "file": "Cargo.lock", "packages": packages });
    let words = [
        "examples/result/counter.toml",
        "--input",
        "Cargo.lock",
        "--allow-read=.",
    ];
    let plain = dormouse(&words);
    assert!(plain.status.success(), "{plain:?}");
    let value: Value = serde_json::from_slice(&plain.stdout).unwrap();
    assert_eq!(value, expected);
    let ran = dormouse(&[&words[..], &["--json"]].concat());
    let out = String::from_utf8(ran.stdout).unwrap();
    let mut lines = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let result = lines.find(|line| line["event"] == "result").unwrap();
    assert_eq!(
        (&result["status"], &result["value"]),
        (&json!("done"), &expected)
    );
}

#[test]
fn a_run_without_a_valid_result_fails() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("p.toml");
    let text = "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \"s.toml\"\n[result]\nschema = \
                { type = \"integer\" }\n";
    std::fs::write(&program, text).unwrap();
    std::fs::write(folder.path().join("s.toml"), "[[turn]]\ntext = \"seven\"\n").unwrap();
    let ran = dormouse(&[program.to_str().unwrap(), "--input", "x"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(ran.stdout.is_empty(), "{ran:?}");
    let told = String::from_utf8(ran.stderr).unwrap();
    assert!(
        told.contains("ended as invalid_result") && told.contains("seven"),
        "{told}"
    );
}
