//! Suggests the nearest known word for a misspelt one.

use crate::text::listed;

/// The candidate that `word` was most likely meant to be, if one is similar enough.
///
/// ```
/// use dormouse_proto::program::nearest;
///
/// assert_eq!(nearest("max_token", ["temperature", "max_tokens"]), Some("max_tokens"));
/// assert_eq!(nearest("colour", ["temperature", "max_tokens"]), None);
/// ```
#[must_use]
pub fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    const LONGEST_NAME: usize = 128;
    const SHORTEST_PREFIX: usize = 4;
    if word.len() > LONGEST_NAME {
        return None;
    }
    let max_distance = 1 + word.chars().count() / 4;
    let completion = candidates
        .clone()
        .into_iter()
        .find(|candidate| candidate.starts_with(word));
    let scored = candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate));
    let (distance, found) = scored.min_by_key(|(distance, _)| *distance)?;
    if distance <= max_distance {
        Some(found)
    } else {
        completion.filter(|_| word.len() >= SHORTEST_PREFIX)
    }
}

/// The help of a diagnostic: "did you mean … ?" if a word is similar, and the list of valid words.
#[must_use]
pub fn advice(word: &str, valid: &[&str], what: &str) -> String {
    let list = format!("valid {what}: {}", listed(valid));
    suggestion(word, valid, &list).unwrap_or(list)
}

/// `list` with "did you mean … ?" before it; `None` if no word is similar.
#[must_use]
pub fn suggestion(word: &str, valid: &[&str], list: &str) -> Option<String> {
    let near = nearest(word, valid.iter().copied())?;
    Some(format!("did you mean `{near}`? {list}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_gets_the_most_similar_candidate() {
        let known = ["name", "provider", "max_iterations"];
        let cases = [
            ("nmae", Some("name")),
            ("max_iteration", Some("max_iterations")),
            ("maxiterations", Some("max_iterations")),
            ("Provider", Some("provider")),
            ("max_iter", Some("max_iterations")),
            ("max", None),
            ("x", None),
            ("", None),
            ("something_else", None),
        ];
        for (word, expected) in cases {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest(&"n".repeat(1 << 20), known), None);
    }
}
