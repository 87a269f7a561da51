//! Joins characters that a server splits over two events.
//!
//! In JSON, a character beyond the first 65,536 may be written as a pair of surrogates:
//! `\ud83d\ude00`. If a server splits its text between the two, neither event is valid JSON text.
//! The first half is held back, and is put in front of the second half when that arrives in a later
//! event, or is left out if none arrives. Any other half without its other half becomes U+FFFD. So
//! the reply is not lost.

use std::borrow::Cow;

/// The first half of a character whose second half has not arrived yet.
#[derive(Debug, Default)]
pub(crate) struct Surrogates {
    high: Option<String>,
}

/// The length of `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

impl Surrogates {
    /// The JSON text of an event, in which each surrogate is part of a pair. O(n); borrows a text
    /// without such escapes.
    pub(crate) fn join<'a>(&mut self, json: &'a str) -> Cow<'a, str> {
        if !json.contains("\\ud") && !json.contains("\\uD") {
            return Cow::Borrowed(json);
        }
        let mut joined = String::with_capacity(json.len() + ESCAPE_BYTES);
        let mut rest = json;
        while let Some(at) = rest.find('\\') {
            joined.push_str(&rest[..at]);
            rest = &rest[at..];
            let (length, is_valid) = match surrogate(rest) {
                None => (rest.chars().take(2).map(char::len_utf8).sum(), true),
                Some(Half::High) if surrogate(&rest[ESCAPE_BYTES..]) == Some(Half::Low) => {
                    (2 * ESCAPE_BYTES, true)
                }
                Some(_) => (ESCAPE_BYTES, false),
            };
            let (escape, remainder) = rest.split_at(length);
            if is_valid {
                joined.push_str(escape);
            } else {
                self.handle_lone_half(escape, remainder, &mut joined);
            }
            rest = remainder;
        }
        joined.push_str(rest);
        Cow::Owned(joined)
    }

    /// Handles a surrogate without its other half next to it. A first half at the end of its string
    /// is held back.
    fn handle_lone_half(&mut self, escape: &str, remainder: &str, joined: &mut String) {
        match surrogate(escape) {
            Some(Half::High) if remainder.starts_with('"') => self.high = Some(escape.to_owned()),
            Some(Half::Low) if self.high.is_some() => {
                joined.extend(self.high.take());
                joined.push_str(escape);
            }
            _ => joined.push_str("\\ufffd"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// The surrogate that a text begins with.
fn surrogate(text: &str) -> Option<Half> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xd800..=0xdbff => Some(Half::High),
        0xdc00..=0xdfff => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_is_split_over_two_events_is_joined() {
        let joined = |events: &[&str]| {
            let mut surrogates = Surrogates::default();
            let joined = events
                .iter()
                .map(|event| surrogates.join(event).into_owned());
            joined.collect::<Vec<_>>()
        };
        let cases: [(&[&str], &[&str]); 8] = [
            (&[r#""a""#], &[r#""a""#]),
            (&[r#""a \ud83d\ude00""#], &[r#""a \ud83d\ude00""#]),
            (
                &[r#""a\ud83d""#, r#""\uDE00b""#],
                &[r#""a""#, r#""\ud83d\uDE00b""#],
            ),
            (
                &[r#""a\ud83d""#, r#"{"type":"ping"}"#, r#""\ude00b""#],
                &[r#""a""#, r#"{"type":"ping"}"#, r#""\ud83d\ude00b""#],
            ),
            (&[r#""\ude00b""#], &[r#""\ufffdb""#]),
            (&[r#""\ud83d b\ud83d\n""#], &[r#""\ufffd b\ufffd\n""#]),
            // An escaped backslash before a `u` does not begin an escaped character.
            (&[r#""\\ud83d \\\ud83d""#], &[r#""\\ud83d \\""#]),
            (&[r#""\ud8"#, r#""\ud83dé\"#], &[r#""\ud8"#, r#""\ufffdé\"#]),
        ];
        for (events, expected) in cases {
            assert_eq!(joined(events), expected, "{events:?}");
        }
    }
}
