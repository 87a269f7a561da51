//! Labels of process trees, and the budgets that all trees with a label share.
//!
//! Types only: `dormouse_kernel::labels` counts usage and decides when a budget is used up.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::budget::{Amount, Budget};
use crate::model::Usage;

/// The longest key of a label, in characters.
pub const MAX_KEY_CHARS: usize = 64;
/// The longest value of a label, in bytes.
pub const MAX_VALUE_BYTES: usize = 256;
/// The most labels of a tree.
pub const MAX_LABELS: usize = 16;

/// A label of process trees: a key and a value, such as `user=anna`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Label(Arc<str>);

/// A text is not a label, or a budget of a label is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// There is no `=`.
    #[error("'{0}' is no label: give a key and a value, such as user=anna")]
    NoValue(String),
    /// The key is not valid.
    #[error(
        "'{0}' cannot be the key of a label: valid are 1 to {MAX_KEY_CHARS} of A-Z, a-z, 0-9, '_', \
         '-' and '.', such as user"
    )]
    Key(String),
    /// The value is not valid.
    #[error(
        "'{0}' cannot be the value of a label: valid are 1 to {MAX_VALUE_BYTES} bytes, without \
         control characters, and without a space at either end"
    )]
    Value(String),
    /// A tree has two values of one key.
    #[error("the key '{0}' has two values: a tree has one of each key")]
    TwoValues(String),
    /// A tree has too many labels.
    #[error("a tree has at most {MAX_LABELS} labels")]
    TooMany,
    /// A budget of a label limits nothing.
    #[error("a budget of a label limits cost, input_tokens or output_tokens: give at least one")]
    NoLimit,
    /// A budget of a label limits an amount that is not counted for labels.
    #[error(
        "a budget of a label cannot limit {}: give cost, input_tokens or output_tokens", .0.word()
    )]
    Amount(Amount),
    /// Not a period.
    #[error("'{0}' is no period: valid are day and month")]
    Period(String),
    /// Not a time zone.
    #[error("'{0}' is no time zone: give an IANA name, such as Europe/Berlin or UTC")]
    Zone(String),
}

impl Label {
    /// The label with this key and this value.
    ///
    /// # Errors
    /// [`LabelError::Key`], [`LabelError::Value`].
    pub fn new(key: &str, value: &str) -> Result<Self, LabelError> {
        let is_key_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !(1..=MAX_KEY_CHARS).contains(&key.len()) || !key.chars().all(is_key_char) {
            return Err(LabelError::Key(key.chars().take(MAX_KEY_CHARS).collect()));
        }
        let is_valid = (1..=MAX_VALUE_BYTES).contains(&value.len())
            && value.trim() == value
            && !value.contains(char::is_control);
        if !is_valid {
            let shown = value.chars().take(MAX_KEY_CHARS);
            return Err(LabelError::Value(shown.collect()));
        }
        Ok(Self(format!("{key}={value}").into()))
    }

    /// The key: the text before the first `=`.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.split_once('=').map_or("", |(key, _)| key)
    }

    /// The value: the text after the first `=`.
    #[must_use]
    pub fn value(&self) -> &str {
        self.0.split_once('=').map_or("", |(_, value)| value)
    }
}

impl FromStr for Label {
    type Err = LabelError;

