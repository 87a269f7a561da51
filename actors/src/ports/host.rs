//! The port for the machine that the kernel runs on: files, commands, tool servers and environment
//! variables, under the permissions of the user.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::CappedBytes;
use dormouse_kernel::program::FileUse;
use dormouse_proto::command::Command;
use dormouse_proto::file::{FileError, FileErrorKind, FileWrite, Listing};
use dormouse_proto::server::ServerCommand;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::io::{AsyncRead, AsyncWrite};

use super::tool::{OutputSink, Tool, ToolError};

/// Why a host did not execute a request of a program, as a text for the model and the user. The
/// text contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The user has not permitted the request, or the permitted thing does not exist. The text says
    /// which of the two, and how to permit the request.
    #[error("{0}")]
    Refused(String),
    /// This host never executes such requests.
    #[error("{0}")]
    Unsupported(String),
    /// The request is permitted, and failed.
    #[error("{0}")]
    Failed(String),
}

impl From<HostError> for String {
    fn from(error: HostError) -> Self {
        error.to_string()
    }
}

impl From<HostError> for ToolError {
    fn from(error: HostError) -> Self {
        String::from(error).into()
    }
}

/// Files and programs of the host. The implementation decides what is permitted, and refuses every
/// other request with an error that names the missing permission.
pub trait Host: Send + Sync + 'static {
    /// The command as a tool. A command that is not permitted becomes a tool that refuses every
    /// call with the reason.
    fn command(&self, command: &Command) -> Arc<dyn Tool>;

    /// Runs a command once for the host itself, with `input` as its standard input, under the same
    /// permissions as [`command`](Self::command). Its output goes into `out`. The default refuses
    /// every command.
    ///
    /// # Errors
    /// The command is not permitted, cannot be started, or failed.
    fn run_with_input(
        &self,
        command: &Command,
        input: Bytes,
        out: OutputSink,
    ) -> BoxFuture<'static, Result<(), ToolError>> {
        drop((input, out));
        let name = &command.name;
        let refusal = format!("this kernel's host runs no commands of its own, and so not {name}.");
        std::future::ready(Err(refusal.into())).boxed()
    }

    /// Starts a tool server, with the variables of its declaration filled in. The default refuses
    /// every server.
    ///
    /// # Errors
    /// The server is not permitted, or cannot be started. The text shows no value of the
    /// declaration.
    fn start_server(&self, server: &ServerCommand) -> Result<ServerChild, HostError> {
        Err(HostError::Unsupported(format!(
            "this kernel's host starts no tool servers, and so not `{}`.",
            server.program
        )))
    }

    /// The value of an environment variable that a program names in `[env_info]`; `None` if it is
    /// not set. The value may be a secret: an implementation returns only variables that the user
    /// permitted by name. The default refuses every variable.
    ///
    /// # Errors
    /// The variable is not permitted.
    fn variable(&self, name: &str) -> Result<Option<String>, HostError> {
        Err(HostError::Unsupported(format!(
            "this kernel's host hands on no environment variable, and so not {name}."
        )))
    }

    /// Checks whether a program may make the kernel connect to this port of this machine, for a
    /// model server or a tool server. The default permits no connection.
    ///
    /// # Errors
    /// The connection is not permitted.
    fn connect(&self, machine: &str, port: u16) -> Result<(), HostError> {
        Err(HostError::Unsupported(format!(
            "this kernel's host permits no connection that a program asks for, and so none to \
             {machine}:{port}."
        )))
    }

    /// Makes a file or folder, with everything below it, unreachable for file tools, commands and
    /// tool servers: it belongs to the kernel itself, for instance the folder of its store. A host
    /// without files does nothing.
    fn seal(&self, path: &Path) {
        let _ = path;
    }

    /// Checks whether a program may be started by [`command`](Self::command) or
    /// [`start_server`](Self::start_server). Called before a process is created, to inform the
    /// user; nothing is started. The default permits all.
    ///
    /// # Errors
    /// The program is not permitted, or does not exist.
    fn permits_program(&self, program: &str) -> Result<(), HostError> {
        let _ = program;
        Ok(())
    }

    /// Checks whether any folder permits this use of its files. Called before a process is created,
    /// to inform the user. The default permits all.
    ///
    /// # Errors
    /// No folder permits this use.
    fn permits_files(&self, file_use: FileUse) -> Result<(), HostError> {
        let _ = file_use;
        Ok(())
    }

    /// Writes a file atomically, within the permitted folders, and never blocks on a FIFO or
    /// device.
    ///
    /// # Errors
    /// Any [`FileErrorKind`]; the file is as it was before.
    fn write(&self, write: FileWrite) -> BoxFuture<'static, Result<(), FileError>>;

    /// Reads a whole file from the permitted folders, for the text and the initial descriptors of a
    /// program.
    ///
    /// # Errors
    /// Any [`FileErrorKind`] except `FileExists`.
    fn read(&self, path: &Path) -> Result<Bytes, FileError>;

    /// Reads a file of any size from the permitted folders: its first `cap_bytes`, and the number
    /// of bytes after them. For a file that becomes a descriptor.
    ///
    /// # Errors
    /// As [`Host::read`].
    fn read_capped(&self, path: &Path, cap_bytes: u64) -> Result<CappedBytes, FileError> {
        Ok(CappedBytes::capped(self.read(path)?, cap_bytes))
    }

    /// Lists a directory of the permitted folders. Very long lists may be truncated; the result
    /// counts the entries that are left out. The default refuses every directory.
    ///
    /// # Errors
    /// As [`Host::read`].
    fn list(&self, path: &Path) -> Result<Listing, FileError> {
        Err(FileError {
            kind: FileErrorKind::AccessDenied,
            message: format!(
                "{} cannot be listed: this kernel's host lists no directory.",
                path.display()
            ),
        })
    }

    /// Reads a file of the program at `entry`: its own text, a linked program, or an initial
    /// descriptor. An implementation may permit the folder of `entry`, because the user named that
    /// program.
    ///
    /// # Errors
    /// As [`Host::read`].
    fn read_program(&self, _entry: &Path, path: &Path) -> Result<Bytes, FileError> {
        self.read(path)
    }
}

