//! The table `[prompt]`: the system prompt and the first user message.

use super::{Section, WithSpan};

/// `[prompt]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct PromptSection {
    /// The system prompt.
    #[key(alias = "system_prompt")]
    pub system: Option<String>,
    /// The first user message of a process that is started without input.
    #[key(alias = "user_prompt")]
    pub user: Option<String>,
    /// A file whose text follows `system`. A relative path starts in the folder of the program
    /// file.
    pub system_prompt_file: Option<WithSpan<String>>,
}
