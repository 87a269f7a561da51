//! Identifiers of processes, calls, facts, commits, checkpoints, contents and descriptors.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a process in one store. Counts from 1, or from where the kernel of the store was told
/// to, and is never reused, not even after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pid(pub u64);

impl Pid {
    /// The highest pid: every reader of JSON knows numbers up to it exactly.
    pub const MAX: Self = Self((1 << 53) - 1);
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a fact in the journal of a process. The initial image has number 0, the first fact
/// 1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FactNumber(pub u64);

impl FactNumber {
    /// The number `count` facts later.
    #[must_use]
    pub fn plus(self, count: usize) -> Self {
        Self(self.0 + count as u64)
    }
}

impl fmt::Display for FactNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a commit in a store, from 1. A commit refers only to earlier commits, so that the
/// commits up to any number are a state that the store once had.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct CommitNumber(pub u64);

impl fmt::Display for CommitNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a checkpoint in one store, from 1, never reused. Written `cp:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CheckpointId(pub u64);

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cp:{}", self.0)
    }
}

impl FromStr for CheckpointId {
    type Err = ParseCheckpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_number(text, "cp:")
            .map(Self)
            .ok_or_else(|| ParseCheckpointError(text.to_owned()))
    }
}

/// The text is not a checkpoint id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no checkpoint: valid are cp:1, cp:2 and so on")]
pub struct ParseCheckpointError(pub String);

/// The id of a model or tool call of a process. The epoch rises whenever calls in flight are
/// abandoned (interrupt, goto, fork, restore), so that a late completion is recognised as stale
/// (CALL-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// Rises when calls in flight are abandoned.
    pub epoch: u32,
    /// Rises with each call of the process.
    pub seq: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

/// A call of one process, in one kernel. Written `PID/EPOCH.SEQ`, such as `3/0.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessCallId {
    /// The process.
    pub pid: Pid,
    /// The call.
    pub call: CallId,
}

impl fmt::Display for ProcessCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pid, self.call)
    }
}

impl FromStr for ProcessCallId {
    type Err = ParseCallError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (pid, call) = text.split_once('/')?;
            let (epoch, seq) = call.split_once('.')?;
            let parts = [pid, epoch, seq];
            let is_decimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
            let call = CallId {
                epoch: epoch.parse().ok()?,
                seq: seq.parse().ok()?,
            };
            let pid = Pid(pid.parse().ok().filter(|pid| *pid > 0)?);
            parts
                .into_iter()
                .all(is_decimal)
                .then_some(Self { pid, call })
        };
        parse().ok_or_else(|| ParseCallError(text.to_owned()))
    }
}

/// The text is not the id of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' names no call: valid is PID/EPOCH.SEQ, such as 3/0.7, as `dormouse pending` lists it"
)]
pub struct ParseCallError(pub String);

/// The BLAKE3 hash of a content's bytes, which identifies it in a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentHash(pub [u8; 32]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id of a descriptor in the table of a process.
///
/// Shown as `fd:1`, `ref:plan`, `msg:3` or `history:1`; `fd-1` is accepted as well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FdId {
    /// A numbered descriptor. Counts from 1, never reused within a process (FD-1).
    Fd(u32),
    /// A part of a model's reply that the model marked.
    Ref(String),
    /// A message of the conversation, or a part of one.
    Message {
        /// Number of the message, counted from 1.
        number: u32,
        /// Number of the part, counted from 1; `None` for the whole message.
        part: Option<u32>,
    },
    /// The text of the messages that a compaction moved out of the conversation. Counts from 1,
    /// never reused within a process (FD-1).
    History(u32),
}

impl fmt::Display for FdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fd(number) => write!(f, "fd:{number}"),
            Self::Ref(name) => write!(f, "ref:{name}"),
            Self::Message { number, part: None } => write!(f, "msg:{number}"),
            Self::Message {
                number,
                part: Some(part),
            } => write!(f, "msg:{number}.{part}"),
            Self::History(number) => write!(f, "history:{number}"),
        }
    }
}

/// The text is not a descriptor id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a descriptor: expected fd:N, ref:ID, msg:N or history:N")]
pub struct ParseFdError(pub String);

impl FromStr for FdId {
    type Err = ParseFdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseFdError(text.to_owned());
        if let Some(name) = text.strip_prefix("ref:") {
            return if name.is_empty() {
                Err(error())
            } else {
                Ok(Self::Ref(name.to_owned()))
            };
        }
        if let Some(digits) = text
            .strip_prefix("msg:")
            .or_else(|| text.strip_prefix("msg-"))
        {
            let (number, part) = digits
                .split_once('.')
                .map_or((digits, None), |(number, part)| (number, Some(part)));
            let part = part
                .map(|part| parse_count(part).ok_or_else(error))
                .transpose()?;
            return Ok(Self::Message {
                number: parse_count(number).ok_or_else(error)?,
                part,
            });
        }
        if let Some(digits) = text
            .strip_prefix("history:")
            .or_else(|| text.strip_prefix("history-"))
        {
            return parse_count(digits).map(Self::History).ok_or_else(error);
        }
        let digits = text
            .strip_prefix("fd:")
            .or_else(|| text.strip_prefix("fd-"));
        digits.and_then(parse_count).map(Self::Fd).ok_or_else(error)
    }
}

/// Parses a number from 1 on, with or without what stands before it.
pub(crate) fn parse_number(text: &str, prefix: &str) -> Option<u64> {
    let digits = text.strip_prefix(prefix).unwrap_or(text);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok();
    number.filter(|number| is_number && *number > 0)
}

/// Parses a number that counts from 1: digits without a leading zero.
pub(crate) fn parse_count(digits: &str) -> Option<u32> {
    let canonical = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_ids_parse_from_two_spellings_and_display_one() {
        let accepted = [
            ("fd:1", "fd:1"),
            ("fd-12", "fd:12"),
            ("ref:a b", "ref:a b"),
            ("msg:3", "msg:3"),
            ("msg-3.12", "msg:3.12"),
            ("history:2", "history:2"),
            ("history-12", "history:12"),
        ];
        for (text, shown) in accepted {
            assert_eq!(text.parse::<FdId>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "1",
            "fd",
            "fd:",
            "fd:0",
            "fd:01",
            "fd:+1",
            "fd:-1",
            "fd:99999999999",
            "FD:1",
            "ref:",
            " fd:1",
            "msg:",
            "msg:0",
            "msg:1.",
            "msg:1.0",
            "msg:1.2.3",
            "history:",
            "history:0",
            "history:1.1",
            "history",
        ] {
            assert!(
                text.parse::<FdId>().is_err(),
                "{text:?} must not be a descriptor"
            );
        }
    }
}
