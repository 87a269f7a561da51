//! What stands directly above a definition and belongs to it: comments, attributes, decorators.

use tree_sitter::Node;

/// Runs of lines that belong to a definition below them, in the order of the text.
#[derive(Debug, Default)]
pub(super) struct Above {
    runs: Vec<(u64, u64)>,
}

impl Above {
    /// A node after those before it, that may belong to what is below it: not if it stands behind something on its line, and
    /// not the line that says what program runs a script.
    pub(super) fn push(&mut self, text: &str, node: Node<'_>) {
        let column = node.start_position().column;
        let before = &text.as_bytes()[node.start_byte() - column..node.start_byte()];
        if before.trim_ascii_start().is_empty() && !text[node.byte_range()].starts_with("#!") {
            self.runs.push(lines(node));
        }
    }

    /// Where a definition that begins at this line begins with all that is above it, without a line between.
    pub(super) fn first_line(&self, line: u64) -> u64 {
        let before = self.runs.partition_point(|(first, _)| *first < line);
        let mut begins = line;
        for (first, last) in self.runs[..before].iter().rev() {
            if last + 1 < begins {
                break;
            }
            begins = *first;
        }
        begins
    }
}

/// The first and the last line of a node, from 1.
pub(super) fn lines(node: Node<'_>) -> (u64, u64) {
    let (start, end) = (node.start_position(), node.end_position());
    let ends_before = end.column == 0 && end.row > start.row;
    (start.row as u64 + 1, end.row as u64 + u64::from(!ends_before))
}
