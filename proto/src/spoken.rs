//! What is said to a process: parts in order, each a text or bytes of any kind.

use std::sync::Arc;

use bytes::Bytes;

/// Where a part comes from, unless something else is said.
pub const USER_INPUT: &str = "user_input";

/// What is said to a process at once: each part becomes a block of one message, or, where it is
/// large, a descriptor whose preview stands in its place.
///
/// ```
/// use dormouse_proto::spoken::{Spoken, SpokenPart};
///
/// let plain: Spoken = "Why does it fail?".into();
/// let with_log: Spoken = [SpokenPart::text("Why does it fail?"), SpokenPart::new("file:build.log", "error: …")].into();
/// assert_eq!((plain.parts.len(), with_log.parts.len()), (1, 2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    /// The parts, in order.
    pub parts: Vec<SpokenPart>,
}

/// A part of what is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpokenPart {
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

impl SpokenPart {
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

impl From<String> for Spoken {
    fn from(text: String) -> Self {
        SpokenPart::text(text).into()
    }
}

impl From<&str> for Spoken {
    fn from(text: &str) -> Self {
        SpokenPart::text(text).into()
    }
}

impl From<SpokenPart> for Spoken {
    fn from(part: SpokenPart) -> Self {
        Self { parts: vec![part] }
    }
}

impl From<Vec<SpokenPart>> for Spoken {
    fn from(parts: Vec<SpokenPart>) -> Self {
        Self { parts }
    }
}

impl<const N: usize> From<[SpokenPart; N]> for Spoken {
    fn from(parts: [SpokenPart; N]) -> Self {
        Self {
            parts: parts.into(),
        }
    }
}
