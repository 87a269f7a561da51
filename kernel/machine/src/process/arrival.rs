//! Arrivals: texts and contents whose bytes must be read before the machine can go on. Most come
//! from outside of the process, such as a message. Reading decides for each text whether it enters
//! the context or becomes a descriptor; that decision is a [`Placement`]. The last three kinds are
//! work of the process itself for which contents have to be read.
//!
//! `pending_reads.rs` requests the read of an [`Arrival`], and handles the [`PlacedArrival`] that
//! comes back.

use std::sync::Arc;

use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Message;
use dormouse_proto::process::Exit;
use dormouse_proto::user_input::{InputPart, UserInput};
use imbl::Vector;

use super::auto_summary::NewSummary;
use super::compaction::{CompactionDraft, CompactionRead};
use super::goto::GotoRead;
use super::{Envelope, PlacedEnvelope, PlacedExit};
use crate::table::NewDescriptor;
use crate::table::placement::{Placement, Placer};
use crate::tool::PendingSummary;
use dormouse_content::{CappedBytes, Unreadable};

/// An arrival before its bytes are read. The fields are those of the corresponding
/// [`Input`](super::Input).
#[derive(Clone, Debug)]
pub(super) enum Arrival {
    /// Input of the host.
    UserInput { from: Sender, user_input: UserInput },
    /// A content that the host opens as a descriptor.
    Opened {
        request_id: Arc<str>,
        capped: CappedBytes,
        source: String,
        page_chars: Option<u32>,
    },
    /// A message of another process.
    Message {
        request_id: Arc<str>,
        from: Pid,
        call: CallId,
        acked_below: u32,
        envelope: Envelope,
    },
    /// The end of a background child.
    EndedChild {
        call: CallId,
        index: u32,
        child: Pid,
        exit: Exit,
    },
    /// The message of a goto of the host.
    Goto {
        request_id: Arc<str>,
        position: String,
        message: String,
    },
    /// A new descriptor that is to be summarized.
    Summary(NewSummary),
    /// A conversation that is to be compacted.
    Compaction(CompactionRead),
    /// Compacted messages to which a goto goes back.
    EarlierMessages(GotoRead),
}

/// An arrival whose bytes have been read.
#[derive(Clone, Debug)]
pub enum PlacedArrival {
    /// Input of the host.
    UserInput {
        /// Who sent the input.
        from: Sender,
        /// Placement of each part, in order.
        parts: Vec<Placement>,
    },
    /// A content that the host opens as a descriptor.
    Opened {
        /// Id of the request; the answer carries it.
        request_id: Arc<str>,
        /// The new descriptor, or why the bytes could not be read.
        new: Result<Box<NewDescriptor>, Unreadable>,
    },
    /// A message of another process.
    Message {
        /// Id of the delivery; the receipt carries it.
        request_id: Arc<str>,
        /// Pid of the sender.
        from: Pid,
        /// Call of the sender; identifies the message.
        call: CallId,
        /// The sender has received the acknowledgement of every message below this sequence number.
        acked_below: u32,
        /// The message.
        envelope: PlacedEnvelope,
    },
    /// The end of a background child.
    EndedChild {
        /// The call that created the child.
        call: CallId,
        /// The child, and the placement of its last message.
        ended: PlacedExit,
    },
    /// The message of a goto of the host.
    Goto {
        /// Id of the request; the answer carries it.
        request_id: Arc<str>,
        /// Message to go back to, such as `msg:3`.
        position: String,
        /// Placement of the message that follows.
        message: Placement,
    },
    /// A new descriptor that is to be summarized: the request to the model, if it needs a summary.
    Summary(Option<PendingSummary>),
    /// A conversation that is to be compacted.
    Compaction {
        /// Epoch in which the compaction was requested.
        epoch: u32,
        /// The compaction; `None` if nothing can be compacted.
        draft: Option<Box<CompactionDraft>>,
    },
    /// Compacted messages to which a goto goes back.
    EarlierMessages {
        /// The goto.
        goto: GotoRead,
        /// The conversation before the compaction, or why it cannot be read.
        messages: Result<Vector<Arc<Message>>, Arc<str>>,
    },
}

impl Arrival {
    /// Reads the bytes of the arrival, and decides the placement of each part.
    pub(super) fn place(self, placer: &Placer<'_>) -> PlacedArrival {
        match self {
            Self::UserInput { from, user_input } => PlacedArrival::UserInput {
                from,
                parts: placer.user_input(&user_input),
            },
            Self::Opened {
                request_id,
                capped,
                source,
                page_chars,
            } => PlacedArrival::Opened {
                request_id,
                new: placer
                    .host_descriptor(capped, &source, page_chars)
                    .map(Box::new),
            },
            Self::Message {
                request_id,
                from,
                call,
                acked_below,
                envelope,
            } => {
                let envelope = PlacedEnvelope::new(from, envelope, placer);
                PlacedArrival::Message {
                    request_id,
                    from,
                    call,
                    acked_below,
                    envelope,
                }
            }
            Self::EndedChild {
                call,
                index,
                child,
                exit,
            } => {
                // Of a child that was opened again, it is not known which tool made it.
                let source = match exit.reopenings {
                    0 => "spawn",
                    _ => "process",
                };
                PlacedArrival::EndedChild {
                    call,
                    ended: PlacedExit::new((index, child), &exit, (source, None), placer),
                }
            }
            Self::Goto {
                request_id,
                position,
                message,
            } => PlacedArrival::Goto {
                request_id,
                position,
                message: placer.input(&InputPart::text(message)),
            },
            Self::Summary(new_summary) => PlacedArrival::Summary(new_summary.read(placer)),
            Self::Compaction(read) => PlacedArrival::Compaction {
                epoch: read.epoch,
                draft: read.draft(placer).map(Box::new),
            },
            Self::EarlierMessages(goto) => PlacedArrival::EarlierMessages {
                messages: goto.read_messages(placer.quota),
                goto,
            },
        }
    }
}
