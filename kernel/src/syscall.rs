//! Tools of the kernel, one file per tool: its arguments, its schema, its behaviour, its tests.
//!
//! A syscall is a pure function of the table and the arguments: called again after a restart it gives the same outcome. It
//! never changes the table and never touches a file: it says what to open and what to write. A mistake of the model is an
//! answer to it. What a syscall answers is an [`Answer`], which nothing puts into a descriptor again.

mod args;
pub mod fd_to_file;
pub mod fork;
mod instructions;
pub mod read_fd;
pub mod search_fd;
mod selection;
pub mod spawn;

use dormouse_proto::descriptor::view::{self, Written};
use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::file::{FileError, FileWrite};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Answer;

pub use fd_to_file::fd_to_file;
pub use instructions::{REFERENCES, instructions};
pub use read_fd::read_fd;
pub use search_fd::search_fd;

use crate::content::Content;
use crate::table::Table;

/// The shape of every descriptor tool: the caller's table, its arguments as JSON text, the settings of its program, and the
/// time in milliseconds since the epoch.
pub type Syscall = fn(&Table, &str, &DescriptorSettings, u64) -> Outcome;

/// What comes of a descriptor tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The caller reads this, and that is all.
    Answer(Answer),
    /// A descriptor is opened, then the caller reads this.
    Opened {
        /// The descriptor's name: the table's next.
        id: FdId,
        /// What it holds.
        entry: Entry<Content>,
        /// What the caller reads.
        answer: Answer,
    },
    /// The host is asked to write a file; what the caller reads depends on what comes of it.
    Write(PendingWrite),
}

impl From<Result<Self, FdError>> for Outcome {
    fn from(result: Result<Self, FdError>) -> Self {
        result.unwrap_or_else(|error| Self::Answer(error.answer()))
    }
}

/// A write that the host is asked for. The same arguments and table give the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWrite {
    /// What the host is asked for.
    pub write: FileWrite,
    /// The descriptor that it comes from, as the model wrote it.
    asked_fd: String,
    /// The same by its name.
    fd: FdId,
    /// Lines that are written.
    lines: u64,
}

impl PendingWrite {
    /// What the caller reads when the host has tried.
    #[must_use]
    pub fn answer(&self, result: Result<(), FileError>) -> Answer {
        match result {
            Ok(()) => view::write(&self.fd, self.written()),
            Err(FileError { kind, message }) => {
                FdError { kind: kind.into(), fd: Some(self.asked_fd.clone()), message }.answer()
            }
        }
    }

    fn written(&self) -> Written<'_> {
        let FileWrite { path, bytes, mode, .. } = &self.write;
        Written { file_path: path, mode: mode.word(), bytes: bytes.len() as u64, lines: self.lines }
    }
}
