//! The floors of the house: dependencies point down only, and the two lower floors stay pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each crate stands above everything that it depends on. Neighbours on one floor do not know each
/// other.
const FLOORS: [(&str, u32); 19] = [
    ("dormouse-macros", 0),
    ("dormouse-outlines", 0),
    ("dormouse-proto", 1),
    ("dormouse-content", 2),
    ("dormouse-program", 2),
    ("dormouse-kernel", 3),
    ("dormouse-actors", 4),
    ("dormouse-http", 4),
    ("dormouse-records", 5),
    ("dormouse-store-conformance", 5),
    ("dormouse-mcp", 5),
    ("dormouse-models", 5),
    ("dormouse-host", 5),
    ("dormouse-mcp-server", 5),
    ("dormouse-store", 6),
    ("dormouse", 7),
    ("dormouse-cli", 8),
    ("dormouse-examples", 8),
    ("dormouse-bench", 8),
];

/// The crates that neither wait, nor read a clock, nor touch files, and where they are.
const PURE: [(&str, &str); 5] = [
    ("dormouse-proto", "proto/src"),
    ("dormouse-outlines", "kernel/outlines/src"),
    ("dormouse-content", "kernel/content/src"),
    ("dormouse-program", "kernel/program/src"),
    ("dormouse-kernel", "kernel/src"),
];

/// What the pure crates must not name, as crates or in their sources.
const IMPURE_CRATES: [&str; 10] = [
    "tokio",
    "ractor",
    "async-std",
    "smol",
    "reqwest",
    "rand",
    "getrandom",
    "uuid",
    "chrono",
    "tempfile",
];
const IMPURE_PATHS: [&str; 10] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "Instant::now",
    "SystemTime",
    "RandomState",
    "std::os",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The names of a package's dependencies that end up in what is built from it; development only
/// ones do not count.
fn dependencies(package: &Value) -> Vec<String> {
    let all = package["dependencies"].as_array().unwrap().iter();
    let kept = all.filter(|dependency| dependency["kind"] != "dev");
    kept.map(|dependency| dependency["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Every edge that does not point down.
fn upward<'a>(
    edges: impl Iterator<Item = (&'a str, &'a str)>,
    floors: &BTreeMap<&str, u32>,
) -> Vec<String> {
    edges
        .filter(|(from, to)| match (floors.get(from), floors.get(to)) {
            (Some(from), Some(to)) => from <= to,
            _ => false,
        })
        .map(|(from, to)| format!("{from} -> {to}"))
        .collect()
}

#[test]
fn dependencies_point_down() {
    let floors = BTreeMap::from(FLOORS);
    let packages = packages();
    let edges: Vec<(String, String)> = packages
        .iter()
        .flat_map(|package| {
            let from = package["name"].as_str().unwrap().to_owned();
            dependencies(package)
                .into_iter()
                .map(move |to| (from.clone(), to))
        })
        .collect();
    let borrowed = edges.iter().map(|(from, to)| (from.as_str(), to.as_str()));
    assert_eq!(upward(borrowed, &floors), Vec::<String>::new());
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        assert!(
            floors.contains_key(name) || name == "dormouse-tests",
            "{name} stands on no floor: give it one here"
        );
    }
}

#[test]
fn an_upward_dependency_is_noticed() {
    let floors = BTreeMap::from(FLOORS);
    let edges = [
        ("dormouse-kernel", "dormouse-proto"),
        ("dormouse-proto", "dormouse-kernel"),
        ("dormouse-mcp", "dormouse-models"),
        ("dormouse-kernel", "serde"),
    ];
    let found = upward(edges.into_iter(), &floors);
    assert_eq!(
        found,
        [
            "dormouse-proto -> dormouse-kernel",
            "dormouse-mcp -> dormouse-models"
        ]
    );
}

/// A program with `test = false` is not built by `cargo test`, so that a test in it would never
/// run.
#[test]
fn what_is_left_out_of_the_tests_has_none() {
    let packages = packages();
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().unwrap());
    let left_out: Vec<_> = targets
        .filter(|target| target["kind"][0] == "bin" && target["test"] == false)
        .map(|target| Path::new(target["src_path"].as_str().unwrap()).to_owned())
        .collect();
    assert!(!left_out.is_empty());
    for main in left_out {
        let mut files = vec![main.clone()];
        if main.ends_with("main.rs") {
            files.extend(sources(main.parent().unwrap()));
        }
        for file in files {
            assert!(
                !std::fs::read_to_string(&file).unwrap().contains("[test]"),
                "{} is never run",
                file.display()
            );
        }
    }
}

#[test]
fn the_lower_floors_depend_on_no_runtime_clock_or_randomness() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if PURE.iter().any(|(pure, _)| *pure == name) {
            let impure: Vec<_> = dependencies(&package)
                .into_iter()
                .filter(|name| IMPURE_CRATES.contains(&&**name))
                .collect();
            assert!(impure.is_empty(), "{name} depends on {impure:?}");
        }
    }
}

#[test]
fn the_lower_floors_name_no_files_clock_or_randomness() {
    for (_, room) in PURE {
        let files = sources(&root().join(room));
        assert!(files.len() > 5, "{room} holds sources");
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for (number, line) in code.enumerate() {
                let found = IMPURE_PATHS.iter().find(|path| line.contains(**path));
                assert!(
                    found.is_none(),
                    "{}: line of code {number} names {found:?}: {line}",
                    file.display()
                );
            }
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
