//! The commands of the book and of `README.md`, run as they are written, offline.

use std::path::Path;
use std::process::{Command, Output};

use dormouse_tests::book::{CodeBlock, blocks_of, page, root};

/// Runs a block in a folder. `cargo run -p dormouse-cli --` is the program that was built.
fn run(block: &CodeBlock, folder: &Path) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_dormouse"));
    // Found by its name, as a reader has it: in the background, `$!` is the program itself.
    let script = format!(
        "set -eo pipefail\nPATH='{}':$PATH\ncargo() {{ while [[ $1 != -- ]]; do shift; done; shift; \
         dormouse \"$@\"; }}\n{}",
        program.parent().unwrap().display(),
        block.text
    );
    let bash = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder)
        .env_remove("DORMOUSE_LOG")
        .env_remove("DORMOUSE_STORE_KEY")
        .output()
        .unwrap();
    assert!(bash.status.success(), "{}: {bash:?}", block.place());
    bash
}

/// A text without white space at the ends of its lines.
fn trimmed(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
        .trim()
        .to_owned()
}

/// Runs each block of a chapter in order, and compares what it printed with the next block of
/// output. Returns how many blocks ran, and how many outputs were compared.
fn run_chapter(page: &str) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks_of(page);
    for block in blocks.iter().filter(|block| block.tags[0] == "toml") {
        let name = block.file_name().expect("a file says its name");
        std::fs::write(folder.path().join(name), &block.text).unwrap();
    }
    let (mut ran, mut compared) = (0, 0);
    let commands = blocks.iter().enumerate();
    for (at, block) in commands.filter(|(_, block)| block.is(&["sh"])) {
        let printed = run(block, folder.path()).stdout;
        let rest = blocks[at + 1..].iter().take_while(|next| !next.is(&["sh"]));
        for output in rest.filter(|next| next.is(&["text", "output"])) {
            let expected = trimmed(output.text.as_bytes());
            assert_eq!(trimmed(&printed), expected, "{}", block.place());
            compared += 1;
        }
        ran += 1;
    }
    (ran, compared)
}

#[test]
fn getting_started_does_what_it_says() {
    let (ran, compared) = run_chapter("docs/getting-started.md");
    assert!(ran > 4 && compared > 4, "{ran} {compared}");
}

#[test]
fn approval_does_what_it_says() {
    assert_eq!(run_chapter("docs/approval.md"), (3, 3));
}

#[test]
fn the_walk_to_a_limit_does_what_it_says() {
    assert_eq!(run_chapter("docs/limits.md"), (7, 5));
}

#[test]
fn the_walk_with_the_fence_does_what_it_says() {
    assert_eq!(run_chapter("docs/fence.md"), (4, 4));
}

#[test]
fn the_walk_with_races_does_what_it_says() {
    assert_eq!(run_chapter("docs/speculation.md"), (6, 5));
}

#[test]
fn the_walk_with_alarms_does_what_it_says() {
    let (ran, compared) = run_chapter("docs/alarms.md");
    assert_eq!((ran, compared), (3, 2));
}

#[test]
fn the_walk_with_a_diary_does_what_it_says() {
    assert_eq!(run_chapter("docs/reopening.md"), (4, 3));
}

#[test]
fn the_walk_with_the_control_api_does_what_it_says() {
    assert_eq!(run_chapter("docs/control-api.md"), (1, 1));
}

#[test]
fn the_first_command_of_the_readme_prints_what_it_says_and_is_the_picture() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("examples/audit");
    std::fs::create_dir_all(&audit).unwrap();
    for entry in std::fs::read_dir(root().join("examples/audit")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), audit.join(entry.file_name())).unwrap();
    }
    let blocks = blocks_of("README.md");
    let first = |tag: &str| blocks.iter().find(|block| block.is(&[tag])).unwrap();
    let printed = trimmed(&run(first("sh"), folder.path()).stderr);
    let expected = trimmed(first("text").text.as_bytes());
    assert!(printed.ends_with(&expected), "{printed}\n{expected}");
    let report = folder.path().join("target/report/audit.md");
    assert!(
        report.is_file(),
        "it writes the report that README.md names"
    );
    let picture = page("docs/pictures/audit.svg").replace(',', "");
    let numbers = expected.lines().skip(1).filter(|line| !line.is_empty());
    for line in numbers.take(5) {
        for number in line.split_whitespace().rev().take(2) {
            assert!(
                picture.contains(&format!(">{number}</text>")),
                "docs/pictures/audit.svg does not show {number}: draw it again, as \
                 examples/examples/picture.rs says"
            );
        }
    }
}
