//! Descriptors, and parts of their contents.

use dormouse_actors::DescriptorView;
use dormouse_content::Slice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A descriptor of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescriptorLine {
    /// Its id, such as `fd:3`.
    pub fd: String,
    /// The name that the process gave it.
    pub name: Option<String>,
    /// Where its content comes from, such as `tool:grep`.
    pub source: String,
    /// Bytes of its content.
    pub bytes: u64,
    /// Characters of its content, as displayed; `null` if it cannot be read.
    pub chars: Option<u64>,
    /// Lines of its content; `null` if it cannot be read.
    pub lines: Option<u64>,
    /// When it was opened: milliseconds since the epoch, UTC.
    pub opened_ms: u64,
}

impl From<&DescriptorView> for DescriptorLine {
    fn from(view: &DescriptorView) -> Self {
        Self {
            fd: view.id.to_string(),
            name: view.name.as_deref().map(str::to_owned),
            source: view.source.to_string(),
            bytes: view.bytes,
            chars: view.chars,
            lines: view.lines,
            opened_ms: view.opened_ms,
        }
    }
}

/// A page of a content, as `dormouse page --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageView {
    /// The descriptor.
    pub fd: String,
    /// The number of the page, from 1.
    pub page: u64,
    /// How many pages there are.
    pub pages: u64,
    /// Characters of a page.
    pub page_size: u32,
    /// The first and the last line: `43-84`.
    pub lines: String,
    /// Whether the page begins within a line.
    pub continued: bool,
    /// Whether the page ends within a line.
    pub truncated: bool,
    /// Whether the content is no text: the text is then base64.
    pub binary: bool,
    /// The text.
    pub text: String,
}

/// Lines of a content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinesView {
    /// The descriptor.
    pub fd: String,
    /// The first and the last line: `43-84`.
    pub lines: String,
    /// How many lines there are.
    pub total_lines: u64,
    /// Whether the last line is cut, since the answer is at its limit.
    pub truncated: bool,
    /// Whether the content is no text: the text is then base64.
    pub binary: bool,
    /// The text.
    pub text: String,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchView {
    /// The descriptor.
    pub fd: String,
    /// The lines that match, in their order.
    pub matches: Vec<MatchView>,
    /// The line from which a further search goes on; absent if all lines were searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_line: Option<u64>,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MatchView {
    /// The number of the line, from 1.
    pub line: u64,
    /// The character at which the first match begins, from 0, within the line.
    pub column: usize,
    /// The line around the match.
    pub text: String,
}

impl PageView {
    pub(crate) fn lines_of(slice: &Slice) -> String {
        format!("{}-{}", slice.first_line, slice.last_line)
    }
}
