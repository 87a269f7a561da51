//! The result of a read: a part of a content with its position.

use std::ops::Range;

use bytestring::ByteString;
use dormouse_proto::descriptor::view::Part;

/// A part of a content: its text and its position. The text is shared, never copied, and stays
/// valid when the content is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The text.
    pub text: ByteString,
    /// The line of its first character, from 1.
    pub first_line: u64,
    /// The line of its last character.
    pub last_line: u64,
    /// Whether the part starts within a line.
    pub continued: bool,
    /// Whether the part ends within a line.
    pub truncated: bool,
    /// Byte offset of the part in the readable text of the content, which is base64 for binary
    /// content.
    pub start_byte: usize,
}

impl Slice {
    /// Byte range in the readable text of the content.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.start_byte..self.start_byte + self.text.len()
    }

    /// The part as answers show it.
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
            is_numbered: false,
        }
    }
}
