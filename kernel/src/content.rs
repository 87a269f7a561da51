//! Content: immutable bytes that are read by pages, lines and characters.
//!
//! Bytes that are UTF-8 are text; others are binary and shown as base64, and then pages, lines and characters are those of
//! the base64 text. The unit is the Unicode scalar value; only LF ends a line, a final LF opens no further one, and empty
//! content is one page and one line (ruling 3 of the design).
//!
//! Creating a text content checks and indexes it in one go, close to memory bandwidth. After that nothing scans it from
//! its start: any page, line or character range costs O(log n + what is returned). A table of pages is made when a page
//! size is first asked for, in one pass, and kept; so are the reformatted text of JSON and an outline of its [`units`].
//!
//! This module never copies text to serve or extract it, and never changes a content (FD-2).

mod builder;
mod chars;
mod index;
mod pages;
mod pretty;
mod slice;
mod stored;
pub mod units;

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;

pub use builder::{Builder, Collected};
use index::Index;
use pages::PageTables;
pub use pretty::PrettyError;
pub use slice::Slice;
pub use stored::{Backing, Source, Unreadable};
use units::Outlines;

/// Immutable bytes with an index. Cloning costs a pointer; equal if the bytes are.
#[derive(Clone)]
pub struct Content {
    inner: Arc<Inner>,
}

struct Inner {
    data: Data,
    hash: OnceLock<ContentHash>,
    pretty: OnceLock<Result<Content, PrettyError>>,
}

enum Data {
    Text(Text),
    /// The shown text is made when it is first asked for.
    Binary(Bytes, OnceLock<Text>),
}

/// The text that is shown, with what is known of it.
struct Text {
    text: ByteString,
    index: Index,
    pages: PageTables,
    outlines: Outlines,
}

impl Text {
    fn new(text: ByteString) -> Self {
        let index = Index::new(&text);
        Self { text, index, pages: PageTables::default(), outlines: Outlines::default() }
    }
}

