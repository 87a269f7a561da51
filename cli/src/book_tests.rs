//! Tests that the command lines in the book parse. Bash reads each block of the book, and the
//! program's own parser reads the commands that bash would start.

use std::process::Command;

use clap::Parser;
use dormouse_tests::book::{CodeBlock, blocks, page, root};

use crate::args::Arguments;

/// A preamble that makes bash record the commands of a script with their arguments, and start none.
const RECORD_COMMANDS: &str = r#"
PATH=
record() { printf '%s\0' "$#" "$@" >&9; }
for name in dormouse cargo; do eval "$name() { record $name \"\$@\"; }"; done
for name in curl kill openssl seq sleep tail; do eval "$name() { :; }"; done
command_not_found_handle() { record unknown "$@"; }
"#;

/// The commands of a block, each as the program and its arguments.
fn recorded_commands(block: &CodeBlock) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let recorded = folder.path().join("recorded");
    let script = format!(
        "exec 9>{}\n{RECORD_COMMANDS}\n{}",
        recorded.display(),
        block.text
    );
    let bash = Command::new("bash")
        .args(["-c", &script])
        .current_dir(&folder)
        .env_remove("HOME")
        .output()
        .expect("the tests need bash");
    assert!(bash.status.success(), "{}: {bash:?}", block.place());
    let recorded = std::fs::read_to_string(recorded).unwrap();
    let mut words = recorded.split_terminator('\0').map(str::to_owned);
    let mut commands = Vec::new();
    while let Some(count) = words.next() {
        let count = count.parse().unwrap();
        commands.push(words.by_ref().take(count).collect());
    }
    commands
}

fn assert_parses(arguments: &[String], place: &str) {
    let line = ["dormouse".to_owned()]
        .into_iter()
        .chain(arguments.iter().cloned());
    if let Err(error) = Arguments::try_parse_from(line) {
        panic!("{place}: dormouse {arguments:?}\n{error}");
    }
}

/// The manifest of a package of the workspace.
fn manifest(package: &str) -> Option<String> {
    let members = page("Cargo.toml");
    let members = members
        .split('"')
        .map(|folder| format!("{folder}/Cargo.toml"));
    let manifests = members
        .filter(|path| root().join(path).is_file())
        .map(|path| page(&path));
    manifests
        .chain([page("Cargo.toml")])
        .find(|text| text.contains(&format!("name = \"{package}\"\n")))
}

/// Asserts that the package, test or example of a cargo command exists, and that the arguments
/// after `--` parse if the command runs `dormouse`.
fn check_cargo(arguments: &[String], place: &str) {
    let after = |flag: &str| {
        let at = arguments.iter().position(|it| it == flag)?;
        arguments.get(at + 1).cloned()
    };
    if let Some(package) = after("-p") {
        let manifest =
            manifest(&package).unwrap_or_else(|| panic!("{place}: there is no package {package}"));
        if let Some(test) = after("--test") {
            assert!(
                manifest.contains(&format!("name = \"{test}\"\n")),
                "{place}: {package} has no test {test}"
            );
        }
        if let Some(example) = after("--example") {
            let path = root().join(format!("examples/examples/{example}.rs"));
            assert!(path.is_file(), "{place}: there is no example {example}");
        }
        if package == "dormouse-cli" && arguments[0] == "run" {
            let separator = arguments
                .iter()
                .position(|it| it == "--")
                .unwrap_or(arguments.len() - 1);
            assert_parses(&arguments[separator + 1..], place);
        }
    }
    // `cargo add --path` names the reader's clone of the repository.
    if let Some(path) = after("--path").filter(|_| arguments[0] == "install") {
        assert!(root().join(&path).is_dir(), "{place}: there is no {path}");
    }
}

#[test]
fn every_command_line_in_the_book_parses() {
    let mut parsed = 0;
    for block in blocks().iter().filter(|block| block.is(&["sh"])) {
        let place = block.place();
        let found = recorded_commands(block);
        assert!(!found.is_empty(), "{place}: no command is called");
        for command in found {
            match command[0].as_str() {
                "dormouse" => assert_parses(&command[1..], &place),
                "cargo" => check_cargo(&command[1..], &place),
                _ => panic!("{place}: {command:?} is no command that this test knows"),
            }
            parsed += 1;
        }
    }
    assert!(parsed > 20, "{parsed}");
}

/// The table of commands is complete.
#[test]
fn every_command_that_the_book_lists_exists() {
    use clap::CommandFactory;
    let mut known = Vec::new();
    for command in Arguments::command().get_subcommands() {
        let name = command.get_name();
        known.push(name.to_owned());
        let parts = command.get_subcommands();
        known.extend(parts.map(|part| format!("{name} {}", part.get_name())));
    }
    let listed = page("docs/command-line.md");
    for command in known {
        assert!(
            listed.contains(&format!("`{command} ")) || listed.contains(&format!("`{command}`")),
            "docs/command-line.md does not list {command}"
        );
    }
}
