//! Commands that are refused before they do anything, with what is there and what to do.

use std::fs;

use crate::dormouse::{command, dormouse, refuses, run, succeeds};

const SCRIPTED: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \"s.toml\"\n";

#[test]
fn a_log_of_facts_that_are_not_there_says_which_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("p.toml"), SCRIPTED).unwrap();
    fs::write(at.join("s.toml"), "[[turn]]\ntext = \"done\"\n").unwrap();
    succeeds(at, "run p.toml --input go --store here");
    let all = succeeds(at, "log 1 --store here");
    let last = all.lines().count() - 1;
    let has = format!("it has facts 0 to {last}");
    for (range, asked) in [
        ("--from 99", "process 1 has no fact 99 or later"),
        ("--from 99 --to 120", "process 1 has no fact 99 to 120"),
        ("--from 2 --to 1", "process 1 has no fact 2 to 1"),
    ] {
        let refused = refuses(at, &format!("log 1 --store here {range}"));
        assert!(refused.contains(&format!("{asked}: {has}")), "{refused}");
    }
    let line = format!("log 1 --store here --from {last} --to 99");
    assert_eq!(succeeds(at, &line).lines().count(), 1);
}

/// With the feature there is a program that does it: `cli/tests/cluster`.
#[cfg(not(feature = "cluster"))]
#[test]
fn a_cluster_is_refused_by_a_build_that_has_none() {
    let folder = tempfile::tempdir().unwrap();
    for line in ["ps", "run p.toml --input go", "gc"] {
        let refused = refuses(
            folder.path(),
            &format!("{line} --store postgres://h/database"),
        );
        assert!(refused.contains("--features cluster"), "{line}: {refused}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_run_whose_certificates_cannot_be_used_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = "[model]\nname = \"m\"\nprovider = \"openai-chat\"\nbase_url = \
                 \"https://gateway.example\"\nca_file = \"ca.pem\"\n";
    fs::write(at.join("p.toml"), model).unwrap();
    let pem = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    fs::write(at.join("ca.pem"), pem).unwrap();
    let run = "run p.toml --input go --store here --allow-net=gateway.example";
    let ran = dormouse(at, run);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let expected = "the certificate 1 of ca.pem cannot be used";
    assert!(
        ran.err.contains("nothing was started: ") && ran.err.contains(expected),
        "{}",
        ran.err
    );
    fs::write(at.join("ca.pem"), "nothing").unwrap();
    let ran = dormouse(at, run);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("ca.pem holds no certificate"),
        "{}",
        ran.err
    );
}

#[test]
fn a_run_without_a_key_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let model = "[model]\nname = \"claude-sonnet-4-5\"\nprovider = \"anthropic\"\n";
    fs::write(at.join("p.toml"), model).unwrap();
    let mut without_key = command(at);
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"] {
        without_key.env_remove(name);
    }
    let ran = run(without_key.args(["run", "p.toml", "--input", "go", "--store", "here"]));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("nothing was started: ") && ran.err.contains("set ANTHROPIC_API_KEY"),
        "{}",
        ran.err
    );
    assert_eq!(dormouse(at, "ps --store here --json").json_lines().len(), 0);
}
