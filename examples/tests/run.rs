//! Runs each example, and compares its output with the comment at the top of its file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The lines of the `text` block in the comment at the top of a file.
fn documented_output(source: &str) -> Option<String> {
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

/// The path of a built example: cargo puts examples next to the folder of the tests.
fn example_path(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a test has a path");
    let built = tests.ancestors().nth(2).expect("it is in the folder deps");
    built.join("examples").join(name)
}

#[test]
fn each_example_prints_its_documented_output() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut ran = 0;
    for entry in std::fs::read_dir(folder).expect("there are examples") {
        let path = entry.expect("it can be listed").path();
        let source = std::fs::read_to_string(&path).expect("it can be read");
        let name = path.file_stem().and_then(|name| name.to_str());
        let (Some(name), Some(expected)) = (name, documented_output(&source)) else {
            continue;
        };
        let program = example_path(name);
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
        assert_eq!(printed.trim_end(), expected, "{name}: {error}");
        ran += 1;
    }
    assert!(ran > 8, "{ran} examples ran");
}
