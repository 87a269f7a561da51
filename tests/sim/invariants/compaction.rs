//! COMPACT-1: what a compaction moves out of the conversation can still be read, word for word, in
//! its descriptor, and as the messages that it was.

use std::sync::Arc;

use dormouse_kernel::process::{Fact, State, evolve};
use dormouse_proto::message::{Block, Message};
use dormouse_proto::record::codec;

use super::{Held, Violation, ensure};
use crate::process::Running;
use crate::world::World;

impl World {
    /// `before` is the state before the step, whose facts are `facts`.
    pub(super) fn compact_1(
        &mut self,
        running: &Running,
        before: &State,
        facts: &[Fact],
        fact: &Fact,
    ) -> Held {
        let Fact::Compacted {
            compacted, entry, ..
        } = fact
        else {
            return Ok(());
        };
        let (pid, after) = (running.pid(), &running.state);
        let mut before = before.clone();
        facts
            .iter()
            .take_while(|earlier| !std::ptr::eq(*earlier, fact))
            .for_each(|earlier| evolve(&mut before, earlier));
        let (text, bytes) = (
            entry.content.unlimited_reader().text(),
            compacted.messages.unlimited_reader().bytes(),
        );
        let text = text.expect("it is in memory");
        for message in before.messages() {
            let stays = after
                .messages()
                .iter()
                .any(|kept| kept.blocks.starts_with(&message.blocks));
            let lost = message
                .blocks
                .iter()
                .filter_map(text_of)
                .find(|part| !stays && !text.contains(*part));
            ensure(lost.is_none(), "COMPACT-1", || {
                format!("history:{} of {pid} lacks {lost:?}", compacted.history)
            })?;
        }
        let messages: Vec<Arc<Message>> =
            codec::decode(&bytes.expect("it is in memory")).map_err(|error| {
                let what = format!("the messages of {pid} do not decode: {error}");
                Violation::of("COMPACT-1", what)
            })?;
        let mut pairs = before.messages().iter().zip(&messages);
        let same = pairs.all(|(before, kept)| before == kept);
        let last = compacted.last.max(1) as usize;
        let first = before.last_compacted().saturating_sub(1) as usize;
        let is_whole = same && first + messages.len() == last;
        self.tally.count("compacted messages read back");
        ensure(is_whole, "COMPACT-1", || {
            format!("the messages of {pid} up to {last} are not what they were")
        })
    }
}

/// What a block says.
fn text_of(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text, .. } | Block::ToolResult { text, .. } => Some(text),
        Block::ToolUse { args, .. } => Some(args),
        Block::Opaque(raw) => Some(&raw.json),
        Block::Media { .. } => None,
    }
}
