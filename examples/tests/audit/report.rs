//! The audit's report, against an independent computation from cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Bench, root, shown};
use serde_json::Value;

fn metadata(manifest: &Path) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

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
            *licences.entry(package["license"].as_str().unwrap_or("none declared").to_owned()).or_default() += 1;
            let versions = versions.entry(package["name"].as_str().unwrap()).or_default();
            versions.insert(package["version"].as_str().unwrap());
            let targets = package["targets"].as_array().unwrap().iter();
            scripts += targets.filter(|target| target["kind"][0] == "custom-build").count();
        }
        versions.retain(|_, versions| versions.len() > 1);
        let none = licences.get("none declared").copied().unwrap_or(0);
        let expressions = licences.len() - usize::from(none > 0);
        let found = vec![
            format!(
                "{} packages under {expressions} licence expressions; {none} packages name no licence.",
                packages.len()
            ),
            format!("{} packages stand in more than one version.", versions.len()),
            format!("{scripts} packages run a build script."),
        ];
        let licences = licences.into_iter().map(|(licence, count)| format!("| {licence} | {count} |")).collect();
        let duplicates = versions.keys().map(|name| format!("* {name}: ")).collect();
        Self { found, licences, duplicates, scripts }
    }
}

/// The lines of the report's section `title`.
fn section<'a>(report: &'a str, title: &str) -> Vec<&'a str> {
    let start = report.lines().skip_while(|line| *line != format!("## {title}")).skip(1);
    start.take_while(|line| !line.starts_with("## ")).collect()
}

fn check(manifest: &Path) {
    let expected = Expected::from(&metadata(manifest));
    let bench = Bench::of(manifest);
    let output = bench.run().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let report = bench.report();
    for found in &expected.found {
        assert!(report.contains(&format!("* {found}\n")), "{found}\n{report}");
    }
    let licences: BTreeSet<_> = section(&report, "Licences")
        .into_iter()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(str::to_owned)
        .collect();
    assert_eq!(licences, expected.licences);
    let duplicates = section(&report, "Duplicate versions").into_iter().filter(|line| line.starts_with("* "));
    let duplicates: BTreeSet<_> = duplicates.map(|line| line[..=line.find(": ").unwrap() + 1].to_owned()).collect();
    assert_eq!(duplicates, expected.duplicates);
    let scripts = section(&report, "Build scripts").into_iter().filter(|line| line.starts_with("* ")).count();
    assert_eq!(scripts, expected.scripts);
    assert_eq!(bench.runs(), 1, "cargo was asked once");
    let listed = bench.ps();
    assert!(listed.status.success(), "{}", shown(&listed));
    let tree: Vec<Value> =
        String::from_utf8(listed.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let programs: Vec<_> =
        tree.iter().map(|line| (line["program"].as_str().unwrap(), line["status"].as_str().unwrap())).collect();
    assert_eq!(
        programs,
        [("auditor", "done"), ("auditor", "done"), ("auditor", "done"), ("auditor", "done"), ("editor", "done")]
    );
    assert!(tree[0]["produced_chars"].as_u64().unwrap() > 100_000, "{:?}", tree[0]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("entered a context") && printed.contains("editor"), "{printed}");
}

#[test]
fn the_report_on_this_workspace_is_true() {
    check(&root().join("Cargo.toml"));
}

#[test]
fn the_report_on_a_workspace_of_others_is_true() {
    let ours = metadata(&root().join("Cargo.toml"));
    let packages = ours["packages"].as_array().unwrap();
    let tokio = packages.iter().find(|package| package["name"] == "tokio-stream").unwrap();
    let source = Path::new(tokio["manifest_path"].as_str().unwrap()).parent().unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_folder(source, copy.path());
    check(&copy.path().join("Cargo.toml"));
}

/// A copy, since cargo writes a lock file beside the manifest.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from: PathBuf = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() { copy_folder(&from, &to) } else { assert!(std::fs::copy(&from, &to).is_ok()) }
    }
}
