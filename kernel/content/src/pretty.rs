//! Reformatting of JSON: one value or item per line, indented by two spaces per level.
//!
//! Only white space changes. Tokens stay unchanged: numbers of any size, escapes, keys in their
//! order, duplicate keys. Consecutive values, as in JSON Lines, each start a line. Empty objects
//! and arrays stay on one line. No function recurses, so nesting costs no stack.

use std::ops::Range;
use std::sync::Arc;

use serde::de::IgnoredAny;

use super::Unreadable;

/// Maximum nesting depth, the same as in `serde_json`.
const MAX_DEPTH: usize = 127;

/// Maximum growth factor: many small items at a great depth would otherwise grow quadratically.
const MAX_GROWTH: usize = 8;

/// A reformatted text of up to this size is accepted, however much it has grown.
const SMALL_BYTES: usize = 64 << 10;

/// Maximum size of a reformatted text, which stays in memory as long as its content.
const MAX_PRETTY_BYTES: usize = 512 << 20;

const INDENT: &str = "  ";

/// Why a content cannot be reformatted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PrettyError {
    /// The content is binary.
    #[error("the content is binary, and only JSON can be reformatted")]
    Binary,
    /// The content is blank.
    #[error("the content is empty, and only JSON can be reformatted")]
    Empty,
    /// The content is not valid JSON.
    #[error("the content is not JSON: {0}")]
    NotJson(#[source] Arc<serde_json::Error>),
    /// The JSON is nested too deeply.
    #[error("the JSON is nested more than {MAX_DEPTH} levels deep at byte {at}")]
    TooDeep {
        /// Byte offset at which the limit is exceeded.
        at: usize,
    },
    /// The reformatted text would be too long.
    #[error("the JSON would grow from {from} to more than {limit} bytes")]
    TooLong {
        /// Size of the content in bytes.
        from: usize,
        /// Limit for the reformatted text in bytes.
        limit: usize,
    },
    /// The content cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Whether a text starts like an object or array. O(leading white space).
pub(super) fn may_be_json(text: &str) -> bool {
    text.trim_start_matches(is_space).starts_with(['{', '['])
}

/// Reformats the text, without a final LF. Two passes: one validates, one adds white space.
///
/// # Errors
/// [`PrettyError`] if the text is not JSON, is nested too deeply or would grow too much.
pub(super) fn pretty(text: &str) -> Result<String, PrettyError> {
    if text.len() > MAX_PRETTY_BYTES {
        return Err(PrettyError::TooLong {
            from: text.len(),
            limit: MAX_PRETTY_BYTES,
        });
    }
    let values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let count = values
        .map(|value| value.map(|_| 1))
        .sum::<Result<usize, _>>();
    match count.map_err(|error| PrettyError::NotJson(Arc::new(error)))? {
        0 => Err(PrettyError::Empty),
        _ => Formatter::new(text).format(),
    }
}

/// Whether a text is blank.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// White space as JSON defines it.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// The pass that writes the reformatted text of valid JSON.
struct Formatter<'a> {
    text: &'a str,
    /// Byte offset of the next input byte.
    position: usize,
    depth: usize,
    out: String,
    /// Maximum length of `out` in bytes.
    limit: usize,
}

impl<'a> Formatter<'a> {
    fn new(text: &'a str) -> Self {
        let limit = text
            .len()
            .max(SMALL_BYTES / MAX_GROWTH)
            .saturating_mul(MAX_GROWTH)
            .min(MAX_PRETTY_BYTES);
        Self {
            text,
            position: 0,
            depth: 0,
            out: String::with_capacity(text.len()),
            limit,
        }
    }

    fn format(mut self) -> Result<String, PrettyError> {
        while let Some(byte) = self.peek() {
            match byte {
                b'{' | b'[' => self.open_bracket()?,
                b'}' | b']' => self.close_bracket()?,
                b',' => {
                    self.copy(1);
                    self.break_line()?;
                }
                b':' => {
                    self.copy(1);
                    self.out.push(' ');
                }
                _ => self.copy_scalar()?,
            }
        }
        self.out.shrink_to_fit();
        Ok(self.out)
    }

    /// Skips white space and returns the first byte of the next token.
    fn peek(&mut self) -> Option<u8> {
        let spaces = self.text.as_bytes()[self.position..]
            .iter()
            .take_while(|byte| is_space(char::from(**byte)));
        self.position += spaces.count();
        self.text.as_bytes().get(self.position).copied()
    }

    fn copy(&mut self, len: usize) {
        self.out
            .push_str(&self.text[self.position..self.position + len]);
        self.position += len;
    }

    fn open_bracket(&mut self) -> Result<(), PrettyError> {
        self.begin_value()?;
        self.copy(1);
        if matches!(self.peek(), Some(b'}' | b']')) {
            self.copy(1);
            return Ok(());
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(PrettyError::TooDeep { at: self.position });
        }
        self.break_line()
    }

    fn close_bracket(&mut self) -> Result<(), PrettyError> {
        self.depth = self
            .depth
            .checked_sub(1)
            .expect("brackets are balanced in validated JSON");
        self.break_line()?;
        self.copy(1);
        Ok(())
    }

    fn copy_scalar(&mut self) -> Result<(), PrettyError> {
        self.begin_value()?;
        let token = token_range(self.text.as_bytes(), self.position);
        self.copy(token.len());
        Ok(())
    }

    /// Starts a line if the value is at the top level.
    fn begin_value(&mut self) -> Result<(), PrettyError> {
        if self.depth == 0 && !self.out.is_empty() {
            self.break_line()
        } else {
            Ok(())
        }
    }

    fn break_line(&mut self) -> Result<(), PrettyError> {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(INDENT, self.depth));
        if self.out.len() > self.limit {
            return Err(PrettyError::TooLong {
                from: self.text.len(),
                limit: self.limit,
            });
        }
        Ok(())
    }
}

/// The string, number or literal that starts at a byte.
fn token_range(bytes: &[u8], at: usize) -> Range<usize> {
    let rest = &bytes[at..];
    let len = match rest.first() {
        Some(b'"') => 1 + string_len(&rest[1..]),
        _ => rest
            .iter()
            .position(|byte| ends_token(*byte))
            .unwrap_or(rest.len()),
    };
    at..at + len
}

fn ends_token(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' | b'[' | b']' | b'{' | b'}' | b'"'
    )
}

/// Length of a string after its opening quote, including the closing one.
fn string_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        let found = memchr::memchr2(b'"', b'\\', &bytes[at..])
            .expect("strings are closed in validated JSON");
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests;
