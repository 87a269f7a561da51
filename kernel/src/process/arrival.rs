//! What arrives from outside of the process and has bytes: before and after it is known where these
//! go.

use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::user_input::UserInput;

use crate::syscall::{Envelope, PlacedEnvelope};
use crate::table::NewDescriptor;
use crate::table::placement::{Placement, Placer};
use dormouse_content::{CappedBytes, Unreadable};

/// An arrival. Its fields are those of the [`Input`](super::Input) that brought it.
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    /// Someone speaks to the process.
    Spoke { from: Sender, user_input: UserInput },
    /// The host hands over a content.
    Opened {
        ticket: Arc<str>,
        collected: CappedBytes,
        source: String,
        page_chars: Option<u32>,
    },
    /// Another process sends a message.
    Messaged {
        ticket: Arc<str>,
        from: Pid,
        call: CallId,
        settled: u32,
        letter: Envelope,
    },
}

/// An arrival, ready for the process.
#[derive(Clone, Debug)]
pub enum Placed {
    /// Where the parts of what somebody said go.
    Spoke {
        /// Who said it.
        from: Sender,
        /// The parts, in order.
        parts: Vec<Placement>,
    },
    /// What the host handed over, as a descriptor.
    Opened {
        /// The host's name of its call.
        ticket: Arc<str>,
        /// The descriptor.
        new: Result<Box<NewDescriptor>, Unreadable>,
    },
    /// A message of another process.
    Messaged {
        /// The name of the delivery.
        ticket: Arc<str>,
        /// The sender.
        from: Pid,
        /// Its call.
        call: CallId,
        /// The sender waits for no call below this number.
        settled: u32,
        /// What it says.
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