    /// Reads a label such as `user=anna`. The value may contain further `=`.
    fn from_str(text: &str) -> Result<Self, LabelError> {
        match text.split_once('=') {
            Some((key, value)) => Self::new(key, value),
            None => Err(LabelError::NoValue(
                text.chars().take(MAX_KEY_CHARS).collect(),
            )),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Checks the labels of one tree, and sorts them.
///
/// # Errors
/// [`LabelError::TwoValues`], [`LabelError::TooMany`].
pub fn labels_of_tree(mut labels: Vec<Label>) -> Result<Arc<[Label]>, LabelError> {
    labels.sort();
    labels.dedup();
    if labels.len() > MAX_LABELS {
        return Err(LabelError::TooMany);
    }
    match labels
        .windows(2)
        .find(|pair| pair[0].key() == pair[1].key())
    {
        Some(pair) => Err(LabelError::TwoValues(pair[0].key().to_owned())),
        None => Ok(labels.into()),
    }
}

/// How long a budget of a label lasts before it begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// A day of its time zone.
    Day,
    /// A calendar month of its time zone.
    Month,
}

impl Period {
    /// The word for it: `day` or `month`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl FromStr for Period {
    type Err = LabelError;

    fn from_str(word: &str) -> Result<Self, LabelError> {
        let mut periods = [Self::Day, Self::Month].into_iter();
        let found = periods.find(|period| period.word() == word);
        found.ok_or_else(|| LabelError::Period(word.chars().take(MAX_KEY_CHARS).collect()))
    }
}

/// What all trees with a label may use together in each period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelBudget {
    /// The period.
    pub per: Period,
    /// The time zone in which a period begins, by its IANA name.
    pub zone: Arc<str>,
    /// The limits, of `cost`, `input_tokens` and `output_tokens` only.
    pub limits: Budget,
}

impl LabelBudget {
    /// The amounts that a budget of a label can limit.
    pub const AMOUNTS: [Amount; 3] = [Amount::InputTokens, Amount::OutputTokens, Amount::Cost];

    /// These limits for each day, in UTC.
    #[must_use]
    pub fn per_day(limits: Budget) -> Self {
        Self {
            per: Period::Day,
            zone: "UTC".into(),
            limits,
        }
    }

    /// These limits for each calendar month, in UTC.
    #[must_use]
    pub fn per_month(limits: Budget) -> Self {
        Self {
            per: Period::Month,
            ..Self::per_day(limits)
        }
    }

    /// The budget with periods of another time zone, by its IANA name.
    #[must_use]
    pub fn in_zone(self, zone: impl Into<Arc<str>>) -> Self {
        Self {
            zone: zone.into(),
            ..self
        }
    }
}

/// A label with a budget, as the store has it. Each record replaces the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRecord {
    /// The label.
    pub label: Label,
    /// Its budget; `None` if it was removed.
    pub budget: Option<LabelBudget>,
    /// Since when usage is counted in `spent`: the beginning of the period, or when the budget was
    /// set. Milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// The usage of all trees with the label since then.
    pub spent: Usage,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_a_key_and_a_value() {
        let label: Label = "user=anna=b c".parse().unwrap();
        assert_eq!((label.key(), label.value()), ("user", "anna=b c"));
        assert_eq!(label.to_string(), "user=anna=b c");
        let long = "v".repeat(MAX_VALUE_BYTES + 1);
        for (text, what) in [
            ("anna".to_owned(), "such as user=anna"),
            ("=anna".to_owned(), "key of a label"),
            ("us er=anna".to_owned(), "key of a label"),
            ("user=".to_owned(), "value of a label"),
            ("user= anna".to_owned(), "value of a label"),
            ("user=a\nb".to_owned(), "value of a label"),
            (format!("user={long}"), "value of a label"),
        ] {
            let error = text.parse::<Label>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn a_tree_has_one_value_of_each_key() {
        let labels = |texts: &[&str]| {
            let labels = texts.iter().map(|text| text.parse().unwrap());
            labels_of_tree(labels.collect())
        };
        let sorted = labels(&["user=anna", "project=x", "user=anna"]).unwrap();
        assert_eq!(format!("{sorted:?}"), r#"["project=x", "user=anna"]"#);
        assert_eq!(
            labels(&["user=anna", "user=ben"]),
            Err(LabelError::TwoValues("user".to_owned()))
        );
        let many: Vec<String> = (0..=MAX_LABELS).map(|key| format!("k{key}=v")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(labels(&many), Err(LabelError::TooMany));
    }
}
