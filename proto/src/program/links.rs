//! The table `[linked_programs]`: programs that the processes of this one may spawn.

use super::{Section, WithSpan};

/// A linked program as written; its name is the key.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(shorthand = path, expected = "a path, or a table of `path` and `description`")]
pub struct Link {
    /// The program file. A relative path starts in the folder of the file that links it.
    #[key(required)]
    pub path: WithSpan<String>,
    /// What the program is good for, for the model that may spawn it.
    pub description: String,
}
