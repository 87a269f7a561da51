//! How the program itself ends: its exit codes.

use std::process::ExitCode;

use dormouse::ports::StoreError;
use dormouse::ports::Unreadable;
use dormouse::process::ExitStatus;
use dormouse::program::Finding;
use dormouse::{ExportFailure, KernelError, NotFound, ProcessError, StoreFailure};

use crate::{findings, terminal};

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line, or a file that it names, is wrong.
    Usage(String),
    /// A program is wrong.
    Program(Vec<Finding>),
    /// The store cannot be used.
    Store(String),
    /// Something else went wrong while running.
    Run(String),
    /// The reader of standard output closed it.
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
}

impl Failure {
    /// Prints the failure on standard error.
    pub(crate) fn tell(&self) {
        match self {
            Self::Usage(text) | Self::Store(text) | Self::Run(text) => terminal::tell(text),
            Self::Program(findings) => findings::show(findings),
            Self::Closed => {}
        }
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Store(StoreFailure::Store(error @ StoreError::Key { .. })) => {
                Self::Store(with_key_hint(&error))
            }
            KernelError::Store(
                StoreFailure::Store(_) | StoreFailure::NotDurable(_) | StoreFailure::Load(_),
            )
            | KernelError::Process(ProcessError::Held { .. })
            | KernelError::NotFound(NotFound::MayBeLost { .. }) => Self::Store(error.to_string()),
            KernelError::NotFound(NotFound::Process(_) | NotFound::InCheckpoint { .. })
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

/// What is wrong with a key, and where keys come from.
pub(crate) fn with_key_hint(error: &StoreError) -> String {
    format!(
        "{error}. The key is the one in --key-file FILE; without that, the one in \
         DORMOUSE_STORE_KEY"
    )
}

/// The exit code of a run whose root process ended so.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    match status {
        ExitStatus::Done => ExitCode::SUCCESS,
        ExitStatus::Interrupted => ExitCode::from(130),
        _ => ExitCode::from(1),
    }
}
