//! Texts of messages: shortened texts, and lists of words.

/// The most characters of a name or a value that an error quotes.
const QUOTED_CHARS: usize = 64;

/// The text. If it has more than `max_chars` characters, it is cut to that length and an ellipsis
/// is added.
#[must_use]
pub fn truncate(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A name or a value for an error, truncated to 64 characters.
#[must_use]
pub fn shorten(text: &str) -> String {
    truncate(text, QUOTED_CHARS)
}

/// Words separated by commas, or "none".
#[must_use]
pub fn listed(words: &[&str]) -> String {
    match words {
        [] => "none".to_owned(),
        _ => words.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_above_the_limit_is_cut() {
        for (text, expected) in [("", ""), ("éaé", "éaé"), ("éaéb", "éaé…")] {
            assert_eq!(truncate(text, 3), expected);
        }
    }
}
