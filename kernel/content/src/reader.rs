//! Reading a content: its size, parts of it, and positions in it.
//!
//! The *shown text* of a content is the text itself, its decoded text, or the base64 of a binary
//! content.
//!
//! Each call reads only the bytes that it needs: one range for a page, a block of a few kilobytes
//! for a position. `text_index.rs` finds these ranges, `location.rs` reads them from memory or from
//! the store. If the content is on disk, every call can fail.

use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::descriptor::view::Encoding;

use super::decoding;
use super::location::{Data, Location, OpenLocation};
use super::pages::PageTable;
use super::text_index::{MAX_UNINDEXED_BYTES, TextIndex, line_window};
use super::{Content, ReadQuota, Slice, Unreadable};

type Result<T> = std::result::Result<T, Unreadable>;

/// A content together with a [`ReadQuota`]. Cloning costs a pointer.
#[derive(Clone, Debug)]
pub struct Reader<'q> {
    content: Content,
    quota: &'q ReadQuota,
}

impl Content {
    /// A reader with this quota. O(1).
    #[must_use]
    pub fn reader<'q>(&self, quota: &'q ReadQuota) -> Reader<'q> {
        Reader {
            content: self.clone(),
            quota,
        }
    }

    /// A reader without a limit, for hosts and tests. Decisions of the process machine never read.
    #[must_use]
    pub fn unlimited_reader(&self) -> Reader<'static> {
        self.reader(ReadQuota::unlimited())
    }
}

