//! Comments, attributes and decorators directly above a definition, which belong to it.

use tree_sitter::Node;

/// Nodes that may belong to a definition below them, in the order of the text.
#[derive(Debug, Default)]
pub(super) struct LeadingNodes {
    runs: Vec<Run>,
}

/// Adjacent nodes with no other code on their lines.
#[derive(Debug)]
struct Run {
    first_line: u64,
    last_line: u64,
    /// End in bytes.
    end: usize,
    /// Whether nothing follows on the last line.
    is_alone: bool,
}

impl LeadingNodes {
    /// Adds a node. It is ignored if other code precedes it on its line, or if it is a shebang
    /// line.
    pub(super) fn push(&mut self, text: &str, node: Node<'_>) {
        let bytes = text.as_bytes();
        let start = node.start_byte();
        let end = node.end_byte();
        let line_start = start - node.start_position().column;
        let before = self.runs.last_mut().filter(|run| run.end > line_start);
        let from = before.as_ref().map_or(line_start, |run| run.end);
        let is_inside = from > start;
        // Scan backwards: of many nodes on one line, only the first finds nothing but white space.
        if is_inside
            || !is_blank(bytes[from..start].iter().rev())
            || text[start..end].starts_with("#!")
        {
            return;
        }
        let (first_line, last_line) = lines(node);
        let rest = bytes[end..].iter().take_while(|byte| **byte != b'\n');
        let is_alone = bytes[..end].ends_with(b"\n") || is_blank(rest);
        match before {
            Some(run) => {
                *run = Run {
                    first_line: run.first_line,
                    last_line,
                    end,
                    is_alone,
                }
            }
            None => self.runs.push(Run {
                first_line,
                last_line,
                end,
                is_alone,
            }),
        }
    }

    /// First line of a definition at `line` including everything directly above it, without a blank
    /// line or other code in between.
    pub(super) fn first_line(&self, line: u64) -> u64 {
        let before = self.runs.partition_point(|run| run.first_line < line);
        let mut first = line;
        for run in self.runs[..before].iter().rev() {
            // A run that ends on the line of the definition is directly before it.
            if run.last_line + 1 < first || (run.last_line < first && !run.is_alone) {
                break;
            }
            first = run.first_line;
        }
        first
    }
}

fn is_blank<'a>(mut bytes: impl Iterator<Item = &'a u8>) -> bool {
    bytes.all(u8::is_ascii_whitespace)
}

/// First and last line of a node, from 1.
pub(super) fn lines(node: Node<'_>) -> (u64, u64) {
    let start = node.start_position();
    let end = node.end_position();
    let ends_before = end.column == 0 && end.row > start.row;
    (
        start.row as u64 + 1,
        end.row as u64 + u64::from(!ends_before),
    )
}
