//! The command lines of the book, read by bash and parsed as the program parses its own.

use std::process::Command;

use clap::Parser;
use dormouse_tests::book::{CodeBlock, blocks, page, root};

use crate::args::Arguments;

/// Bash records what is called, with its arguments, and starts nothing.
const RECORD: &str = r#"
PATH=
record() { printf '%s\0' "$#" "$@" >&9; }
for name in dormouse cargo; do eval "$name() { record $name \"\$@\"; }"; done
for name in kill openssl seq tail; do eval "$name() { :; }"; done
command_not_found_handle() { record unknown "$@"; }
"#;

/// The commands of a block, by program and arguments.
fn commands(block: &CodeBlock) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let recorded = folder.path().join("recorded");
    let script = format!("exec 9>{}\n{RECORD}\n{}", recorded.display(), block.text);
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

fn parses(arguments: &[String], place: &str) {
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

/// What a call of cargo names must exist; what it hands to `dormouse` must parse.
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
            let handed = arguments
                .iter()
                .position(|it| it == "--")
                .unwrap_or(arguments.len() - 1);
            parses(&arguments[handed + 1..], place);
        }
    }
    if let Some(path) = after("--path") {
        assert!(root().join(&path).is_dir(), "{place}: there is no {path}");
    }
}

#[test]
fn every_command_line_of_the_book_is_one_of_the_program() {
    let mut parsed = 0;
    for block in blocks().iter().filter(|block| block.is(&["sh"])) {
        let place = block.place();
        let found = commands(block);
        assert!(!found.is_empty(), "{place}: no command is called");
        for command in found {
            match command[0].as_str() {
                "dormouse" => parses(&command[1..], &place),
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
    let known: Vec<_> = Arguments::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let listed = page("docs/command-line.md");
    for command in known {
        assert!(
            listed.contains(&format!("`{command} ")) || listed.contains(&format!("`{command}`")),
            "docs/command-line.md does not list {command}"
        );
    }
}
