//! How deep a text nests, told from its brackets before it is parsed.
//!
//! The parser keeps every reading of what is still open. Where something opens again and again and
//! could be read in two ways (`a<a<a<…`, a comparison or a generic type), the end of the text costs
//! it a time that is quadratic in the depth, and it cannot be interrupted there. No code that is
//! written for a purpose nests so deeply.

use super::language::Language;

/// The most brackets that may be open at once.
const MAX_DEPTH: usize = 500;

/// What is open inside of one brace.
#[derive(Clone, Copy, Default)]
struct Level {
    brackets: usize,
    angles: usize,
}

/// Whether more brackets are open somewhere than the parser may be given. A semicolon ends what is
/// open around it but for braces; those in strings and comments count like any other. Python has
/// one reading for each. One pass.
pub(super) fn is_too_deep(text: &str, language: Language) -> bool {
    if language == Language::Python {
        return false;
    }
    let mut outer: Vec<Level> = Vec::new();
    let (mut level, mut around) = (Level::default(), 0);
    let mut before = 0;
    for byte in text.bytes() {
        match byte {
            b'{' => {
                around += 1 + level.brackets + level.angles;
                outer.push(std::mem::take(&mut level));
            }
            b'}' => {
                level = outer.pop().unwrap_or_default();
                around = around.saturating_sub(1 + level.brackets + level.angles);
            }
            b';' => level = Level::default(),
            b'(' | b'[' => level.brackets += 1,
            b')' | b']' => level.brackets = level.brackets.saturating_sub(1),
            b'<' => level.angles += 1,
            b'>' if !matches!(before, b'-' | b'=') => level.angles = level.angles.saturating_sub(1),
            _ => {}
        }
        before = byte;
        if around + level.brackets + level.angles > MAX_DEPTH {
            return true;
        }
    }
    false
}
