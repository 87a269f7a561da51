//! Mail between processes: senders, addresses, mailbox entries and receipts.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::alarm::AlarmId;
use crate::id::{CallId, FdId, Pid};
use crate::message::Message;
use crate::record::Entry;

/// Maximum length of a process name.
pub const MAX_NAME_CHARS: usize = 64;

/// The sender of input or of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sender {
    /// The host, on behalf of a user.
    Host,
    /// Another process.
    Process(Pid),
    /// An alarm of the process itself.
    Alarm(AlarmId),
}

/// A message in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Sender of the message.
    pub from: Sender,
    /// The message; large content is already replaced by descriptors.
    pub message: Arc<Message>,
}

/// The receiver of a message, as the model names it.
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
    /// The parent of the sender.
    Parent,
    /// A process by its pid.
    Process(Pid),
    /// A process that has written to the sender: the sender may answer it, even outside of its
    /// [`Reach`].
    Correspondent(Pid),
    /// A process, by the name that the host assigned.
    Name(Arc<str>),
}

impl Address {
    /// Parses an address; `None` if the text cannot be one.
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

/// Whether this is a valid process name: 1 to [`MAX_NAME_CHARS`] of A-Z, a-z, 0-9, `_`, `-` and
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

/// The receipts for the messages of one sender. A sender without an acknowledgement repeats its
/// message, and the receipt prevents a second delivery (MAIL-1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipts {
    /// The sender has an acknowledgement for every call below this number and repeats none of them.
    acked_below: u32,
    /// Received calls from that number on, ascending. No more than the sender has in flight at
    /// once.
    received: Vec<u32>,
}

impl Receipts {
    /// Whether the message of call `seq` was received or is no longer repeated.
    #[must_use]
    pub fn contains(&self, seq: u32) -> bool {
        seq < self.acked_below || self.received.binary_search(&seq).is_ok()
    }

    /// Records the receipt of call `seq`. The sender has acknowledgements for all calls below the
    /// second number.
    pub fn record(&mut self, seq: u32, acked_below: u32) {
        self.acked_below = self.acked_below.max(acked_below);
        self.received
            .retain(|received| *received >= self.acked_below);
        if let Err(index) = self.received.binary_search(&seq) {
            self.received.insert(index, seq);
        }
    }
}

/// A process as other processes see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachableProcess {
    /// Pid of the process.
    pub pid: Pid,
    /// Parent of the process.
    pub parent: Option<Pid>,
    /// Name of its program.
    pub program: Arc<str>,
    /// Name that the host assigned.
    pub name: Option<Arc<str>>,
    /// Status, as a word.
    pub status: &'static str,
}

/// The processes that a process may send messages to. Every process may write to a process that
/// has a name, and the named process may answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Parent, children and siblings.
    Relatives,
    /// All processes of its tree.
    #[default]
    Tree,
    /// All processes of the kernel, and of the kernels that it exchanges messages with.
    Everyone,
}

/// The most bytes that a message to a process of another kernel holds: its text and the contents of
/// its descriptors together.
pub const MAX_PEER_BYTES: u64 = 4 << 20;

/// A message to a process of another kernel, on its way there. Sender and call identify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    /// Pid of the sender.
    pub from: Pid,
    /// Pid of the receiver.
    pub to: Pid,
    /// Call of the sender.
    pub call: CallId,
    /// The sender has an acknowledgement for every call below this sequence number, and repeats none
    /// of them.
    pub acked_below: u32,
    /// Whether the receiver has written to the sender, which may answer whatever the reach.
    pub is_answer: bool,
    /// Name of the sender's program.
    pub program: Arc<str>,
    /// The text; empty if only descriptors are transferred.
    pub text: Arc<str>,
    /// The transferred descriptors.
    pub descriptors: Vec<PeerDescriptor>,
}

/// A descriptor, or a part of one, that a message transfers to another kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerDescriptor {
    /// Id in the table of the sender.
    pub id: FdId,
    /// The part, such as `lines 10-40`; `None` for the whole descriptor.
    pub part: Option<String>,
    /// The entry, with its bytes.
    pub entry: Entry<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Annotations, codec};

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
    fn a_message_to_another_kernel_travels_as_a_record() {
        let entry = Entry {
            content: Bytes::from_static(b"one\xFF"),
            page_chars: 4_000,
            source: "tool:grep".into(),
            opened_ms: 7,
            cut_bytes: 0,
            notes: Annotations::default(),
        };
        let message = PeerMessage {
            from: Pid(1),
            to: Pid::MAX,
            call: CallId { epoch: 1, seq: 2 },
            acked_below: 2,
            is_answer: true,
            program: "p".into(),
            text: "hear".into(),
            descriptors: vec![PeerDescriptor {
                id: FdId::Fd(3),
                part: Some("lines 1-1".to_owned()),
                entry,
            }],
        };
        let bytes = codec::encode(&message).unwrap();
        assert_eq!(codec::decode::<PeerMessage>(&bytes).unwrap(), message);
    }

    #[test]
    fn receipts_are_kept_until_the_sender_has_an_acknowledgement() {
        let mut receipts = Receipts::default();
        for (seq, acked_below) in [(3, 3), (5, 3), (4, 3)] {
            assert!(!receipts.contains(seq));
            receipts.record(seq, acked_below);
            assert!(receipts.contains(seq));
        }
        receipts.record(9, 8);
        assert_eq!(
            receipts,
            Receipts {
                acked_below: 8,
                received: vec![9]
            }
        );
        assert!(
            receipts.contains(4)
                && receipts.contains(7)
                && !receipts.contains(8)
                && receipts.contains(9)
        );
    }
}
