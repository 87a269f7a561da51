//! Where lines and characters are: a count of lines at every fourth kilobyte, of characters at every eighth.
//!
//! Sparse on purpose: 0.16 bytes for a line of 80 ASCII characters, less than a byte for one of 80 characters of any kind. A
//! lookup is a binary search and a scan of one block. Characters are counted only where they are not bytes.

use super::chars;

/// Bytes between two counts of lines: a block is scanned in some 100 ns.
const BLOCK: usize = 4096;

/// Bytes between two counts of characters. Twice as many, since reading a page asks for lines alone, and so that the index
/// stays small where each character takes four bytes.
const CHAR_BLOCK: usize = 2 * BLOCK;

/// The index of one text. Every method is given that text.
#[derive(Debug)]
pub(super) struct Index {
    /// LFs before each block, and at last those of the whole text.
    feeds: Box<[u64]>,
    /// Characters before each block of theirs, and at last those of the whole text. None if every character is a byte.
    chars: Option<Box<[u64]>>,
    len: usize,
}

impl Index {
    /// One pass over a text of ASCII, two over any other.
    pub(super) fn new(text: &str) -> Self {
        let mut is_ascii = true;
        let feeds = running(text, BLOCK, |block| {
            is_ascii &= block.is_ascii();
            memchr::memchr_iter(b'\n', block).count()
        });
        let chars = (!is_ascii).then(|| running(text, CHAR_BLOCK, chars::count));
        Self { feeds, chars, len: text.len() }
    }

    /// What the counts take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.feeds) + self.chars.as_deref().map_or(0, size_of_val)
    }

    pub(super) fn is_ascii(&self) -> bool {
        self.chars.is_none()
    }

    pub(super) fn total_chars(&self) -> u64 {
        self.chars.as_ref().map_or(self.len as u64, |chars| total(chars))
    }

    /// A final LF opens no further line, and there is always one.
    pub(super) fn total_lines(&self, text: &str) -> u64 {
        let unterminated = text.is_empty() || !text.ends_with('\n');
        total(&self.feeds) + u64::from(unterminated)
    }

    /// The line of a byte: an LF belongs to the line that it ends.
    pub(super) fn line_of(&self, text: &str, byte: usize) -> u64 {
        let block = byte / BLOCK;
        let within = &text.as_bytes()[block * BLOCK..byte];
        1 + self.feeds[block] + memchr::memchr_iter(b'\n', within).count() as u64
    }

    /// Where a line, counted from 1, begins: after the LF of the one before. The text's length where there is none.
    pub(super) fn line_start(&self, text: &str, line: u64) -> usize {
        let Some(before) = line.checked_sub(2) else { return 0 };
        if before >= total(&self.feeds) {
            return text.len();
        }
        let block = holding(&self.feeds, before);
        let nth = (before - self.feeds[block]) as usize;
        let feed = memchr::memchr_iter(b'\n', &text.as_bytes()[block * BLOCK..]).nth(nth);
        feed.map_or(text.len(), |offset| block * BLOCK + offset + 1)
    }

    /// The number of the character at a byte, from 0.
    pub(super) fn char_of(&self, text: &str, byte: usize) -> u64 {
        let Some(chars) = &self.chars else { return byte as u64 };
        let block = byte / CHAR_BLOCK;
        chars[block] + chars::count(&text.as_bytes()[block * CHAR_BLOCK..byte]) as u64
    }

    /// Where a character, counted from 0, begins. The text's length where there is none.
    pub(super) fn char_start(&self, text: &str, char: u64) -> usize {
        let Some(chars) = &self.chars else { return usize::try_from(char).map_or(text.len(), |at| at.min(text.len())) };
        if char >= total(chars) {
            return text.len();
        }
        let block = holding(chars, char);
        chars::skip(text.as_bytes(), block * CHAR_BLOCK, (char - chars[block]) as usize)
    }
}

fn running(text: &str, block_bytes: usize, mut count: impl FnMut(&[u8]) -> usize) -> Box<[u64]> {
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

/// The block with the event number `nth`, from 0: the last one before which at most so many were counted.
fn holding(counts: &[u64], nth: u64) -> usize {
    counts.partition_point(|before| *before <= nth) - 1
}
