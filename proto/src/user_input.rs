//! Input to a process: a list of parts, each text or arbitrary bytes.

use std::sync::Arc;

use bytes::Bytes;

/// The default source of a part.
pub const USER_INPUT: &str = "user_input";

/// One input to a process. Each part becomes a block of one message or, if it is large, a
/// descriptor whose preview takes its place.
///
/// ```
/// use dormouse_proto::user_input::{UserInput, InputPart};
///
/// let plain: UserInput = "Why does it fail?".into();
/// let with_log: UserInput = [InputPart::text("Why does it fail?"), InputPart::new("file:build.log", "error: …")].into();
/// assert_eq!((plain.parts.len(), with_log.parts.len()), (1, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInput {
    /// The parts, in order.
    pub parts: Vec<InputPart>,
}

impl UserInput {
    /// Whether there is nothing in it but white space.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        let mut bytes = self.parts.iter().flat_map(|part| part.bytes.iter());
        bytes.all(u8::is_ascii_whitespace)
    }
}

/// A part of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPart {
    /// Text if it is UTF-8, binary otherwise.
    pub bytes: Bytes,
    /// Source of the part, such as `user_input` or `file:build.log`. A descriptor that is made of
    /// it has this source.
    pub source: Arc<str>,
    /// Whether a user typed the text, so that it is shown unchanged. A part that was read from a
    /// file or standard input may contain text of others and is escaped by the rule of
    /// [`shown`](crate::shown).
    pub is_typed: bool,
}

impl InputPart {
    /// Text that a user typed.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            is_typed: true,
            ..Self::new(USER_INPUT, text.into())
        }
    }

    /// A part from another source.
    #[must_use]
    pub fn new(source: impl Into<Arc<str>>, bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            source: source.into(),
            is_typed: false,
        }
    }
}

impl From<String> for UserInput {
    fn from(text: String) -> Self {
        InputPart::text(text).into()
    }
}

impl From<&str> for UserInput {
    fn from(text: &str) -> Self {
        InputPart::text(text).into()
    }
}

impl From<InputPart> for UserInput {
    fn from(part: InputPart) -> Self {
        Self { parts: vec![part] }
    }
}

impl From<Vec<InputPart>> for UserInput {
    fn from(parts: Vec<InputPart>) -> Self {
        Self { parts }
    }
}

impl<const N: usize> From<[InputPart; N]> for UserInput {
    fn from(parts: [InputPart; N]) -> Self {
        Self {
            parts: parts.into(),
        }
    }
}
