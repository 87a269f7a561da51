//! A checked spawn, the files that are fetched for it, and the preloads that the child gets.

use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::file::FileError;
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::temp_file::{TempFileError, TempId};
use dormouse_proto::xml::Element;

use crate::tool::Refusal;
use dormouse_content::{Content, ReadQuota, Reader, Unreadable};
use dormouse_program::Program;

/// Limit for the preloads of one child, as they are shown: all of them are part of its system
/// prompt.
pub const MAX_PRELOAD_BYTES: u64 = 16 << 20;

/// A preload as an element of the system prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPreload {
    xml: String,
    /// Length of the shown text.
    bytes: u64,
}

/// Result of reading a preload.
type ReadResult<T> = Result<T, Unreadable>;

impl ShownPreload {
    /// A file, under the path by which it was requested. O(n).
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub fn file(path: &str, content: &Reader<'_>) -> ReadResult<Self> {
        Self::of(
            Element::new("preload_file").attribute("path", path),
            content,
        )
    }

    /// A version of a temporary file. O(n).
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub fn temp_file(id: TempId, version: u64, content: &Reader<'_>) -> ReadResult<Self> {
        Self::of(
            Element::new("preload_temp_file")
                .attribute("temp_file_id", id)
                .attribute("version", version),
            content,
        )
    }

    /// A descriptor. O(n).
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub fn descriptor(id: &FdId, entry: &Entry<Content>, quota: &ReadQuota) -> ReadResult<Self> {
        let element = Element::new("preload_fd")
            .attribute("fd", id)
            .attribute_if("name", entry.notes.name.as_ref())
            .attribute("source", &entry.source)
            .attribute_if("summary", entry.notes.summary.as_ref());
        Self::of(element, &entry.content.reader(quota))
    }

    fn of(element: Element, content: &Reader<'_>) -> ReadResult<Self> {
        let bytes = content.shown_bytes()? as u64;
        // A preload over the limit is refused later: do not read it.
        let text = if bytes > MAX_PRELOAD_BYTES {
            ByteString::new()
        } else {
            content.text()?
        };
        let encoding = content.is_binary()?.then_some("base64");
        Ok(Self {
            xml: element
                .attribute_if("encoding", encoding)
                .text(&*text)
                .to_xml(),
            bytes,
        })
    }

    /// A file of a program, which is in memory. O(n).
    #[must_use]
    pub fn bytes(path: &str, bytes: Bytes) -> Self {
        let content = Content::new(bytes);
        Self::file(path, &content.unbounded()).expect("what is in memory can be read")
    }

    /// The element as XML.
    #[must_use]
    pub fn xml(&self) -> &str {
        &self.xml
    }
}

/// A checked call. It accompanies the work and is returned with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSpawn {
    /// Program of the child.
    pub program: Program,
    /// Initial input of the child.
    pub query: String,
    /// Descriptors of the child, under the ids of its parent, with their elements.
    pub descriptors: Vec<(FdId, Entry<Content>, ShownPreload)>,
    /// Files to fetch, as the model wrote their paths.
    pub files: Vec<String>,
    /// Temporary files to fetch.
    pub temp_files: Vec<TempId>,
}

/// The fetched files, in the order in which they were requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The fetched files.
    pub files: Vec<ShownPreload>,
    /// The fetched temporary files.
    pub temp_files: Vec<ShownPreload>,
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
    Lost(Unreadable),
    /// An internal failure.
    #[error("reading the files failed inside: {0}")]
    Internal(String),
}

/// What a process starts with in addition to the preloads of its program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preloads {
    /// Descriptors for its table, if its program has descriptors.
    pub descriptors: Vec<(FdId, Entry<Content>)>,
    /// Elements for its system prompt, in order.
    pub shown: Vec<ShownPreload>,
}

impl PendingSpawn {
    /// Whether nothing has to be fetched, so that the child can be created at once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.files.is_empty() && self.temp_files.is_empty()
    }

    /// The preloads of the child, once the missing files are fetched.
    ///
    /// # Errors
    /// A file was not fetched, or the preloads exceed the limit.
    pub fn preloads(&self, fetched: Result<Fetched, FetchError>) -> Result<Preloads, Refusal> {
        let Fetched { files, temp_files } =
            fetched.map_err(|error| format!("Nothing was started: {error}"))?;
        let descriptors = self.descriptors.iter().map(|(.., shown)| shown.clone());
        let shown: Vec<_> = files
            .into_iter()
            .chain(temp_files)
            .chain(descriptors)
            .collect();
        check_preload_size(&shown)?;
        let descriptors = self
            .descriptors
            .iter()
            .map(|(id, entry, _)| (id.clone(), entry.clone()));
        Ok(Preloads {
            descriptors: descriptors.collect(),
            shown,
        })
    }
}

/// Checks the size of the preloads of one child.
///
/// # Errors
/// The preloads exceed the limit.
pub fn check_preload_size<'a>(
    shown: impl IntoIterator<Item = &'a ShownPreload>,
) -> Result<(), Refusal> {
    let total: u64 = shown.into_iter().map(|shown| shown.bytes).sum();
    if total <= MAX_PRELOAD_BYTES {
        return Ok(());
    }
    Err(format!(
        "Nothing was started: the preloads hold {total} bytes, and a process can be given \
         {MAX_PRELOAD_BYTES} at its start, since they stand in its system prompt. Name parts, such \
         as \"fd:1 lines 10-40\"."
    )
    .into())
}
