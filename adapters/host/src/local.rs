//! The implementation of the port [`Host`] for this machine: passes files to `files.rs`, commands
//! and tool servers to `command.rs`, within the permissions (`permissions.rs`), and outside of what
//! is sealed (`sealed.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{
    CappedBytes, FileUse, Host, HostError, OutputSink, ServerChild, Tool, ToolError,
};
use dormouse_proto::command::Command;
use dormouse_proto::file::{FileError, FileErrorKind, FileWrite, Listing};
use dormouse_proto::server::{ServerCommand, ServerValue};
use futures_util::future::{BoxFuture, FutureExt};

use crate::command::{CommandTool, Launcher, parse_env_file, run_with_input, start_server};
use crate::files::Files;
use crate::permissions::Permissions;
use crate::sealed::Sealed;

/// The longest file of environment variables. A longer one is refused, since its last variable would
/// be cut.
const MAX_ENV_FILE_BYTES: u64 = 1 << 20;

/// This machine, within the permissions of the user. Cloning is cheap; clones share their handles.
#[derive(Clone, Debug)]
pub struct LocalHost {
    files: Arc<Files>,
    launcher: Arc<Launcher>,
    sealed: Arc<Sealed>,
    permissions: Permissions,
    working_dir: PathBuf,
}

impl LocalHost {
    /// Opens the permitted folders and remembers the working directory and the environment, once: a
    /// folder that is renamed later stays permitted under the path that it was opened by, and
    /// `PATH` does not change under a running kernel.
    ///
    /// A folder that is permitted for writing is created if it is absent.
    ///
    /// Relative paths and commands start from `working_dir`. Naming that folder here does not
    /// permit it.
    ///
    /// # Errors
    /// A permitted folder or `working_dir` cannot be opened or created, or a permitted program is
    /// named by a relative path. The message names it.
    pub fn new(permissions: Permissions, working_dir: impl AsRef<Path>) -> io::Result<Self> {
        let working_dir = working_dir.as_ref();
        let canonical = std::fs::canonicalize(working_dir).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("working directory {}: {error}", working_dir.display()),
            )
        })?;
        let sealed = Arc::new(Sealed::new(permissions.sealed(), &canonical));
        let files = Arc::new(Files::open(&permissions, &sealed, &canonical)?);
        let launcher = Arc::new(Launcher::new(&permissions, &sealed, &canonical)?);
        Ok(Self {
            files,
            launcher,
            sealed,
            permissions,
            working_dir: canonical,
        })
    }

    /// A sentence for the user about the confinement that this system does not support. None if it
    /// supports all of it, or if no program is permitted.
    #[must_use]
    pub fn missing_confinement(&self) -> Option<String> {
        self.launcher.missing_confinement()
    }

    /// Why commands or servers of programs may run unconfined, as the end of a sentence; `None` if
    /// each of them is confined. What is not confined can do everything that the user can: use a
    /// control socket, or read the secret of one.
    #[must_use]
    pub fn unconfined_reason(&self) -> Option<String> {
        let named: Vec<_> = self.permissions.unconfined().collect();
        if !named.is_empty() {
            return Some(format!("{} may run unconfined", named.join(", ")));
        }
        self.launcher.runs_without_confinement().then(|| {
            "this system cannot confine commands, and they are permitted all the same".to_owned()
        })
    }

    /// Where relative paths and commands start from, without symbolic links.
    #[must_use]
    pub fn working_dir(&self) -> &Path {
        &self.working_dir
    }
}

impl LocalHost {
    /// The variables in the `env_file` of a server.
    fn env_file_variables(
        &self,
        server: &ServerCommand,
    ) -> Result<Vec<(String, String)>, HostError> {
        let Some(path) = &server.env_file else {
            return Ok(Vec::new());
        };
        let read = self.files.read_capped(Path::new(path), MAX_ENV_FILE_BYTES);
        let read = read.map_err(|error| {
            HostError::Refused(format!(
                "the env_file `{path}` cannot be read: {error} Correct its path, or take it out."
            ))
        })?;
        if read.cut_bytes > 0 {
            return Err(HostError::Refused(format!(
                "the env_file `{path}` is too long: it has {} bytes, and may have                  {MAX_ENV_FILE_BYTES}. Shorten it, or take it out.",
                MAX_ENV_FILE_BYTES + read.cut_bytes
            )));
        }
        Ok(parse_env_file(&String::from_utf8_lossy(&read.bytes)))
    }
}

