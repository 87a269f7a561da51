//! Writing content to a file: what is asked, and what came of it.

use bytes::Bytes;

/// A write that a process asks of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The path as the model gave it, relative to the working directory or absolute.
    pub path: String,
    /// What is written.
    pub bytes: Bytes,
    /// How.
    pub mode: WriteMode,
    /// What must be there before.
    pub presence: Presence,
}

impl FileWrite {
    /// Whether doing it twice is the same as doing it once, and is answered in the same way.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.mode.is_repeatable(self.presence)
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The bytes become the file, atomically.
    Write,
    /// The bytes follow what is there.
    Append,
    /// The bytes stand before this line, counted from 1; one past the last line appends.
    Insert {
        /// The line.
        at_line: u64,
    },
}

impl WriteMode {
    /// Whether such a write can be done twice and is answered in the same way.
    #[must_use]
    pub fn is_repeatable(self, presence: Presence) -> bool {
        self == Self::Write && matches!(presence, Presence::Any | Presence::Present)
    }

    /// The word for it, in arguments and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Append => "append",
            Self::Insert { .. } => "insert",
        }
    }
}

/// What must be there before a write: `create` and `exist_ok` of the tool as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// `create`, `exist_ok`: the file may be there or not.
    Any,
    /// `create`, not `exist_ok`: it must not be there.
    Absent,
    /// Not `create`, `exist_ok`: it must be there.
    Present,
    /// Neither: there is nothing that could be written; the answer says which of both stands in the
    /// way.
    Neither,
}

/// What a directory holds, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries, sorted by name.
    pub entries: Vec<DirEntry>,
    /// How many there are beside them.
    pub left_out: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Its name; what is not UTF-8 in it is shown as U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry of a directory is. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A file of so many bytes.
    File {
        /// Its length.
        bytes: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket, a device.
    Other,
}

/// Why a file was not written or read. The file is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// The kind, as it stands in the answer's `type`.
    pub kind: FileErrorKind,
    /// What was asked, what is valid, what to try.
    pub message: String,
}

/// Kinds of file error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileErrorKind {
    /// The file is there and must not be.
    FileExists,
    /// The file is not there and must be.
    FileNotFound,
    /// The operating system refuses.
    PermissionError,
    /// The user has not permitted this path.
    AccessDenied,
    /// A line or position that the file does not have.
    InvalidRange,
    /// Anything else: a directory, a device, a full disk.
    WriteError,
}
