//! A folder with a hostile program, and `dormouse` as some user would run it there.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::target::{self, Target};

pub(super) const PROGRAM: &str = r#"
[model]
name = "hostile"
provider = "scripted"
script = "script.toml"

[tools]
enabled = ["read_fd"]

[[tools.command]]
name = "read"
description = "Reads."
argv = ["python3", "-B", "{file}", "{told}"]
parameters.file = { type = "string" }
parameters.told = { type = "string" }
access = "read"

[[tools.command]]
name = "write"
description = "Writes."
argv = ["python3", "-B", "{file}", "{told}"]
parameters.file = { type = "string" }
parameters.told = { type = "string" }
access = "write"

[[tools.command]]
name = "sh"
description = "Runs a script."
argv = ["sh", "-c", "{script}"]
parameters.script = { type = "string" }
access = "write"

[[tools.command]]
name = "rsh"
description = "Runs a script that reads."
argv = ["sh", "-c", "{script}"]
parameters.script = { type = "string" }
access = "read"

[[tools.command]]
name = "key"
description = "Tells a variable."
argv = ["sh", "-c", "echo key=$ATTACKED_KEY store=$DORMOUSE_STORE_KEY"]
env = ["ATTACKED_KEY", "DORMOUSE_STORE_KEY"]

[limits]
command_memory = "300MB"
command_processes = 40
command_file_size = "1MB"
command_open_files = 64
"#;

/// The folder, with a copy of the attacks.
pub(super) struct Bench {
    pub(super) target: Target,
    pub(super) base: PathBuf,
    pub(super) dormouse: PathBuf,
    user: Option<u32>,
}

impl Bench {
    pub(super) fn new(user: Option<u32>) -> Self {
        let target = Target::new();
        let attacks = target.base.join("attacks");
        fs::create_dir(&attacks).unwrap();
        for path in fs::read_dir(target::folder())
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            fs::copy(&path, attacks.join(path.file_name().unwrap())).unwrap();
        }
        fs::write(target.base.join("program.toml"), PROGRAM).unwrap();
        fs::write(
            target.base.join("script.toml"),
            "[[turn]]\ntext = \"done\"\n",
        )
        .unwrap();
        let built = PathBuf::from(env!("CARGO_BIN_EXE_dormouse"));
        let mut bench = Self {
            base: target.base.clone(),
            target,
            dormouse: built,
            user,
        };
        if let Some(user) = user {
            // Where the build stands, another user may see nothing.
            let copy = bench.base.join("dormouse");
            fs::copy(&bench.dormouse, &copy).unwrap();
            bench.dormouse = copy;
            bench.give_to(user);
        }
        bench
    }

    /// Everything belongs to the user who attacks: what refuses is not that somebody else owns it.
    fn give_to(&self, user: u32) {
        let mut open = vec![self.base.clone()];
        while let Some(path) = open.pop() {
            std::os::unix::fs::chown(&path, Some(user), Some(user)).unwrap();
            if path.is_dir() {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
                open.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
        }
    }

    pub(super) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.dormouse);
        command
            .args(line.split_whitespace())
            .current_dir(&self.base)
            .env_remove("DORMOUSE_LOG")
            .env("TMPDIR", &self.base);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user).env("HOME", "/");
        }
        command
    }

    /// Calls tools by hand, and answers with what each answered and what stood on standard error.
    pub(super) fn call(&self, flags: &str, calls: &[Value]) -> (Vec<Value>, String) {
        let mut child = self
            .command(&format!("call program.toml --calls - {flags}"))
            .spawn()
            .unwrap();
        let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
        let lines = String::from_utf8(stdout).unwrap();
        let answers = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        (answers, String::from_utf8_lossy(&stderr).into_owned())
    }

    /// The same in a mount namespace of its own, in which the shell command `mounts` ran first.
    pub(super) fn call_with_mounts(
        &self,
        mounts: &str,
        flags: &str,
        calls: &[Value],
    ) -> Vec<Value> {
        let text: String = calls.iter().map(|call| format!("{call}\n")).collect();
        fs::write(self.base.join("calls"), text).unwrap();
        let line = format!("{mounts} && exec \"$0\" call program.toml --calls calls {flags}");
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &line])
            .arg(&self.dormouse)
            .current_dir(&self.base);
        let Output { stdout, stderr, .. } = command.output().unwrap();
        let lines = String::from_utf8(stdout).unwrap();
        let answers: Vec<_> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            answers.len(),
            calls.len(),
            "{}",
            String::from_utf8_lossy(&stderr)
        );
        answers
    }
}

#[expect(
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "a test that shows less than it says has to tell"
)]
pub(super) fn tell(what: &str) {
    println!("{what}");
}

pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self")
        .is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}

pub(super) fn text(answer: &Value) -> &str {
    answer["text"].as_str().unwrap()
}
