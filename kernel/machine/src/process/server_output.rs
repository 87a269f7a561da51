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
use dormouse_proto::message::{Block, Role};
use dormouse_proto::server_tool::{self, count_calls, server_blocks};
use dormouse_proto::tool::Attachment;
use imbl::OrdMap;

use super::decide::Draft;
use super::{Fact, State};
use crate::table::attachment::{MAX_ATTACHMENTS, attachment_source};
use crate::table::placement::Placer;

/// The tool that Gemini's images and files are of: the model itself wrote them.
const REPLY: &str = "reply";

/// An output that becomes a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerOutput {
    /// The source of the descriptor, such as `server:web_fetch`.
    source: String,
    content: OutputContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OutputContent {
    Text(String),
    /// A file or an image, in base64.
    Media(server_tool::Media),
}

impl ServerOutput {
    /// The name of a file, if it has one.
    fn name(&self) -> Option<&str> {
        match &self.content {
            OutputContent::Text(_) => None,
            OutputContent::Media(media) => media.name.as_deref(),
        }
    }

    fn media_type(&self) -> &str {
        match &self.content {
            OutputContent::Text(_) => "text/plain",
            OutputContent::Media(media) => &media.media_type,
        }
    }

    /// The number of bytes of the content.
    fn len_bytes(&self) -> u64 {
        match &self.content {
            OutputContent::Text(text) => text.len() as u64,
            OutputContent::Media(media) => {
                let chars = media.base64.bytes();
                let digits = chars.filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=');
                digits.count() as u64 * 3 / 4
            }
        }
    }

