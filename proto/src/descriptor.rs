//! Descriptors as a program configures them.

/// How large content is kept away from a model's context. The defaults are those of ruling 2 of the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorSettings {
    /// A tool's output of more than so many characters becomes a descriptor.
    pub max_direct_output_chars: u64,
    /// Characters per page of a new descriptor.
    pub page_chars: u32,
    /// A user's input of more than so many characters becomes a descriptor.
    pub max_input_chars: u64,
    /// Whether large user input becomes a descriptor at all.
    pub page_user_input: bool,
    /// One answer of a descriptor tool shows at most so many characters of content.
    pub max_read_chars: u64,
}

impl Default for DescriptorSettings {
    fn default() -> Self {
        Self {
            max_direct_output_chars: 8_000,
            page_chars: 4_000,
            max_input_chars: 8_000,
            page_user_input: true,
            max_read_chars: 100_000,
        }
    }
}
