//! Starts the program `dormouse`, and returns what it printed.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// What the program printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Standard output as JSON, one object a line.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}

/// The program in this folder, without variables of the caller that change what it does.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .current_dir(folder)
        .env_remove("DORMOUSE_LOG")
        .env_remove("DORMOUSE_STORE_KEY");
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran {
        code: status.code().unwrap(),
        out: text(stdout),
        err: text(stderr),
    }
}

/// Runs the program with the words of this line.
pub(crate) fn dormouse(folder: &Path, line: &str) -> Ran {
    run(command(folder).args(line.split_whitespace()))
}

/// Runs the program with the words of this line, which succeeds, and returns its standard output.
pub(crate) fn succeeds(folder: &Path, line: &str) -> String {
    let ran = dormouse(folder, line);
    assert_eq!(ran.code, 0, "{line}: {ran:?}");
    ran.out
}

/// Runs the program with the words of this line, which it refuses as wrong, and returns its
/// standard error.
pub(crate) fn refuses(folder: &Path, line: &str) -> String {
    let ran = dormouse(folder, line);
    assert_eq!(ran.code, 2, "{line}: {ran:?}");
    ran.err
}
