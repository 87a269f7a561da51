//! The text index: finds pages, lines and characters of a content without a pass over it.
//!
//! For text it consists of the line and character index and the page tables that were built, and
//! for text in another encoding of where its blocks start. The base64 of a binary content is one
//! ASCII line, so that everything follows from its length.
//!
//! The index can be [serialized](TextIndex::serialize) and stored next to the bytes, so that a
//! content which is read from disk again does not have to be indexed.

mod serialized;

use std::ops::Range;

use bytes::Bytes;

use super::decoding::Decoding;
use super::detection::{SAMPLE_BYTES, detect, is_utf16_by_content};
use super::index::PositionIndex;
use super::location::{Data, OpenContent, OpenLocation};
use super::pages::PageTables;
use super::{Content, Reader, Unreadable};
pub(super) use serialized::IndexReader;

/// Contents up to this size have no serialized index: they are read as a whole and indexed in
/// microseconds.
pub(super) const MAX_UNINDEXED_BYTES: u64 = 64 << 10;

/// The index of one content.
#[derive(Debug)]
pub(super) enum TextIndex {
    Text {
        index: PositionIndex,
        pages: PageTables,
        /// How the text is decoded, if it is not the bytes themselves.
        decoding: Option<Box<Decoding>>,
    },
    Binary {
        len: usize,
    },
}

impl TextIndex {
    /// Builds the index. One pass over ASCII text, two over other text; a few more if the text is
    /// decoded.
    pub(super) fn new(data: &Data) -> Self {
        match data {
            Data::Text(text) => Self::of_text(text, None),
            Data::Other(bytes) => match detect(bytes) {
                Some(from) => {
                    let (decoding, text) = Decoding::decode(bytes, from);
                    Self::of_text(&text, Some(decoding.into()))
                }
                None => Self::Binary { len: bytes.len() },
            },
        }
    }

    fn of_text(text: &str, decoding: Option<Box<Decoding>>) -> Self {
        Self::Text {
            index: PositionIndex::new(text),
            pages: PageTables::default(),
            decoding,
        }
    }

    /// How the text is decoded, if it is.
    pub(super) fn decoding(&self) -> Option<&Decoding> {
        match self {
            Self::Text { decoding, .. } => decoding.as_deref(),
            Self::Binary { .. } => None,
        }
    }

    /// Reads bytes of a text as it is shown. They may begin or end within a character.
    pub(super) fn read_shown_bytes(
        &self,
        open_content: &OpenContent<'_>,
        range: Range<usize>,
    ) -> Result<Bytes, Unreadable> {
        match self.decoding() {
            None => open_content.read_bytes(range),
            Some(decoding) => decoding.read(open_content, range),
        }
    }

    /// Length of the shown text in bytes.
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

    pub(super) fn line_at(
        &self,
        open_content: &OpenContent<'_>,
        byte: usize,
    ) -> Result<u64, Unreadable> {
        match self {
            Self::Text { index, .. } => {
                index.line_at(byte, |range| self.read_shown_bytes(open_content, range))
            }
            Self::Binary { .. } => Ok(1),
        }
    }

    pub(super) fn line_start(
        &self,
        open_content: &OpenContent<'_>,
        line: u64,
    ) -> Result<usize, Unreadable> {
        match self {
            Self::Text { index, .. } => {
                index.line_start(line, |range| self.read_shown_bytes(open_content, range))
            }
            Self::Binary { .. } => Ok(if line < 2 { 0 } else { self.shown_len() }),
        }
    }

    pub(super) fn char_at(
        &self,
        open_content: &OpenContent<'_>,
        byte: usize,
    ) -> Result<u64, Unreadable> {
        match self {
            Self::Text { index, .. } => {
                index.char_at(byte, |range| self.read_shown_bytes(open_content, range))
            }
            Self::Binary { .. } => Ok(byte as u64),
        }
    }

    pub(super) fn char_start(
        &self,
        open_content: &OpenContent<'_>,
        char: u64,
    ) -> Result<usize, Unreadable> {
        match self {
            Self::Text { index, .. } => {
                index.char_start(char, |range| self.read_shown_bytes(open_content, range))
            }
            Self::Binary { .. } => {
                Ok(usize::try_from(char)
                    .map_or(self.shown_len(), |char| char.min(self.shown_len())))
            }
        }
    }

    /// Memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text {
                index,
                pages,
                decoding,
            } => {
                let decoding_bytes = decoding.as_deref().map_or(0, Decoding::bytes);
                index.bytes() + pages.bytes() + decoding_bytes
            }
            Self::Binary { .. } => 0,
        }
    }
}

impl Reader<'_> {
    /// The index: cached, or deserialized from disk, or built from the bytes.
    pub(super) fn text_index(&self) -> Result<&TextIndex, Unreadable> {
        let content = self.content();
        if let Some(text_index) = content.inner.text_index.get() {
            return Ok(text_index);
        }
        let len = usize::try_from(content.len_bytes()).map_err(|_| Unreadable::inconsistent())?;
        let open_content = self.open()?;
        let serialized = match open_content.location() {
            OpenLocation::OnDisk(blob) if content.len_bytes() > MAX_UNINDEXED_BYTES => blob.index(),
            _ => None,
        };
        let is_utf16 = || {
            let sample = open_content.read_bytes(0..SAMPLE_BYTES.min(len));
            sample.is_ok_and(|sample| is_utf16_by_content(&sample))
        };
        let text_index = serialized.and_then(|bytes| TextIndex::deserialize(&bytes, len, is_utf16));
        let index = match text_index {
            Some(text_index) => text_index,
            None => TextIndex::new(&Data::new(open_content.read_bytes(0..len)?)),
        };
        Ok(content.inner.text_index.get_or_init(|| index.into()))
    }
}

impl Content {
    /// The serialized index: text or binary, line and character index, and the page tables built so
    /// far. Empty for contents up to 64 KiB, for contents on disk that were never read, and for
    /// decoded text, which is indexed again. About 0.1 % of the bytes. O(its size).
    #[must_use]
    pub fn serialized_index(&self) -> Bytes {
        match self.inner.text_index.get() {
            Some(text_index) if self.len_bytes() > MAX_UNINDEXED_BYTES => text_index.serialize(),
            _ => Bytes::new(),
        }
    }

    /// Memory of the index and the page tables, in bytes: less than a byte per line of 80
    /// characters, and 8 per page. 0 for binary content, and for contents on disk that were never
    /// read. O(tables).
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.inner
            .text_index
            .get()
            .map_or(0, |text_index| text_index.bytes())
    }
}

/// The byte range that is needed to number the lines of a part: from the start of the block that
/// contains the byte before it.
pub(super) fn line_window(range: &Range<usize>) -> Range<usize> {
    PositionIndex::block_start(range.start.saturating_sub(1))..range.end
}
