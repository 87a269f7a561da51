//! Running the audit as a user does: the built program, a folder of its own, a count of what it executed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The root of this workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The `dormouse` program, built once.
pub(crate) fn dormouse() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["build", "--workspace", "--bin", "dormouse", "--message-format", "json"])
            .current_dir(root())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "the program is built");
        let messages = String::from_utf8(output.stdout).unwrap();
        let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let program = messages.into_iter().find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
        program.expect("cargo names the program that it built")
    })
}

/// A folder for one audit: its store, its report, and a `cargo` in front of the real one that counts how often it runs.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    manifest: PathBuf,
}

impl Bench {
    /// A bench for an audit of the workspace at `manifest`.
    pub(crate) fn of(manifest: impl Into<PathBuf>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bench = Self { folder, manifest: manifest.into() };
        std::fs::create_dir(bench.path("bin")).unwrap();
        let script =
            format!("#!/bin/sh\necho run >> '{}'\nexec '{}' \"$@\"\n", bench.path("runs").display(), env!("CARGO"));
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
        let mut command = Command::new(dormouse());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([self.path("bin")].into_iter().chain(std::env::split_paths(&path))).unwrap();
        command.arg(verb).env("PATH", path).current_dir(root()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn granted(&self, mut command: Command) -> Command {
        command.arg("--store").arg(self.path("store"));
        command.arg("--allow-run=cargo").arg(format!("--allow-write={}", self.folder.path().display()));
        command
    }

    /// Starts the audit.
    pub(crate) fn run(&self) -> Child {
        let mut command = self.granted(self.command("run"));
        let (manifest, report) = (self.manifest.display(), self.path("report.md"));
        let input = format!("Audit the workspace of {manifest} and write the report to {}", report.display());
        command.arg("examples/audit/auditor.toml").arg("--input").arg(input);
        command.spawn().unwrap()
    }

    /// Goes on with the audit and waits for its end.
    pub(crate) fn resume(&self) -> Output {
        self.granted(self.command("resume")).output().unwrap()
    }

    /// Lists the processes, a JSON object a line.
    pub(crate) fn ps(&self) -> Output {
        self.command("ps").arg("--store").arg(self.path("store")).arg("--json").output().unwrap()
    }

    /// The report.
    pub(crate) fn report(&self) -> String {
        std::fs::read_to_string(self.path("report.md")).unwrap()
    }

    /// How often cargo ran.
    pub(crate) fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("runs")).map_or(0, |runs| runs.lines().count())
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
