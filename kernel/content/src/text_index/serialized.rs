//! The serialized index: a version, the kind and length of the content, the counts of each block
//! and the lengths of pages.
//!
//! Little-endian. Counts are stored as differences, two bytes per block and a variable-length
//! number per page. Input is checked against the length of the content and for consistency; an
//! invalid index is discarded, and the content is indexed again.

use bytes::Bytes;

use super::TextIndex;
use crate::index::PositionIndex;
use crate::pages::PageTables;

const VERSION: u8 = 1;
/// Earlier versions wrote this for all UTF-8, of which some is the UTF-16 of ASCII characters.
const UTF8: u8 = 0;
/// Earlier versions wrote 1 for all bytes that are not UTF-8, of which some are decoded: such an
/// index is invalid.
const BINARY: u8 = 2;
const TEXT: u8 = 3;

/// Upper limit for page tables; a content has one page size, rarely two.
const MAX_TABLES: u64 = 64;

impl TextIndex {
    /// Serializes the index; empty for decoded text, which is indexed again.
    pub(crate) fn serialize(&self) -> Bytes {
        let mut out = vec![VERSION];
        match self {
            Self::Text {
                decoding: Some(_), ..
            } => return Bytes::new(),
            Self::Binary { len } => {
                out.push(BINARY);
                put_varint(&mut out, *len as u64);
            }
            Self::Text { index, pages, .. } => {
                out.push(TEXT);
                put_varint(&mut out, index.len() as u64);
                index.serialize(&mut out);
                let tables: Vec<_> = pages.iter().collect();
                put_varint(&mut out, tables.len() as u64);
                for (page_chars, starts) in tables {
                    put_varint(&mut out, page_chars.into());
                    put_varint(&mut out, starts.len() as u64);
                    starts
                        .windows(2)
                        .for_each(|pair| put_varint(&mut out, (pair[1] - pair[0]) as u64));
                }
            }
        }
        out.into()
    }

    /// Deserializes the index of a content of `len` bytes; `None` if it is invalid. `is_utf16` says
    /// whether the bytes, which an earlier version took for UTF-8, are UTF-16.
    pub(crate) fn deserialize(
        input: &[u8],
        len: usize,
        is_utf16: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let mut input = IndexReader(input);
        let version = input.byte()?;
        let kind = input.byte()?;
        if version != VERSION || input.varint()? != len as u64 {
            return None;
        }
        let index = match kind {
            BINARY => Self::Binary { len },
            UTF8 if is_utf16() => return None,
            TEXT | UTF8 => Self::Text {
                index: PositionIndex::deserialize(&mut input, len)?,
                pages: read_tables(&mut input, len)?,
                decoding: None,
            },
            _ => return None,
        };
        input.0.is_empty().then_some(index)
    }
}

fn read_tables(input: &mut IndexReader<'_>, len: usize) -> Option<PageTables> {
    let pages = PageTables::default();
    for _ in 0..input.varint().filter(|count| *count <= MAX_TABLES)? {
        let page_chars = u32::try_from(input.varint()?)
            .ok()
            .filter(|chars| *chars > 0)?;
        // Each page except the first takes at least one byte: never allocate more than was read.
        let further_pages = input
            .varint()?
            .checked_sub(1)
            .filter(|count| *count <= input.0.len() as u64)?;
        let mut starts = Vec::with_capacity(further_pages as usize + 1);
        let mut page_start = 0_usize;
        starts.push(page_start);
        for _ in 0..further_pages {
            let page_bytes = usize::try_from(input.varint()?)
                .ok()
                .filter(|page_bytes| *page_bytes > 0)?;
            page_start = page_start
                .checked_add(page_bytes)
                .filter(|start| *start < len)?;
            starts.push(page_start);
        }
        pages.insert(page_chars, starts);
    }
    Some(pages)
}

/// Writes a number with seven bits per byte.
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The unread rest of a serialized index.
pub(crate) struct IndexReader<'a>(&'a [u8]);

impl<'a> IndexReader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn take_bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