impl Host for LocalHost {
    fn command(&self, command: &Command) -> Arc<dyn Tool> {
        Arc::new(CommandTool::new(
            command.clone(),
            Arc::clone(&self.launcher),
        ))
    }

    fn run_with_input(
        &self,
        command: &Command,
        input: Bytes,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        let launcher = Arc::clone(&self.launcher);
        run_with_input(command.clone(), launcher, input, out).boxed()
    }

    fn start_server(&self, server: &ServerCommand) -> Result<ServerChild, HostError> {
        let filled = |what: &str, value: &ServerValue| {
            let value = value.substitute_variables(|variable| self.variable(variable));
            value.map_err(|why| HostError::Refused(format!("{what}: {why}")))
        };
        let mut variables = self.env_file_variables(server)?;
        for (name, value) in &server.env {
            variables.retain(|(of_file, _)| of_file != name);
            variables.push((name.clone(), filled(name, value)?));
        }
        let arguments = server.args.iter().map(|value| filled("an argument", value));
        start_server(
            &self.launcher,
            (server, arguments.collect::<Result<_, _>>()?),
            self.permissions.environment_of_servers(),
            variables,
        )
    }

    fn variable(&self, name: &str) -> Result<Option<String>, HostError> {
        let value = self.launcher.variable(name)?;
        // Bytes that are not UTF-8 are replaced.
        Ok(value.map(|value| value.to_string_lossy().into_owned()))
    }

    fn seal(&self, path: &Path) {
        self.sealed.add(&self.working_dir.join(path));
    }

    fn connect(&self, machine: &str, port: u16) -> Result<(), HostError> {
        if self.permissions.permits_net(machine, port) {
            return Ok(());
        }
        Err(HostError::Refused(format!(
            "this kernel may not connect to {machine}:{port}: the user has to start it with \
             --allow-net={machine}:{port}, or Permissions::allow_net(\"{machine}:{port}\")."
        )))
    }

    fn permits_program(&self, program: &str) -> Result<(), HostError> {
        self.launcher.find_program(program).map(drop)
    }

    fn permits_files(&self, file_use: FileUse) -> Result<(), HostError> {
        let (is_permitted, participle, flag) = match file_use {
            FileUse::Read => (self.permissions.read().next().is_some(), "read", "read"),
            FileUse::Write => (
                self.permissions.write().next().is_some(),
                "written",
                "write",
            ),
        };
        if is_permitted {
            return Ok(());
        }
        Err(HostError::Refused(format!(
            "no file can be {participle}: the user has to start this kernel with --allow-{flag}=DIR, or \
             Permissions::allow_{flag}(\"DIR\")."
        )))
    }

    /// Runs on a blocking thread. A write that has started is completed even if the future is
    /// dropped.
    fn write(&self, write: FileWrite) -> BoxFuture<'static, Result<(), FileError>> {
        let files = Arc::clone(&self.files);
        async move {
            let path = write.path.clone();
            let result = tokio::task::spawn_blocking(move || files.write(&write)).await;
            result.unwrap_or_else(|error| Err(interrupted_write(&path, &error)))
        }
        .boxed()
    }

    fn read(&self, path: &Path) -> Result<Bytes, FileError> {
        self.files.read(path)
    }

    fn read_capped(&self, path: &Path, cap_bytes: u64) -> Result<CappedBytes, FileError> {
        self.files.read_capped(path, cap_bytes)
    }

    fn list(&self, path: &Path) -> Result<Listing, FileError> {
        self.files.list(path)
    }

    /// Permits the folder of `entry` in addition, since the user named the program in it. Costs
    /// opening the permitted folders once more.
    fn read_program(&self, entry: &Path, path: &Path) -> Result<Bytes, FileError> {
        let folder = match entry.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let permissions = self.permissions.clone().allow_read(folder);
        match Files::open(&permissions, &self.sealed, &self.working_dir) {
            Ok(files) => files.read(path),
            Err(error) => Err(FileError {
                kind: FileErrorKind::FileNotFound,
                message: format!("{}: {error}", entry.display()),
            }),
        }
    }
}

fn interrupted_write(path: &str, error: &tokio::task::JoinError) -> FileError {
    let message =
        format!("writing {path} was interrupted: {error}. Look at the file before trying again.");
    FileError {
        kind: FileErrorKind::WriteError,
        message,
    }
}

