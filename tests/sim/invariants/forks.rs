//! FORK-1: a step of one process is not seen in any other. The nearest are looked at after each
//! step: how they stand by a few numbers, and at times by all that they hold.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use dormouse_kernel::process::State;
use dormouse_proto::message::Block;
use dormouse_proto::model::Usage;
use dormouse_proto::record::{OutputTotals, Phase};

use super::{Held, ensure};
use crate::process::Running;
use crate::world::World;

/// How a process stands, cheaply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Digest {
    phase: Discriminant<Phase>,
    is_stopped: bool,
    messages: usize,
    last: usize,
    waiting: usize,
    background: usize,
    descriptors: usize,
    next_fd: u32,
    usage: Usage,
    output_totals: OutputTotals,
}

impl Digest {
    pub(super) fn of(state: &State) -> Self {
        Self {
            phase: discriminant(state.phase()),
            is_stopped: state.is_stopped(),
            messages: state.messages().len(),
            last: state
                .messages()
                .last()
                .map_or(0, |last| Arc::as_ptr(last).addr()),
            waiting: state.waiting_messages(),
            background: state.background().len(),
            descriptors: state.table().len(),
            next_fd: state.table().next_fd(),
            usage: state.usage(),
            output_totals: state.output_totals(),
        }
    }
}

/// All that a process holds.
fn deep(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (id, entry) in state.table().iter() {
        (
            id,
            entry
                .content
                .unlimited_reader()
                .bytes()
                .expect("it is in memory"),
            &entry.notes.name,
            &entry.notes.summary,
        )
            .hash(&mut hasher);
    }
    for block in state.messages().iter().flat_map(|message| &message.blocks) {
        if let Block::Text { text, .. }
        | Block::ToolResult { text, .. }
        | Block::ToolUse { args: text, .. } = block
        {
            text.hash(&mut hasher);
        }
    }
    hasher.finish()
}

impl World {
    pub(super) fn fork_1(&mut self, running: &Running) -> Held {
        let pid = running.pid();
        let parent = self.supervisor.table.row(pid).and_then(|row| row.parent);
        let children = self
            .supervisor
            .table
            .living_children(pid)
            .into_iter()
            .map(|(child, _)| child);
        for near in parent.into_iter().chain(children) {
            let (Some(other), Some(ledger)) =
                (self.running.get(&near), self.ledgers.get_mut(&near))
            else {
                continue;
            };
            let is_same = ledger
                .left
                .as_ref()
                .is_none_or(|left| *left == Digest::of(&other.state));
            ensure(is_same, "FORK-1", || {
                format!("a step of {pid} is seen in {near}")
            })?;
            if self.steps.is_multiple_of(8) {
                let now = deep(&other.state);
                let before = *ledger.left_deep.get_or_insert(now);
                ensure(before == now, "FORK-1", || {
                    format!("what {near} holds changed between its steps")
                })?;
            }
        }
        if let Some(ledger) = self.ledgers.get_mut(&pid) {
            ledger.left = Some(Digest::of(&running.state));
            ledger.left_deep = None;
        }
        Ok(())
    }
}
