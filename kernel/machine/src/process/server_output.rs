//! What the provider's own tools returned: which of it becomes a descriptor, and how the model and
//! people are told.
//!
//! The conversation keeps the provider's blocks, and the provider has their contents. So nothing of
//! them enters the context again: a large text, a file or an image is opened as a descriptor when
//! the reply arrives, and a note in the next message names it. Opening costs a pass over the blocks
//! of the reply, which are bounded by the size of a reply.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dormouse_content::CappedBytes;
use dormouse_proto::descriptor::view::{self, Attached};
use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::server_tool::{self, count_calls, server_blocks};
use dormouse_proto::tool::Attachment;
use imbl::OrdMap;

use super::decide::Draft;
use super::{Fact, State};
use crate::table::attachment::MAX_ATTACHMENTS;
use crate::table::placement::Placer;

/// The tool that Gemini's images and files are of: the model itself wrote them.
const REPLY: &str = "reply";

/// An output that becomes a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    /// The source of the descriptor, such as `server:web_fetch`.
    source: String,
    content: KeptContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeptContent {
    Text(String),
    /// A file or an image, in base64.
    Media(server_tool::Media),
}

impl Kept {
    fn media_type(&self) -> &str {
        match &self.content {
            KeptContent::Text(_) => "text/plain",
            KeptContent::Media(media) => &media.media_type,
        }
    }

    /// The number of bytes of the content.
    fn len_bytes(&self) -> u64 {
        match &self.content {
            KeptContent::Text(text) => text.len() as u64,
            KeptContent::Media(media) => {
                let chars = media.base64.bytes();
                let digits = chars.filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=');
                digits.count() as u64 * 3 / 4
            }
        }
    }

    /// The bytes; none if they are not base64.
    fn bytes(&self) -> Option<Bytes> {
        match &self.content {
            KeptContent::Text(text) => Some(Bytes::copy_from_slice(text.as_bytes())),
            KeptContent::Media(media) => {
                let digits = media
                    .base64
                    .bytes()
                    .filter(|byte| !byte.is_ascii_whitespace());
                let standard: Vec<u8> = digits
                    .map(|byte| match byte {
                        b'-' => b'+',
                        b'_' => b'/',
                        other => other,
                    })
                    .collect();
                STANDARD.decode(standard).ok().map(Bytes::from)
            }
        }
    }
}

impl State {
    /// The calls of the provider's tools in the conversation, by tool: those of this process, not
    /// those before the fork that made it.
    #[must_use]
    pub fn server_tool_calls(&self) -> &OrdMap<Arc<str>, u32> {
        &self.server_tool_calls
    }

    /// Counts the calls of a reply that was added to the conversation.
    pub(super) fn add_server_tool_calls(&mut self, blocks: &[Block]) {
        for (tool, calls) in count_calls(blocks) {
            let count = self.server_tool_calls.entry(tool.into()).or_default();
            *count = count.saturating_add(calls);
        }
    }

    /// Counts the calls of the whole conversation, after messages were replaced. O(blocks).
    pub(super) fn recount_server_tool_calls(&mut self) {
        self.server_tool_calls = OrdMap::new();
        let own = self.forked_at.last().map_or(0, |at| *at as usize);
        let own: Vec<_> = self.messages.iter().skip(own).cloned().collect();
        let replies = own.iter().filter(|message| message.role == Role::Assistant);
        replies.for_each(|message| self.add_server_tool_calls(&message.blocks));
    }

    /// Those outputs in `blocks` that become descriptors.
    fn kept_outputs(&self, blocks: &[Block]) -> Vec<Kept> {
        let settings = self.settings();
        let exceeds_limit = |text: &str| {
            let chars = text.chars().count() as u64;
            let bytes = text.len() as u64;
            settings.is_some_and(|settings| settings.exceeded_output_limit(chars, bytes).is_some())
        };
        let mut kept = Vec::new();
        for block in blocks.iter().flat_map(server_blocks) {
            let Some(output) = block.output else { continue };
            let source = match &*block.tool {
                REPLY => REPLY.to_owned(),
                tool => format!("server:{tool}"),
            };
            let texts = Some(output.text).filter(|text| exceeds_limit(text));
            let texts = texts.into_iter().map(KeptContent::Text);
            let media = output.media.into_iter().map(KeptContent::Media);
            kept.extend(texts.chain(media).map(|content| Kept {
                source: source.clone(),
                content,
            }));
        }
        kept.truncate(MAX_ATTACHMENTS);
        kept
    }

