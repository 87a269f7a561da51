//! Data of a spawn: the checked call, the files that the shell fetches for it, and the *preloads*
//! of the child, which are contents that its system prompt shows from the start.

use std::borrow::Cow;

use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::with_preview;
use dormouse_proto::file::FileError;
use dormouse_proto::id::FdId;
use dormouse_proto::record::{Annotations, Entry};
use dormouse_proto::temp_file::{TempFileError, TempId};
use dormouse_proto::xml::Element;

use crate::table::{Table, build_preview, in_default_form};
use crate::tool::Refusal;
use dormouse_content::{Content, ReadQuota, Reader, Unreadable};
use dormouse_program::Program;

/// Maximum size of the preloads of one child, as its system prompt shows them.
pub const MAX_PRELOAD_BYTES: u64 = 16 << 20;

/// A preload as an element of the system prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPreload {
    xml: String,
    /// Length of the shown text.
    bytes: u64,
}

impl ShownPreload {
    /// A descriptor, in full. O(n).
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub fn descriptor(
        id: &FdId,
        entry: &Entry<Content>,
        quota: &ReadQuota,
    ) -> Result<Self, Unreadable> {
        let element =
            descriptor_element(id, entry).attribute_if("summary", entry.notes.summary.as_ref());
        Self::from_reader(element, &entry.content.reader(quota))
    }

    /// A descriptor that the child can read: in full within the limits for direct output
    /// of its program, otherwise as a preview, like every content that is too large for a context.
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub fn readable_descriptor(
        id: &FdId,
        entry: &Entry<Content>,
        settings: &DescriptorSettings,
        quota: &ReadQuota,
    ) -> Result<Self, Unreadable> {
        match exceeded_limit(&entry.content.reader(quota), settings)? {
            Some(limit) => {
                let element = descriptor_element(id, entry);
                Self::preview(element, entry, settings, &limit, quota)
            }
            None => Self::descriptor(id, entry, quota),
        }
    }

    /// Fills `element` with a preview of a descriptor that exceeds `limit`.
    fn preview(
        element: Element,
        entry: &Entry<Content>,
        settings: &DescriptorSettings,
        limit: &str,
        quota: &ReadQuota,
    ) -> Result<Self, Unreadable> {
        let view = in_default_form(Cow::Borrowed(entry), settings, quota)?;
        let hint = settings.hintable_tools.hint_to_read();
        let message = format!("Content exceeds {limit}.{hint}");
        let preview = build_preview(&view, settings.preview)?;
        let previewed = preview.to_previewed(entry.notes.summary.as_deref());
        let xml = with_preview(element, view.extent()?, &message, previewed).to_xml();
        Ok(Self {
            bytes: xml.len() as u64,
            xml,
        })
    }

    /// Fills `element` with the content.
    fn from_reader(element: Element, content: &Reader<'_>) -> Result<Self, Unreadable> {
        let bytes = content.shown_bytes()? as u64;
        // A preload over the limit is refused later by its size, so its text is not read.
        let text = if bytes > MAX_PRELOAD_BYTES {
            ByteString::new()
        } else {
            content.text()?
        };
        let encoding = content.encoding()?;
        Ok(Self {
            xml: element
                .attribute_if("encoding", encoding.word())
                .attribute_if("replaced_bytes", encoding.replaced_bytes())
                .text(&*text)
                .to_xml(),
            bytes,
        })
    }

    /// A file that is part of a program and therefore in memory. O(n).
    #[must_use]
    pub fn bytes(path: &str, bytes: Bytes) -> Self {
        let content = Content::new(bytes);
        Self::from_reader(file_element(path), &content.unlimited_reader())
            .expect("a content in memory can be read")
    }

    /// The element as XML.
    #[must_use]
    pub fn xml(&self) -> &str {
        &self.xml
    }
}

/// In words, the limit for direct output that a content exceeds.
fn exceeded_limit(
    content: &Reader<'_>,
    settings: &DescriptorSettings,
) -> Result<Option<String>, Unreadable> {
    let shown_bytes = content.shown_bytes()? as u64;
    Ok(settings.exceeded_output_limit(content.total_chars()?, shown_bytes))
}

