//! `[preload]`: files that a model is given from the start.

use super::{At, Keyword, Section};

/// `[preload]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct PreloadSection {
    /// The files. The text of each is part of the system prompt of every process; the program and
    /// its bundle hold a copy, so that no permission is needed to read them.
    pub files: Vec<At<String>>,
    /// Where relative paths in `files` start.
    pub relative_to: RelativeTo,
}

/// Where the relative paths of `[preload]` start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Keyword)]
pub enum RelativeTo {
    /// In the folder of the program file.
    #[default]
    Program,
    /// In the working directory of whoever compiles the program.
    #[word("cwd")]
    WorkingDirectory,
}
