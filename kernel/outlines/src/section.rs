//! Sections: Markdown headings with the text that follows them. A heading is ATX (`## Title`) or
//! setext (underlined).
//!
//! A heading in a code block, a quotation or a list starts no section; neither does a metadata
//! block at the top.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag};

use super::{MAX_UNITS, Outline, OutlineEntry, Unit, checked_count, name};

/// The sections of a text. One parser pass, and one pass over the lines.
pub(super) fn outline(text: &str) -> Outline {
    let count_feeds =
        |bytes: Range<usize>| memchr::memchr_iter(b'\n', &text.as_bytes()[bytes]).count() as u64;
    let total_lines = count_feeds(0..text.len()) + u64::from(!text.ends_with('\n'));
    let mut sections: Vec<OutlineEntry> = Vec::new();
    let mut open: Vec<(HeadingLevel, usize)> = Vec::new();
    let mut line = 1;
    let mut at = 0;
    for Heading { level, byte, name } in find_headings(text).take(MAX_UNITS + 1) {
        line += count_feeds(at..byte);
        at = byte;
        while let Some((_, section)) = open.pop_if(|(above, _)| *above >= level) {
            sections[section].last_line = line - 1;
        }
        open.push((level, sections.len()));
        sections.push(OutlineEntry {
            name: name.into(),
            implemented: Box::default(),
            first_line: line,
            last_line: total_lines,
            within_lines: None,
        });
    }
    checked_count(Unit::Section, sections)
}

struct Heading {
    level: HeadingLevel,
    byte: usize,
    name: String,
}

/// The top-level headings, in order.
fn find_headings(text: &str) -> impl Iterator<Item = Heading> {
    let mut depth = 0_usize;
    let mut heading: Option<Heading> = None;
    let events =
        Parser::new_ext(text, Options::ENABLE_YAML_STYLE_METADATA_BLOCKS).into_offset_iter();
    events.filter_map(move |(event, bytes)| {
        match event {
            Event::Start(tag) => {
                if let (0, Tag::Heading { level, .. }) = (depth, tag) {
                    heading = Some(Heading {
                        level,
                        byte: bytes.start,
                        name: String::new(),
                    });
                }
                depth += 1;
            }
            Event::End(_) => {
                depth -= 1;
                let ended = heading.take_if(|_| depth == 0);
                return ended.map(|heading| Heading {
                    name: name::normalise(&heading.name),
                    ..heading
                });
            }
            Event::Text(words) | Event::Code(words) | Event::InlineHtml(words) => {
                heading.iter_mut().for_each(|at| at.name.push_str(&words))
            }
            Event::SoftBreak | Event::HardBreak => {
                heading.iter_mut().for_each(|at| at.name.push(' '))
            }
            _ => {}
        }
        None
    })
}