#[cfg(test)]
mod tests {
    use dormouse_actors::ports::OutputSink;
    use dormouse_proto::command::CommandLimits;
    use dormouse_proto::file::{Presence, WriteMode};
    use dormouse_proto::tool::ToolPolicy;

    use super::*;

    fn write(path: &str) -> FileWrite {
        let bytes = Bytes::from_static(b"hello");
        FileWrite {
            path: path.into(),
            bytes,
            mode: WriteMode::Write,
            presence: Presence::Absent,
        }
    }

    fn command(argv: &[&str]) -> Command {
        Command {
            name: "show".into(),
            description: "Shows a file.".into(),
            argv: argv.iter().map(|element| (*element).to_owned()).collect(),
            parameters: Vec::new(),
            env: Vec::new(),
            policy: ToolPolicy {
                deadline_ms: 5_000,
                ..ToolPolicy::default()
            },
            limits: CommandLimits::default(),
        }
    }

    #[tokio::test]
    async fn files_and_commands_share_a_working_directory() {
        let dir = tempfile::tempdir().unwrap();
        let permissions = Permissions::none()
            .allow_run("cat")
            .allow_read(".")
            .allow_write("out");
        let host: Arc<dyn Host> = Arc::new(LocalHost::new(permissions, dir.path()).unwrap());
        host.write(write("out/deep/f.txt")).await.unwrap();
        assert_eq!(host.read("out/deep/f.txt".as_ref()).unwrap(), "hello");
        assert_eq!(
            host.write(write("f.txt")).await.unwrap_err().kind,
            FileErrorKind::AccessDenied
        );
        let tool = host.command(&command(&["cat", "out/deep/f.txt"]));
        assert_eq!(tool.policy().deadline_ms, 5_000);
        let out = OutputSink::with_cap(100);
        assert_eq!(tool.call("{}".into(), out.clone()).await, Ok(()));
        assert_eq!(out.take().bytes, "hello");
    }

