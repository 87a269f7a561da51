//! File writes that a process requests from the host, directory listings, and their errors.

use bytes::Bytes;

/// A write that a process requests from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// Path as the model wrote it, relative to the working directory or absolute.
    pub path: String,
    /// The bytes to write.
    pub bytes: Bytes,
    /// How the file is changed.
    pub mode: WriteMode,
    /// Whether the file must or must not exist.
    pub presence: Presence,
}

impl FileWrite {
    /// Whether repeating the write has the same effect and the same answer.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.mode.is_repeatable(self.presence)
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Replaces the file atomically.
    Write,
    /// Appends to the file.
    Append,
    /// Inserts before this line, counted from 1; one past the last line appends.
    Insert {
        /// Line number.
        at_line: u64,
    },
}

impl WriteMode {
    /// Whether repeating such a write has the same effect and the same answer.
    #[must_use]
    pub fn is_repeatable(self, presence: Presence) -> bool {
        self == Self::Write && matches!(presence, Presence::Any | Presence::Present)
    }

    /// The name in arguments and answers.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Append => "append",
            Self::Insert { .. } => "insert",
        }
    }
}

/// Whether the file must exist: the arguments `create` and `exist_ok` as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// `create`, `exist_ok`: the file may be there or not.
    Any,
    /// `create`, not `exist_ok`: it must not be there.
    Absent,
    /// Not `create`, `exist_ok`: it must be there.
    Present,
    /// Neither: nothing can be written; the answer says whether the file exists.
    Neither,
}

/// The entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries, sorted by name.
    pub entries: Vec<DirEntry>,
    /// Number of further entries that are left out.
    pub left_out: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Name of the entry; invalid UTF-8 is shown as U+FFFD.
    pub name: String,
    /// Type of the entry.
    pub kind: EntryKind,
}

/// The type of a directory entry. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Length in bytes.
        bytes: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket, a device.
    Other,
    /// Its type cannot be determined, such as that of a mount of another user.
    Unknown,
}

/// Why a file was not read or written. The file is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// The kind of the error. The answer has it as the attribute `type`.
    pub kind: FileErrorKind,
    /// What was requested, what is valid, and what to try.
    pub message: String,
}

/// Kinds of file error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileErrorKind {
    /// The file must not exist, but does.
    FileExists,
    /// The file must exist, but does not.
    FileNotFound,
    /// The operating system refuses access to the file.
    PermissionError,
    /// The user has not permitted this path.
    AccessDenied,
    /// The file has no such line or position.
    InvalidRange,
    /// Anything else: a directory, a device, a full disk.
    WriteError,
}
