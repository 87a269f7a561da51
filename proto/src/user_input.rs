//! What is said to a process: parts in order, each a text or bytes of any kind.

use std::sync::Arc;

use bytes::Bytes;

/// Where a part comes from, unless something else is said.
pub const USER_INPUT: &str = "user_input";

/// What is said to a process at once: each part becomes a block of one message, or, where it is
/// large, a descriptor whose preview stands in its place.
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

/// A part of what is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPart {
    /// Text if it is UTF-8, binary otherwise.
    pub bytes: Bytes,
    /// Where it comes from, such as `user_input` or `file:build.log`: the source of the descriptor
    /// that it may become.
    pub source: Arc<str>,
    /// Whether a user typed it: such a part is shown as it is, whatever it holds. One that was
    /// read, from a file or from standard input, may hold what others wrote, and is shown by the
    /// rule of [`shown`](crate::shown).
    pub is_typed: bool,
}

impl InputPart {
    /// Words of the user.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            is_typed: true,
            ..Self::new(USER_INPUT, text.into())
        }
    }

    /// Something that comes from elsewhere.
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
