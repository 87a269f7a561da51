//! What the provider's own tools returned: which of it becomes a descriptor, and how the model and
//! people are told.
//!
//! The conversation keeps the provider's blocks, and the provider has their contents. So nothing of
//! them enters the context again: a large text, a file or an image is opened as a descriptor when
//! the reply arrives, and a note in the next message names it. The contents are read in the read of
//! the reply (`reply.rs`). A decision looks at [summaries](server_summaries) of the blocks, which
//! that read or the loading of the process has computed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dormouse_content::{CappedBytes, Content, Unreadable};
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::{self, Attached};
use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Role};
use dormouse_proto::record::Entry;
use dormouse_proto::server_tool::{
    Media, ServerBlockSummary, count_calls, server_blocks, server_summaries,
};
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
    /// The name of a file, if it has one.
    name: Option<String>,
    media_type: String,
    /// The number of bytes of the content.
    len_bytes: u64,
    /// Index among the [`server_blocks`] of its block.
    index: usize,
    part: OutputPart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputPart {
    Text,
    /// A file or an image, by its index among the media of the output.
    Media(usize),
}

/// Those outputs in a block that become descriptors. O(outputs) once the block is summarized.
fn outputs_for_descriptors(
    settings: Option<&DescriptorSettings>,
    block: &Block,
) -> Vec<ServerOutput> {
    let exceeds_limit = |summary: &ServerBlockSummary| {
        let (chars, bytes) = (summary.text_chars, summary.text_bytes);
        settings.is_some_and(|settings| settings.exceeded_output_limit(chars, bytes).is_some())
    };
    let mut outputs = Vec::new();
    for (index, summary) in server_summaries(block).iter().enumerate() {
        let source = match &*summary.tool {
            REPLY => REPLY.to_owned(),
            tool => format!("server:{tool}"),
        };
        if exceeds_limit(summary) {
            outputs.push(ServerOutput {
                source: source.clone(),
                name: None,
                media_type: "text/plain".to_owned(),
                len_bytes: summary.text_bytes,
                index,
                part: OutputPart::Text,
            });
        }
        outputs.extend(
            summary
                .media
                .iter()
                .enumerate()
                .map(|(at, media)| ServerOutput {
                    source: source.clone(),
                    name: media.name.clone(),
                    media_type: media.media_type.clone(),
                    len_bytes: media.bytes,
                    index,
                    part: OutputPart::Media(at),
                }),
        );
    }
    outputs
}

/// The outputs in a reply that become descriptors, as entries of the table. O(n) in the blocks that
/// hold them; a block without any is only summarized.
///
/// # Errors
/// [`Unreadable`] if the quota is used up.
pub(super) fn place_server_outputs(
    placer: &Placer<'_>,
    blocks: &[Block],
) -> Result<Vec<Entry<Content>>, Unreadable> {
    let mut entries = Vec::new();
    let mut outputs_left = MAX_ATTACHMENTS;
    for block in blocks {
        let mut outputs = outputs_for_descriptors(placer.settings, block);
        outputs.truncate(outputs_left);
        outputs_left -= outputs.len();
        if outputs.is_empty() {
            continue;
        }
        let contents: Vec<_> = server_blocks(block)
            .into_iter()
            .map(|found| found.output.unwrap_or_default())
            .collect();
        for output in outputs {
            let content = &contents[output.index];
            let entry = match output.part {
                OutputPart::Text => Some(place_text(placer, &content.text, &output.source)?),
                OutputPart::Media(at) => place_media(placer, &content.media[at], &output.source)?,
            };
            entries.extend(entry);
        }
    }
    Ok(entries)
}

fn place_text(placer: &Placer<'_>, text: &str, source: &str) -> Result<Entry<Content>, Unreadable> {
    let capped = CappedBytes {
        bytes: Bytes::copy_from_slice(text.as_bytes()),
        cut_bytes: 0,
    };
    placer.open_bytes(capped, source, "").map(|new| new.entry)
}

/// The entry of a file or an image; `None` if its text is not base64.
fn place_media(
    placer: &Placer<'_>,
    media: &Media,
    source: &str,
) -> Result<Option<Entry<Content>>, Unreadable> {
    let Some(bytes) = decode_base64(&media.base64) else {
        return Ok(None);
    };
    let attachment = Attachment {
        name: media.name.as_deref().map(Arc::from),
        media_type: media.media_type.as_str().into(),
        bytes,
    };
    placer
        .attachment(&attachment, source)
        .map(|new| Some(new.entry))
}

/// The bytes of a base64 text in either alphabet; `None` if it is not base64.
fn decode_base64(text: &str) -> Option<Bytes> {
    if let Ok(bytes) = STANDARD.decode(text) {
        return Some(bytes.into());
    }
    let digits = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let standard: Vec<u8> = digits
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    STANDARD.decode(standard).ok().map(Bytes::from)
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
        let found = self.blocks_of_reply(skip).flat_map(server_summaries);
        let missing = found.flat_map(|found| &found.missing);
        missing.take(MAX_ATTACHMENTS).cloned().collect()
    }

    /// The outputs in the last reply, each with its descriptor: the newest that has its source and
    /// size. O(blocks of the reply), and O(descriptors) if it has outputs.
    fn described_outputs(&self, skip: usize) -> Vec<(FdId, ServerOutput)> {
        let outputs: Vec<_> = self
            .blocks_of_reply(skip)
            .flat_map(|block| outputs_for_descriptors(self.settings(), block))
            .collect();
        if outputs.is_empty() {
            return Vec::new();
        }
        let mut entries: Vec<_> = self.table.iter().collect();
        let mut described = Vec::new();
        for output in outputs.into_iter().rev() {
            let source = attachment_source(&output.source, output.name.as_deref());
            let at = entries.iter().rposition(|(id, entry)| {
                matches!(id, FdId::Fd(_))
                    && *entry.source == *source
                    && entry.content.len_bytes() + entry.cut_bytes == output.len_bytes
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
        let media = outputs.filter(|(_, output)| matches!(output.part, OutputPart::Media(_)));
        let lines = media.map(|(id, output)| {
            let name = output.name.map(|name| format!("{name}, "));
            format!(
                "[{id}: {}{}, {} bytes]",
                name.unwrap_or_default(),
                output.media_type,
                output.len_bytes
            )
        });
        let missing = self.missing_files(0).into_iter();
        let missing = missing.map(|file| format!("[{file}]"));
        lines.chain(missing).collect::<Vec<_>>().join("\n")
    }
}

impl Draft {
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
                name: output.name.as_deref(),
                media_type: &output.media_type,
                bytes: output.len_bytes,
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