impl<'q> Reader<'q> {
    /// The content of the reader.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn quota(&self) -> &'q ReadQuota {
        self.quota
    }

    /// A reader of another content with the same quota.
    #[must_use]
    pub fn with_content(&self, content: Content) -> Self {
        Self {
            content,
            quota: self.quota,
        }
    }

    /// Charges work that is equivalent to a pass over this many bytes.
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is used up or the work was cancelled.
    pub(crate) fn charge(&self, bytes: usize) -> Result<()> {
        self.quota.charge(bytes)
    }

    fn len_bytes(&self) -> u64 {
        self.content.len_bytes()
    }

    /// All bytes, unchanged. One read for a content on disk.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn bytes(&self) -> Result<Bytes> {
        let len = usize::try_from(self.len_bytes()).map_err(|_| Unreadable::inconsistent())?;
        self.open()?.read_bytes(0..len)
    }

    /// The shown text. Base64 and decoded text are made at each call.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn text(&self) -> Result<ByteString> {
        self.read_shown(0..self.text_index()?.shown_len())
    }

    /// The content with its bytes in memory, for an operation that reads all of them: further calls
    /// do not read from disk.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn loaded(&self) -> Result<Self> {
        if matches!(self.content.location(), Location::Resident(_)) {
            return Ok(self.clone());
        }
        let data = match self.text_index()? {
            TextIndex::Text { decoding: None, .. } => Data::Text(self.text()?),
            _ => Data::Other(self.bytes()?),
        };
        let content = &self.content;
        let text_index = self.content.inner.text_index.get().cloned();
        Ok(self.with_content(Content::build(
            content.len_bytes(),
            Some(content.hash()),
            Location::Resident(data),
            text_index,
        )))
    }

    /// Whether the bytes are not text, and are shown as base64.
    ///
    /// # Errors
    /// [`Unreadable`] if the index is not known and the content cannot be read.
    pub fn is_binary(&self) -> Result<bool> {
        Ok(matches!(self.text_index()?, TextIndex::Binary { .. }))
    }

    /// How the bytes are shown. O(1) once the index is known.
    ///
    /// # Errors
    /// [`Unreadable`] if the index is not known and the content cannot be read.
    pub fn encoding(&self) -> Result<Encoding> {
        let text_index = self.text_index()?;
        Ok(match (text_index, text_index.decoding()) {
            (TextIndex::Binary { .. }, _) => Encoding::Base64,
            (TextIndex::Text { .. }, None) => Encoding::Text,
            (TextIndex::Text { .. }, Some(decoding)) => Encoding::Decoded {
                from: decoding.from,
                replaced_bytes: decoding.replaced_bytes,
            },
        })
    }

    /// The bytes that a range of the shown text stands for: of a text, that range in its own
    /// encoding; of binary content, all bytes for the whole range, otherwise the base64 text.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read or the range is invalid.
    pub fn original_bytes(&self, range: Range<usize>) -> Result<Bytes> {
        let text_index = self.text_index()?;
        if range.len() == text_index.shown_len() {
            return self.bytes();
        }
        match text_index.decoding() {
            Some(decoding) => decoding.read_original(&self.open()?, range),
            None => Ok(self.read_shown(range)?.into_bytes()),
        }
    }

    /// Characters of the shown text. O(1) once the index is known.
    ///
    /// # Errors
    /// [`Unreadable`] if the index is not known and the content cannot be read.
    pub fn total_chars(&self) -> Result<u64> {
        self.text_index().map(TextIndex::total_chars)
    }

    /// Lines of the shown text, at least one. O(1) once the index is known.
    ///
    /// # Errors
    /// [`Unreadable`] if the index is not known and the content cannot be read.
    pub fn total_lines(&self) -> Result<u64> {
        self.text_index().map(TextIndex::total_lines)
    }

    /// Number of pages of at most `page_chars` characters, at least one.
    ///
    /// # Errors
    /// [`Unreadable`] if there is no page table and the content cannot be read to build one.
    pub fn total_pages(&self, page_chars: u32) -> Result<u64> {
        self.page_table(page_chars).map(|table| table.len())
    }

    /// Builds the page table for this page size if the bytes are in memory, so that it becomes part
    /// of the [serialized index](crate::Content::serialized_index).
    pub fn prepare_page_table(&self, page_chars: u32) {
        if self.content.is_resident() && self.len_bytes() > MAX_UNINDEXED_BYTES {
            // If the content was evicted in the meantime, the table is built when it is needed.
            let _ = self.page_table(page_chars);
        }
    }

    /// A page, counted from 1. `None` if there is no such page.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn page(&self, page_chars: u32, page: u64) -> Result<Option<Slice>> {
        self.pages(page_chars, page, 1)
    }

    /// `count` pages from page `first`, joined; fewer at the end of the content. `None` if there is
    /// no page `first`, or `count` is 0.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn pages(&self, page_chars: u32, first: u64, count: u64) -> Result<Option<Slice>> {
        self.pages_at(page_chars, first, count)?
            .map(|bytes| self.slice(bytes))
            .transpose()
    }

    /// Byte range of these pages in the shown text.
    ///
    /// # Errors
    /// Same as [`total_pages`](Self::total_pages).
    pub fn pages_at(
        &self,
        page_chars: u32,
        first: u64,
        count: u64,
    ) -> Result<Option<Range<usize>>> {
        let table = self.page_table(page_chars)?;
        let len = self.text_index()?.shown_len();
        let end_page = first.saturating_add(count);
        let bytes = table
            .start(first)
            .map(|start| start..table.start(end_page).unwrap_or(len));
        Ok(bytes.filter(|_| count > 0))
    }

    /// `count` lines from line `first`, counted from 1; fewer at the end of the content. `None` if
    /// there is no line `first`, or `count` is 0.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn lines(&self, first: u64, count: u64) -> Result<Option<Slice>> {
        self.lines_at(first, count)?
            .map(|bytes| self.slice(bytes))
            .transpose()
    }

    /// Byte range of these lines in the shown text.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn lines_at(&self, first: u64, count: u64) -> Result<Option<Range<usize>>> {
        if first < 1 || first > self.total_lines()? || count < 1 {
            return Ok(None);
        }
        let text_index = self.text_index()?;
        let open_content = self.open()?;
        let end = text_index.line_start(&open_content, first.saturating_add(count))?;
        Ok(Some(text_index.line_start(&open_content, first)?..end))
    }

    /// `count` characters from character `first`, counted from 0; fewer at the end of the content.
    /// `None` if there is no character `first`, or `count` is 0. Empty content has an empty part at
    /// 0.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn chars(&self, first: u64, count: u64) -> Result<Option<Slice>> {
        self.chars_at(first, count)?
            .map(|bytes| self.slice(bytes))
            .transpose()
    }

    /// Byte range of these characters in the shown text.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn chars_at(&self, first: u64, count: u64) -> Result<Option<Range<usize>>> {
        let total = self.total_chars()?;
        if (first >= total && first > 0) || count < 1 {
            return Ok(None);
        }
        let text_index = self.text_index()?;
        let open_content = self.open()?;
        let end = text_index.char_start(&open_content, first.saturating_add(count).min(total))?;
        Ok(Some(text_index.char_start(&open_content, first)?..end))
    }

    /// The whole shown text.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn all(&self) -> Result<Slice> {
        self.slice(0..self.text_index()?.shown_len())
    }

    /// Length of the shown text in bytes.
    ///
    /// # Errors
    /// [`Unreadable`] if the index is not known and the content cannot be read.
    pub fn shown_bytes(&self) -> Result<usize> {
        self.text_index().map(TextIndex::shown_len)
    }

    /// The part at this byte range of the shown text. Both ends must be character boundaries.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read or the range is invalid.
    pub fn slice(&self, bytes: Range<usize>) -> Result<Slice> {
        let text_index = self.text_index()?;
        let open_content = self.open()?;
        let len = text_index.shown_len();
        if bytes.start > bytes.end || bytes.end > len {
            return Err(Unreadable::inconsistent());
        }
        let Range {
            start: start_byte,
            end,
        } = bytes;
        let TextIndex::Text {
            index, decoding, ..
        } = text_index
        else {
            let text = open_content.read_base64(bytes, self.len_bytes() as usize)?;
            let continued = start_byte > 0;
            let truncated = end < len;
            return Ok(Slice {
                text,
                first_line: 1,
                last_line: 1,
                continued,
                truncated,
                start_byte,
            });
        };
        // One read covers the text and the start of its block, from which the line numbers follow.
        let window_range = line_window(&bytes);
        let window = text_index.read_shown_bytes(&open_content, window_range.clone())?;
        let window_slice = |bytes: Range<usize>| {
            Ok(window.slice(bytes.start - window_range.start..bytes.end - window_range.start))
        };
        let last_byte = if bytes.is_empty() {
            start_byte
        } else {
            end - 1
        };
        let text = match (open_content.location(), decoding) {
            (OpenLocation::Resident(_), None) => open_content.read_text(bytes)?,
            _ => decoding::to_text(window_slice(bytes)?)?,
        };
        Ok(Slice {
            first_line: index.line_at(start_byte, window_slice)?,
            last_line: index.line_at(last_byte, window_slice)?,
            continued: start_byte > 0 && window[start_byte - 1 - window_range.start] != b'\n',
            truncated: end < len && !text.ends_with('\n'),
            text,
            start_byte,
        })
    }

    /// The part at this byte range of the shown text, as a content of its own that shares the
    /// bytes. The whole range yields the same content without a read. A part of a binary
    /// or decoded content is a part of its shown text.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read or the range is invalid.
    pub fn extract(&self, bytes: Range<usize>) -> Result<Content> {
        if bytes.len() == self.text_index()?.shown_len() {
            return Ok(self.content.clone());
        }
        let part = Content::from_text(self.read_shown(bytes)?);
        part.inner.access.mark_as_slice();
        Ok(part)
    }

    /// The number of the character at a byte of the shown text, from 0. O(log n).
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn char_at(&self, byte: usize) -> Result<u64> {
        self.text_index()?.char_at(&self.open()?, byte)
    }

    /// The byte at which a character, counted from 0, starts in the shown text; the length of the
    /// text past the last one. O(log n).
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn byte_at(&self, char: u64) -> Result<usize> {
        self.text_index()?.char_start(&self.open()?, char)
    }

    /// The line of a byte of the shown text, from 1. O(log n).
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn line_at(&self, byte: usize) -> Result<u64> {
        self.text_index()?.line_at(&self.open()?, byte)
    }

    /// The byte at which a line, counted from 1, starts in the shown text; the length of the text
    /// past the last one. O(log n).
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes cannot be read.
    pub fn line_start(&self, line: u64) -> Result<usize> {
        self.text_index()?.line_start(&self.open()?, line)
    }

    /// The page of a byte of the shown text, from 1. O(log n).
    ///
    /// # Errors
    /// Same as [`total_pages`](Self::total_pages).
    pub fn page_at(&self, page_chars: u32, byte: usize) -> Result<u64> {
        self.page_table(page_chars).map(|table| table.page_at(byte))
    }

    /// Reads a byte range of the shown text.
    fn read_shown(&self, bytes: Range<usize>) -> Result<ByteString> {
        let open_content = self.open()?;
        match self.text_index()? {
            TextIndex::Text { decoding: None, .. } => open_content.read_text(bytes),
            TextIndex::Text {
                decoding: Some(decoding),
                ..
            } => decoding::to_text(decoding.read(&open_content, bytes)?),
            TextIndex::Binary { len } => open_content.read_base64(bytes, *len),
        }
    }

    fn page_table(&self, page_chars: u32) -> Result<PageStarts<'_>> {
        let page_chars = page_chars.max(1);
        let (index, pages) = match self.text_index()? {
            TextIndex::Text { index, pages, .. } => (index, pages),
            text_index @ TextIndex::Binary { .. } => {
                return Ok(PageStarts::EqualSize {
                    page_chars: page_chars as usize,
                    len: text_index.shown_len(),
                });
            }
        };
        match pages.find(page_chars) {
            Some(table) => Ok(PageStarts::Table(table)),
            None => Ok(PageStarts::Table(pages.find_or_build(
                page_chars,
                &self.text()?,
                index.is_ascii(),
            ))),
        }
    }
}

/// Where pages start.
enum PageStarts<'a> {
    Table(&'a PageTable),
    /// Pages of equal size: the base64 text is a single ASCII line.
    EqualSize {
        page_chars: usize,
        len: usize,
    },
}

impl PageStarts<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Table(table) => table.len(),
            Self::EqualSize { page_chars, len } => len.div_ceil(*page_chars).max(1) as u64,
        }
    }

    fn start(&self, page: u64) -> Option<usize> {
        match self {
            Self::Table(table) => table.start(page),
            Self::EqualSize { page_chars, .. } if (1..=self.len()).contains(&page) => {
                Some((page as usize - 1) * page_chars)
            }
            Self::EqualSize { .. } => None,
        }
    }

    fn page_at(&self, byte: usize) -> u64 {
        match self {
            Self::Table(table) => table.page_at(byte),
            Self::EqualSize { page_chars, .. } => self.len().min((byte / page_chars) as u64 + 1),
        }
    }
}
