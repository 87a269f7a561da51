//! Text in another encoding, or UTF-8 with a few invalid bytes: decodes it by blocks, and finds the
//! original bytes of a part of the decoded text. `detection.rs` recognises the encoding.
//!
//! Only the positions at which blocks begin are kept, not the decoded text: a part is decoded from
//! the beginning of its block. So a decoded content takes the memory of its bytes, and a page of it
//! costs a few microseconds.

use std::ops::Range;

use bytes::Bytes;
use bytestring::ByteString;
use dormouse_proto::descriptor::view::SourceEncoding;
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE, WINDOWS_1252};

use super::Unreadable;
use super::detection::utf16_units;
use super::location::OpenContent;

/// Original bytes between two positions.
const BLOCK: usize = 8192;

/// How the bytes of a content are decoded.
#[derive(Debug)]
pub(super) struct Decoding {
    pub(super) from: SourceEncoding,
    /// Original bytes that are shown as U+FFFD, the replacement character.
    pub(super) replaced_bytes: u64,
    /// Where each block starts; the last position is the end of the content.
    positions: Box<[Position]>,
}

/// A boundary of characters in the original bytes and in the decoded text.
#[derive(Clone, Copy, Debug)]
struct Position {
    original: usize,
    decoded: usize,
}

impl Decoding {
    /// Decodes a whole content. One pass.
    pub(super) fn decode(bytes: &[u8], from: SourceEncoding) -> (Self, String) {
        let mut text = String::with_capacity(bytes.len());
        let mut replaced_bytes = 0;
        let mut positions = Vec::with_capacity(bytes.len() / BLOCK + 2);
        let mut start = 0;
        loop {
            positions.push(Position {
                original: start,
                decoded: text.len(),
            });
            if start == bytes.len() {
                break;
            }
            let end = block_end(bytes, start, from);
            replaced_bytes += push_decoded(&bytes[start..end], start == 0, from, &mut text);
            start = end;
        }
        let decoding = Self {
            from,
            replaced_bytes,
            positions: positions.into(),
        };
        (decoding, text)
    }

    /// Memory of the positions, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.positions)
    }

    /// Reads a byte range of the decoded text, which may begin or end within a character.
    pub(super) fn read(
        &self,
        open_content: &OpenContent<'_>,
        range: Range<usize>,
    ) -> Result<Bytes, Unreadable> {
        let (first, text) = self.decode_around(open_content, &range)?;
        let text = Bytes::from(text);
        let (start, end) = (range.start - first.decoded, range.end - first.decoded);
        if end > text.len() {
            return Err(Unreadable::inconsistent());
        }
        Ok(text.slice(start..end))
    }

    /// Reads the original bytes of a range of the decoded text, both ends of which are character
    /// boundaries. The beginning of the text includes the byte order mark.
    pub(super) fn read_original(
        &self,
        open_content: &OpenContent<'_>,
        range: Range<usize>,
    ) -> Result<Bytes, Unreadable> {
        let start = self.original_at(open_content, range.start)?;
        let end = self.original_at(open_content, range.end)?;
        open_content.read_bytes(start..end)
    }

    /// The original byte of a character boundary of the decoded text.
    fn original_at(
        &self,
        open_content: &OpenContent<'_>,
        decoded: usize,
    ) -> Result<usize, Unreadable> {
        let block = self.block_of(decoded);
        let (first, next) = (self.positions[block], self.positions.get(block + 1));
        if first.decoded == decoded && decoded == 0 {
            return Ok(0);
        }
        let Some(next) = next.filter(|_| decoded > first.decoded) else {
            return Ok(first.original);
        };
        let bytes = open_content.read_bytes(first.original..next.original)?;
        let wanted = decoded - first.decoded;
        let offset = original_offset(&bytes, first.original == 0, self.from, wanted);
        Ok(first.original + offset)
    }

    /// Decodes the blocks that contain a range. Returns where they start.
    fn decode_around(
        &self,
        open_content: &OpenContent<'_>,
        range: &Range<usize>,
    ) -> Result<(Position, String), Unreadable> {
        let first = self.positions[self.block_of(range.start)];
        let last = self
            .positions
            .partition_point(|position| position.decoded < range.end);
        let last = self.positions[last.min(self.positions.len() - 1)];
        let bytes = open_content.read_bytes(first.original..last.original.max(first.original))?;
        let mut text = String::with_capacity(bytes.len() * 2);
        push_decoded(&bytes, first.original == 0, self.from, &mut text);
        Ok((first, text))
    }

    /// The block that contains a byte of the decoded text.
    fn block_of(&self, decoded: usize) -> usize {
        let blocks_before = self
            .positions
            .partition_point(|position| position.decoded <= decoded);
        // The first position is 0, so there is one.
        blocks_before - 1
    }
}