    /// The bytes; none if they are not base64.
    fn bytes(&self) -> Option<Bytes> {
        match &self.content {
            OutputContent::Text(text) => Some(Bytes::copy_from_slice(text.as_bytes())),
            OutputContent::Media(media) => {
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
        let first = self.forked_at.last().map_or(0, |at| *at as usize);
        let own = self.messages.clone().into_iter().skip(first);
        own.filter(|message| message.role == Role::Assistant)
            .for_each(|message| self.add_server_tool_calls(&message.blocks));
    }

    /// Those outputs in `blocks` that become descriptors.
    fn outputs_for_descriptors(&self, blocks: &[Block]) -> Vec<ServerOutput> {
        let settings = self.settings();
        let exceeds_limit = |text: &str| {
            let chars = text.chars().count() as u64;
            let bytes = text.len() as u64;
            settings.is_some_and(|settings| settings.exceeded_output_limit(chars, bytes).is_some())
        };
        let mut outputs = Vec::new();
        for block in blocks.iter().flat_map(server_blocks) {
            let Some(output) = block.output else { continue };
            let source = match &*block.tool {
                REPLY => REPLY.to_owned(),
                tool => format!("server:{tool}"),
            };
            let texts = Some(output.text).filter(|text| exceeds_limit(text));
            let texts = texts.into_iter().map(OutputContent::Text);
            let media = output.media.into_iter().map(OutputContent::Media);
            outputs.extend(texts.chain(media).map(|content| ServerOutput {
                source: source.clone(),
                content,
            }));
        }
        outputs.truncate(MAX_ATTACHMENTS);
        outputs
    }

    /// The blocks of the last reply, which may consist of several messages of the model. `skip`
    /// messages follow the reply.
    fn blocks_of_reply(&self, skip: usize) -> impl Iterator<Item = &Block> {
        let mut reply: Vec<_> = self
            .messages
            .iter()
            .rev()
            .skip(skip)
            .take_while(|message| message.role == Role::Assistant)
            .collect();
        reply.reverse();
        reply.into_iter().flat_map(|message| &message.blocks)
    }

    /// What is to be said of the files that the last reply names and the process does not have.
    fn missing_files(&self, skip: usize) -> Vec<String> {
        let found = self.blocks_of_reply(skip).flat_map(server_blocks);
        let outputs = found.filter_map(|found| found.output);
        let missing = outputs.flat_map(|output| output.missing);
        missing.take(MAX_ATTACHMENTS).collect()
    }

    /// The outputs in the last reply, each with its descriptor: the newest that has its source and
    /// size. O(blocks of the reply), and O(descriptors) if it has outputs.
    fn described_outputs(&self, skip: usize) -> Vec<(FdId, ServerOutput)> {
        let outputs: Vec<_> = self
            .blocks_of_reply(skip)
            .flat_map(|block| self.outputs_for_descriptors(std::slice::from_ref(block)))
            .collect();
        if outputs.is_empty() {
            return Vec::new();
        }
        let mut entries: Vec<_> = self.table.iter().collect();
        let mut described = Vec::new();
        for output in outputs.into_iter().rev() {
            let source = attachment_source(&output.source, output.name());
            let at = entries.iter().rposition(|(id, entry)| {
                matches!(id, FdId::Fd(_))
                    && *entry.source == *source
                    && entry.content.len_bytes() + entry.cut_bytes == output.len_bytes()
            });
            if let Some(at) = at {
                described.push((entries.remove(at).0.clone(), output));
            }
        }
        described.reverse();
        described
    }

    /// What a person is told of the files and images in the last reply, and of those that it only
    /// names; empty if there are none.
    pub(super) fn describe_reply_media(&self) -> String {
        let outputs = self.described_outputs(0).into_iter();
        let media = outputs.filter(|(_, output)| matches!(output.content, OutputContent::Media(_)));
        let lines = media.map(|(id, output)| {
            let name = output.name().map(|name| format!("{name}, "));
            format!(
                "[{id}: {}{}, {} bytes]",
                name.unwrap_or_default(),
                output.media_type(),
                output.len_bytes()
            )
        });
        let missing = self.missing_files(0).into_iter();
        let missing = missing.map(|file| format!("[{file}]"));
        lines.chain(missing).collect::<Vec<_>>().join("\n")
    }
}

impl Draft {
    /// Opens what the provider's tools returned in a reply.
    pub(super) fn open_server_outputs(&mut self, blocks: &[Block]) {
        for output in self.state.outputs_for_descriptors(blocks) {
            let Some(bytes) = output.bytes() else {
                continue;
            };
            let placer = Placer::unlimited(self.state.settings(), self.now_ms);
            let entry = match &output.content {
                OutputContent::Text(_) => placer
                    .open_bytes(
                        CappedBytes {
                            bytes,
                            cut_bytes: 0,
                        },
                        &output.source,
                        "",
                    )
                    .map(|new| new.entry),
                OutputContent::Media(media) => {
                    let attachment = Attachment {
                        name: media.name.as_deref().map(Arc::from),
                        media_type: media.media_type.as_str().into(),
                        bytes,
                    };
                    let placed = placer.attachment(&attachment, &output.source);
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
        let last = self.state.messages.last();
        let Some(unsent) = last.filter(|last| last.role == Role::User).cloned() else {
            return;
        };
        let outputs = self.state.described_outputs(1);
        let missing = self.state.missing_files(1);
        if outputs.is_empty() && missing.is_empty() {
            return;
        }
        let elements = outputs.iter().map(|(id, output)| {
            let attached = Attached {
                source: &output.source,
                name: output.name(),
                media_type: output.media_type(),
                bytes: output.len_bytes(),
                kept_bytes: None,
            };
            view::attachment(id, attached).to_xml()
        });
        let kept = view::attachments_of_reply(outputs.len());
        let kept = Some(kept).filter(|_| !outputs.is_empty());
        let missing = Some(view::attachments_missing(&missing)).filter(|_| !missing.is_empty());
        let text = kept
            .map(|element| element.to_xml())
            .into_iter()
            .chain(elements)
            .chain(missing.map(|element| element.to_xml()))
            .collect::<Vec<_>>()
            .join("\n");
        let is_noted =
            |block: &Block| matches!(block, Block::Text { text: said, .. } if **said == *text);
        if !unsent.blocks.iter().any(is_noted) {
            self.emit(Fact::Noted { text: text.into() });
        }
    }
}
