//! The tools that a hint in an answer may name: those that the program enabled.

use serde::{Deserialize, Serialize};

/// The tools that hints name, in the order of their bits.
const TOOLS: [&str; 5] = [
    "read_fd",
    "search_fd",
    "mark_fd_section",
    "list_fd_sections",
    "delete_fd_section",
];

/// Which of the tools that hints name are enabled. The default is all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintableTools(u8);

impl Default for HintableTools {
    fn default() -> Self {
        Self(u8::MAX)
    }
}

impl HintableTools {
    /// The tools among these names.
    #[must_use]
    pub fn of<'a>(enabled: impl IntoIterator<Item = &'a str>) -> Self {
        let bit = |name| TOOLS.iter().position(|tool| *tool == name);
        let bits = enabled.into_iter().filter_map(bit);
        Self(bits.fold(0, |bits, bit| bits | 1 << bit))
    }

    /// Whether a hint may name this tool.
    #[must_use]
    pub fn contains(self, tool: &str) -> bool {
        let bit = TOOLS.iter().position(|known| *known == tool);
        bit.is_some_and(|bit| self.0 & (1 << bit) != 0)
    }

    /// The sentence, with a space before it, if the tool is enabled; nothing otherwise.
    #[must_use]
    pub fn hint(self, tool: &str, sentence: &str) -> String {
        match self.contains(tool) {
            true => format!(" {sentence}"),
            false => String::new(),
        }
    }

    /// The sentence on how to see more of a descriptor, with a space before it.
    #[must_use]
    pub fn hint_to_read(self) -> String {
        let read = self.hint("read_fd", "Use read_fd to read more pages.");
        match read.is_empty() {
            true => self.hint("search_fd", "Use search_fd to find text in it."),
            false => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_an_enabled_tool_only() {
        let cases = [
            (
                &["read_fd", "search_fd"][..],
                " Use read_fd to read more pages.",
            ),
            (&["search_fd", "grep"], " Use search_fd to find text in it."),
            (&["summarize_fd"], ""),
        ];
        for (enabled, hint) in cases {
            assert_eq!(
                HintableTools::of(enabled.iter().copied()).hint_to_read(),
                hint
            );
        }
        assert!(
            TOOLS
                .iter()
                .all(|tool| HintableTools::default().contains(tool))
        );
        assert!(!HintableTools::default().contains("grep"));
    }
}
