//! The audit's report, against an independent computation from cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use crate::support::{Bench, Subject, captured, cargo_that_repeats, root, shown};
use serde_json::Value;

/// What a report must say, line by line.
struct Expected {
    found: Vec<String>,
    licences: BTreeSet<String>,
    duplicates: BTreeSet<String>,
    scripts: usize,
}

impl Expected {
    fn from(metadata: &Value) -> Self {
        let packages = metadata["packages"].as_array().unwrap();
        let mut licences = BTreeMap::<String, usize>::new();
        let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
        let mut scripts = 0;
        for package in packages {
            *licences
                .entry(
                    package["license"]
                        .as_str()
                        .unwrap_or("none declared")
                        .to_owned(),
                )
                .or_default() += 1;
            let versions = versions
                .entry(package["name"].as_str().unwrap())
                .or_default();
            versions.insert(package["version"].as_str().unwrap());
            let targets = package["targets"].as_array().unwrap().iter();
            scripts += targets
                .filter(|target| target["kind"][0] == "custom-build")
                .count();
        }
        versions.retain(|_, versions| versions.len() > 1);
        let none = licences.get("none declared").copied().unwrap_or(0);
        let expressions = licences.len() - usize::from(none > 0);
        let found = vec![
            format!(
                "{} packages under {expressions} licence expressions; {none} packages name no \
                 licence.",
                packages.len()
            ),
            format!(
                "{} packages stand in more than one version.",
                versions.len()
            ),
            format!("{scripts} packages run a build script."),
        ];
        let licences = licences
            .into_iter()
            .map(|(licence, count)| format!("| {licence} | {count} |"))
            .collect();
        let versions = versions
            .into_iter()
            .map(|(name, versions)| (name, Vec::from_iter(versions).join(", ")));
        let duplicates = versions
            .map(|(name, versions)| format!("* {name}: {versions}"))
            .collect();
        Self {
            found,
            licences,
            duplicates,
            scripts,
        }
    }
}

/// The lines of the report's section `title`.
fn section<'a>(report: &'a str, title: &str) -> Vec<&'a str> {
    let start = report
        .lines()
        .skip_while(|line| *line != format!("## {title}"))
        .skip(1);
    start.take_while(|line| !line.starts_with("## ")).collect()
}

fn captured_metadata() -> Value {
    serde_json::from_slice(&std::fs::read(captured()).unwrap()).unwrap()
}

/// Runs an audit, whose report must say of this metadata what is true. Returns what it printed.
fn check(bench: &Bench, metadata: &Value) -> Output {
    let expected = Expected::from(metadata);
    let output = bench.run().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let report = bench.report();
    for found in &expected.found {
        assert!(
            report.contains(&format!("* {found}\n")),
            "{found}\n{report}"
        );
    }
    let licences: BTreeSet<_> = section(&report, "Licences")
        .into_iter()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(str::to_owned)
        .collect();
    assert_eq!(licences, expected.licences);
    let duplicates = section(&report, "Duplicate versions")
        .into_iter()
        .filter(|line| line.starts_with("* "));
    let duplicates: BTreeSet<_> = duplicates.map(str::to_owned).collect();
    assert_eq!(duplicates, expected.duplicates);
    let scripts = section(&report, "Build scripts")
        .into_iter()
        .filter(|line| line.starts_with("* "))
        .count();
    assert_eq!(scripts, expected.scripts);
    let processes = bench.ps();
    let programs: Vec<_> = processes
        .iter()
        .map(|line| [&line["program"], &line["status"]].map(Value::as_str))
        .collect();
    let auditor = programs[0][0];
    let expected =
        [auditor, auditor, auditor, auditor, Some("editor")].map(|program| [program, Some("done")]);
    assert_eq!(programs, expected);
    output
}

#[test]
fn the_report_on_what_was_captured_is_true_and_little_of_it_enters_a_context() {
    let bench = Bench::captured();
    let output = check(&bench, &captured_metadata());
    assert_eq!(bench.runs(), 0, "no command runs");
    let processes = bench.ps();
    let sum = |key: &str| {
        processes
            .iter()
            .map(|line| line[key].as_u64().unwrap())
            .sum::<u64>()
    };
    let (produced, entered) = (sum("produced_chars"), sum("entered_chars"));
    assert!(
        produced > 1_000_000 && entered * 50 < produced,
        "{entered} of {produced} entered a context"
    );
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains(&format!(
            "returned {produced} characters, {entered} entered a context"
        )),
        "{printed}"
    );
    assert!(
        !printed.contains("warning") && !printed.contains('⚠'),
        "{printed}"
    );
}

#[test]
fn the_report_on_what_cargo_says_is_true() {
    let bench = Bench::of(
        Subject::Live(root().join("Cargo.toml")),
        &cargo_that_repeats(),
    );
    check(&bench, &captured_metadata());
    assert_eq!(bench.runs(), 1, "cargo was asked once");
}

/// The packages of a workspace that needs no registry: folder and manifest. Of one name, one lies
/// beside the workspace.
const PACKAGES: [(&str, &str); 3] = [
    (
        "in/plain",
        "name = 'plain'\nversion = '1.0.0'\nlicense = 'MIT'\n[dependencies.twin]\npath = \
         '../../twin'",
    ),
    (
        "in/built",
        "name = 'twin'\nversion = '1.2.0'\nlicense = 'MIT OR Apache-2.0'",
    ),
    ("twin", "name = 'twin'\nversion = '2.0.0'"),
];

/// Cargo itself, without a network and without a cache: all that it is asked of lies in one folder.
#[test]
fn the_report_on_a_workspace_that_is_there_is_true() {
    let place = tempfile::tempdir().unwrap();
    for (folder, package) in PACKAGES {
        let folder = place.path().join(folder);
        std::fs::create_dir_all(folder.join("src")).unwrap();
        std::fs::write(
            folder.join("Cargo.toml"),
            format!("[package]\nedition = '2024'\n{package}"),
        )
        .unwrap();
        std::fs::write(folder.join("src/lib.rs"), "").unwrap();
    }
    std::fs::write(place.path().join("in/built/build.rs"), "fn main() {}").unwrap();
    let (manifest, home) = (
        place.path().join("in/Cargo.toml"),
        place.path().join("home"),
    );
    std::fs::write(&manifest, "[workspace]\nresolver = '3'\nmembers = ['*']").unwrap();
    let cargo = format!(
        "CARGO_HOME='{}' exec '{}' \"$@\"",
        home.display(),
        env!("CARGO")
    );
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(&manifest)
        .env("CARGO_HOME", home)
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", shown(&metadata));
    let metadata = serde_json::from_slice(&metadata.stdout).unwrap();
    check(&Bench::of(Subject::Live(manifest), &cargo), &metadata);
}
