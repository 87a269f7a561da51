//! How the bytes of a content are shown: as they are, decoded, or as base64.

/// How bytes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8 text, unchanged.
    Text,
    /// Text that was decoded; pages, lines and characters refer to the decoded text.
    Decoded {
        /// The encoding of the bytes.
        from: SourceEncoding,
        /// Bytes that are shown as U+FFFD, the replacement character, since they are invalid.
        replaced_bytes: u64,
    },
    /// Base64 of bytes that are not text; pages, lines and characters refer to the base64 text.
    Base64,
}

/// The encoding of a text that is shown decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceEncoding {
    /// UTF-8 with a few invalid bytes.
    Utf8,
    /// UTF-16, the lower byte first.
    Utf16Le,
    /// UTF-16, the higher byte first.
    Utf16Be,
    /// Windows-1252, which contains Latin-1.
    Windows1252,
}

impl SourceEncoding {
    /// The name of the encoding, as the Encoding Standard of the WHATWG spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
            Self::Windows1252 => "windows-1252",
        }
    }
}

impl Encoding {
    /// The name in answers; `None` for text, which answers do not mention.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Decoded { from, .. } => Some(from.name()),
            Self::Base64 => Some("base64"),
        }
    }

    /// Whether the bytes are not text.
    #[must_use]
    pub fn is_base64(self) -> bool {
        self == Self::Base64
    }

    /// Bytes that are shown as U+FFFD; `None` if there are none, which answers do not mention.
    #[must_use]
    pub fn replaced_bytes(self) -> Option<u64> {
        match self {
            Self::Decoded { replaced_bytes, .. } => Some(replaced_bytes).filter(|bytes| *bytes > 0),
            Self::Text | Self::Base64 => None,
        }
    }

    /// A sentence for text that is shown without an element which states its encoding. `None` for
    /// text that is unchanged.
    #[must_use]
    pub fn notice(self) -> Option<String> {
        match self {
            Self::Text | Self::Base64 => None,
            Self::Decoded {
                from,
                replaced_bytes: 0,
            } => Some(format!("(Decoded from {}.)", from.name())),
            Self::Decoded {
                from,
                replaced_bytes,
            } => Some(format!(
                "({replaced_bytes} bytes that are not {} are shown as \u{fffd}.)",
                from.name().to_uppercase()
            )),
        }
    }
}
