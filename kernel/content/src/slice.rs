//! A part of a content, as it was served.

use std::ops::Range;

use bytestring::ByteString;
use dormouse_proto::descriptor::view::Part;

/// A part of a content: its text and where it stands. The text is shared, never copied, and stays
/// readable whatever comes of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The text.
    pub text: ByteString,
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

impl Slice {
    /// Where it stands in the shown text.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.start_byte..self.start_byte + self.text.len()
    }

    /// What is shown of it.
    #[must_use]
    pub fn part(&self) -> Part<'_> {
        let Self {
            ref text,
            first_line,
            last_line,
            continued,
            truncated,
            ..
        } = *self;
        Part {
            text,
            first_line,
            last_line,
            continued,
            truncated,
        }
    }
}
