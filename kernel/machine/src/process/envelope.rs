//! Messages between processes as data, in three stages: [`PendingMessage`] is checked and has not
//! been delivered, [`Envelope`] is the delivered message, [`PlacedEnvelope`] is ready for the
//! receiver: it says which text enters the context and which content becomes a descriptor
//! (`table/placement.rs`). `mail.rs` holds the protocol.

use std::sync::Arc;

use dormouse_proto::descriptor::view::ContentSummary;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::mail::Address;
use dormouse_proto::record::Entry;

use crate::table::listing;
use crate::table::placement::{Placement, Placer};
use dormouse_content::Content;

/// A checked call of `send_message`, which the shell delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingMessage {
    /// Address of the receiver.
    pub to: Address,
    /// The message.
    pub envelope: Envelope,
}

/// A message between processes. Its descriptors share their bytes with the sender's descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Name of the sender's program.
    pub program: Arc<str>,
    /// The text; empty if only descriptors are transferred.
    pub text: Arc<str>,
    /// The transferred descriptors, with the sender's ids.
    pub descriptors: Vec<TransferredDescriptor>,
}

impl Envelope {
    /// The bytes of the text and of all contents.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.descriptors
            .iter()
            .map(|transferred| transferred.entry.content.len_bytes())
            .fold(self.text.len() as u64, u64::saturating_add)
    }
}

/// A descriptor, or a part of one, that is transferred to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferredDescriptor {
    /// Id in the table of the sender.
    pub id: FdId,
    /// The part, such as `lines 10-40`; `None` for the whole descriptor.
    pub part: Option<String>,
    /// The entry. Its source is that of the whole descriptor.
    pub entry: Entry<Content>,
}

/// A message for which it has been decided what enters the receiver's context and what becomes a
/// descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedEnvelope {
    /// Name of the sender's program.
    pub program: Arc<str>,
    /// Placement of the text; `None` if only descriptors are transferred.
    pub text: Option<Placement>,
    /// The transferred descriptors.
    pub descriptors: Vec<PlacedDescriptor>,
}

/// A transferred descriptor that is about to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedDescriptor {
    /// The entry. Its source names the sender and, if only a part was transferred, that part.
    pub entry: Entry<Content>,
    /// Size of the content (pages, lines, characters), or why it cannot be read.
    pub extent: Result<ContentSummary, Arc<str>>,
}

impl PlacedEnvelope {
    /// Places a message of process `from` for its receiver. O(n) in the text of the message, plus
    /// the building of an index for each descriptor that has none.
    #[must_use]
    pub fn new(from: Pid, envelope: Envelope, placer: &Placer<'_>) -> Self {
        let Envelope {
            program,
            text,
            descriptors,
        } = envelope;
        let text = Some(text).filter(|text| !text.is_empty());
        let text = text.map(|text| placer.process_text(&text, &format!("process:{from}")));
        let settings = placer.settings.copied().unwrap_or_default();
        let place = |TransferredDescriptor { part, entry, .. }: TransferredDescriptor| {
            let part = part.map(|part| format!(" {part}")).unwrap_or_default();
            // The id in the sender's table is omitted: it has no meaning in the receiver's table.
            let source = format!("process:{from}{part}").into();
            let entry = Entry {
                source,
                opened_ms: placer.now_ms,
                ..entry
            };
            entry
                .content
                .reader(placer.quota)
                .prepare_page_table(entry.page_chars);
            PlacedDescriptor {
                extent: listing::extent(&entry, &settings, placer.quota),
                entry,
            }
        };
        Self {
            program,
            text,
            descriptors: descriptors.into_iter().map(place).collect(),
        }
    }

    /// Bytes that the message adds to the receiver's table. Transferred descriptors count like
    /// descriptors that the receiver opens itself.
    #[must_use]
    pub fn opened_bytes(&self) -> u64 {
        let text = match &self.text {
            Some(Placement::Descriptor(new)) => new.entry.content.len_bytes(),
            Some(Placement::Context { .. }) | None => 0,
        };
        self.descriptors
            .iter()
            .map(|new| new.entry.content.len_bytes())
            .fold(text, u64::saturating_add)
    }
}
