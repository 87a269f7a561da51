//! Which language a text is in, if its source does not tell.

use tree_sitter::Node;

use super::language::Language;
use super::parse::{parse, walk};

/// So much of the beginning is looked at: each language takes its time for it.
const LOOKED_AT: usize = 64 << 10;

/// No language is told if more than one byte in this many is in error.
const TOLERATED: usize = 10;

/// The language in which the beginning of the text has the fewest bytes in error, if they are few
/// enough. Parses it once for each language.
pub(super) fn language(text: &str) -> Option<Language> {
    let beginning = beginning(text);
    let errors = Language::ALL
        .into_iter()
        .map(|language| (language, errors(beginning, language)));
    let (language, errors) = errors.min_by_key(|(_, errors)| *errors)?;
    (errors <= beginning.len() / TOLERATED).then_some(language)
}

/// Up to where something at the margin begins after a blank line, so that what is before it is
/// whole; else to the end of a line.
fn beginning(text: &str) -> &str {
    if text.len() <= LOOKED_AT {
        return text;
    }
    let bytes = text.as_bytes();
    let at_margin = |at: &usize| bytes.get(at + 2).is_some_and(u8::is_ascii_alphabetic);
    let blank = memchr::memmem::rfind_iter(&bytes[..LOOKED_AT], b"\n\n").find(at_margin);
    let end = blank.unwrap_or_else(|| last_line_end(&bytes[..LOOKED_AT]));
    &text[..text.floor_char_boundary(end)]
}

/// Bytes that the grammar makes nothing of, and a byte for each token that it misses. A definition
/// inside of an error counts as well-formed: a beginning is cut in the middle of something.
fn errors(text: &str, language: Language) -> usize {
    let Some(tree) = parse(text, language) else {
        return usize::MAX;
    };
    let mut errors = 0;
    walk(&tree, |node| {
        errors += usize::from(node.is_missing());
        if node.is_error() {
            errors += node.byte_range().len() - well_formed(node, language);
        }
        node.has_error()
    });
    errors
}

fn well_formed(error: Node<'_>, language: Language) -> usize {
    let roots = &language.patterns().roots;
    let mut cursor = error.walk();
    let defined = error
        .named_children(&mut cursor)
        .filter(|child| roots.contains(&child.kind_id()));
    defined.map(|child| child.byte_range().len()).sum()
}

/// Behind the last line feed; the whole where there is none.
fn last_line_end(bytes: &[u8]) -> usize {
    memchr::memrchr(b'\n', bytes).map_or(bytes.len(), |feed| feed + 1)
}
