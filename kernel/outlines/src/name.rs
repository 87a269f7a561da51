//! Names of units: how they are written, and how one is found by what a caller calls it.

use super::Outlined;

/// The longest name, in characters; what is longer is cut.
const NAME_CHARS: usize = 200;

/// How like a name has to be to be suggested, from 0 to 1.
const ALIKE: f64 = 0.8;

/// A name on one line, of at most 200 characters.
pub(super) fn tidy(name: &str) -> String {
    words(name, NAME_CHARS)
}

/// The first words of a text on one line, at most so many characters of them, and an ellipsis where
/// it was cut.
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

/// Which units have this name, as positions in the list. The name as it stands goes before all;
/// then a heading with its `#`; then the end of a qualified name, with `.` or `::` (`area`,
/// `Circle::area`), or the type that an `impl` block is of. O(n).
#[must_use]
pub fn find(units: &[Outlined], asked: &str) -> Vec<usize> {
    let qualified = asked.replace("::", ".");
    let heading = tidy(asked.trim_start_matches('#'));
    let tiers: [&dyn Fn(&Outlined) -> bool; 3] = [
        &|unit| *unit.name == *asked,
        &|unit| *unit.name == *heading,
        &|unit| ends(&unit.name, &qualified) || ends(&unit.implemented, &qualified),
    ];
    let found = tiers.iter().map(|is| {
        (0..units.len())
            .filter(|at| is(&units[*at]))
            .collect::<Vec<_>>()
    });
    found
        .into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn ends(name: &str, asked: &str) -> bool {
    let before = name.strip_suffix(asked).filter(|_| !asked.is_empty());
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The units whose names are most like this one, the likest first: at most three, whatever the case
/// of letters; none where it is longer than names are. O(n).
#[must_use]
pub fn nearest(units: &[Outlined], asked: &str) -> Vec<usize> {
    if asked.chars().count() > NAME_CHARS {
        return Vec::new();
    }
    let asked = asked.replace("::", ".").to_lowercase();
    let alike = |unit: &Outlined| {
        let name = unit.name.to_lowercase();
        let last = name.rsplit('.').next().unwrap_or(&name);
        strsim::jaro_winkler(&name, &asked).max(strsim::jaro_winkler(last, &asked))
    };
    let mut likest: Vec<_> = units
        .iter()
        .map(alike)
        .enumerate()
        .filter(|(_, alike)| *alike > ALIKE)
        .collect();
    likest.sort_by(|a, b| b.1.total_cmp(&a.1));
    likest.into_iter().map(|(at, _)| at).take(3).collect()
}
