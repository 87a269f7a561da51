//! Alarms: times at which a process is given a message, so that it can rest until then.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::parse_number;

/// The most characters of the note of an alarm.
pub const MAX_NOTE_CHARS: usize = 8_000;

/// The number of an alarm of one process, from 1, never reused. Written `alarm:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AlarmId(pub u32);

impl fmt::Display for AlarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alarm:{}", self.0)
    }
}

impl FromStr for AlarmId {
    type Err = ParseAlarmError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_number(text, "alarm:")
            .and_then(|number| u32::try_from(number).ok())
            .map(Self)
            .ok_or_else(|| ParseAlarmError(text.to_owned()))
    }
}

/// The text is not the number of an alarm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no alarm: valid are alarm:1, alarm:2 and so on")]
pub struct ParseAlarmError(pub String);

/// An open alarm of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its number.
    pub id: AlarmId,
    /// When it is due next: milliseconds since the epoch, UTC.
    pub due_ms: u64,
    /// How it repeats; `None` if it fires once.
    pub repeat: Option<Repeat>,
    /// What its message says.
    pub note: Arc<str>,
    /// What happens to times that were missed.
    pub missed: MissedPolicy,
}

/// The times at which an alarm repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// A cron expression of five fields.
    pub cron: Arc<str>,
    /// The time zone in which the expression is read, by its IANA name, such as `Europe/Berlin`.
    pub zone: Arc<str>,
}

/// What happens to times of an alarm that passed while the process could not be woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissedPolicy {
    /// One message, which says how many times were missed.
    #[default]
    Once,
    /// A message for each time, up to a limit; the oldest ones beyond it are only counted.
    Each,
    /// No message: a missed time is dropped.
    Skip,
}

impl MissedPolicy {
    /// All words, in the order in which they are listed.
    pub const WORDS: &'static [&'static str] = &["once", "each", "skip"];

    /// The word for the policy.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Each => "each",
            Self::Skip => "skip",
        }
    }

    /// The policy with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Once, Self::Each, Self::Skip]
            .into_iter()
            .find(|policy| policy.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_named_by_its_number() {
        for text in ["alarm:7", "7"] {
            assert_eq!(text.parse(), Ok(AlarmId(7)));
        }
        assert_eq!(AlarmId(7).to_string(), "alarm:7");
        for text in [
            "",
            "alarm:",
            "0",
            "alarm:-1",
            "+1",
            "alarm:4294967296",
            "cp:1",
        ] {
            assert!(text.parse::<AlarmId>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_policy_has_a_word() {
        for word in MissedPolicy::WORDS {
            assert_eq!(MissedPolicy::from_word(word).unwrap().word(), *word);
        }
        assert_eq!(MissedPolicy::from_word("never"), None);
    }
}
