//! What else is on the first and the last line of a definition.
//!
//! A definition is shown in whole lines, so that `export` and a closing parenthesis are there too.
//! If another definition or much other code is on such a line, only its own text is shown: a line
//! of minified code can be a whole program.

use std::ops::Range;

use tree_sitter::Node;

/// Bytes next to a definition on its line that are shown with it.
const MAX_OTHER_BYTES: usize = 200;

/// The definitions of a text by their starts and by their ends.
pub(super) struct Neighbours<'a> {
    text: &'a [u8],
    starts: Vec<usize>,
    ends: Vec<usize>,
}

impl<'a> Neighbours<'a> {
    pub(super) fn new<'t>(text: &'a str, definitions: impl Iterator<Item = Node<'t>>) -> Self {
        let (mut starts, mut ends): (Vec<_>, Vec<_>) = definitions
            .map(|node| (node.start_byte(), node.end_byte()))
            .unzip();
        starts.sort_unstable();
        ends.sort_unstable();
        Self {
            text: text.as_bytes(),
            starts,
            ends,
        }
    }

    /// The bytes of a definition that shares its first or last line with others; `None` if it is
    /// shown in whole lines. O(log n).
    pub(super) fn range_within_lines(&self, node: Node<'_>) -> Option<Range<usize>> {
        let (start, end) = (node.start_byte(), node.end_byte());
        let line_start = start - node.start_position().column;
        let shares_line = self.is_crowded_before(line_start, start) || self.is_crowded_after(end);
        shares_line.then_some(start..end)
    }

    /// Whether another definition, or much other code, comes before it on the first line.
    fn is_crowded_before(&self, line_start: usize, start: usize) -> bool {
        let next = self.ends.partition_point(|end| *end <= line_start);
        let follows_another = self.ends.get(next).is_some_and(|end| *end <= start);
        let checked_from = line_start.max(start.saturating_sub(MAX_OTHER_BYTES));
        let is_indented = self.text[checked_from..start]
            .iter()
            .all(u8::is_ascii_whitespace);
        follows_another || (checked_from > line_start && !is_indented)
    }

    /// Whether another definition, or much other code, follows on the last line.
    fn is_crowded_after(&self, end: usize) -> bool {
        // A definition that ends with a line feed has nothing after it.
        if self.text[..end].ends_with(b"\n") {
            return false;
        }
        let checked_to = self.text.len().min(end + MAX_OTHER_BYTES);
        let rest = &self.text[end..checked_to];
        let Some(line_end) = memchr::memchr(b'\n', rest).map(|feed| end + feed) else {
            return checked_to < self.text.len() || self.starts_between(end, checked_to);
        };
        self.starts_between(end, line_end)
    }

    fn starts_between(&self, from: usize, to: usize) -> bool {
        let next = self.starts.partition_point(|start| *start < from);
        self.starts.get(next).is_some_and(|start| *start < to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_that_ends_with_a_line_feed_stands_alone_before_a_long_line() {
        let text = format!("f;\n{}", "x".repeat(2 * MAX_OTHER_BYTES));
        for starts in [vec![0], vec![0, 3]] {
            let neighbours = Neighbours {
                text: text.as_bytes(),
                starts,
                ends: vec![3],
            };
            assert!(!neighbours.is_crowded_after(3));
            assert!(neighbours.is_crowded_after(4), "a long line is other code");
        }
    }
}
