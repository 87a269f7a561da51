//! Reading a content: its extent, parts of it, and places in it.
//!
//! Each call reads the parts of the bytes that it needs and no more: a page is one read, a place a
//! block of a few kilobytes. All of them can fail where the content is stored, and none where it is
//! in memory.

use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;

use super::pages::PageTable;
use super::place::{Data, OpenedBytes, Place};
use super::shape::{Shape, UNSEALED_BYTES, around};
use super::{Content, ReadQuota, Slice, Unreadable};

type Read<T> = Result<T, Unreadable>;

/// A content that can be read, as far as a [`ReadQuota`] allows. Cloning costs a pointer.
#[derive(Clone, Debug)]
pub struct Reader<'q> {
    content: Content,
    quota: &'q ReadQuota,
}

impl Content {
    /// The content for reading within this quota. O(1).
    #[must_use]
    pub fn reader<'q>(&self, quota: &'q ReadQuota) -> Reader<'q> {
        Reader {
            content: self.clone(),
            quota,
        }
    }

    /// The content for reading without bounds, also from disk. For a host or a test: a decision
    /// never reads.
    #[must_use]
    pub fn unbounded(&self) -> Reader<'static> {
        self.reader(ReadQuota::unlimited())
    }
}

impl<'q> Reader<'q> {
    /// What is read.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn quota(&self) -> &'q ReadQuota {
        self.quota
    }

    /// Another content, within the same quota.
    #[must_use]
    pub fn of(&self, content: Content) -> Self {
        Self {
            content,
            quota: self.quota,
        }
    }

    /// Takes work that is as much as a pass over so many bytes off the quota.
    ///
    /// # Errors
    /// It is used up, or the work was cancelled.
    pub(crate) fn charge(&self, bytes: usize) -> Read<()> {
        self.quota.charge(bytes)
    }

    fn len_bytes(&self) -> u64 {
        self.content.len_bytes()
    }

    /// The exact bytes: all of them, which of what is stored is one read.
    ///
    /// # Errors
    /// A part of them is lost.
    pub fn bytes(&self) -> Read<Bytes> {
        let len = usize::try_from(self.len_bytes()).map_err(|_| Unreadable::contradiction())?;
        self.open()?.bytes(0..len)
    }

    /// The text that is shown and paged: the content itself, or the base64 of binary content, which
    /// is made anew each time.
    ///
    /// # Errors
    /// A part of it is lost.
    pub fn text(&self) -> Read<ByteString> {
        self.shown(0..self.shape()?.shown_len())
    }

    /// The same content with its bytes at hand, for an operation that looks at all of it: what is
    /// asked of the result is answered without another read of what is stored.
    ///
    /// # Errors
    /// A part of it is lost.
    pub fn loaded(&self) -> Read<Self> {
        if matches!(self.content.place(), Place::Here(_)) {
            return Ok(self.clone());
        }
        let data = match self.shape()? {
            Shape::Text { .. } => Data::Text(self.text()?),
            Shape::Binary { .. } => Data::Binary(self.bytes()?),
        };
        let (content, shape) = (&self.content, self.content.inner.shape.get().cloned());
        Ok(self.of(Content::made(
            content.len_bytes(),
            Some(content.hash()),
            Place::Here(data),
            shape,
        )))
    }

    /// Whether the bytes are not UTF-8.
    ///
    /// # Errors
    /// It was never read, and cannot be.
    pub fn is_binary(&self) -> Read<bool> {
        Ok(matches!(self.shape()?, Shape::Binary { .. }))
    }

    /// Characters of the shown text. O(1), once the index is at hand.
    ///
    /// # Errors
    /// It was never read, and cannot be.
    pub fn total_chars(&self) -> Read<u64> {
        self.shape().map(Shape::total_chars)
    }

    /// Lines of the shown text, at least one. O(1), once the index is at hand.
    ///
    /// # Errors
    /// It was never read, and cannot be.
    pub fn total_lines(&self) -> Read<u64> {
        self.shape().map(Shape::total_lines)
    }

    /// Pages of at most `page_chars` characters, at least one.
    ///
    /// # Errors
    /// The table of pages is not at hand, and the content cannot be read to make it.
    pub fn total_pages(&self, page_chars: u32) -> Read<u64> {
        self.table(page_chars).map(|table| table.len())
    }

    /// Makes the table of pages of this size where there is none and the bytes are in memory, so
    /// that it is [sealed](crate::Content::sealed_index) with them.
    pub fn prepare(&self, page_chars: u32) {
        if self.content.is_resident() && self.len_bytes() > UNSEALED_BYTES {
            // Where the bytes have left since, it is made when it is needed.
            let _ = self.table(page_chars);
        }
    }

    /// A page, counted from 1. None if there is no such page.
    ///
    /// # Errors
    /// What it takes to serve it is lost.
    pub fn page(&self, page_chars: u32, page: u64) -> Read<Option<Slice>> {
        self.pages(page_chars, page, 1)
    }

    /// `count` pages from page `first`, joined; fewer if the content ends before. None if there is
    /// no page `first`, or `count` is 0.
    ///
    /// # Errors
    /// What it takes to serve them is lost.
    pub fn pages(&self, page_chars: u32, first: u64, count: u64) -> Read<Option<Slice>> {
        self.pages_at(page_chars, first, count)?
            .map(|bytes| self.slice(bytes))
            .transpose()
    }

    /// Where such pages stand in the shown text, in bytes.
    ///
    /// # Errors
    /// As [`total_pages`](Self::total_pages).
    pub fn pages_at(&self, page_chars: u32, first: u64, count: u64) -> Read<Option<Range<usize>>> {
        let (table, len) = (self.table(page_chars)?, self.shape()?.shown_len());
        let after = first.saturating_add(count);
        let bytes = table
            .start(first)
            .map(|start| start..table.start(after).unwrap_or(len));
        Ok(bytes.filter(|_| count > 0))
    }

    /// `count` lines from line `first`, counted from 1; fewer if the content ends before. None if
    /// there is no line `first`, or `count` is 0.
    ///
    /// # Errors
    /// What it takes to serve them is lost.
    pub fn lines(&self, first: u64, count: u64) -> Read<Option<Slice>> {
        self.lines_at(first, count)?
            .map(|bytes| self.slice(bytes))
            .transpose()
    }

    /// Where such lines stand in the shown text, in bytes.
    ///
    /// # Errors
    /// What it takes to find them is lost.
    pub fn lines_at(&self, first: u64, count: u64) -> Read<Option<Range<usize>>> {
        if first < 1 || first > self.total_lines()? || count < 1 {
            return Ok(None);
        }
        let (shape, opened) = (self.shape()?, self.open()?);
        let end = shape.line_start(&opened, first.saturating_add(count))?;
        Ok(Some(shape.line_start(&opened, first)?..end))
    }

    /// `count` characters from character `first`, counted from 0; fewer if the content ends before.
    /// None if there is no character `first`, or `count` is 0. Empty content serves its empty text
    /// from 0.
    ///
    /// # Errors
    /// What it takes to serve them is lost.
    pub fn chars(&self, first: u64, count: u64) -> Read<Option<Slice>> {
        self.chars_at(first, count)?
            .map(|bytes| self.slice(bytes))
            .transpose()
    }

    /// Where such characters stand in the shown text, in bytes.
    ///
    /// # Errors
    /// What it takes to find them is lost.
    pub fn chars_at(&self, first: u64, count: u64) -> Read<Option<Range<usize>>> {
        let total = self.total_chars()?;
        if (first >= total && first > 0) || count < 1 {
            return Ok(None);
        }
        let (shape, opened) = (self.shape()?, self.open()?);
        let end = shape.char_start(&opened, first.saturating_add(count).min(total))?;
        Ok(Some(shape.char_start(&opened, first)?..end))
    }

    /// Everything.
    ///
    /// # Errors
    /// A part of it is lost.
    pub fn all(&self) -> Read<Slice> {
        self.slice(0..self.shape()?.shown_len())
    }

    /// How long the shown text is, in bytes.
    ///
    /// # Errors
    /// It was never read, and cannot be.
    pub fn shown_bytes(&self) -> Read<usize> {
        self.shape().map(Shape::shown_len)
    }

    /// The part at these bytes of the shown text. Both ends must be at character boundaries.
    ///
    /// # Errors
    /// They are lost, or are no such bytes.
    pub fn slice(&self, bytes: Range<usize>) -> Read<Slice> {
        let (shape, opened) = (self.shape()?, self.open()?);
        let len = shape.shown_len();
        if bytes.start > bytes.end || bytes.end > len {
            return Err(Unreadable::contradiction());
        }
        let Range {
            start: start_byte,
            end,
        } = bytes;
        let Shape::Text { index, .. } = shape else {
            let text = opened.base64(bytes, self.len_bytes() as usize)?;
            let (continued, truncated) = (start_byte > 0, end < len);
            return Ok(Slice {
                text,
                first_line: 1,
                last_line: 1,
                continued,
                truncated,
                start_byte,
            });
        };
        // One read for the text and for the lines that it stands on.
        let read = around(&bytes);
        let window = opened.bytes(read.clone())?;
        let within = |bytes: Range<usize>| {
            Ok(window.slice(bytes.start - read.start..bytes.end - read.start))
        };
        let last = if bytes.is_empty() {
            start_byte
        } else {
            end - 1
        };
        let text = match opened.kind() {
            OpenedBytes::Here(_) => opened.text(bytes)?,
            OpenedBytes::Stored(_) => {
                ByteString::try_from(within(bytes)?).map_err(|_| Unreadable::contradiction())?
            }
        };
        Ok(Slice {
            first_line: index.line_of(start_byte, within)?,
            last_line: index.line_of(last, within)?,
            continued: start_byte > 0 && window[start_byte - 1 - read.start] != b'\n',
            truncated: end < len && !text.ends_with('\n'),
            text,
            start_byte,
        })
    }

    /// The part at these bytes of the shown text as a content of its own. It shares the bytes; the
    /// whole of a content is the same content, binary or not, and is not read. A part of a binary
    /// content is a part of its base64 text.
    ///
    /// # Errors
    /// They are lost, or are no such bytes.
    pub fn extract(&self, bytes: Range<usize>) -> Read<Content> {
        if bytes.len() == self.shape()?.shown_len() {
            return Ok(self.content.clone());
        }
        let part = Content::from_text(self.shown(bytes)?);
        part.inner.stamp.set_part();
        Ok(part)
    }

    /// The number of the character at a byte of the shown text, from 0. O(log n).
    ///
    /// # Errors
    /// What it takes to tell is lost.
    pub fn char_at(&self, byte: usize) -> Read<u64> {
        self.shape()?.char_of(&self.open()?, byte)
    }

    /// The byte in the shown text at which a character, counted from 0, begins; its length beyond
    /// the last one. O(log n).
    ///
    /// # Errors
    /// What it takes to tell is lost.
    pub fn byte_at(&self, char: u64) -> Read<usize> {
        self.shape()?.char_start(&self.open()?, char)
    }

    /// The line, from 1, of a byte of the shown text. O(log n).
    ///
    /// # Errors
    /// What it takes to tell is lost.
    pub fn line_at(&self, byte: usize) -> Read<u64> {
        self.shape()?.line_of(&self.open()?, byte)
    }

    /// The byte in the shown text at which a line, counted from 1, begins; its length beyond the
    /// last one. O(log n).
    ///
    /// # Errors
    /// What it takes to tell is lost.
    pub fn line_start(&self, line: u64) -> Read<usize> {
        self.shape()?.line_start(&self.open()?, line)
    }

    /// The page, from 1, of a byte of the shown text. O(log n).
    ///
    /// # Errors
    /// As [`total_pages`](Self::total_pages).
    pub fn page_at(&self, page_chars: u32, byte: usize) -> Read<u64> {
        self.table(page_chars).map(|table| table.page_of(byte))
    }

    fn shown(&self, bytes: Range<usize>) -> Read<ByteString> {
        let opened = self.open()?;
        match self.shape()? {
            Shape::Text { .. } => opened.text(bytes),
            Shape::Binary { len } => opened.base64(bytes, *len),
        }
    }

    fn table(&self, page_chars: u32) -> Read<Pages<'_>> {
        let page_chars = page_chars.max(1);
        let (index, pages) = match self.shape()? {
            Shape::Text { index, pages } => (index, pages),
            shape @ Shape::Binary { .. } => {
                return Ok(Pages::Even {
                    page_chars: page_chars as usize,
                    len: shape.shown_len(),
                });
            }
        };
        match pages.find(page_chars) {
            Some(table) => Ok(Pages::Table(table)),
            None => Ok(Pages::Table(pages.of_size(
                page_chars,
                &self.text()?,
                index.is_ascii(),
            ))),
        }
    }
}

/// Where pages begin.
enum Pages<'a> {
    Table(&'a PageTable),
    /// Of one line of ASCII.
    Even {
        page_chars: usize,
        len: usize,
    },
}

impl Pages<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Table(table) => table.len(),
            Self::Even { page_chars, len } => len.div_ceil(*page_chars).max(1) as u64,
        }
    }

    fn start(&self, page: u64) -> Option<usize> {
        match self {
            Self::Table(table) => table.start(page),
            Self::Even { page_chars, .. } if (1..=self.len()).contains(&page) => {
                Some((page as usize - 1) * page_chars)
            }
            Self::Even { .. } => None,
        }
    }

    fn page_of(&self, byte: usize) -> u64 {
        match self {
            Self::Table(table) => table.page_of(byte),
            Self::Even { page_chars, .. } => self.len().min((byte / page_chars) as u64 + 1),
        }
    }
}
