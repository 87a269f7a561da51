//! The floors of the house: dependencies point down only, and the two lower floors stay pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each crate stands above everything that it depends on. Neighbours on one floor do not know each
/// other.
const FLOORS: [(&str, u32); 21] = [
    ("dormouse-macros", 0),
    ("dormouse-outlines", 0),
    ("dormouse-proto", 1),
    ("dormouse-content", 2),
    ("dormouse-program", 2),
    ("dormouse-machine", 3),
    ("dormouse-kernel", 4),
    ("dormouse-actors", 5),
    ("dormouse-http", 5),
    ("dormouse-records", 6),
    ("dormouse-store-conformance", 6),
    ("dormouse-mcp", 6),
    ("dormouse-models", 6),
    ("dormouse-host", 6),
    ("dormouse-mcp-server", 6),
    ("dormouse-api", 6),
    ("dormouse-store", 7),
    ("dormouse", 8),
    ("dormouse-cli", 9),
    ("dormouse-examples", 9),
    ("dormouse-bench", 9),
];

/// The crates that neither wait, nor read a clock, nor touch files, and where they are.
const PURE: [(&str, &str); 6] = [
    ("dormouse-proto", "proto/src"),
    ("dormouse-outlines", "kernel/outlines/src"),
    ("dormouse-content", "kernel/content/src"),
    ("dormouse-program", "kernel/program/src"),
    ("dormouse-machine", "kernel/machine/src"),
    ("dormouse-kernel", "kernel/src"),
];

/// The crates below the machine.
const BELOW_MACHINE: [&str; 5] = [
    "dormouse-macros",
    "dormouse-outlines",
    "dormouse-proto",
    "dormouse-content",
    "dormouse-program",
];

/// What the machine must not name as a dependency: it gets programs compiled, arguments checked and
/// texts outlined.
const PARSERS: [&str; 9] = [
    "dormouse-outlines",
    "imara-diff",
    "miette",
    "pulldown-cmark",
    "quick-xml",
    "regex-automata",
    "regex-syntax",
    "strsim",
    "toml",
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

fn package<'a>(packages: &'a [Value], name: &str) -> &'a Value {
    let found = packages.iter().find(|package| package["name"] == name);
    found.unwrap_or_else(|| panic!("there is a package {name}"))
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
        ("dormouse-machine", "dormouse-kernel"),
        ("dormouse-kernel", "serde"),
    ];
    let found = upward(edges.into_iter(), &floors);
    assert_eq!(
        found,
        [
            "dormouse-proto -> dormouse-kernel",
            "dormouse-mcp -> dormouse-models",
            "dormouse-machine -> dormouse-kernel"
        ]
    );
}

/// The machine is told which tools there are. Not even its tests know them.
#[test]
fn the_machine_knows_no_tool_and_names_no_parser() {
    let packages = packages();
    let machine = package(&packages, "dormouse-machine");
    let all = machine["dependencies"].as_array().unwrap();
    assert!(
        all.iter().all(|one| one["name"] != "dormouse-kernel"),
        "the machine depends on the tools"
    );
    let named: Vec<_> = dependencies(machine)
        .into_iter()
        .filter(|name| PARSERS.contains(&&**name) || name.starts_with("tree-sitter"))
        .collect();
    assert!(named.is_empty(), "the machine depends on {named:?}");
}

/// Grammars are behind features of the crates below the machine, and nothing below the kernel
/// switches one on.
#[test]
fn no_grammar_is_compiled_for_the_machine() {
    let packages = packages();
    let machine = package(&packages, "dormouse-machine");
    assert_eq!(machine["features"].as_object().unwrap().len(), 0);
    for name in BELOW_MACHINE.into_iter().chain(["dormouse-machine"]) {
        let package = package(&packages, name);
        assert!(
            package["features"]["default"].is_null(),
            "{name} has default features"
        );
        for dependency in package["dependencies"].as_array().unwrap() {
            let dependency_name = dependency["name"].as_str().unwrap();
            if dependency_name.starts_with("dormouse-") {
                assert!(
                    BELOW_MACHINE.contains(&dependency_name),
                    "{name} depends on {dependency_name}"
                );
                assert_eq!(
                    dependency["features"].as_array().unwrap().len(),
                    0,
                    "{name} switches on features of {dependency_name}"
                );
            }
            let is_grammar = dependency_name.starts_with("tree-sitter");
            assert!(
                !is_grammar || dependency["optional"] == true,
                "{name} always has {dependency_name}"
            );
        }
    }
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
