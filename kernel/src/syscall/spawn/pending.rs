//! A spawn that was checked, what is fetched for it, and what the child is given in the end.

use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::file::FileError;
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::temp_file::{TempFileError, TempId};
use dormouse_proto::xml::Element;

use crate::program::Program;
use dormouse_content::{Content, ReadQuota, Reader, Unreadable};

/// The most bytes that the preloads of one child hold together, as they are shown: all of them
/// stand in its system prompt.
pub const MAX_PRELOAD_BYTES: u64 = 16 << 20;

/// A preload as the system prompt of a child shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPreload {
    xml: String,
    /// Of the text that is shown.
    bytes: u64,
}

/// What a preload holds cannot be read.
type Lost<T> = Result<T, Unreadable>;

impl ShownPreload {
    /// A file by the path that it was asked for by. O(n).
    ///
    /// # Errors
    /// It cannot be read.
    pub fn file(path: &str, content: &Reader<'_>) -> Lost<Self> {
        Self::of(
            Element::new("preload_file").attribute("path", path),
            content,
        )
    }

    /// A version of a temporary file. O(n).
    ///
    /// # Errors
    /// It cannot be read.
    pub fn temp_file(id: TempId, version: u64, content: &Reader<'_>) -> Lost<Self> {
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
    /// It cannot be read.
    pub fn descriptor(id: &FdId, entry: &Entry<Content>, quota: &ReadQuota) -> Lost<Self> {
        let element = Element::new("preload_fd")
            .attribute("fd", id)
            .attribute_if("name", entry.notes.name.as_ref())
            .attribute("source", &entry.source)
            .attribute_if("summary", entry.notes.summary.as_ref());
        Self::of(element, &entry.content.reader(quota))
    }

    fn of(element: Element, content: &Reader<'_>) -> Lost<Self> {
        let bytes = content.shown_bytes()? as u64;
        // What a child cannot be given is not read.
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

    /// The element.
    #[must_use]
    pub fn xml(&self) -> &str {
        &self.xml
    }
}

/// A checked call. It goes with what is asked for, so that what comes back finds it as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSpawn {
    /// The program to run.
    pub program: Program,
    /// What is said to the child.
    pub query: String,
    /// Its descriptors, under the ids of its parent, and how each is shown.
    pub descriptors: Vec<(FdId, Entry<Content>, ShownPreload)>,
    /// Files that are to be read for it, as the model wrote them.
    pub files: Vec<String>,
    /// Temporary files that are to be read for it.
    pub temp_files: Vec<TempId>,
}

/// What was read for a child, in the order that it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The files.
    pub files: Vec<ShownPreload>,
    /// The temporary files.
    pub temp_files: Vec<ShownPreload>,
}

/// Why something could not be read for a child. The child is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// A file cannot be read. The message names it, and the permission that is missing.
    #[error(transparent)]
    File(FileError),
    /// A file holds too much.
    #[error(
        "{path} is larger than the {MAX_PRELOAD_BYTES} bytes that a process can be given at its \
         start."
    )]
    TooLarge {
        /// The file, as the model wrote it.
        path: String,
    },
    /// A temporary file cannot be read.
    #[error(transparent)]
    TempFile(TempFileError),
    /// What one of them holds is lost.
    #[error("a preload cannot be read. {0}")]
    Lost(Unreadable),
    /// What reads failed inside.
    #[error("reading the files failed inside: {0}")]
    Inside(String),
}

/// What a process starts with beside what its program says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preloads {
    /// Descriptors of its table, where its program has any.
    pub descriptors: Vec<(FdId, Entry<Content>)>,
    /// What stands in its system prompt, in order.
    pub shown: Vec<ShownPreload>,
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
        let Fetched { files, temp_files } =
            fetched.map_err(|error| format!("Nothing was started: {error}"))?;
        let descriptors = self.descriptors.iter().map(|(.., shown)| shown.clone());
        let shown: Vec<_> = files
            .into_iter()
            .chain(temp_files)
            .chain(descriptors)
            .collect();
        check_size(&shown)?;
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

/// # Errors
/// A text for the model where a child would be given too much.
pub(super) fn check_size<'a>(
    shown: impl IntoIterator<Item = &'a ShownPreload>,
) -> Result<(), String> {
    let total: u64 = shown.into_iter().map(|shown| shown.bytes).sum();
    if total <= MAX_PRELOAD_BYTES {
        return Ok(());
    }
    Err(format!(
        "Nothing was started: the preloads hold {total} bytes, and a process can be given \
         {MAX_PRELOAD_BYTES} at its start, since they stand in its system prompt. Name parts, such \
         as \"fd:1 lines 10-40\"."
    ))
}