    /// The outputs in the model's messages at the end of `messages`, each with its descriptor: the
    /// newest that has its source and size.
    fn described_outputs(&self, messages: &[Arc<Message>]) -> Vec<(FdId, Kept)> {
        let replies = messages.iter().rev();
        let replies: Vec<_> = replies
            .take_while(|message| message.role == Role::Assistant)
            .collect();
        let blocks = replies.iter().rev().flat_map(|message| &message.blocks);
        let kept: Vec<_> = blocks
            .flat_map(|block| self.kept_outputs(std::slice::from_ref(block)))
            .collect();
        if kept.is_empty() {
            return Vec::new();
        }
        let mut entries: Vec<_> = self.table.iter().collect();
        let mut described = Vec::new();
        for kept in kept.into_iter().rev() {
            let is_it = |(id, entry): &(&FdId, &dormouse_proto::record::Entry<_>)| {
                let entry: &dormouse_proto::record::Entry<dormouse_content::Content> = entry;
                matches!(id, FdId::Fd(_))
                    && *entry.source == *kept.source
                    && entry.content.len_bytes() + entry.cut_bytes == kept.len_bytes()
            };
            if let Some(at) = entries.iter().rposition(is_it) {
                described.push((entries.remove(at).0.clone(), kept));
            }
        }
        described.reverse();
        described
    }

    /// What a person is told of the files and images in the last reply; empty if there are none.
    pub(super) fn describe_reply_media(&self) -> String {
        let messages: Vec<_> = self.messages.iter().cloned().collect();
        let outputs = self.described_outputs(&messages).into_iter();
        let media = outputs.filter(|(_, kept)| matches!(kept.content, KeptContent::Media(_)));
        let lines = media
            .map(|(id, kept)| format!("[{id}: {}, {} bytes]", kept.media_type(), kept.len_bytes()));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Draft {
    /// Opens what the provider's tools returned in a reply.
    pub(super) fn open_server_outputs(&mut self, blocks: &[Block]) {
        for kept in self.state.kept_outputs(blocks) {
            let Some(bytes) = kept.bytes() else { continue };
            let placer = Placer::unlimited(self.state.settings(), self.now_ms);
            let entry = match &kept.content {
                KeptContent::Text(_) => placer
                    .open_bytes(
                        CappedBytes {
                            bytes,
                            cut_bytes: 0,
                        },
                        &kept.source,
                        "",
                    )
                    .map(|new| new.entry),
                KeptContent::Media(media) => {
                    let attachment = Attachment {
                        name: None,
                        media_type: media.media_type.as_str().into(),
                        bytes,
                    };
                    let placed = placer.attachment(&attachment, &kept.source);
                    placed.map(|new| new.entry)
                }
            };
            // Without a quota every content can be read.
            if let Ok(entry) = entry {
                let id = self.state.table.next_id();
                self.open_under_id(id, entry);
            }
        }
    }

    /// Tells the model which descriptors hold what the provider's tools returned, in the message
    /// that is about to be sent. If the last message is the model's own (a paused reply), the note
    /// is postponed.
    pub(super) fn note_server_outputs(&mut self) {
        let mut messages: Vec<_> = self.state.messages.iter().cloned().collect();
        let Some(unsent) = messages.pop().filter(|last| last.role == Role::User) else {
            return;
        };
        let outputs = self.state.described_outputs(&messages);
        if outputs.is_empty() {
            return;
        }
        let elements = outputs.iter().map(|(id, kept)| {
            let attached = Attached {
                source: &kept.source,
                name: None,
                media_type: kept.media_type(),
                bytes: kept.len_bytes(),
                kept_bytes: None,
            };
            view::attachment(id, attached).to_xml()
        });
        let text = std::iter::once(view::attachments_of_reply(outputs.len()).to_xml())
            .chain(elements)
            .collect::<Vec<_>>()
            .join("\n");
        let is_noted =
            |block: &Block| matches!(block, Block::Text { text: said, .. } if **said == *text);
        if !unsent.blocks.iter().any(is_noted) {
            self.emit(Fact::Noted { text: text.into() });
        }
    }
}
