//! Replies of the model: a reply is read before it is recorded, if something in it may become a
//! descriptor. That is a reference (`references.rs` finds it), or what a tool of the provider
//! returned (`server_output.rs`).
//!
//! Until the reply is recorded, the process waits for its model as before: a signal abandons the
//! read like a call, and after a restart the model is called again. The usage of a reply that is
//! abandoned while it is read is recorded, since the reply has come.

use std::sync::Arc;

use bytes::Bytes;
use dormouse_content::{Content, Unreadable};
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::message::{Block, text_of};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply};
use dormouse_proto::record::{CallFact, Entry, Phase};
use dormouse_proto::server_tool::raw_of;

use super::State;
use super::compaction::CompactionCause;
use super::decide::Draft;
use super::read::ReadSubject;
use super::server_output::place_server_outputs;
use crate::references::references;
use crate::table::placement::Placer;

/// A reply whose bytes have been read.
#[derive(Clone, Debug)]
pub struct PlacedReply {
    reply: Reply,
    /// The references that the reply marks, by id.
    references: Vec<(String, Entry<Content>)>,
    /// What tools of the provider returned and is opened.
    server_outputs: Vec<Entry<Content>>,
}

impl PlacedReply {
    /// A reply that opens no descriptor.
    fn without_descriptors(reply: Reply) -> Self {
        Self {
            reply,
            references: Vec::new(),
            server_outputs: Vec::new(),
        }
    }

    /// Reads a reply. O(n) in its texts if it may mark references, and in the blocks of the provider.
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is used up.
    pub(super) fn new(
        reply: &Reply,
        marks_references: bool,
        placer: &Placer<'_>,
    ) -> Result<Self, Unreadable> {
        // A block is parsed for its summary, and once more if it holds a content.
        let json_bytes: usize = reply.blocks.iter().filter_map(raw_of).map(json_len).sum();
        placer.quota.charge(json_bytes.saturating_mul(2))?;
        let references = match marks_references {
            true => place_references(placer, &reply.blocks)?,
            false => Vec::new(),
        };
        let server_outputs = place_server_outputs(placer, &reply.blocks)?;
        Ok(Self {
            // The copy has the summaries that were just computed.
            reply: reply.clone(),
            references,
            server_outputs,
        })
    }
}

fn json_len(raw: &dormouse_proto::message::Raw) -> usize {
    raw.json.len()
}

/// Each part that the model marked in its reply, as an entry that shares the bytes of the reply.
fn place_references(
    placer: &Placer<'_>,
    blocks: &[Block],
) -> Result<Vec<(String, Entry<Content>)>, Unreadable> {
    let Some(settings) = placer.settings else {
        return Ok(Vec::new());
    };
    let text = text_of(blocks);
    placer.quota.charge(text.len())?;
    let reply = Bytes::from(text);
    let text = std::str::from_utf8(&reply).expect("a reply is text");
    let mut entries = Vec::new();
    for (id, range) in references(text) {
        // References may nest, so that together they can be longer than the reply.
        placer.quota.charge(range.len())?;
        let content = Content::new(reply.slice(range));
        content
            .reader(placer.quota)
            .prepare_page_table(settings.page_chars);
        let entry = Entry::new(content, settings.page_chars, "reply", placer.now_ms);
        entries.push((id.to_owned(), entry));
    }
    Ok(entries)
}

impl State {
    fn marks_references(&self) -> bool {
        self.settings().is_some() && self.program.references()
    }

    /// Whether something in the reply may become a descriptor. O(blocks).
    fn may_open_descriptors(&self, reply: &Reply) -> bool {
        let is_text = |block: &Block| matches!(block, Block::Text { .. });
        let has_text = reply.blocks.iter().any(is_text);
        (has_text && self.marks_references())
            || reply.blocks.iter().any(|block| raw_of(block).is_some())
    }
}

impl Draft {
    pub(super) fn handle_model_reply(&mut self, call: CallId, result: Result<Reply, ModelError>) {
        let model = self.state.model().name.clone();
        // While a refused conversation is compacted, the process still waits for the same call.
        if self.state.phase != (Phase::Thinking { call }) || self.state.is_compacting() {
            return self.record_late_usage(call, &model, &result);
        }
        match result {
            Ok(reply) => {
                if self.state.may_open_descriptors(&reply) {
                    self.read_reply(call, reply);
                } else {
                    self.record_reply(call, PlacedReply::without_descriptors(reply));
                }
            }
            Err(error) => {
                // The read of the reply failed inside.
                self.record_usage_of_abandoned_reply();
                if error.kind == ModelErrorKind::ContextOverflow
                    && self.state.program.context().enabled
                {
                    self.request_compaction(CompactionCause::Refused(error));
                } else {
                    self.handle_model_failure(&error, error.to_string());
                }
            }
        }
    }

    /// Requests the read of a reply. A reply that comes again meanwhile is read again; the first
    /// result counts.
    fn read_reply(&mut self, call: CallId, reply: Reply) {
        let marks_references = self.state.marks_references();
        let reply = Arc::new(reply);
        self.state.pending_reads.set_reply(call, Arc::clone(&reply));
        self.request_read(ReadSubject::Reply {
            call,
            reply,
            marks_references,
        });
    }

    /// Records a reply that has been read. It is stale if the call was abandoned meanwhile (CALL-1).
    pub(super) fn handle_placed_reply(&mut self, call: CallId, placed: PlacedReply) {
        if self.state.pending_reads.finish_call_read(call)
            && self.state.phase == (Phase::Thinking { call })
        {
            self.state.pending_reads.take_reply();
            self.record_reply(call, placed);
        }
    }

    /// Records the usage of a reply whose read is given up.
    pub(super) fn record_usage_of_abandoned_reply(&mut self) {
        if let Some((call, reply)) = self.state.pending_reads.take_reply() {
            self.state.pending_reads.finish_call_read(call);
            let model = &self.state.model().name;
            self.record_usage(call, self.state.usage_with_cost(model, &reply));
        }
    }

    fn record_reply(&mut self, call: CallId, placed: PlacedReply) {
        let PlacedReply {
            reply,
            references,
            server_outputs,
        } = placed;
        // The calls of the provider's tools are counted in what the read has summarized.
        let usage = self.state.usage_with_cost(&self.state.model().name, &reply);
        let Reply { blocks, stop, .. } = reply;
        self.emit(CallFact::ModelReplied {
            call,
            blocks,
            stop,
            usage,
        });
        for (id, entry) in references {
            self.open_under_id(FdId::Ref(id), entry);
        }
        for entry in server_outputs {
            let id = self.state.table.next_id();
            self.open_under_id(id, entry);
        }
        match self.state.phase {
            Phase::Ready {
                stop_reason: Some(stop),
            } => self.handle_stop_reason(stop),
            _ => self.start_open_calls(),
        }
    }
}
