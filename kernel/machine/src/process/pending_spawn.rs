//! Data of a spawn: the checked call, and the files that the shell fetches for it. `spawn.rs` says
//! in which steps a spawn uses them, `preload.rs` how each file is shown to the child.

use dormouse_proto::file::FileError;
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::temp_file::{TempFileError, TempId};

use super::preload::{
    FetchedFile, LimitedFile, MAX_PRELOAD_BYTES, ShownPreload, check_preload_size,
};
use crate::table::Table;
use crate::tool::Refusal;
use dormouse_content::{Content, Unreadable};
use dormouse_program::{Program, ValueSchema};

/// A checked call of `spawn`. The shell returns it with the fetched files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSpawn {
    /// Program of the child.
    pub program: Program,
    /// Initial input of the child.
    pub query: String,
    /// Descriptors that the child preloads, under the ids of its parent, with their elements for
    /// the system prompt.
    pub descriptors: Vec<(FdId, Entry<Content>, ShownPreload)>,
    /// Files to fetch, as the model wrote their paths.
    pub files: Vec<String>,
    /// Temporary files to fetch.
    pub temp_files: Vec<TempId>,
    /// Schema of the result that the child has to submit, in place of that of its program.
    pub result_schema: Option<ValueSchema>,
}

/// The fetched files, as the child gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Their elements, in the order in which the files were requested.
    shown: Vec<ShownPreload>,
    /// Descriptors of the child that hold the files of which only a preview is shown.
    descriptors: Vec<(FdId, Entry<Content>)>,
}

impl Fetched {
    /// The elements of the files in the system prompt.
    pub fn shown(&self) -> impl Iterator<Item = &ShownPreload> {
        self.shown.iter()
    }

    /// The descriptors of the child that hold files of which only a preview is shown.
    pub fn descriptors(&self) -> impl Iterator<Item = &(FdId, Entry<Content>)> {
        self.descriptors.iter()
    }
}

/// Why a fetch failed. No child is created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A file cannot be read. The message names it and the missing permission.
    #[error(transparent)]
    File(FileError),
    /// A file is larger than the limit.
    #[error(
        "{path} is larger than the {MAX_PRELOAD_BYTES} bytes that a process can be given at its \
         start."
    )]
    TooLarge {
        /// Path as the model wrote it.
        path: String,
    },
    /// A temporary file cannot be read.
    #[error(transparent)]
    TempFile(TempFileError),
    /// The content of a temporary file cannot be read.
    #[error("a preload cannot be read. {0}")]
    Unreadable(Unreadable),
    /// An internal failure.
    #[error("reading the files failed inside: {0}")]
    Internal(String),
}

/// The preloads of a process in addition to the preloads of its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preloads {
    /// Descriptors for the process's table; ignored if its program has no descriptors.
    pub descriptors: Vec<(FdId, Entry<Content>)>,
    /// Elements for the system prompt, in order.
    pub shown: Vec<ShownPreload>,
    /// Bytes of those descriptors that the parent does not hold.
    pub new_bytes: u64,
}

impl PendingSpawn {
    /// Whether the spawn needs no file, so that the child can be created at once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.files.is_empty() && self.temp_files.is_empty()
    }

    /// Places the fetched files for the child, in order: in its system prompt up to the limits for
    /// direct output of its program, otherwise as a descriptor of its own with a preview. In a
    /// child without descriptors, which could not read the rest, they are shown in full. O(n);
    /// reads contents, so it does not run on the thread of an actor.
    ///
    /// # Errors
    /// [`FetchError::Unreadable`] if a content cannot be read.
    pub fn place(&self, files: Vec<FetchedFile>, now_ms: u64) -> Result<Fetched, FetchError> {
        let mut table = Table::default();
        for (id, entry, _) in &self.descriptors {
            table.insert(id.clone(), entry.clone());
        }
        let mut fetched = Fetched::default();
        for file in files {
            let file = LimitedFile::new(file, self.program.descriptors());
            let file = file.map_err(FetchError::Unreadable)?;
            let descriptor = file.entry(now_ms).map(|entry| (table.next_id(), entry));
            let shown = file.show(descriptor.as_ref());
            fetched.shown.push(shown.map_err(FetchError::Unreadable)?);
            if let Some((id, entry)) = descriptor {
                table.insert(id.clone(), entry.clone());
                fetched.descriptors.push((id, entry));
            }
        }
        Ok(fetched)
    }

    /// Combines the fetched files and the descriptors into the preloads of the child. O(preloads).
    ///
    /// # Errors
    /// A file was not fetched, or the preloads exceed the limit.
    pub fn preloads(&self, fetched: &Result<Fetched, FetchError>) -> Result<Preloads, Refusal> {
        let fetched = fetched
            .as_ref()
            .map_err(|error| format!("Nothing was started: {error}"))?;
        let descriptors = self.descriptors.iter().map(|(.., shown)| shown);
        let shown: Vec<_> = fetched.shown.iter().chain(descriptors).cloned().collect();
        check_preload_size(&shown)?;
        let descriptors = self
            .descriptors
            .iter()
            .map(|(id, entry, _)| (id.clone(), entry.clone()));
        let new_contents = fetched.descriptors.iter().map(|(_, entry)| &entry.content);
        Ok(Preloads {
            new_bytes: new_contents.map(Content::len_bytes).sum(),
            descriptors: descriptors
                .chain(fetched.descriptors.iter().cloned())
                .collect(),
            shown,
        })
    }
}