/// A tool server that was started, and its standard streams.
pub struct ServerChild {
    /// Its standard input. Dropping it asks the server to end.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Keeps the server running: dropping it ends the server and everything that it started.
    pub process_guard: Box<dyn Send + Sync>,
}

/// A host that permits nothing: the default of a kernel without a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn command(&self, command: &Command) -> Arc<dyn Tool> {
        Arc::new(RefusedCommand {
            command: command.clone(),
        })
    }

    fn permits_program(&self, program: &str) -> Result<(), HostError> {
        Err(HostError::Unsupported(format!(
            "{program} cannot run: this kernel was built without a host. Build it with `.host(…)`."
        )))
    }

    fn permits_files(&self, _: FileUse) -> Result<(), HostError> {
        let why =
            "files cannot be used: this kernel was built without a host. Build it with `.host(…)`.";
        Err(HostError::Unsupported(why.to_owned()))
    }

    fn write(&self, write: FileWrite) -> BoxFuture<'static, Result<(), FileError>> {
        std::future::ready(Err(access_denied(&write.path, "written"))).boxed()
    }

    fn read(&self, path: &Path) -> Result<Bytes, FileError> {
        Err(access_denied(&path.display().to_string(), "read"))
    }
}

/// The error of a file operation; `operation` is its past participle: `read` or `written`.
fn access_denied(path: &str, operation: &str) -> FileError {
    let message = format!(
        "{path} cannot be {operation}: this kernel was built without a host. Build it with `.host(…)`."
    );
    FileError {
        kind: FileErrorKind::AccessDenied,
        message,
    }
}

/// A command as a tool that refuses every call.
struct RefusedCommand {
    command: Command,
}

impl Tool for RefusedCommand {
    fn spec(&self) -> dormouse_proto::tool::ToolSpec {
        self.command.spec()
    }

    fn policy(&self) -> dormouse_proto::tool::ToolPolicy {
        self.command.policy
    }

    fn call(&self, _args: String, _out: OutputSink) -> BoxFuture<'static, Result<(), ToolError>> {
        let name = &self.command.name;
        let text = format!(
            "{name} cannot run: this kernel was built without a host. Build it with `.host(…)`."
        );
        std::future::ready(Err(text.into())).boxed()
    }
}
