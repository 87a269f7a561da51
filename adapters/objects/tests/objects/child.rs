//! Tests that run in a program of their own, because what the environment says is part of them.

use std::process::Command;

/// Runs one ignored test of this program with these variables and no other of AWS, and returns what
/// it printed.
pub(crate) fn run(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(variable);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("1 passed"), "{printed}");
    printed
}
