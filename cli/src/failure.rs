//! The failures of a command, and the exit code of each kind of failure.
//!
//! The codes are listed in `docs/command-line.md`. A request for something that does not exist is a
//! wrong command line (2); something that existed and is damaged or lost is a problem of the store
//! (3).

use std::path::Path;
use std::process::ExitCode;

use dormouse::ports::StoreError;
use dormouse::ports::Unreadable;
use dormouse::process::ExitStatus;
use dormouse::program::Finding;
use dormouse::{ExportFailure, KernelError, LoadError, NotFound, ProcessError, StoreFailure};

use crate::{findings, terminal};

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or a file that it names is wrong, or something that it names does not
    /// exist.
    Usage(String),
    /// A program does not compile.
    Program(Vec<Finding>),
    /// The store cannot be used.
    Store(String),
    /// Something else went wrong while running.
    Run(String),
    /// The reader of standard output closed it, which is not an error.
    Closed,
}

impl Failure {
    /// The exit code of the program.
    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::Closed => ExitCode::SUCCESS,
            Self::Run(_) => ExitCode::from(1),
            Self::Usage(_) | Self::Program(_) => ExitCode::from(2),
            Self::Store(_) => ExitCode::from(3),
        }
    }

    /// Prints the failure on standard error.
    pub(crate) fn print(&self) {
        match self {
            Self::Usage(text) | Self::Store(text) | Self::Run(text) => terminal::print_stderr(text),
            Self::Program(findings) => findings::show(findings),
            Self::Closed => {}
        }
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        match store_error(&error) {
            Some(error @ StoreError::Key { .. }) => return Self::Store(with_key_hint(error)),
            Some(
                StoreError::UnknownProcess(_)
                | StoreError::UnknownFact { .. }
                | StoreError::DeletedFact { .. }
                | StoreError::UnknownCheckpoint(_),
            ) => return Self::Usage(error.to_string()),
            _ => {}
        }
        match error {
            KernelError::Store(
                StoreFailure::Store(_) | StoreFailure::NotDurable(_) | StoreFailure::Load(_),
            )
            | KernelError::Process(ProcessError::Held { .. })
            | KernelError::NotFound(NotFound::MayBeLost { .. }) => Self::Store(error.to_string()),
            KernelError::NotFound(NotFound::Process(_) | NotFound::InCheckpoint { .. })
            | KernelError::Process(ProcessError::EmptyInput(_))
            | KernelError::Export(ExportFailure::Unusable(_) | ExportFailure::File { .. }) => {
                Self::Usage(error.to_string())
            }
            _ => Self::Run(error.to_string()),
        }
    }
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Run(format!("the output cannot be written: {error}")),
        }
    }
}

/// The failure for a file of the command line that cannot be read or written.
pub(crate) fn file_failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}

/// The error of the store that caused an error of the kernel: the kernel reports it as such, or
/// as the reason why a process cannot be loaded.
pub(crate) fn store_error(error: &KernelError) -> Option<&StoreError> {
    let KernelError::Store(failure) = error else {
        return None;
    };
    match failure {
        StoreFailure::Store(error) => Some(error),
        StoreFailure::Load(error) => match &**error {
            LoadError::Store(error) => Some(error),
            _ => None,
        },
        _ => None,
    }
}

/// Adds to an error about a key where the key is read from.
fn with_key_hint(error: &StoreError) -> String {
    format!(
        "{error}. The key is the one in --key-file FILE; without that flag, the one in \
         DORMOUSE_STORE_KEY"
    )
}

/// The exit code of a run whose root process ended with this status.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    match status {
        ExitStatus::Done => ExitCode::SUCCESS,
        ExitStatus::Interrupted => ExitCode::from(130),
        _ => ExitCode::from(1),
    }
}
