//! A part of a content, as it was served.

use std::ops::Range;

use dormouse_proto::descriptor::view::Part;

/// A part of a content: its text and where it stands. Borrows the text, never copies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<'a> {
    /// The text.
    pub text: &'a str,
    /// The line of its first character, from 1.
    pub first_line: u64,
    /// The line of its last character.
    pub last_line: u64,
    /// It starts inside a line.
    pub continued: bool,
    /// It ends inside a line.
    pub truncated: bool,
    /// Where it starts in the shown text, in bytes.
    pub start_byte: usize,
}

impl<'a> Slice<'a> {
    /// Where it stands in the shown text.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.start_byte..self.start_byte + self.text.len()
    }

    /// What is shown of it.
    #[must_use]
    pub fn part(&self) -> Part<'a> {
        let Self { text, first_line, last_line, continued, truncated, .. } = *self;
        Part { text, first_line, last_line, continued, truncated }
    }
}
