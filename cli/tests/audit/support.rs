//! Running the audit as a user does: the built program, a folder of its own, a count of what it
//! executed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// The root of this workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// The captured metadata, of which the first audit tells.
pub(crate) fn captured() -> PathBuf {
    root().join("examples/audit/metadata.json")
}

/// A `cargo` that prints the captured metadata, after a while in which it can be killed.
pub(crate) fn cargo_that_repeats() -> String {
    format!("sleep 0.1; exec cat '{}'", captured().display())
}

/// What is audited.
pub(crate) enum Subject {
    /// What this file holds: `auditor.toml`.
    Captured(PathBuf),
    /// What `cargo` says of the workspace of this manifest: `live.toml`.
    Live(PathBuf),
}

/// A folder for one audit: its store, a folder that it may write, and a `cargo` that counts how
/// often it runs.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    subject: Subject,
}

impl Bench {
    /// A bench for an audit of what was captured.
    pub(crate) fn captured() -> Self {
        Self::of(Subject::Captured(captured()), "exit 1")
    }

    /// A bench for an audit of a subject, with these lines of a shell as its `cargo`.
    pub(crate) fn of(subject: Subject, cargo: &str) -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
            subject,
        };
        for folder in ["bin", "out"] {
            std::fs::create_dir(bench.path(folder)).unwrap();
        }
        let script = format!(
            "#!/usr/bin/env bash\necho >> '{}'\n{cargo}\n",
            bench.path("out/runs").display()
        );
        std::fs::write(bench.path("bin/cargo"), script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(bench.path("bin/cargo"), mode).unwrap();
        bench
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(
            [self.path("bin")]
                .into_iter()
                .chain(std::env::split_paths(&path)),
        )
        .unwrap();
        command
            .arg(verb)
            .env("PATH", path)
            .current_dir(root())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn granted(&self, mut command: Command) -> Command {
        command.arg("--store").arg(self.path("store"));
        command.arg(format!("--allow-write={}", self.path("out").display()));
        match self.subject {
            Subject::Captured(_) => command.arg("--allow-read=examples/audit"),
            Subject::Live(_) => command.args([
                "--allow-run=cargo",
                "--allow-env=CARGO_HOME,RUSTUP_HOME,RUSTUP_TOOLCHAIN",
            ]),
        };
        command
    }

    /// Starts the audit.
    pub(crate) fn run(&self) -> Child {
        self.run_into(&self.path("out/report.md"))
    }

    /// Starts the audit, with its report at this path.
    pub(crate) fn run_into(&self, report: &Path) -> Child {
        let (program, workspace) = match &self.subject {
            Subject::Captured(file) => ("auditor.toml", format!("described in {}", file.display())),
            Subject::Live(manifest) => ("live.toml", format!("of {}", manifest.display())),
        };
        let input = format!(
            "Audit the workspace {workspace} and write the report to {}",
            report.display()
        );
        let mut command = self.granted(self.command("run"));
        command
            .arg(Path::new("examples/audit").join(program))
            .arg("--input")
            .arg(input)
            .spawn()
            .unwrap()
    }

    /// Goes on with the audit and waits for its end.
    pub(crate) fn resume(&self) -> Output {
        self.granted(self.command("resume")).output().unwrap()
    }

    /// The processes: each a JSON object.
    pub(crate) fn ps(&self) -> Vec<Value> {
        let listed = self
            .command("ps")
            .arg("--store")
            .arg(self.path("store"))
            .arg("--json")
            .output()
            .unwrap();
        assert!(listed.status.success(), "{}", shown(&listed));
        String::from_utf8(listed.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The report.
    pub(crate) fn report(&self) -> String {
        std::fs::read_to_string(self.path("out/report.md")).unwrap()
    }

    /// How often cargo ran.
    pub(crate) fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("out/runs")).map_or(0, |runs| runs.lines().count())
    }
}

/// What an audit printed, for a failing test.
pub(crate) fn shown(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
