//! Estimates nesting depth from brackets before parsing.
//!
//! The parser keeps all interpretations of open constructs. For constructs that nest and are
//! ambiguous (`a<a<a<…`, comparison or generic type), finishing the parse takes time quadratic in
//! the depth and cannot be interrupted. Ordinary code does not nest this deeply.

use super::language::Language;

/// Maximum number of simultaneously open brackets.
const MAX_DEPTH: usize = 500;

/// Open brackets within one brace.
#[derive(Clone, Copy, Default)]
struct Level {
    brackets: usize,
    angles: usize,
}

/// Whether the text nests too deeply to be parsed. A semicolon closes everything except braces;
/// brackets in strings and comments count. Python is not ambiguous and is always accepted. One
/// pass.
pub(super) fn is_too_deep(text: &str, language: Language) -> bool {
    if language == Language::Python {
        return false;
    }
    let mut outer: Vec<Level> = Vec::new();
    let mut level = Level::default();
    let mut outer_depth = 0;
    let mut before = 0;
    for byte in text.bytes() {
        match byte {
            b'{' => {
                outer_depth += 1 + level.brackets + level.angles;
                outer.push(std::mem::take(&mut level));
            }
            b'}' => {
                level = outer.pop().unwrap_or_default();
                outer_depth = outer_depth.saturating_sub(1 + level.brackets + level.angles);
            }
            b';' => level = Level::default(),
            b'(' | b'[' => level.brackets += 1,
            b')' | b']' => level.brackets = level.brackets.saturating_sub(1),
            b'<' => level.angles += 1,
            b'>' if !matches!(before, b'-' | b'=') => level.angles = level.angles.saturating_sub(1),
            _ => {}
        }
        before = byte;
        if outer_depth + level.brackets + level.angles > MAX_DEPTH {
            return true;
        }
    }
    false
}
