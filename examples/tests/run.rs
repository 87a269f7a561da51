//! Each example prints what its first comment says.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The lines of the `text` block in the head of a source.
fn promised(source: &str) -> Option<String> {
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let mut lines = head.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.find(|line| *line == "```text")?;
    Some(
        lines
            .take_while(|line| *line != "```")
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

/// Cargo builds the examples of a package next to its tests.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a test has a path");
    let built = tests.ancestors().nth(2).expect("it stands in deps");
    built.join("examples").join(name)
}

#[test]
fn an_example_prints_what_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut ran = 0;
    for entry in std::fs::read_dir(folder).expect("there are examples") {
        let path = entry.expect("it can be listed").path();
        let source = std::fs::read_to_string(&path).expect("it can be read");
        let name = path.file_stem().and_then(|name| name.to_str());
        let (Some(name), Some(promised)) = (name, promised(&source)) else {
            continue;
        };
        let program = program(name);
        // Ten thousand sessions take a minute without optimisation.
        let output = Command::new(&program)
            .args((name == "hibernate").then_some("200"))
            .output();
        let output = output.unwrap_or_else(|error| {
            panic!(
                "{}: {error}. Build it: cargo build --examples",
                program.display()
            )
        });
        let printed = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(printed.trim_end(), promised, "{name}: {error}");
        ran += 1;
    }
    assert!(ran > 8, "{ran} examples ran");
}
