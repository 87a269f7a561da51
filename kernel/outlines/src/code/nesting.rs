//! Estimates nesting depth from brackets before parsing.
//!
//! The parser keeps all interpretations of open constructs. For constructs that nest and are
//! ambiguous (`a<a<a<…`, comparison or generic type), finishing the parse takes time quadratic in
//! the depth and cannot be interrupted. Ordinary code does not nest this deeply.

use super::language::Language;

/// The most braces, brackets, parentheses and `<` that are open at once.
const MAX_DEPTH: usize = 500;

/// Open brackets within one brace.
#[derive(Clone, Copy, Default)]
struct Level {
    brackets: usize,
    angles: usize,
}

/// Whether the text nests too deeply to be parsed. `;` closes all brackets that were opened in the
/// same braces. Strings and comments are not recognised, so that brackets in them count. Python is
/// not ambiguous and is always accepted. One pass.
pub(super) fn is_too_deep(text: &str, language: Language) -> bool {
    if language == Language::Python {
        return false;
    }
    let mut outer: Vec<Level> = Vec::new();
    let mut level = Level::default();
    let mut outer_depth = 0;
    let mut before = 0;
    for (at, byte) in text.bytes().enumerate() {
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
            b'<' if !is_operator(text.as_bytes(), at) => level.angles += 1,
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

/// Whether the `<` at `at` belongs to an operator, which opens nothing: `<=`, `<<=`, or `<<` before
/// white space or a digit. Lists such as `A = 1 << 0, B = 1 << 1, …` hold hundreds of them.
fn is_operator(bytes: &[u8], at: usize) -> bool {
    let is_angle = |byte: &&u8| **byte == b'<';
    let before = bytes[..at]
        .iter()
        .rev()
        .take(2)
        .take_while(is_angle)
        .count();
    let from_here = bytes[at..].iter().take(3).take_while(is_angle).count();
    let Some(next) = bytes.get(at + from_here) else {
        return false;
    };
    match before + from_here {
        1 => *next == b'=',
        2 => *next == b'=' || next.is_ascii_whitespace() || next.is_ascii_digit(),
        _ => false,
    }
}
