//! kill -9 at any moment of runs with a label: what the label has used is what the journals say.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::crash::seed;
use crate::support::shown;
use dormouse_tests::random::Random;

const TURNS: usize = 25;
const KILLS: usize = 8;

fn dormouse(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .args(args)
        .args(["--store", "store"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(folder: &Path) -> Command {
    let mut args = vec![
        "run",
        "reader.toml",
        "--input",
        "Read.",
        "--label",
        "user=anna",
    ];
    args.extend(["--label", "project=x", "--allow-run=true"]);
    dormouse(folder, &args)
}

/// The objects that a command prints.
fn objects(folder: &Path, args: &[&str]) -> Vec<Value> {
    let output = dormouse(folder, args).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What the journals say, and what the label says.
fn used(folder: &Path) -> (u64, u64) {
    let processes = objects(folder, &["ps", "--json"]);
    let tokens = |process: &Value| process["output_tokens"].as_u64().unwrap();
    let labels = objects(folder, &["label", "list", "--json"]);
    assert_eq!(labels.len(), 1, "{labels:?}");
    assert_eq!(labels[0]["label"], "user=anna");
    let of_label = labels[0]["limits"]["output_tokens"]["used"]
        .as_str()
        .unwrap();
    (
        processes.iter().map(tokens).sum(),
        of_label.parse().unwrap(),
    )
}

fn write_program(folder: &Path) {
    let program = "[model]\nprovider = \"scripted\"\nscript = \"script.toml\"\nmax_iterations = \
                   100\n[tools]\n[[tools.command]]\nname = \"look\"\ndescription = \"Looks.\"\nargv \
                   = [\"true\"]\n";
    std::fs::write(folder.join("reader.toml"), program).unwrap();
    let mut script = String::new();
    for round in 0..TURNS {
        write!(
            script,
            "[[turn]]\nwhen.round = {round}\ndelay_ms = 4\ntext = \"I read page {round}.\"\ncalls = \
             [{{ tool = \"look\", args = {{}} }}]\n"
        )
        .unwrap();
    }
    script.push_str("[[turn]]\ntext = \"I have read it all.\"\n");
    std::fs::write(folder.join("script.toml"), script).unwrap();
}

fn set(folder: &Path, tokens: &str) -> Output {
    // A month, so that the test can run at midnight of all days but one.
    let args = [
        "label",
        "set",
        "user=anna",
        "--per",
        "month",
        "--output-tokens",
        tokens,
    ];
    dormouse(folder, &args).output().unwrap()
}

#[test]
fn a_label_counts_what_is_journalled_however_often_its_runs_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_program(folder);
    let output = set(folder, "1000000");
    assert!(output.status.success(), "{}", shown(&output));
    let began = Instant::now();
    let output = run(folder).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let duration = began.elapsed().as_millis() as u64;
    let (journalled, counted) = used(folder);
    assert!(
        journalled > 0 && journalled == counted,
        "{journalled} {counted}"
    );
    let seed = seed();
    println!("seed {seed}, a run takes {duration} ms and uses {journalled} tokens");
    let mut random = Random::new(seed);
    for kill in 1..=KILLS {
        let mut killed = run(folder).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.below(duration)));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let (journalled, counted) = used(folder);
        assert_eq!(journalled, counted, "kill {kill}");
    }
    let output = dormouse(folder, &["resume", "--allow-run=true"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let (journalled, counted) = used(folder);
    assert_eq!(journalled, counted);

    // A budget that is used up holds the next run, which goes on after a raise.
    let output = set(folder, &journalled.to_string());
    assert!(output.status.success(), "{}", shown(&output));
    let output = run(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", shown(&output));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("the label user=anna has used up its budget"),
        "{told}"
    );
    assert_eq!(used(folder), (journalled, counted), "nothing was asked");
    let output = dormouse(folder, &["resume", "--allow-run=true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", shown(&output));
    set(folder, "1000000");
    let output = dormouse(folder, &["resume", "--allow-run=true"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let (journalled, counted) = used(folder);
    assert_eq!(journalled, counted);
}
