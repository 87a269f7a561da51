//! Mail: what waits for a process, who said it, and to whom a process may write.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::Pid;
use crate::message::Message;

/// The most characters of a name that a process goes by.
pub const MAX_NAME_CHARS: usize = 64;

/// Who speaks to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sender {
    /// The host, for a user.
    Host,
    /// Another process.
    Process(Pid),
}

/// A message that waits to be heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Who said it.
    pub from: Sender,
    /// What is heard, large content already replaced by descriptors.
    pub message: Arc<Message>,
}

/// To whom a process writes, as its model puts it.
///
/// ```
/// use dormouse_proto::id::Pid;
/// use dormouse_proto::mail::Address;
///
/// assert_eq!(Address::parse("parent"), Some(Address::Parent));
/// assert_eq!(Address::parse("7"), Some(Address::Process(Pid(7))));
/// assert_eq!(Address::parse("planner"), Some(Address::Name("planner".into())));
/// assert_eq!(Address::parse("no such name"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The process that made it.
    Parent,
    /// A process by its number.
    Process(Pid),
    /// A process that has written to this one, and can be answered wherever it is.
    Correspondent(Pid),
    /// A process by the name that the host gave it.
    Name(Arc<str>),
}

impl Address {
    /// What `text` means; none where it can mean nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == PARENT {
            return Some(Self::Parent);
        }
        match text.parse() {
            Ok(number) => (number > 0).then_some(Self::Process(Pid(number))),
            Err(_) => is_process_name(text).then(|| Self::Name(text.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parent => f.write_str(PARENT),
            Self::Process(pid) | Self::Correspondent(pid) => pid.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

const PARENT: &str = "parent";

/// Whether a process can go by this name: 1 to [`MAX_NAME_CHARS`] of A-Z, a-z, 0-9, `_`, `-` and
/// `.`, not a number, and not `parent`.
#[must_use]
pub fn is_process_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !is_number
        && name != PARENT
}

/// Which messages of one sender were received. A sender that is not told sends again, and is not
/// heard twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Of all calls below this number the sender knows what came of them: none of them is sent
    /// again.
    settled: u32,
    /// The calls from there on that were received, ascending. No more than the sender makes at
    /// once.
    received: Vec<u32>,
}

impl Heard {
    /// Whether the message of call `seq` was received, or is no longer waited for.
    #[must_use]
    pub fn has(&self, seq: u32) -> bool {
        seq < self.settled || self.received.binary_search(&seq).is_ok()
    }

    /// Notes that the message of call `seq` was received from a sender that waits for no call below
    /// `settled`.
    pub fn note(&mut self, seq: u32, settled: u32) {
        self.settled = self.settled.max(settled);
        self.received.retain(|received| *received >= self.settled);
        if let Err(place) = self.received.binary_search(&seq) {
            self.received.insert(place, seq);
        }
    }
}

/// A process as others are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its number.
    pub pid: Pid,
    /// The process that made it.
    pub parent: Option<Pid>,
    /// The name of its program.
    pub program: Arc<str>,
    /// The name that the host gave it.
    pub name: Option<Arc<str>>,
    /// The word for how it stands.
    pub status: &'static str,
}

/// How far a process can write. One that the host named can be written to from everywhere, and can
/// answer whoever did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// To its parent, its children and its siblings.
    Relatives,
    /// To every process of its tree.
    #[default]
    Tree,
    /// To every process of the kernel.
    Everyone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_relative_a_number_or_a_name() {
        for (text, address) in [
            ("parent", Some(Address::Parent)),
            ("12", Some(Address::Process(Pid(12)))),
            (
                "planner-2.main",
                Some(Address::Name("planner-2.main".into())),
            ),
            ("0", None),
            ("", None),
            ("a b", None),
            ("99999999999999999999999", None),
            ("plänner", None),
        ] {
            assert_eq!(Address::parse(text), address, "{text}");
        }
        assert!(!is_process_name(&"a".repeat(MAX_NAME_CHARS + 1)));
    }

    #[test]
    fn what_was_received_is_known_until_nobody_sends_it_again() {
        let mut heard = Heard::default();
        for (seq, settled) in [(3, 3), (5, 3), (4, 3)] {
            assert!(!heard.has(seq));
            heard.note(seq, settled);
            assert!(heard.has(seq));
        }
        heard.note(9, 8);
        assert_eq!(
            heard,
            Heard {
                settled: 8,
                received: vec![9]
            }
        );
        assert!(heard.has(4) && heard.has(7) && !heard.has(8) && heard.has(9));
    }
}
