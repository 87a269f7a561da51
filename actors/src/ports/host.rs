//! The machine that the kernel runs on, under the user's permissions.

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

/// Why a host does not do what a program asks, in words for the model and the user. It shows no
/// secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The user has not permitted it, or what is permitted is not there. The text says which, and
    /// what would permit it.
    #[error("{0}")]
    Refused(String),
    /// This host never does it.
    #[error("{0}")]
    Unsupported(String),
    /// It is permitted, and failed.
    #[error("{0}")]
    Failed(String),
}

impl From<HostError> for String {
    fn from(error: HostError) -> Self {
        error.to_string()
    }
}

/// Files and programs of the host. An implementation decides what is permitted; what is not is
/// refused with an error that names the missing permission, when it is used and not before.
pub trait Host: Send + Sync + 'static {
    /// The command as a tool. A command that is not permitted becomes a tool that refuses every
    /// call and says why.
    fn command(&self, command: &Command) -> Arc<dyn Tool>;

    /// Starts a tool server, with the variables of its declaration filled in. No host starts any by
    /// default.
    ///
    /// # Errors
    /// Where it is not permitted, or cannot be started. It shows no value of the declaration.
    fn serve(&self, server: &ServerCommand) -> Result<ServerChild, HostError> {
        Err(HostError::Unsupported(format!(
            "this kernel's host starts no tool servers, and so not `{}`.",
            server.program
        )))
    }

    /// An environment variable, for a program that names it in `[env_info]`; nothing where it is
    /// not set. Its value may be a secret: an implementation hands on what the user permitted by
    /// name, and no host does so by default.
    ///
    /// # Errors
    /// Where it is not permitted.
    fn variable(&self, name: &str) -> Result<Option<String>, HostError> {
        Err(HostError::Unsupported(format!(
            "this kernel's host hands on no environment variable, and so not {name}."
        )))
    }

    /// Whether a program may have the kernel connect to this port of this machine: a model server
    /// that it names by address, a tool server. No host permits any by default.
    ///
    /// # Errors
    /// Where it is not permitted.
    fn connect(&self, machine: &str, port: u16) -> Result<(), HostError> {
        Err(HostError::Unsupported(format!(
            "this kernel's host permits no connection that a program asks for, and so none to \
             {machine}:{port}."
        )))
    }

    /// Takes a file or folder, and all below it, out of what file tools, commands and tool servers
    /// can reach, from now on: it belongs to the kernel itself, as the folder of its store does. A
    /// host that offers no files has nothing to do.
    fn seal(&self, path: &Path) {
        let _ = path;
    }

    /// Whether this program may be started for one that names it, as [`command`](Self::command) and
    /// [`serve`](Self::serve) start it. It is asked before a process is born, to tell the user;
    /// nothing is started. No host objects by default.
    ///
    /// # Errors
    /// Where it is not permitted, or not there.
    fn permits_program(&self, program: &str) -> Result<(), HostError> {
        let _ = program;
        Ok(())
    }

    /// Whether there is any folder whose files may be used so. It is asked before a process is
    /// born, to tell the user. No host objects by default.
    ///
    /// # Errors
    /// Where there is none.
    fn permits_files(&self, file_use: FileUse) -> Result<(), HostError> {
        let _ = file_use;
        Ok(())
    }

    /// Writes a file: atomically, confined to the permitted roots, never blocking on a FIFO or
    /// device.
    ///
    /// # Errors
    /// Any [`FileErrorKind`]; the file is as it was before.
    fn write(&self, write: FileWrite) -> BoxFuture<'static, Result<(), FileError>>;

    /// Reads a whole file from the permitted roots, for a program's text and preloads.
    ///
    /// # Errors
    /// Any [`FileErrorKind`] but `FileExists`.
    fn read(&self, path: &Path) -> Result<Bytes, FileError>;

    /// Reads a file of any size from the permitted roots: its first `cap_bytes`, and how many come
    /// after them. For a file that becomes a descriptor.
    ///
    /// # Errors
    /// As [`Host::read`].
    fn collect(&self, path: &Path, cap_bytes: u64) -> Result<CappedBytes, FileError> {
        Ok(CappedBytes::capped(self.read(path)?, cap_bytes))
    }

    /// Lists a directory of the permitted roots. It may leave entries out where there are very
    /// many, and counts them.
    ///
    /// # Errors
    /// As [`Host::read`]. No host lists any by default.
    fn list(&self, path: &Path) -> Result<Listing, FileError> {
        Err(FileError {
            kind: FileErrorKind::AccessDenied,
            message: format!(
                "{} cannot be listed: this kernel's host lists no directory.",
                path.display()
            ),
        })
    }

    /// Reads a file that the program at `entry` is made of: its own text, a linked program, a
    /// preload. An implementation may permit the folder of `entry` here, since the user named that
    /// program.
    ///
    /// # Errors
    /// As [`Host::read`].
    fn read_program(&self, _entry: &Path, path: &Path) -> Result<Bytes, FileError> {
        self.read(path)
    }
}

/// A tool server that was started: what is said to it, and what it says.
pub struct ServerChild {
    /// Its standard input. Dropping it asks the server to end.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// What keeps it running: dropped, it ends, and all that it started.
    pub held: Box<dyn Send + Sync>,
}

/// A host that permits nothing: what an embedder gets who names none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn command(&self, command: &Command) -> Arc<dyn Tool> {
        Arc::new(Refusing {
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
        std::future::ready(Err(denied(&write.path, "written"))).boxed()
    }

    fn read(&self, path: &Path) -> Result<Bytes, FileError> {
        Err(denied(&path.display().to_string(), "read"))
    }
}

fn denied(path: &str, done: &str) -> FileError {
    let message = format!(
        "{path} cannot be {done}: this kernel was built without a host. Build it with `.host(…)`."
    );
    FileError {
        kind: FileErrorKind::AccessDenied,
        message,
    }
}

struct Refusing {
    command: Command,
}

impl Tool for Refusing {
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
