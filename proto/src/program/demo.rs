//! The table `[demo]`: the inputs of a demonstration of the program.

use super::Section;

/// `[demo]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct Demo {
    /// The inputs, one after the other.
    pub prompts: Vec<String>,
    /// Whether a demonstration waits between the inputs.
    #[key(default = true)]
    pub pause_between_prompts: bool,
    /// The name of the program in listings; otherwise the name of its file without the extension.
    pub display_name: Option<String>,
}