/// A text as the owner of bytes.
struct Shared(Arc<str>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Content {
    /// A content of these bytes. Never fails: what is not UTF-8 is binary. O(n), at memory bandwidth.
    #[must_use]
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        match ByteString::try_from(bytes.clone()) {
            Ok(text) => Self::from_text(text),
            Err(_) => Self::from_data(Data::Binary(bytes, OnceLock::new())),
        }
    }

    /// A content of a text that others hold as well: nothing is copied. O(n), at memory bandwidth.
    #[must_use]
    pub fn shared(text: Arc<str>) -> Self {
        Self::new(Bytes::from_owner(Shared(text)))
    }

    fn from_text(text: ByteString) -> Self {
        Self::from_data(Data::Text(Text::new(text)))
    }

    fn from_data(data: Data) -> Self {
        Self { inner: Arc::new(Inner { data, hash: OnceLock::new(), pretty: OnceLock::new() }) }
    }

    fn shown(&self) -> &Text {
        match &self.inner.data {
            Data::Text(text) => text,
            Data::Binary(bytes, shown) => shown.get_or_init(|| Text::new(STANDARD.encode(bytes).into())),
        }
    }

    /// The exact bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        match &self.inner.data {
            Data::Text(text) => text.text.as_bytes(),
            Data::Binary(bytes, _) => bytes,
        }
    }

    /// The text that is shown and paged: the content itself, or the base64 of binary content.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.shown().text
    }

    /// Whether the bytes are not UTF-8.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        matches!(self.inner.data, Data::Binary(..))
    }

    /// JSON reformatted, as a content of its own: paged, searched and read like any other. Only white space differs. It is
    /// made when it is first asked for, in two passes at some 100 MB/s, and kept in memory for as long as this content,
    /// whatever comes of the bytes that it was made from.
    ///
    /// # Errors
    /// It is not JSON, nests too deep, or would grow too much. That is kept as well.
    pub fn pretty(&self) -> Result<&Self, PrettyError> {
        let make = || match &self.inner.data {
            Data::Text(Text { text, .. }) => pretty::pretty(text).map(|text| Self::from_text(text.into())),
            Data::Binary(..) => Err(PrettyError::Binary),
        };
        self.inner.pretty.get_or_init(make).as_ref().map_err(PrettyError::clone)
    }

    /// Whether it may be JSON on a single line: worth [`pretty`](Self::pretty). Looks at its first characters only.
    #[must_use]
    pub fn may_be_json_line(&self) -> bool {
        !self.is_binary() && self.total_lines() == 1 && pretty::may_be_json(self.text())
    }

    /// The BLAKE3 hash of the bytes. O(n) when first asked for, kept afterwards.
    #[must_use]
    pub fn hash(&self) -> ContentHash {
        *self.inner.hash.get_or_init(|| ContentHash(*blake3::hash(self.bytes()).as_bytes()))
    }

    /// The content by name. Costs what [`hash`](Self::hash) costs.
    #[must_use]
    pub fn reference(&self) -> ContentRef {
        ContentRef { hash: self.hash(), len: self.bytes().len() as u64 }
    }

    /// Characters of the shown text. O(1).
    #[must_use]
    pub fn total_chars(&self) -> u64 {
        match &self.inner.data {
            Data::Text(text) => text.index.total_chars(),
            Data::Binary(bytes, _) => (bytes.len() as u64).div_ceil(3) * 4,
        }
    }

    /// Lines of the shown text, at least one. O(1).
    #[must_use]
    pub fn total_lines(&self) -> u64 {
        match &self.inner.data {
            Data::Text(text) => text.index.total_lines(&text.text),
            Data::Binary(..) => 1,
        }
    }

    /// Pages of at most `page_chars` characters, at least one.
    #[must_use]
    pub fn total_pages(&self, page_chars: u32) -> u64 {
        self.table(page_chars).len()
    }

    /// A page, counted from 1. None if there is no such page.
    #[must_use]
    pub fn page(&self, page_chars: u32, page: u64) -> Option<Slice<'_>> {
        self.pages(page_chars, page, 1)
    }

    /// `count` pages from page `first`, joined; fewer if the content ends before. None if there is no page `first`, or
    /// `count` is 0.
    #[must_use]
    pub fn pages(&self, page_chars: u32, first: u64, count: u64) -> Option<Slice<'_>> {
        let table = self.table(page_chars);
        let start = table.start(first)?;
        let after = first.saturating_add(count);
        let end = table.start(after).unwrap_or(self.text().len());
        (count > 0).then(|| self.slice(start..end))
    }

    /// `count` lines from line `first`, counted from 1; fewer if the content ends before. None if there is no line `first`,
    /// or `count` is 0.
    #[must_use]
    pub fn lines(&self, first: u64, count: u64) -> Option<Slice<'_>> {
        if first < 1 || first > self.total_lines() || count < 1 {
            return None;
        }
        let Text { text, index, .. } = self.shown();
        let start = index.line_start(text, first);
        let end = index.line_start(text, first.saturating_add(count));
        Some(self.slice(start..end))
    }

    /// `count` characters from character `first`, counted from 0; fewer if the content ends before. None if there is no
    /// character `first`, or `count` is 0. Empty content serves its empty text from 0.
    #[must_use]
    pub fn chars(&self, first: u64, count: u64) -> Option<Slice<'_>> {
        let total = self.total_chars();
        if (first >= total && first > 0) || count < 1 {
            return None;
        }
        let Text { text, index, .. } = self.shown();
        let start = index.char_start(text, first);
        let end = index.char_start(text, first.saturating_add(count).min(total));
        Some(self.slice(start..end))
    }

    /// Everything.
    #[must_use]
    pub fn all(&self) -> Slice<'_> {
        self.slice(0..self.text().len())
    }

    /// The part at these bytes of the shown text. Both ends must be at character boundaries.
    #[must_use]
    pub fn slice(&self, bytes: Range<usize>) -> Slice<'_> {
        let Text { text, index, .. } = self.shown();
        let last = if bytes.is_empty() { bytes.start } else { bytes.end - 1 };
        Slice {
            text: &text[bytes.clone()],
            first_line: index.line_of(text, bytes.start),
            last_line: index.line_of(text, last),
            continued: bytes.start > 0 && text.as_bytes()[bytes.start - 1] != b'\n',
            truncated: bytes.end < text.len() && !text[bytes.clone()].ends_with('\n'),
            start_byte: bytes.start,
        }
    }

    /// The part as a content of its own. It shares the bytes; the whole of a content is the same content, binary or not.
    /// A part of a binary content is a part of its base64 text.
    #[must_use]
    pub fn extract(&self, slice: &Slice<'_>) -> Self {
        if slice.text.len() == self.text().len() {
            return self.clone();
        }
        Self::from_text(self.shown().text.slice_ref(&self.text()[slice.bytes()]))
    }

    /// The number of the character at a byte of the shown text, from 0. O(log n).
    #[must_use]
    pub fn char_at(&self, byte: usize) -> u64 {
        let Text { text, index, .. } = self.shown();
        index.char_of(text, byte)
    }

    /// The byte in the shown text at which a character, counted from 0, begins; its length beyond the last one. O(log n).
    #[must_use]
    pub fn byte_at(&self, char: u64) -> usize {
        let Text { text, index, .. } = self.shown();
        index.char_start(text, char.min(index.total_chars()))
    }

    /// The line, from 1, of a byte of the shown text. O(log n).
    #[must_use]
    pub fn line_at(&self, byte: usize) -> u64 {
        let Text { text, index, .. } = self.shown();
        index.line_of(text, byte)
    }

    /// The byte in the shown text at which a line, counted from 1, begins; its length beyond the last one. O(log n).
    #[must_use]
    pub fn line_start(&self, line: u64) -> usize {
        let Text { text, index, .. } = self.shown();
        index.line_start(text, line)
    }

    /// The page, from 1, of a byte of the shown text. O(log n).
    #[must_use]
    pub fn page_at(&self, page_chars: u32, byte: usize) -> u64 {
        self.table(page_chars).page_of(byte)
    }

    /// What finding lines, characters and pages takes beside the text, in bytes: the index, and the tables of those page sizes
    /// that were asked for. Less than a byte for a line of 80 characters, and 8 for a page. 0 where a binary content was never
    /// shown. O(tables).
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        let shown = match &self.inner.data {
            Data::Text(text) => Some(text),
            Data::Binary(_, shown) => shown.get(),
        };
        shown.map_or(0, |text| text.index.bytes() + text.pages.bytes())
    }

    fn table(&self, page_chars: u32) -> &pages::PageTable {
        let Text { text, index, pages, .. } = self.shown();
        pages.of_size(page_chars.max(1), text, index.is_ascii())
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let hashes = self.inner.hash.get().zip(other.inner.hash.get());
        Arc::ptr_eq(&self.inner, &other.inner)
            || (self.bytes().len() == other.bytes().len()
                && hashes.map_or_else(|| self.bytes() == other.bytes(), |(a, b)| a == b))
    }
}

impl Eq for Content {}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Content");
        debug.field("len", &self.bytes().len());
        if let Some(hash) = self.inner.hash.get() {
            debug.field("hash", hash);
        }
        debug.finish()
    }
}

#[cfg(test)]
mod tests;
