//! A spawn that was checked, what is fetched for it, and what the child is given in the end.

use dormouse_proto::file::FileError;
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::temp_file::{TempFileError, TempId};

use crate::content::Content;
use crate::program::Program;

/// The most bytes that the preloads of one child hold together, as they are shown: all of them stand in its system prompt.
pub const MAX_PRELOAD_BYTES: u64 = 16 << 20;

/// A checked call. It goes with what is asked for, so that what comes back finds it as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSpawn {
    /// The program to run.
    pub program: Program,
    /// What is said to the child.
    pub query: String,
    /// Its descriptors, under the ids of its parent.
    pub descriptors: Vec<(FdId, Entry<Content>)>,
    /// Files that are to be read for it, as the model wrote them.
    pub files: Vec<String>,
    /// Temporary files that are to be read for it.
    pub temp_files: Vec<TempId>,
}

/// What was read for a child, in the order that it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// What the files hold.
    pub files: Vec<Content>,
    /// The versions of the temporary files, and what they hold.
    pub temp_files: Vec<(u64, Content)>,
}

/// Why something could not be read for a child. The child is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A file cannot be read. The message names it, and the permission that is missing.
    #[error(transparent)]
    File(FileError),
    /// A file holds too much.
    #[error("{path} is larger than the {MAX_PRELOAD_BYTES} bytes that a process can be given at its start.")]
    TooLarge {
        /// The file, as the model wrote it.
        path: String,
    },
    /// A temporary file cannot be read.
    #[error(transparent)]
    TempFile(TempFileError),
    /// What reads failed inside.
    #[error("reading the files failed inside: {0}")]
    Inside(String),
}

/// What a process starts with beside what its program says: all of it stands in its system prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preloads {
    /// Descriptors; they are in its table as well, where its program has any.
    pub descriptors: Vec<(FdId, Entry<Content>)>,
    /// Files by the path that they were asked for by.
    pub files: Vec<(String, Content)>,
    /// Temporary files, each with its version.
    pub temp_files: Vec<(TempId, u64, Content)>,
}

impl PendingSpawn {
    /// Whether the child can be made at once, since nothing is to be fetched.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.files.is_empty() && self.temp_files.is_empty()
    }

    /// What the child starts with, once what was missing has been fetched.
    ///
    /// # Errors
    /// A text for the model.
    pub fn preloads(&self, fetched: Result<Fetched, FetchError>) -> Result<Preloads, String> {
        let Fetched { files, temp_files } = fetched.map_err(|error| format!("Nothing was started: {error}"))?;
        let versions = self.temp_files.iter().copied().zip(temp_files);
        let preloads = Preloads {
            descriptors: self.descriptors.clone(),
            files: self.files.iter().cloned().zip(files).collect(),
            temp_files: versions.map(|(id, (version, content))| (id, version, content)).collect(),
        };
        preloads.check_size().map(|()| preloads)
    }

    /// # Errors
    /// A text for the model where its descriptors hold too much.
    pub(super) fn check_size(&self) -> Result<(), String> {
        check(self.descriptors.iter().map(|(_, entry)| &entry.content))
    }
}

impl Preloads {
    fn check_size(&self) -> Result<(), String> {
        let descriptors = self.descriptors.iter().map(|(_, entry)| &entry.content);
        let files = self.files.iter().map(|(_, content)| content);
        check(descriptors.chain(files).chain(self.temp_files.iter().map(|(.., content)| content)))
    }
}

fn check<'a>(contents: impl Iterator<Item = &'a Content>) -> Result<(), String> {
    let total = contents.map(|content| content.unbounded().shown_bytes()).sum::<Result<usize, _>>();
    let total = total.map_err(|error| format!("Nothing was started: a preload cannot be read. {error}"))? as u64;
    if total <= MAX_PRELOAD_BYTES {
        return Ok(());
    }
    Err(format!(
        "Nothing was started: the preloads hold {total} bytes, and a process can be given {MAX_PRELOAD_BYTES} at its start, \
         since they stand in its system prompt. Name parts, such as \"fd:1 lines 10-40\"."
    ))
}
