//! *Preloads* of a process: contents that its system prompt shows from the start, in full or as a
//! preview. They are the files of its program's `[preload]`, and what its parent gave it. A preload
//! is shown in full up to the *limits for direct output*: those above which the output of a tool
//! becomes a descriptor (`max_direct_output_chars`, `max_direct_output_tokens`).

use std::borrow::Cow;

use bytestring::ByteString;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::with_preview;
use dormouse_proto::id::FdId;
use dormouse_proto::record::{Annotations, Entry};
use dormouse_proto::temp_file::TempId;
use dormouse_proto::xml::Element;

use crate::table::{build_preview, in_default_form};
use crate::tool::Refusal;
use dormouse_content::{Content, ReadQuota, Reader, Unreadable};
use dormouse_program::{LineRange, Preload, PreloadPart, Program};

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

/// A file whose content the system prompt of a process shows: one that was fetched for a spawn, or
/// one of the program.
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

/// A file, with the limit for direct output that it exceeds. Up to the limits it is shown in full,
/// otherwise as a preview of a descriptor of the process. A process without descriptors, which
/// could not read the rest, is shown all of it.
#[derive(Clone, Debug)]
pub(super) struct LimitedFile {
    file: FetchedFile,
    /// The settings, and in words the limit.
    exceeded: Option<(DescriptorSettings, String)>,
    /// The lines of which the content consists, if it is a part of the file.
    lines: Option<LineRange>,
}

impl LimitedFile {
    /// A file for a process with these settings. O(n).
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub(super) fn new(
        file: FetchedFile,
        settings: Option<&DescriptorSettings>,
    ) -> Result<Self, Unreadable> {
        let exceeded = match settings {
            Some(settings) => exceeded_limit(&file.content().unlimited_reader(), settings)?
                .map(|limit| (*settings, limit)),
            None => None,
        };
        Ok(Self {
            file,
            exceeded,
            lines: None,
        })
    }

    /// A file of a program. A part that the program names is shown in full. O(n).
    fn of_program(preload: &Preload, settings: Option<&DescriptorSettings>) -> Self {
        let content = Content::new(preload.bytes.clone());
        let (content, lines) = match preload.shown {
            PreloadPart::WithinLimits | PreloadPart::All => (content, None),
            PreloadPart::Lines(lines) => (lines_of(&content, lines), Some(lines)),
        };
        let file = FetchedFile::File {
            path: preload.path.clone(),
            content,
        };
        let settings = settings.filter(|_| preload.shown == PreloadPart::WithinLimits);
        let file = Self::new(file, settings).expect("a content in memory can be read");
        Self { lines, ..file }
    }

    /// The entry of the descriptor that the process gets; `None` if the file is shown in full.
    pub(super) fn entry(&self, now_ms: u64) -> Option<Entry<Content>> {
        let (settings, _) = self.exceeded.as_ref()?;
        Some(Entry {
            content: self.file.content().clone(),
            page_chars: settings.page_chars,
            source: self.file.source().into(),
            opened_ms: now_ms,
            cut_bytes: 0,
            notes: Annotations::default(),
        })
    }

    /// The element in the system prompt, with a preview of `descriptor` if the process has one.
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub(super) fn show(
        &self,
        descriptor: Option<&(FdId, Entry<Content>)>,
    ) -> Result<ShownPreload, Unreadable> {
        let element = self.file.element().attribute_if("lines", self.lines);
        let (Some((settings, limit)), Some((id, entry))) = (&self.exceeded, descriptor) else {
            return ShownPreload::from_reader(element, &self.file.content().unlimited_reader());
        };
        let element = element.attribute("fd", id);
        let quota = ReadQuota::unlimited();
        let preview = ShownPreload::preview(element, entry, settings, limit, quota)?;
        Ok(ShownPreload {
            // A process holds no more than it could be shown.
            bytes: entry.content.len_bytes(),
            ..preview
        })
    }
}

/// These lines of a content, which shares its bytes.
fn lines_of(content: &Content, lines: LineRange) -> Content {
    let reader = content.unlimited_reader();
    let count = lines.last - lines.first + 1;
    let bytes = reader.lines_at(lines.first, count);
    let part = bytes.and_then(|bytes| reader.extract(bytes.unwrap_or_default()));
    part.expect("a content in memory can be read")
}

/// The files of `[preload]`, as all processes of the program get them. O(bytes of the files).
pub(super) fn files_of_program(program: &Program) -> Vec<LimitedFile> {
    let settings = program.descriptors();
    let files = program.preloads().iter();
    files
        .map(|preload| LimitedFile::of_program(preload, settings))
        .collect()
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
