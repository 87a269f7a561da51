//! Detection of the language of a text whose source does not name one.

use tree_sitter::Node;

use super::language::Language;
use super::parse::{parse, walk};

/// Bytes at the beginning that are inspected. Each language's parser reads them once.
const INSPECTED_BYTES: usize = 64 << 10;

/// A cut before this many bytes would leave too little to tell languages apart: a licence, imports.
const MIN_BEGINNING_BYTES: usize = INSPECTED_BYTES / 2;

/// A language is accepted if at most a tenth of the bytes is in errors.
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
/// are complete; if there is none in the second half, at a line end; and if the lines are longer
/// than that, anywhere.
fn find_beginning(text: &str) -> &str {
    if text.len() <= INSPECTED_BYTES {
        return text;
    }
    let bytes = text.as_bytes();
    let at_margin = |at: &usize| bytes.get(at + 2).is_some_and(u8::is_ascii_alphabetic);
    let inspected = &bytes[..INSPECTED_BYTES];
    let blank = memchr::memmem::rfind_iter(inspected, b"\n\n")
        .take_while(|at| *at >= MIN_BEGINNING_BYTES)
        .find(at_margin);
    let line_end = || memchr::memrchr(b'\n', inspected).map(|feed| feed + 1);
    let end = blank
        .or_else(|| line_end().filter(|end| *end >= MIN_BEGINNING_BYTES))
        .unwrap_or(INSPECTED_BYTES);
    &text[..text.floor_char_boundary(end)]
}

/// Bytes in errors, plus one for each missing token. The cut may leave an outer definition open,
/// which makes all of it one error. So bytes of complete definitions within an error do not count.
fn count_errors(text: &str, language: Language) -> usize {
    let Some(tree) = parse(text, language) else {
        return usize::MAX;
    };
    let mut errors = 0;
    walk(&tree, |node| {
        errors += usize::from(node.is_missing());
        if node.is_error() {
            errors += node.byte_range().len() - complete_definition_bytes(node, language);
        }
        node.has_error()
    });
    errors
}

fn complete_definition_bytes(error: Node<'_>, language: Language) -> usize {
    let kinds = &language.patterns().definition_kinds;
    let mut cursor = error.walk();
    let defined = error
        .named_children(&mut cursor)
        .filter(|child| kinds.contains(&child.kind_id()));
    defined.map(|child| child.byte_range().len()).sum()
}
