//! Detection of the language of a text whose source does not name one.

use tree_sitter::Node;

use super::language::Language;
use super::parse::{parse, walk};

/// Bytes that are inspected; each language parses them once.
const LOOKED_AT: usize = 64 << 10;

/// A language is accepted if at most one byte in this many is part of an error.
const TOLERATED: usize = 10;

/// The language whose parser reports the fewest error bytes in the beginning of the text, if they
/// are few enough. Parses once per language.
pub(super) fn language(text: &str) -> Option<Language> {
    let beginning = beginning(text);
    let errors = Language::ALL
        .into_iter()
        .map(|language| (language, errors(beginning, language)));
    let (language, errors) = errors.min_by_key(|(_, errors)| *errors)?;
    (errors <= beginning.len() / TOLERATED).then_some(language)
}

/// The beginning of the text, cut before an unindented line after a blank one, so that definitions
/// are complete; otherwise at a line end.
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

/// Bytes in errors, plus one for each missing token. A definition within an error counts as
/// correct, since the text may be cut within something.
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

/// The position after the last line feed; the length if there is none.
fn last_line_end(bytes: &[u8]) -> usize {
    memchr::memrchr(b'\n', bytes).map_or(bytes.len(), |feed| feed + 1)
}
