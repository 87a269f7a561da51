//! What the provider's own tools returned: which of it becomes a descriptor, and how the model and
//! people are told.
//!
//! A *server block* is a block of a reply that a tool of the provider made: its call, or its result
//! (`dormouse_proto::server_tool`). The conversation keeps these blocks, and the provider has their
//! contents. So nothing of them enters the context again:
//!
//! 1. When a reply arrives, its read (`reply.rs`) calls [`place_server_outputs`], which makes an
//!    entry of each large text, file and image. The decision that records the reply opens the
//!    entries.
//! 2. If the reply ends the turn, `turn.rs` calls [`State::describe_reply_media`] for people.
//! 3. Before the next model call, `turn.rs` calls [`Draft::add_output_notice`]. It appends a
//!    *notice*, a text of the kernel that names the descriptors, to the user message that is about
//!    to be sent.
//!
//! Steps 2 and 3 do not know what step 1 opened, also after a restart: they find the descriptors
//! again by source and size. They look at [summaries](server_summaries) of the blocks, which the
//! read of the reply or the loading of the process has computed: names, types and sizes, written by
//! no model.

use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::{CappedBytes, Content, Unreadable};
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::{self, Attached};
use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::record::Entry;
use dormouse_proto::server_tool::{
    Media, REPLY_TOOL, ServerBlockSummary, count_calls, server_blocks, server_summaries,
};
use dormouse_proto::tool::Attachment;
use imbl::OrdMap;

use super::decide::Draft;
use super::{Fact, State};
use crate::table::attachment::{MAX_ATTACHMENTS, attachment_source};
use crate::table::placement::Placer;

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

/// The outputs of a block that are to become descriptors. Media that are not base64 are none of
/// them. O(outputs) once the block is summarized.
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
            REPLY_TOOL => REPLY_TOOL.to_owned(),
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
        let media = summary.media.iter().enumerate();
        outputs.extend(media.filter_map(|(at, media)| {
            Some(ServerOutput {
                source: source.clone(),
                name: media.name.clone(),
                media_type: media.media_type.clone(),
                len_bytes: media.bytes?,
                index,
                part: OutputPart::Media(at),
            })
        }));
    }
    outputs
}

/// The outputs in a reply that become descriptors, as entries of the table: the first
/// [`MAX_ATTACHMENTS`]. O(n) in the blocks that hold them; a block without any is only summarized.
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
    let Some(bytes) = media.bytes() else {
        return Ok(None);
    };
    let attachment = Attachment {
        name: media.name.as_deref().map(Arc::from),
        media_type: media.media_type.as_str().into(),
        bytes: bytes.into(),
    };
    placer
        .attachment(&attachment, source)
        .map(|new| Some(new.entry))
}

/// The outputs of a reply, as they are told.
#[derive(Default)]
struct ReplyOutputs {
    /// The outputs whose descriptors are still open, each with its descriptor.
    described: Vec<(FdId, ServerOutput)>,
    /// How many outputs became descriptors when the reply came. Some may have been closed since.
    opened: usize,
    /// How many outputs did not, since they were beyond [`MAX_ATTACHMENTS`].
    left_out: usize,
}

impl State {
    /// The calls of the provider's tools in the conversation, by tool: those of this process, not
    /// those before the fork that made it. After a compaction, or a return to a message before the
    /// fork, it is no longer known which of the messages that are left came from the parent: their
    /// calls are counted too.
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

    /// The messages of the last reply, which are several if the provider paused. `skip`: how many
    /// messages stand after the reply: 1 if the next user message is in place, 0 if not.
    fn messages_of_reply(&self, skip: usize) -> Vec<&Arc<Message>> {
        let mut reply: Vec<_> = self
            .messages
            .iter()
            .rev()
            .skip(skip)
            .take_while(|message| message.role == Role::Assistant)
            .collect();
        reply.reverse();
        reply
    }

    /// What is to be said of the files that the last reply names and the process does not have.
    fn missing_files(&self, skip: usize) -> Vec<String> {
        let reply = self.messages_of_reply(skip).into_iter();
        let blocks = reply.flat_map(|message| &message.blocks);
        let missing = blocks
            .flat_map(server_summaries)
            .flat_map(|found| &found.missing);
        missing.take(MAX_ATTACHMENTS).cloned().collect()
    }

    /// The outputs in the last reply, each with its descriptor: the newest that has its source and
    /// size. O(blocks of the reply), and O(descriptors) if it has outputs.
    fn described_outputs(&self, skip: usize) -> ReplyOutputs {
        let (mut outputs, mut left_out) = (Vec::new(), 0);
        for message in self.messages_of_reply(skip) {
            let blocks = message.blocks.iter();
            let of_block = |block| outputs_for_descriptors(self.settings(), block);
            let mut of_message: Vec<_> = blocks.flat_map(of_block).collect();
            // `place_server_outputs` opened no more of each message.
            left_out += of_message.len().saturating_sub(MAX_ATTACHMENTS);
            of_message.truncate(MAX_ATTACHMENTS);
            outputs.append(&mut of_message);
        }
        let opened = outputs.len();
        if opened == 0 {
            return ReplyOutputs::default();
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
        ReplyOutputs {
            described,
            opened,
            left_out,
        }
    }

    /// What a person is told of the files and images in the last reply, of those that it only
    /// names, and of those that are not kept; empty if there are none.
    pub(super) fn describe_reply_media(&self) -> String {
        let outputs = self.described_outputs(0);
        let left_out = outputs.left_out;
        let media = outputs
            .described
            .into_iter()
            .filter(|(_, output)| matches!(output.part, OutputPart::Media(_)));
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
        let left_out = (left_out > 0).then(|| {
            format!(
                "[{left_out} further outputs are not kept: at most {MAX_ATTACHMENTS} of a reply \
                 become descriptors]"
            )
        });
        let lines = lines.chain(missing).chain(left_out);
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Draft {
    /// Tells the model which descriptors hold what the provider's tools returned, by a notice in
    /// the message that is about to be sent. If the last message is the model's own (a paused
    /// reply), the notice is postponed.
    pub(super) fn add_output_notice(&mut self) {
        let last = self.state.messages.last();
        let Some(unsent) = last.filter(|last| last.role == Role::User).cloned() else {
            return;
        };
        let ReplyOutputs {
            described,
            opened,
            left_out,
        } = self.state.described_outputs(1);
        let missing = self.state.missing_files(1);
        if described.is_empty() && missing.is_empty() {
            return;
        }
        let elements = described.iter().map(|(id, output)| {
            let attached = Attached {
                source: &output.source,
                name: output.name.as_deref(),
                media_type: &output.media_type,
                bytes: output.len_bytes,
                kept_bytes: None,
            };
            view::attachment(id, attached).to_xml()
        });
        let kept = view::attachments_of_reply(described.len());
        let kept = Some(kept).filter(|_| !described.is_empty());
        let left_out =
            (left_out > 0).then(|| view::attachments_left_out(opened + left_out, opened).to_xml());
        let missing = Some(view::attachments_missing(&missing)).filter(|_| !missing.is_empty());
        let text = kept
            .map(|element| element.to_xml())
            .into_iter()
            .chain(elements)
            .chain(left_out)
            .chain(missing.map(|element| element.to_xml()))
            .collect::<Vec<_>>()
            .join("\n");
        let is_there =
            |block: &Block| matches!(block, Block::Text { text: known, .. } if **known == *text);
        if !unsent.blocks.iter().any(is_there) {
            self.emit(Fact::Noted { text: text.into() });
        }
    }
}
