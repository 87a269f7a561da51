//! Names of units: normalisation and lookup.

use super::OutlineEntry;

/// Maximum length of a name in characters; longer names are truncated.
const NAME_CHARS: usize = 200;

/// Minimum similarity for a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.8;

/// Normalises a name to one line of at most 200 characters.
pub(super) fn normalise(name: &str) -> String {
    words(name, NAME_CHARS)
}

/// The first words of a text on one line, at most `max_chars` characters, with an ellipsis if it
/// was truncated.
#[must_use]
pub fn words(text: &str, max_chars: usize) -> String {
    let spaced = text.split_whitespace().flat_map(|word| [" ", word]).skip(1);
    let mut chars = spaced.flat_map(str::chars);
    let mut words: String = chars.by_ref().take(max_chars).collect();
    if chars.next().is_some() {
        words.push('…');
    }
    words
}

/// Positions of the units with this name. An exact match wins; then a heading without its `#`; then
/// the end of a qualified name, with `.` or `::` (`area`, `Circle::area`), or the type of an `impl`
/// block. O(n).
#[must_use]
pub fn find(units: &[OutlineEntry], query: &str) -> Vec<usize> {
    let qualified = query.replace("::", ".");
    let heading = normalise(query.trim_start_matches('#'));
    let tiers: [&dyn Fn(&OutlineEntry) -> bool; 3] = [
        &|unit| *unit.name == *query,
        &|unit| *unit.name == *heading,
        &|unit| {
            ends_with_name(&unit.name, &qualified) || ends_with_name(&unit.implemented, &qualified)
        },
    ];
    let found = tiers.iter().map(|matches| {
        (0..units.len())
            .filter(|at| matches(&units[*at]))
            .collect::<Vec<_>>()
    });
    found
        .into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn ends_with_name(name: &str, query: &str) -> bool {
    let before = name.strip_suffix(query).filter(|_| !query.is_empty());
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Positions of at most three units with the most similar names, best first, ignoring case; empty
/// if the requested name is longer than names can be. O(n).
#[must_use]
pub fn nearest(units: &[OutlineEntry], query: &str) -> Vec<usize> {
    if query.chars().count() > NAME_CHARS {
        return Vec::new();
    }
    let query = query.replace("::", ".").to_lowercase();
    let similarity = |unit: &OutlineEntry| {
        let name = unit.name.to_lowercase();
        let last = name.rsplit('.').next().unwrap_or(&name);
        strsim::jaro_winkler(&name, &query).max(strsim::jaro_winkler(last, &query))
    };
    let mut similar: Vec<_> = units
        .iter()
        .map(similarity)
        .enumerate()
        .filter(|(_, similarity)| *similarity > MIN_SIMILARITY)
        .collect();
    similar.sort_by(|a, b| b.1.total_cmp(&a.1));
    similar.into_iter().map(|(at, _)| at).take(3).collect()
}
