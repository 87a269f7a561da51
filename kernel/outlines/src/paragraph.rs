//! Paragraphs: runs of lines between blank ones.

use super::{MAX_UNITS, Outline, OutlineEntry, Unit, checked_count};

/// The paragraphs of a text. A line is blank if it contains only white space. One pass.
pub(super) fn outline(text: &str) -> Outline {
    let mut paragraphs: Vec<OutlineEntry> = Vec::new();
    let mut is_open = false;
    for (line, text) in (1..).zip(text.split_inclusive('\n')) {
        let is_blank = text.trim_start().is_empty();
        match paragraphs.last_mut().filter(|_| is_open) {
            _ if is_blank => {}
            Some(paragraph) => paragraph.last_line = line,
            None => paragraphs.push(paragraph_at(line)),
        }
        is_open = !is_blank;
        if paragraphs.len() > MAX_UNITS {
            break;
        }
    }
    checked_count(Unit::Paragraph, paragraphs)
}

fn paragraph_at(line: u64) -> OutlineEntry {
    OutlineEntry {
        name: Box::default(),
        implemented: Box::default(),
        first_line: line,
        last_line: line,
        within_lines: None,
    }
}
