//! The features of the facade: what an embedder leaves out is not compiled.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The names of all crates behind the facade with these features and no others.
fn crates(features: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "dormouse",
            "--no-default-features",
            "--features",
            features,
        ])
        .args([
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--offline",
            "--locked",
        ])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Each adapter, with the heavy crates that it brings.
const BROUGHT: [(&str, &[&str]); 6] = [
    ("scripted", &["dormouse-models", "minijinja"]),
    (
        "models",
        &[
            "dormouse-models",
            "minijinja",
            "dormouse-http",
            "reqwest",
            "hyper",
            "rustls",
            "ring",
        ],
    ),
    (
        "mcp",
        &[
            "dormouse-mcp",
            "dormouse-http",
            "rmcp",
            "reqwest",
            "hyper",
            "rustls",
            "ring",
        ],
    ),
    ("host", &["dormouse-host"]),
    ("store", &["dormouse-store", "sled", "zstd-sys"]),
    ("compression", &["zstd-sys"]),
];

#[test]
fn a_feature_brings_its_crates_and_no_other_adapter() {
    let all: BTreeSet<&str> = BROUGHT
        .iter()
        .flat_map(|(_, crates)| crates.iter().copied())
        .collect();
    let heavy = |features: &str| {
        let crates = crates(features);
        all.iter()
            .filter(|name| crates.contains(**name))
            .copied()
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(heavy(""), BTreeSet::new(), "the kernel alone");
    for (feature, brought) in BROUGHT {
        assert_eq!(
            heavy(feature),
            brought.iter().copied().collect(),
            "{feature}"
        );
    }
    // The control API serves over HTTP, and brings no client and no TLS.
    assert_eq!(heavy("api"), BTreeSet::from(["dormouse-http", "hyper"]));
    assert!(crates("api").contains("aide") && !crates("default").contains("aide"));
    let offline = heavy("scripted,host,store");
    assert!(
        ["reqwest", "rustls", "rmcp"]
            .iter()
            .all(|name| !offline.contains(name)),
        "{offline:?}"
    );
}

#[test]
fn all_adapters_are_there_unless_they_are_left_out() {
    let named = crates("default");
    for (feature, brought) in BROUGHT {
        assert!(
            brought.iter().all(|name| named.contains(*name)),
            "{feature}"
        );
    }
}
