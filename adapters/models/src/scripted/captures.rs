//! Captures: variables of templates whose values are found in a conversation by patterns.
//!
//! The value of a pattern with named groups is a map from group to text. The value of a pattern
//! with a single unnamed group is the text of that group. The value of any other pattern is the
//! text of the whole match. All captured values are texts; the filter `| int` converts one into a
//! number.

use std::collections::{BTreeMap, HashSet};

use minijinja::Value;
use regex::{Captures, Regex};
use serde::Deserialize;
use toml::Spanned;

use super::error::{ScriptError, ScriptText};
use super::history::{History, Since, Source};

/// `[[capture]]` as the script file contains it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaptureEntry {
    pub(crate) name: Spanned<String>,
    pattern: Spanned<String>,
    #[serde(default)]
    from: Source,
    #[serde(default)]
    since: Since,
    #[serde(default)]
    take: Take,
    unique: Option<Spanned<bool>>,
    default: Option<serde_json::Value>,
}

/// The matches that become the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Take {
    First,
    #[default]
    Last,
    All,
}

/// A checked capture.
pub(crate) struct Capture {
    pub(crate) name: String,
    pattern: Regex,
    from: Source,
    since: Since,
    take: Take,
    repeats: Repeats,
    default: Option<serde_json::Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Kept,
    Dropped,
}

/// The variables that every template has without a capture.
pub(crate) const BUILT_IN: [&str; 5] = ["prompt", "last", "program", "turn", "round"];

impl Capture {
    /// Checks a capture.
    ///
    /// # Errors
    /// If the name is not a valid variable, or the pattern is not a regular expression.
    pub(crate) fn check(entry: CaptureEntry, text: &ScriptText<'_>) -> Result<Self, ScriptError> {
        let CaptureEntry {
            name,
            pattern,
            from,
            since,
            take,
            unique,
            default,
        } = entry;
        check_name(&name, text)?;
        let pattern = compile(&pattern, text)?;
        if let Some(unique) = unique.as_ref().filter(|_| take != Take::All) {
            return Err(text.error_at(
                unique.span(),
                "'unique' needs take = \"all\": the other ways keep one match",
            ));
        }
        let repeats = if unique.is_some_and(Spanned::into_inner) {
            Repeats::Dropped
        } else {
            Repeats::Kept
        };
        Ok(Self {
            name: name.into_inner(),
            pattern,
            from,
            since,
            take,
            repeats,
            default,
        })
    }

    /// The value in this conversation. If nothing matches, the default; without one, `None`, or an
    /// empty list if all matches are taken.
    pub(crate) fn value(&self, history: &History<'_>) -> Option<Value> {
        let texts = history.texts(self.from, self.since);
        let mut matches = texts
            .iter()
            .flat_map(|text| self.pattern.captures_iter(text));
        let matched = match self.take {
            Take::First => matches.next().map(|matched| self.value_of(&matched)),
            // The search starts at the last text, so that not all of a long conversation is read.
            Take::Last => {
                let last = texts
                    .iter()
                    .rev()
                    .find_map(|text| self.pattern.captures_iter(text).last());
                last.map(|matched| self.value_of(&matched))
            }
            Take::All => self.all_values(matches),
        };
        matched.or_else(|| self.default.as_ref().map(Value::from_serialize))
    }

    fn all_values<'t>(&self, matches: impl Iterator<Item = Captures<'t>>) -> Option<Value> {
        let mut seen = HashSet::new();
        let is_new = |matched: &Captures<'t>| {
            self.repeats == Repeats::Kept || seen.insert(self.captured_texts(matched))
        };
        let values: Vec<_> = matches
            .filter(is_new)
            .map(|matched| self.value_of(&matched))
            .collect();
        if values.is_empty() && self.default.is_some() {
            None
        } else {
            Some(Value::from(values))
        }
    }

    /// The captured texts. Two matches with equal texts count as a repetition.
    fn captured_texts<'t>(&self, matched: &Captures<'t>) -> Vec<&'t str> {
        let groups = matched
            .iter()
            .skip(usize::from(self.pattern.captures_len() > 1));
        groups
            .map(|group| group.map_or("", |group| group.as_str()))
            .collect()
    }

    fn value_of(&self, matched: &Captures<'_>) -> Value {
        let named = self.pattern.capture_names().flatten();
        let map: BTreeMap<_, _> = named
            .map(|name| (name, matched.name(name).map_or("", |group| group.as_str())))
            .collect();
        match (map.is_empty(), self.pattern.captures_len()) {
            (false, _) => Value::from_serialize(map),
            (true, 2) => Value::from(matched.get(1).map_or("", |group| group.as_str())),
            (true, _) => Value::from(&matched[0]),
        }
    }
}

