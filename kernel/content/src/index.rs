//! The sparse index of a text: a count of lines for every 4 KiB, of characters for every 8 KiB.
//!
//! The index takes 0.16 bytes per line of 80 ASCII characters, and less than a byte for a line of
//! 80 other characters. A lookup is a binary search and a scan of one block, which is the only part
//! of the text that the lookup reads. Characters are counted only if the text is not ASCII. The
//! text index of a content (`text_index.rs`) consists of this index and the page tables.

use std::ops::Range;

use bytes::Bytes;

use super::blob::Unreadable;
use super::chars;
use super::text_index::IndexReader;

/// Bytes between two line counts. A block is scanned in about 100 ns.
const BLOCK: usize = 4096;

/// Bytes between two character counts. Character blocks are twice as long as line blocks: reading a
/// page needs only lines, and the index stays small for text with four bytes per character.
const CHAR_BLOCK: usize = 2 * BLOCK;

/// The index of one text. Lookup methods take a function that reads bytes of that text.
#[derive(Debug)]
pub(super) struct PositionIndex {
    /// Number of LFs before each block, then of the whole text.
    line_feeds: Box<[u64]>,
    /// Number of characters before each block, then of the whole text. `None` for ASCII text.
    chars: Option<Box<[u64]>>,
    /// Whether the last line lacks an LF.
    lacks_final_lf: bool,
    len: usize,
}

impl PositionIndex {
    /// One pass over ASCII text, two over other text.
    pub(super) fn new(text: &str) -> Self {
        let mut is_ascii = true;
        let line_feeds = cumulative_counts(text, BLOCK, |block| {
            is_ascii &= block.is_ascii();
            memchr::memchr_iter(b'\n', block).count()
        });
        let chars = (!is_ascii).then(|| cumulative_counts(text, CHAR_BLOCK, chars::count));
        Self {
            line_feeds,
            chars,
            lacks_final_lf: !text.ends_with('\n'),
            len: text.len(),
        }
    }

    /// The start of the line block that contains a byte.
    pub(super) fn block_start(byte: usize) -> usize {
        byte / BLOCK * BLOCK
    }

