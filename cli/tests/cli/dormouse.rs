//! Starts the program `dormouse`, and returns what it printed.

use std::path::Path;
use std::process::Command;

pub(crate) use crate::ran::Ran;

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
    command.output().unwrap().into()
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