/// The decoded text of a range as text.
pub(super) fn to_text(bytes: Bytes) -> Result<ByteString, Unreadable> {
    ByteString::try_from(bytes).map_err(|_| Unreadable::inconsistent())
}

/// The end of the block that starts at `start`: the last character boundary up to the block size.
fn block_end(bytes: &[u8], start: usize, from: SourceEncoding) -> usize {
    let end = start + BLOCK;
    if end >= bytes.len() {
        return bytes.len();
    }
    match from {
        SourceEncoding::Windows1252 => end,
        SourceEncoding::Utf8 => {
            // A character has at most three continuation bytes; more of them belong to none.
            let is_boundary = |at: &usize| bytes[*at] & 0xc0 != 0x80;
            (end - 3..=end).rev().find(is_boundary).unwrap_or(end)
        }
        SourceEncoding::Utf16Le | SourceEncoding::Utf16Be => {
            // Blocks start at even positions. A pair of surrogates stays together.
            let last_unit = utf16_units(&bytes[end - 2..end], from).next();
            let splits_pair = last_unit.is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
            if splits_pair { end - 2 } else { end }
        }
    }
}

/// Appends the decoded text of a block. Returns how many bytes were replaced.
fn push_decoded(bytes: &[u8], is_first: bool, from: SourceEncoding, text: &mut String) -> u64 {
    match from {
        SourceEncoding::Utf8 => push_utf8(bytes, text),
        SourceEncoding::Utf16Le => push_utf16(bytes, is_first, from, UTF_16LE, text),
        SourceEncoding::Utf16Be => push_utf16(bytes, is_first, from, UTF_16BE, text),
        SourceEncoding::Windows1252 => {
            text.push_str(&WINDOWS_1252.decode_without_bom_handling(bytes).0);
            0
        }
    }
}

fn push_utf8(bytes: &[u8], text: &mut String) -> u64 {
    let mut replaced_bytes = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            replaced_bytes += chunk.invalid().len() as u64;
        }
    }
    replaced_bytes
}

fn push_utf16(
    bytes: &[u8],
    is_first: bool,
    from: SourceEncoding,
    encoding: &'static Encoding,
    text: &mut String,
) -> u64 {
    let bytes = &bytes[mark_bytes(bytes, is_first, from)..];
    let (decoded, has_replaced) = encoding.decode_without_bom_handling(bytes);
    text.push_str(&decoded);
    if !has_replaced {
        return 0;
    }
    let unpaired = char::decode_utf16(utf16_units(bytes, from)).filter(Result::is_err);
    (unpaired.count() * 2 + bytes.len() % 2) as u64
}

/// Length of the byte order mark at the beginning of UTF-16.
fn mark_bytes(bytes: &[u8], is_first: bool, from: SourceEncoding) -> usize {
    let has_mark = is_first && utf16_units(bytes, from).next() == Some(0xfeff);
    usize::from(has_mark) * 2
}

/// How many bytes of a block the first `decoded` bytes of its text stand for.
fn original_offset(bytes: &[u8], is_first: bool, from: SourceEncoding, decoded: usize) -> usize {
    if from == SourceEncoding::Utf8 {
        return utf8_offset(bytes, decoded);
    }
    let mut text = String::with_capacity(bytes.len() * 2);
    push_decoded(bytes, is_first, from, &mut text);
    let before = &text[..decoded.min(text.len())];
    if before.len() == text.len() {
        return bytes.len();
    }
    match from {
        SourceEncoding::Utf16Le | SourceEncoding::Utf16Be => {
            let units: usize = before.chars().map(char::len_utf16).sum();
            mark_bytes(bytes, is_first, from) + units * 2
        }
        SourceEncoding::Windows1252 | SourceEncoding::Utf8 => before.chars().count(),
    }
}

fn utf8_offset(bytes: &[u8], decoded: usize) -> usize {
    let (mut original, mut left) = (0, decoded);
    for chunk in bytes.utf8_chunks() {
        if left <= chunk.valid().len() {
            return original + left;
        }
        original += chunk.valid().len() + chunk.invalid().len();
        left -= chunk.valid().len() + char::REPLACEMENT_CHARACTER.len_utf8();
    }
    original
}

#[cfg(test)]
mod tests;
