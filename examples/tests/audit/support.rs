//! Running the audit as a user does: the built program, a folder of its own, a count of what it executed.

use std::cell::Cell;
use std::net::TcpListener;
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
            // As the tests of the workspace build it, with the profile and the features of theirs: nothing is compiled twice.
            .args(["build", "--workspace", "--profile", "test", "--bin", "dormouse", "--test", "cli"])
            .args(["--message-format", "json"])
            .current_dir(root())
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "the program is built");
        let messages = String::from_utf8(output.stdout).unwrap();
        let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut programs = messages.filter(|message| message["target"]["kind"][0] == "bin");
        let program = programs.find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
        program.expect("cargo names the program that it built")
    })
}

/// A folder for one audit: its store, its report, and a `cargo` in front of the real one that counts how often it runs.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    manifest: PathBuf,
    /// Where `cargo` knocks when it runs: a tool that reads can write no file, and so leave no note.
    door: TcpListener,
    knocks: Cell<usize>,
}

impl Bench {
    /// A bench for an audit of the workspace at `manifest`.
    pub(crate) fn of(manifest: impl Into<PathBuf>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        door.set_nonblocking(true).unwrap();
        let port = door.local_addr().unwrap().port();
        let bench = Self { folder, manifest: manifest.into(), door, knocks: Cell::new(0) };
        std::fs::create_dir(bench.path("bin")).unwrap();
        let knock = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; exec 3>&-");
        let script = format!("#!/usr/bin/env bash\n{knock}\nexec '{}' \"$@\"\n", env!("CARGO"));
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
        while self.door.accept().is_ok() {
            self.knocks.set(self.knocks.get() + 1);
        }
        self.knocks.get()
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
