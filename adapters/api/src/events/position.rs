//! Positions in the log, as ids of events.

use std::fmt;
use std::str::FromStr;

use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

/// A position in the log: behind a commit, or behind a fact of a commit. The facts of a commit are
/// ordered by process and number.
///
/// Written `COMMIT`, such as `41`, or `COMMIT.PID.FACT`, such as `41.17.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    pub(crate) commit: CommitNumber,
    /// `None`: behind all facts of the commit.
    pub(crate) fact: Option<(Pid, FactNumber)>,
}

/// A text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not a position in the log: give the id of an event of this store, written COMMIT or \
     COMMIT.PID.FACT"
)]
pub struct InvalidPosition;

impl LogPosition {
    /// Behind all facts of a commit.
    pub(crate) fn behind(commit: CommitNumber) -> Self {
        Self { commit, fact: None }
    }

    /// Whether a fact comes after this position.
    pub(crate) fn is_before(&self, commit: CommitNumber, pid: Pid, fact: FactNumber) -> bool {
        match self.fact {
            None => self.commit < commit,
            Some(last) => (self.commit, last) < (commit, (pid, fact)),
        }
    }

    /// The last commit of which all facts are before this position.
    pub(crate) fn whole_commits(&self) -> CommitNumber {
        match self.fact {
            None => self.commit,
            Some(_) => CommitNumber(self.commit.0.saturating_sub(1)),
        }
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fact {
            None => write!(f, "{}", self.commit.0),
            Some((pid, fact)) => write!(f, "{}.{}.{}", self.commit.0, pid.0, fact.0),
        }
    }
}

impl FromStr for LogPosition {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let number = |part: &str| {
            let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse::<u64>().ok()).flatten()
        };
        let parts: Vec<_> = text.split('.').map(number).collect();
        match parts[..] {
            [Some(commit)] => Ok(Self::behind(CommitNumber(commit))),
            [Some(commit), Some(pid), Some(fact)] => Ok(Self {
                commit: CommitNumber(commit),
                fact: Some((Pid(pid), FactNumber(fact))),
            }),
            _ => Err(InvalidPosition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_as_it_is_read() {
        for text in ["0", "41", "41.17.5", "18446744073709551615.1.0"] {
            let position: LogPosition = text.parse().unwrap();
            assert_eq!(position.to_string(), text);
        }
        for text in [
            "",
            "x",
            "-1",
            "+1",
            "41.17",
            "41.17.5.1",
            "41..5",
            "4 1",
            "18446744073709551616",
            "41.17.5\n",
        ] {
            assert_eq!(
                text.parse::<LogPosition>(),
                Err(InvalidPosition),
                "{text:?}"
            );
        }
    }

    #[test]
    fn facts_are_ordered_by_commit_process_and_number() {
        let is_before = |position: &str, (commit, pid, fact)| {
            let position: LogPosition = position.parse().unwrap();
            position.is_before(CommitNumber(commit), Pid(pid), FactNumber(fact))
        };
        for (position, fact, expected) in [
            ("4", (4, 1, 1), false),
            ("4", (5, 1, 1), true),
            ("4.2.7", (4, 2, 7), false),
            ("4.2.7", (4, 2, 8), true),
            ("4.2.7", (4, 1, 9), false),
            ("4.2.7", (4, 3, 1), true),
            ("4.2.7", (3, 9, 9), false),
            ("4.2.7", (5, 1, 1), true),
        ] {
            assert_eq!(is_before(position, fact), expected, "{position} {fact:?}");
        }
        assert_eq!("4".parse::<LogPosition>().unwrap().whole_commits().0, 4);
        assert_eq!("4.2.7".parse::<LogPosition>().unwrap().whole_commits().0, 3);
    }
}
