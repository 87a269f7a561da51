//! Arrivals: input from outside of the process whose bytes have to be read before it is known where
//! they go, to the context or to a descriptor.

use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::user_input::UserInput;

use crate::syscall::{Envelope, PlacedEnvelope};
use crate::table::NewDescriptor;
use crate::table::placement::{Placement, Placer};
use dormouse_content::{CappedBytes, Unreadable};

/// An arrival before its bytes are read. The fields are those of the [`Input`](super::Input) that
/// brought it.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    /// Input of the host.
    Spoke { from: Sender, user_input: UserInput },
    /// A content that the host opens as a descriptor.
    Opened {
        ticket: Arc<str>,
        collected: CappedBytes,
        source: String,
        page_chars: Option<u32>,
    },
    /// A message of another process.
    Messaged {
        ticket: Arc<str>,
        from: Pid,
        call: CallId,
        settled: u32,
        letter: Envelope,
    },
}

/// An arrival whose bytes have been read.
#[derive(Clone, Debug)]
pub enum Placed {
    /// Input of the host.
    Spoke {
        /// Who sent the input.
        from: Sender,
        /// Placement of each part, in order.
        parts: Vec<Placement>,
    },
    /// A content that the host opens as a descriptor.
    Opened {
        /// Id of the request; the answer carries it.
        ticket: Arc<str>,
        /// The new descriptor, or why the bytes could not be read.
        new: Result<Box<NewDescriptor>, Unreadable>,
    },
    /// A message of another process.
    Messaged {
        /// Id of the delivery; the receipt carries it.
        ticket: Arc<str>,
        /// Pid of the sender.
        from: Pid,
        /// Call of the sender; identifies the message.
        call: CallId,
        /// The sender has an acknowledgement for every call below this sequence number.
        settled: u32,
        /// The message.
        letter: PlacedEnvelope,
    },
}

impl Arrival {
    pub(super) fn place(self, placer: &Placer<'_>) -> Placed {
        match self {
            Self::Spoke { from, user_input } => Placed::Spoke {
                from,
                parts: placer.user_input(&user_input),
            },
            Self::Opened {
                ticket,
                collected,
                source,
                page_chars,
            } => Placed::Opened {
                ticket,
                new: placer.handed(collected, &source, page_chars).map(Box::new),
            },
            Self::Messaged {
                ticket,
                from,
                call,
                settled,
                letter,
            } => {
                let letter = PlacedEnvelope::new(from, letter, placer);
                Placed::Messaged {
                    ticket,
                    from,
                    call,
                    settled,
                    letter,
                }
            }
        }
    }
}
