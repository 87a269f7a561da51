//! Preloaded files of a program, as compiled.

use bytes::Bytes;
use dormouse_proto::program::LineRange;

/// A preloaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preload {
    /// The path, as the program file writes it.
    pub path: String,
    /// The bytes of the whole file.
    pub bytes: Bytes,
    /// How much of the file the system prompt shows.
    pub shown: PreloadPart,
}

/// How much of a preloaded file the system prompt shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreloadPart {
    /// All of it up to the limits for direct output, a preview otherwise.
    WithinLimits,
    /// These lines, in full.
    Lines(LineRange),
    /// All of it, whatever its size.
    All,
}