fn check_name(name: &Spanned<String>, text: &ScriptText<'_>) -> Result<(), ScriptError> {
    let variable = name.get_ref();
    let is_word = variable
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !variable.is_empty();
    if !is_word || variable.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(text.error_at(
            name.span(),
            format!("'{variable}' cannot be a variable: use letters, digits and _"),
        ));
    }
    if BUILT_IN.contains(&variable.as_str()) {
        let message = format!(
            "'{variable}' is known to every template already, so are {}",
            BUILT_IN.join(", ")
        );
        return Err(text.error_at(name.span(), message));
    }
    Ok(())
}

/// Compiles a pattern of the script.
///
/// # Errors
/// A diagnostic that points at the mistake in the pattern.
pub(crate) fn compile(
    pattern: &Spanned<String>,
    text: &ScriptText<'_>,
) -> Result<Regex, ScriptError> {
    Regex::new(pattern.get_ref()).map_err(|error| text.error_at(pattern.span(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::testing::{answer, request, said, used};

    fn value(capture: &str) -> Option<String> {
        let entry: CaptureEntry = toml::from_str(capture).unwrap();
        let capture = Capture::check(
            entry,
            &ScriptText {
                name: "t",
                text: capture,
            },
        )
        .unwrap();
        let messages = vec![
            said("find a@1"),
            used("u", "search_fd", "{}"),
            answer("u", "a@1 b@2 a@1"),
            used("v", "search_fd", "{}"),
            answer("v", "c@3"),
        ];
        let request = request(messages);
        capture
            .value(&History::of(&request))
            .map(|value| serde_json::to_string(&value).unwrap())
    }

    #[test]
    fn a_capture_takes_the_first_the_last_or_all_matches() {
        let cases = [
            (r"pattern = '\w@\d'", Some(r#""c@3""#)),
            (r"pattern = '(\w)@\d'", Some(r#""c""#)),
            (
                r"pattern = '(?<n>\w)@(?<v>\d)'",
                Some(r#"{"n":"c","v":"3"}"#),
            ),
            ("pattern = '(\\w)@\\d'\ntake = 'first'", Some(r#""a""#)),
            (
                "pattern = '(\\w)@\\d'\nfrom = 'last'\ntake = 'first'",
                Some(r#""c""#),
            ),
            (
                "pattern = '(\\w)@\\d'\ntake = 'all'",
                Some(r#"["a","b","a","c"]"#),
            ),
            (
                "pattern = '(\\w)@\\d'\ntake = 'all'\nunique = true",
                Some(r#"["a","b","c"]"#),
            ),
            (
                "pattern = '(?<n>\\w)@\\d'\ntake = 'all'\nfrom = 'input'",
                Some(r#"[{"n":"a"}]"#),
            ),
            ("pattern = 'absent'", None),
            ("pattern = 'absent'\ndefault = {n = 1}", Some(r#"{"n":1}"#)),
            ("pattern = 'absent'\ntake = 'all'", Some("[]")),
            (
                "pattern = 'absent'\ntake = 'all'\ndefault = 'none'",
                Some(r#""none""#),
            ),
        ];
        for (capture, expected) in cases {
            assert_eq!(
                value(&format!("name = 'x'\n{capture}")).as_deref(),
                expected,
                "{capture}"
            );
        }
    }
}