fn file_element(path: &str) -> Element {
    Element::new("preload_file").attribute("path", path)
}

fn descriptor_element(id: &FdId, entry: &Entry<Content>) -> Element {
    Element::new("preload_fd")
        .attribute("fd", id)
        .attribute_if("name", entry.notes.name.as_ref())
        .attribute("source", &entry.source)
}

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
}

/// A file that was fetched for a spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchedFile {
    /// A file of the user.
    File {
        /// Path as the model wrote it.
        path: String,
        /// Its bytes.
        content: Content,
    },
    /// A temporary file of the tree.
    TempFile {
        /// Its id.
        id: TempId,
        /// Number of the version.
        version: u64,
        /// The bytes of this version.
        content: Content,
    },
}

impl FetchedFile {
    fn content(&self) -> &Content {
        match self {
            Self::File { content, .. } | Self::TempFile { content, .. } => content,
        }
    }

    fn element(&self) -> Element {
        match self {
            Self::File { path, .. } => file_element(path),
            Self::TempFile { id, version, .. } => Element::new("preload_temp_file")
                .attribute("temp_file_id", id)
                .attribute("version", version),
        }
    }

    /// Source of a descriptor that holds the file.
    fn source(&self) -> String {
        match self {
            Self::File { path, .. } => format!("file:{path}"),
            Self::TempFile { id, .. } => id.to_string(),
        }
    }
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
            let shown = self
                .place_file(&file, &mut table, &mut fetched.descriptors, now_ms)
                .map_err(FetchError::Unreadable)?;
            fetched.shown.push(shown);
        }
        Ok(fetched)
    }

    fn place_file(
        &self,
        file: &FetchedFile,
        table: &mut Table,
        descriptors: &mut Vec<(FdId, Entry<Content>)>,
        now_ms: u64,
    ) -> Result<ShownPreload, Unreadable> {
        let content = file.content();
        let reader = content.unlimited_reader();
        let limited = match self.program.descriptors() {
            Some(settings) => exceeded_limit(&reader, settings)?.map(|limit| (settings, limit)),
            None => None,
        };
        let Some((settings, limit)) = limited else {
            return ShownPreload::from_reader(file.element(), &reader);
        };
        let entry = Entry {
            content: content.clone(),
            page_chars: settings.page_chars,
            source: file.source().into(),
            opened_ms: now_ms,
            cut_bytes: 0,
            notes: Annotations::default(),
        };
        let id = table.next_id();
        let element = file.element().attribute("fd", &id);
        let quota = ReadQuota::unlimited();
        let preview = ShownPreload::preview(element, &entry, settings, &limit, quota)?;
        table.insert(id.clone(), entry.clone());
        descriptors.push((id, entry));
        Ok(ShownPreload {
            // A child holds no more than it could be shown.
            bytes: content.len_bytes(),
            ..preview
        })
    }

    /// Combines the fetched files and the descriptors into the preloads of the child.
    ///
    /// # Errors
    /// A file was not fetched, or the preloads exceed the limit.
    pub fn preloads(&self, fetched: Result<Fetched, FetchError>) -> Result<Preloads, Refusal> {
        let fetched = fetched.map_err(|error| format!("Nothing was started: {error}"))?;
        let descriptors = self.descriptors.iter().map(|(.., shown)| shown.clone());
        let shown: Vec<_> = fetched.shown.into_iter().chain(descriptors).collect();
        check_preload_size(&shown)?;
        let descriptors = self
            .descriptors
            .iter()
            .map(|(id, entry, _)| (id.clone(), entry.clone()));
        let new_contents = fetched.descriptors.iter().map(|(_, entry)| &entry.content);
        Ok(Preloads {
            new_bytes: new_contents.map(Content::len_bytes).sum(),
            descriptors: descriptors.chain(fetched.descriptors).collect(),
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