    /// Memory of the counts, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.line_feeds) + self.chars.as_deref().map_or(0, size_of_val)
    }

    pub(super) fn is_ascii(&self) -> bool {
        self.chars.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn total_chars(&self) -> u64 {
        self.chars
            .as_ref()
            .map_or(self.len as u64, |chars| total(chars))
    }

    /// Number of lines. A final LF starts no further line, and there is at least one.
    pub(super) fn total_lines(&self) -> u64 {
        total(&self.line_feeds) + u64::from(self.lacks_final_lf)
    }

    /// The line of a byte. An LF belongs to the line that it ends.
    pub(super) fn line_at(
        &self,
        byte: usize,
        read: impl Fn(Range<usize>) -> Result<Bytes, Unreadable>,
    ) -> Result<u64, Unreadable> {
        let block = byte / BLOCK;
        let block_text = read(block * BLOCK..byte)?;
        Ok(1 + self.line_feeds[block] + memchr::memchr_iter(b'\n', &block_text).count() as u64)
    }

    /// The start of a line, counted from 1; the length of the text if there is no such line.
    pub(super) fn line_start(
        &self,
        line: u64,
        read: impl Fn(Range<usize>) -> Result<Bytes, Unreadable>,
    ) -> Result<usize, Unreadable> {
        // The line starts after the LF of this number, counted from 0.
        let Some(feed_number) = line.checked_sub(2) else {
            return Ok(0);
        };
        if feed_number >= total(&self.line_feeds) {
            return Ok(self.len);
        }
        let block = block_containing(&self.line_feeds, feed_number);
        let nth = (feed_number - self.line_feeds[block]) as usize;
        let block_text = read(self.block(block, BLOCK))?;
        let feed = memchr::memchr_iter(b'\n', &block_text)
            .nth(nth)
            .ok_or_else(Unreadable::inconsistent)?;
        Ok(block * BLOCK + feed + 1)
    }

    /// The number of the character at a byte, from 0.
    pub(super) fn char_at(
        &self,
        byte: usize,
        read: impl Fn(Range<usize>) -> Result<Bytes, Unreadable>,
    ) -> Result<u64, Unreadable> {
        let Some(chars) = &self.chars else {
            return Ok(byte as u64);
        };
        let block = byte / CHAR_BLOCK;
        Ok(chars[block] + chars::count(&read(block * CHAR_BLOCK..byte)?) as u64)
    }

    /// The start of a character, counted from 0; the length of the text if there is no such
    /// character.
    pub(super) fn char_start(
        &self,
        char: u64,
        read: impl Fn(Range<usize>) -> Result<Bytes, Unreadable>,
    ) -> Result<usize, Unreadable> {
        let Some(chars) = &self.chars else {
            return Ok(usize::try_from(char).map_or(self.len, |at| at.min(self.len)));
        };
        if char >= total(chars) {
            return Ok(self.len);
        }
        let block = block_containing(chars, char);
        let block_text = read(self.block(block, CHAR_BLOCK))?;
        Ok(block * CHAR_BLOCK + chars::skip(&block_text, 0, (char - chars[block]) as usize))
    }

    fn block(&self, block: usize, block_bytes: usize) -> Range<usize> {
        block * block_bytes..self.len.min((block + 1) * block_bytes)
    }

    /// Serializes the index: two bytes for each block, with the count within the block.
    pub(super) fn serialize(&self, out: &mut Vec<u8>) {
        out.extend([
            u8::from(self.lacks_final_lf),
            u8::from(self.chars.is_some()),
        ]);
        for counts in [Some(&self.line_feeds), self.chars.as_ref()]
            .into_iter()
            .flatten()
        {
            out.extend(
                counts
                    .windows(2)
                    .flat_map(|pair| ((pair[1] - pair[0]) as u16).to_le_bytes()),
            );
        }
    }

    /// Deserializes an index; `None` if the bytes are not the index of a text of this length.
    pub(super) fn deserialize(input: &mut IndexReader<'_>, len: usize) -> Option<Self> {
        let lacks_final_lf = parse_flag(input.byte()?)?;
        let has_chars = parse_flag(input.byte()?)?;
        let line_feeds = deserialize_counts(input, len, BLOCK)?;
        let chars = if has_chars {
            Some(deserialize_counts(input, len, CHAR_BLOCK)?)
        } else {
            None
        };
        // A text that ends with an LF contains at least one.
        let is_consistent = lacks_final_lf || total(&line_feeds) > 0;
        is_consistent.then_some(Self {
            line_feeds,
            chars,
            lacks_final_lf,
            len,
        })
    }
}

fn parse_flag(byte: u8) -> Option<bool> {
    [false, true].get(usize::from(byte)).copied()
}

/// Deserializes cumulative counts. A count within a block cannot exceed the bytes of the block.
fn deserialize_counts(
    input: &mut IndexReader<'_>,
    len: usize,
    block_bytes: usize,
) -> Option<Box<[u64]>> {
    let blocks = len.div_ceil(block_bytes);
    let bytes = input.take_bytes(blocks.checked_mul(2)?)?;
    let mut sum = 0;
    let mut counts = Vec::with_capacity(blocks + 1);
    counts.push(sum);
    for (block, count) in bytes.chunks_exact(2).enumerate() {
        let count = u16::from_le_bytes([count[0], count[1]]);
        if usize::from(count) > block_bytes.min(len - block * block_bytes) {
            return None;
        }
        sum += u64::from(count);
        counts.push(sum);
    }
    Some(counts.into())
}

fn cumulative_counts(
    text: &str,
    block_bytes: usize,
    mut count: impl FnMut(&[u8]) -> usize,
) -> Box<[u64]> {
    let mut sum = 0;
    let counts = text.as_bytes().chunks(block_bytes).map(|block| {
        sum += count(block) as u64;
        sum
    });
    std::iter::once(0).chain(counts).collect()
}

fn total(counts: &[u64]) -> u64 {
    *counts.last().expect("the counts begin with 0")
}

/// The block that contains the LF or character number `nth`, counted from 0: the last block with at
/// most `nth` of them before it.
fn block_containing(counts: &[u64], nth: u64) -> usize {
    counts.partition_point(|before| *before <= nth) - 1
}
