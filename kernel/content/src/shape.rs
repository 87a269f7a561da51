//! What finds pages, lines and characters of a content without a pass over it.
//!
//! Of text that is an index and the tables of those page sizes that were asked for. The base64 of a
//! binary content is one line of ASCII: everything is reckoned from its length.
//!
//! A shape can be [sealed](Shape::seal) to be kept beside the bytes, so that a content that is read
//! again from disk is not passed over to be indexed.

mod sealed;

use std::ops::Range;

use super::index::Index;
use super::pages::PageTables;
use super::place::{Data, Opened, OpenedBytes};
use super::{Content, Reader, Unreadable};
pub(super) use sealed::Sealed;

/// Contents of at most so many bytes have no sealed index: they are read whole and indexed in
/// microseconds.
pub(super) const UNSEALED_BYTES: u64 = 64 << 10;

#[derive(Debug)]
pub(super) enum Shape {
    Text { index: Index, pages: PageTables },
    Binary { len: usize },
}

impl Shape {
    /// One pass over a text of ASCII, two over any other.
    pub(super) fn of(data: &Data) -> Self {
        match data {
            Data::Text(text) => Self::Text {
                index: Index::new(text),
                pages: PageTables::default(),
            },
            Data::Binary(bytes) => Self::Binary { len: bytes.len() },
        }
    }

    /// How long the shown text is, in bytes.
    pub(super) fn shown_len(&self) -> usize {
        match self {
            Self::Text { index, .. } => index.len(),
            Self::Binary { len } => len.div_ceil(3) * 4,
        }
    }

    pub(super) fn total_chars(&self) -> u64 {
        match self {
            Self::Text { index, .. } => index.total_chars(),
            Self::Binary { .. } => self.shown_len() as u64,
        }
    }

    pub(super) fn total_lines(&self) -> u64 {
        match self {
            Self::Text { index, .. } => index.total_lines(),
            Self::Binary { .. } => 1,
        }
    }

    pub(super) fn line_of(&self, opened: &Opened<'_>, byte: usize) -> Result<u64, Unreadable> {
        match self {
            Self::Text { index, .. } => index.line_of(byte, |range| opened.bytes(range)),
            Self::Binary { .. } => Ok(1),
        }
    }

    pub(super) fn line_start(&self, opened: &Opened<'_>, line: u64) -> Result<usize, Unreadable> {
        match self {
            Self::Text { index, .. } => index.line_start(line, |range| opened.bytes(range)),
            Self::Binary { .. } => Ok(if line < 2 { 0 } else { self.shown_len() }),
        }
    }

    pub(super) fn char_of(&self, opened: &Opened<'_>, byte: usize) -> Result<u64, Unreadable> {
        match self {
            Self::Text { index, .. } => index.char_of(byte, |range| opened.bytes(range)),
            Self::Binary { .. } => Ok(byte as u64),
        }
    }

    pub(super) fn char_start(&self, opened: &Opened<'_>, char: u64) -> Result<usize, Unreadable> {
        match self {
            Self::Text { index, .. } => index.char_start(char, |range| opened.bytes(range)),
            Self::Binary { .. } => {
                Ok(usize::try_from(char)
                    .map_or(self.shown_len(), |char| char.min(self.shown_len())))
            }
        }
    }

    /// What it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text { index, pages } => index.bytes() + pages.bytes(),
            Self::Binary { .. } => 0,
        }
    }
}

impl Reader<'_> {
    /// Known already, or sealed beside the bytes, or made of them.
    pub(super) fn shape(&self) -> Result<&Shape, Unreadable> {
        let content = self.content();
        if let Some(shape) = content.inner.shape.get() {
            return Ok(shape);
        }
        let len = usize::try_from(content.len_bytes()).map_err(|_| Unreadable::contradiction())?;
        let opened = self.open()?;
        let sealed = match opened.kind() {
            OpenedBytes::Stored(backing) if content.len_bytes() > UNSEALED_BYTES => backing.index(),
            _ => None,
        };
        let made = match sealed.and_then(|sealed| Shape::unseal(&sealed, len)) {
            Some(shape) => shape,
            None => Shape::of(&Data::new(opened.bytes(0..len)?)),
        };
        Ok(content.inner.shape.get_or_init(|| made.into()))
    }
}

impl Content {
    /// What is needed to serve reads without a pass over the bytes: whether it is text, its index,
    /// and the tables of those page sizes that were asked for so far. Empty for contents of 64 KiB
    /// and less, and for those that are stored and were never read. Some 0.1 % of the bytes. O(what
    /// it takes).
    #[must_use]
    pub fn sealed_index(&self) -> bytes::Bytes {
        match self.inner.shape.get() {
            Some(shape) if self.len_bytes() > UNSEALED_BYTES => shape.seal(),
            _ => bytes::Bytes::new(),
        }
    }

    /// What finding lines, characters and pages takes beside the text, in bytes: the index, and the
    /// tables of those page sizes that were asked for. Less than a byte for a line of 80
    /// characters, and 8 for a page. 0 for binary content, and for what is stored and was never
    /// read. O(tables).
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.inner.shape.get().map_or(0, |shape| shape.bytes())
    }
}

/// The bytes around a part that tell on which lines it stands: from the beginning of the block that
/// the byte before it is in.
pub(super) fn around(range: &Range<usize>) -> Range<usize> {
    Index::block_start(range.start.saturating_sub(1))..range.end
}
