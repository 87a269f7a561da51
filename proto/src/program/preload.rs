//! The table `[preload]`: files whose content the model gets from the start.

use super::{Keyword, Section, WithSpan};

/// `[preload]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct PreloadSection {
    /// The files. They are read when the program is compiled, so that processes need no permission
    /// to read them.
    pub files: Vec<WithSpan<String>>,
    /// Where relative paths in `files` start.
    pub relative_to: RelativeTo,
}

/// Where the relative paths of `[preload]` start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Keyword)]
pub enum RelativeTo {
    /// In the folder of the program file.
    #[default]
    Program,
    /// In the working directory of the program that embeds the compiler.
    #[word("cwd")]
    WorkingDirectory,
}
