//! Detection of the language of a text whose source does not name one.

use tree_sitter::Node;

use super::language::Language;
use super::parse::{parse, walk};

/// Bytes at the beginning that are inspected. Each language's parser reads them once.
const INSPECTED_BYTES: usize = 64 << 10;

/// A language is accepted if at most one in this many bytes is part of an error.
const BYTES_PER_ERROR_BYTE: usize = 10;

/// The language whose parser reports the fewest error bytes in the beginning of the text, if they
/// are few enough. Parses once per language.
pub(super) fn detect_language(text: &str) -> Option<Language> {
    let beginning = find_beginning(text);
    let errors = Language::ALL
        .into_iter()
        .map(|language| (language, count_errors(beginning, language)));
    let (language, errors) = errors.min_by_key(|(_, errors)| *errors)?;
    (errors <= beginning.len() / BYTES_PER_ERROR_BYTE).then_some(language)
}

/// The beginning of the text, cut before an unindented line after a blank one, so that definitions
/// are complete; otherwise at a line end.
fn find_beginning(text: &str) -> &str {
    if text.len() <= INSPECTED_BYTES {
        return text;
    }
    let bytes = text.as_bytes();
    let at_margin = |at: &usize| bytes.get(at + 2).is_some_and(u8::is_ascii_alphabetic);
    let blank = memchr::memmem::rfind_iter(&bytes[..INSPECTED_BYTES], b"\n\n").find(at_margin);
    let end = blank.unwrap_or_else(|| last_line_end(&bytes[..INSPECTED_BYTES]));
    &text[..text.floor_char_boundary(end)]
}

/// Bytes in errors, plus one for each missing token. A definition within an error counts as
/// correct, since the inspected text may end within an outer definition.
fn count_errors(text: &str, language: Language) -> usize {
    let Some(tree) = parse(text, language) else {
        return usize::MAX;
    };
    let mut errors = 0;
    walk(&tree, |node| {
        errors += usize::from(node.is_missing());
        if node.is_error() {
            errors += node.byte_range().len() - well_formed_bytes(node, language);
        }
        node.has_error()
    });
    errors
}

fn well_formed_bytes(error: Node<'_>, language: Language) -> usize {
    let root_kinds = &language.patterns().root_kinds;
    let mut cursor = error.walk();
    let defined = error
        .named_children(&mut cursor)
        .filter(|child| root_kinds.contains(&child.kind_id()));
    defined.map(|child| child.byte_range().len()).sum()
}

/// The position after the last line feed; the length if there is none.
fn last_line_end(bytes: &[u8]) -> usize {
    memchr::memrchr(b'\n', bytes).map_or(bytes.len(), |feed| feed + 1)
}