    #[test]
    fn absent_folders_are_created_for_writing_and_not_for_reading() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let open = |permissions: Permissions| {
            LocalHost::new(permissions, dir.path()).map_err(|error| error.to_string())
        };
        open(
            Permissions::none()
                .allow_write("new/deep")
                .allow_write("new/deep")
                .seal("store"),
        )
        .unwrap();
        assert!(dir.path().join("new/deep").is_dir());
        let absent = open(Permissions::none().allow_read("absent")).unwrap_err();
        assert!(absent.contains("--allow-read=absent"), "{absent}");
        for (folder, sealed) in [
            ("store/in", "store"),
            ("store", "store"),
            ("file", "store"),
            ("file/in", "store"),
        ] {
            let error = open(Permissions::none().allow_write(folder).seal(sealed)).unwrap_err();
            assert!(
                error.contains(&format!("--allow-write={folder}")),
                "{error}"
            );
        }
        assert!(!dir.path().join("absent").exists() && !dir.path().join("store").exists());
    }

    #[test]
    fn a_permitted_folder_behind_a_link_that_commands_could_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["mine", "yours"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink("../yours", dir.path().join("mine/link")).unwrap();
        std::os::unix::fs::symlink("mine", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("mine/link", dir.path().join("chain")).unwrap();
        for (folders, refused) in [
            (&["mine", "mine/link"][..], true),
            (&["link"], false),
            (&["mine/link"], false),
            (&["mine", "chain"], true),
            (&["chain"], false),
        ] {
            let permissions = folders.iter().fold(Permissions::none(), |given, folder| {
                given.allow_write(folder)
            });
            let made = LocalHost::new(permissions, dir.path());
            assert_eq!(made.is_err(), refused, "{folders:?}: {:?}", made.err());
        }
    }

    #[test]
    fn a_program_by_a_relative_path_is_refused_with_the_flag_that_named_it() {
        for (permissions, flag) in [
            (Permissions::none().allow_run("./x"), "--allow-run=./x"),
            (
                Permissions::none().allow_unconfined("./x"),
                "--allow-unconfined=./x",
            ),
        ] {
            let error = LocalHost::new(permissions, ".").unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
    }

    #[test]
    fn missing_permissions_are_reported_before_use() {
        let nothing = LocalHost::new(Permissions::none(), ".").unwrap();
        let refusals = [
            (nothing.permits_program("cat"), "--allow-run=cat,"),
            (nothing.permits_files(FileUse::Read), "--allow-read=DIR,"),
            (nothing.permits_files(FileUse::Write), "--allow-write=DIR,"),
        ];
        for (refused, flag) in refusals {
            assert!(
                refused.clone().unwrap_err().to_string().contains(flag),
                "{refused:?}"
            );
        }
        let permissions = Permissions::none()
            .allow_run("cat")
            .allow_run("absent-7")
            .allow_read(".")
            .allow_write(".");
        let host = LocalHost::new(permissions, ".").unwrap();
        assert_eq!(host.permits_program("cat"), Ok(()));
        assert!(
            host.permits_program("absent-7")
                .unwrap_err()
                .to_string()
                .contains("there is no program")
        );
        assert_eq!(
            [FileUse::Read, FileUse::Write].map(|file_use| host.permits_files(file_use)),
            [Ok(()), Ok(())]
        );
    }

    #[test]
    fn program_files_are_read_from_their_own_folder_and_permitted_folders() {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("mine/a.toml", "a"),
            ("mine/deep/b.md", "b"),
            ("shared/c.toml", "c"),
            ("other/d", "d"),
        ] {
            std::fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let host = LocalHost::new(Permissions::none().allow_read("shared"), dir.path()).unwrap();
        let read = |path: &str| host.read_program("mine/a.toml".as_ref(), path.as_ref());
        for (path, text) in [
            ("mine/a.toml", "a"),
            ("mine/deep/b.md", "b"),
            ("shared/c.toml", "c"),
        ] {
            assert_eq!(read(path).unwrap(), text);
        }
        assert_eq!(
            read("other/d").unwrap_err().kind,
            FileErrorKind::AccessDenied
        );
        assert_eq!(
            read("mine/../other/d").unwrap_err().kind,
            FileErrorKind::AccessDenied
        );
        assert!(
            host.read("mine/a.toml".as_ref()).is_err(),
            "a process may not read what its program may"
        );
        let missing = host.read_program("none/a.toml".as_ref(), "none/a.toml".as_ref());
        assert_eq!(missing.unwrap_err().kind, FileErrorKind::FileNotFound);
    }

    #[tokio::test]
    async fn a_sealed_folder_is_never_read_or_written_even_before_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("out"), dir.path().join("link")).unwrap();
        for sealed in ["out/store", "link/store", "out/./store", "out"] {
            let permissions = Permissions::none()
                .allow_read(".")
                .allow_write("out")
                .seal(sealed);
            let host = LocalHost::new(permissions, dir.path()).unwrap();
            for path in [
                "out/store/HEAD",
                "out/x/../store/log/1",
                "out/store/new/deep",
            ] {
                let error = host.write(write(path)).await.unwrap_err();
                assert_eq!(error.kind, FileErrorKind::AccessDenied, "{sealed} {path}");
                assert!(!dir.path().join("out/store").exists(), "{sealed} {path}");
            }
            assert_eq!(
                host.read("out/store/HEAD".as_ref()).unwrap_err().kind,
                FileErrorKind::AccessDenied
            );
            let beside = host.write(write("out/store.txt")).await;
            assert_eq!(beside.is_ok(), sealed != "out", "{sealed}");
            let _ = std::fs::remove_file(dir.path().join("out/store.txt"));
            std::fs::create_dir(dir.path().join("out/store")).unwrap();
            assert_eq!(
                host.write(write("out/store/f")).await.unwrap_err().kind,
                FileErrorKind::AccessDenied
            );
            std::fs::remove_dir(dir.path().join("out/store")).unwrap();
        }
    }

    #[tokio::test]
    async fn a_started_write_completes_without_its_caller() {
        let dir = tempfile::tempdir().unwrap();
        let host = LocalHost::new(
            Permissions::none().allow_read(".").allow_write("."),
            dir.path(),
        )
        .unwrap();
        // One poll begins it; what that poll answers does not matter.
        let _ = host.write(write("f.txt")).now_or_never();
        let began = std::time::Instant::now();
        while host.read("f.txt".as_ref()).is_err() {
            assert!(
                began.elapsed() < std::time::Duration::from_secs(5),
                "the write was lost"
            );
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(host.read("f.txt".as_ref()).unwrap(), "hello");
    }
}
