//! A program that is asked to stop takes the commands along that it runs.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = r#"
[model]
provider = "scripted"
script = "s.toml"
[prompt]
user = "Sleep."
[[tools.command]]
name = "nap"
description = "Sleeps, and says in a file by what number."
argv = ["sh", "-c", "echo $$ > number.new && mv number.new number && sleep 1000"]
"#;

/// Waits until `look` sees something.
fn seen<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .args(arguments)
        .args(["--allow-run=sh", "--allow-write=."])
        .current_dir(folder);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn no_command_outlives_a_program_that_is_asked_to_stop() {
    let run = ["run", "p.toml"];
    let call = ["call", "p.toml", "--calls", "calls.jsonl"];
    for (arguments, signal, code) in [
        (&run[..], "INT", 130),
        (&run, "TERM", 143),
        (&run, "HUP", 129),
        (&call, "INT", 130),
        (&call, "TERM", 143),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.toml"), PROGRAM).unwrap();
        std::fs::write(
            folder.path().join("s.toml"),
            "[[turn]]\ncalls = [{ tool = 'nap' }]\n",
        )
        .unwrap();
        std::fs::write(folder.path().join("calls.jsonl"), "{\"tool\": \"nap\"}\n").unwrap();
        let mut program = start(folder.path(), arguments);
        let number = seen("the command runs", || {
            std::fs::read_to_string(folder.path().join("number")).ok()
        });
        let kill = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(program.id().to_string())
            .status()
            .unwrap();
        assert!(kill.success());
        assert_eq!(
            program.wait().unwrap().code(),
            Some(code),
            "{arguments:?} {signal}"
        );
        let command = Path::new("/proc").join(number.trim());
        seen("the command is gone", || (!command.exists()).then_some(()));
    }
}
