//! FENCE-1: what a process did beyond a point that it went back to is not done again by its model,
//! unless the host approved it.
//!
//! The world keeps its own list of what each process did, by the words of the calls. The log of the
//! machine is not looked at.

use std::sync::Arc;

use dormouse_kernel::process::{Fact, Image, State, evolve};
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::message::Block;
use dormouse_proto::process::Origin;
use dormouse_proto::record::{CallFact, Caller, Gate, HoldReason, PendingCall, Phase, TurnFact};

use super::{Held, ensure};
use crate::world::World;

/// The tools whose effects may not be doubled. What may be repeated by declaration is none of them.
const TOOLS: [&str; 4] = ["grep", "send_message", "fork", "spawn"];

/// Something that a process did.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    tool: Arc<str>,
    args: Arc<str>,
    /// The tool uses that stand for it, each with the number of its message.
    uses: Vec<(Arc<str>, usize)>,
    place: Place,
    /// Whether this process did it, and not the one that it is a copy of.
    is_own: bool,
    /// The fact by which it began.
    fact: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Past,
    Beyond,
    DoneAgain,
}

/// A copy that is on its way to its birth: the original, the fact that it begins at, and how many
/// effects it knows of.
pub(crate) type CopyKey = (Pid, FactNumber, u32);

impl World {
    pub(super) fn fence_1(&mut self, before: &State, first: u64, facts: &[Fact]) -> Held {
        let pid = before.pid();
        self.deeds_of_copy(before);
        let is_noted = |fact: &Fact| {
            matches!(
                fact,
                Fact::Call(CallFact::ToolCalled { .. } | CallFact::Recalled { .. })
                    | Fact::Turn(TurnFact::WentTo { .. })
                    | Fact::WentToCompacted { .. }
                    | Fact::Restored { .. }
            )
        };
        if !facts.iter().any(is_noted) {
            return Ok(());
        }
        let mut state = before.clone();
        for (number, fact) in (first..).zip(facts) {
            match fact {
                Fact::Call(CallFact::ToolCalled { call }) => {
                    self.note_deed(&state, *call, number)?;
                }
                Fact::Call(CallFact::Recalled { call, .. }) => self.note_recall(&state, *call)?,
                Fact::Turn(TurnFact::WentTo { to, .. }) | Fact::WentToCompacted { to, .. } => {
                    for deed in self.deeds.entry(pid).or_default() {
                        let is_gone = deed.uses.iter().all(|(_, message)| *message > *to as usize);
                        if is_gone && deed.place == Place::Past {
                            deed.place = Place::Beyond;
                        }
                    }
                }
                Fact::Restored { image, .. } => {
                    take_back(self.deeds.entry(pid).or_default(), image);
                }
                _ => {}
            }
            evolve(&mut state, fact);
        }
        Ok(())
    }

    /// Forgets what was about to be done and whose facts a crash took: it was not done.
    pub(crate) fn forget_lost_deeds(&mut self) {
        for (pid, deeds) in &mut self.deeds {
            let last = self.store.disk.last(*pid);
            deeds.retain(|deed| !deed.is_own || deed.fact <= last);
        }
    }

    /// Notes what the original of a copy has done, for the copy: what it did up to fact `known`. What
    /// it is about to do while it is copied, both do.
    pub(crate) fn note_copy(&mut self, from: Pid, at: FactNumber, image: &Image, known: u64) {
        let mut deeds = self.deeds.get(&from).cloned().unwrap_or_default();
        deeds.retain(|deed| !deed.is_own || deed.fact <= known);
        take_back(&mut deeds, image);
        let key = (from, at, image.effects.own_from);
        self.deeds_of_copies.insert(key, deeds);
    }

    fn deeds_of_copy(&mut self, state: &State) {
        let pid = state.pid();
        if self.deeds.contains_key(&pid) {
            return;
        }
        let origin = self.supervisor.table.row(pid).map(|row| row.origin.clone());
        let deeds = match origin {
            Some(Origin::Copied { from, at }) => {
                let key = (from, at, state.effects().own_from);
                self.deeds_of_copies.get(&key).cloned()
            }
            _ => None,
        };
        let mut deeds = deeds.unwrap_or_default();
        deeds.iter_mut().for_each(|deed| deed.is_own = false);
        self.deeds.insert(pid, deeds);
    }

    fn note_deed(&mut self, state: &State, call: CallId, fact: u64) -> Held {
        let Some(pending_call) = call_of_model(state, call) else {
            return Ok(());
        };
        if pending_call.started || !TOOLS.contains(&&*pending_call.tool) {
            return Ok(());
        }
        // Calls without a token may be equal by chance, and one whose facts a crash took was never
        // made.
        if !pending_call.args.contains('~') {
            return Ok(());
        }
        let pid = state.pid();
        let deeds = self.deeds.entry(pid).or_default();
        let mut own = deeds.iter_mut().filter(|deed| deed.is_own);
        let is_this_call =
            |deed: &&mut Deed| deed.uses.iter().any(|(id, _)| *id == pending_call.id);
        if let Some(same) = own.find(is_this_call) {
            // It began before a crash, which took the fact and what followed.
            same.place = Place::Past;
            return Ok(());
        }
        if let Some(repeated) = find_beyond(deeds, pending_call) {
            self.tally.count("effects repeated with leave");
            repeated.place = Place::DoneAgain;
            let tool = &pending_call.tool;
            ensure(self.approved.contains(&(pid, call)), "FENCE-1", || {
                format!(
                    "{call} of {pid} does again what {tool} {} did beyond its point, and nobody said so; \
                     its gate: {:?}",
                    pending_call.args, pending_call.gate
                )
            })?;
        }
        deeds.push(Deed {
            tool: pending_call.tool.clone(),
            args: pending_call.args.clone(),
            uses: vec![(pending_call.id.clone(), state.last_message_number())],
            place: Place::Past,
            is_own: true,
            fact,
        });
        Ok(())
    }

    fn note_recall(&mut self, state: &State, call: CallId) -> Held {
        let pid = state.pid();
        let pending_call = call_of_model(state, call);
        let deeds = self.deeds.entry(pid).or_default();
        let recalled = pending_call
            .filter(|pending_call| TOOLS.contains(&&*pending_call.tool))
            .and_then(|pending_call| Some((pending_call, find_beyond(deeds, pending_call)?)));
        if let Some((pending_call, deed)) = recalled {
            let message = state.last_message_number();
            deed.uses.push((pending_call.id.clone(), message));
            deed.place = Place::Past;
        }
        Ok(())
    }
}

fn call_of_model(state: &State, call: CallId) -> Option<&PendingCall> {
    let Phase::Acting {
        caller: Caller::Model,
        pending_calls,
    } = state.phase()
    else {
        return None;
    };
    let mut calls = pending_calls.iter();
    calls.find(|pending_call| pending_call.call == call)
}

/// What a call repeats. A call that is known to repeat something does so by what its model wrote.
fn find_beyond<'a>(deeds: &'a mut [Deed], pending_call: &PendingCall) -> Option<&'a mut Deed> {
    let args = match &pending_call.gate {
        Some(Gate::Approved {
            hold,
            edit: Some(edit),
        }) if matches!(hold.reason, HoldReason::Repeats { .. }) => &edit.original,
        _ => &pending_call.args,
    };
    let mut deeds = deeds.iter_mut();
    deeds.find(|deed| {
        deed.place == Place::Beyond && deed.tool == pending_call.tool && deed.args == *args
    })
}

/// Whether each deed is in the history of an image, and complete there.
fn take_back(deeds: &mut [Deed], image: &Image) {
    let compacted = image.compacted.last().map_or(0, |compacted| compacted.last);
    let open: Vec<_> = image
        .phase
        .pending_calls()
        .iter()
        .filter(|pending_call| pending_call.answer.is_none())
        .map(|pending_call| pending_call.id.clone())
        .collect();
    let blocks = image.messages.iter().flat_map(|message| &message.blocks);
    let used: Vec<_> = blocks
        .filter_map(|block| match block {
            Block::ToolUse { id, .. } if !open.contains(id) => Some(id.clone()),
            _ => None,
        })
        .collect();
    for deed in deeds {
        let is_past =
            |(id, message): &(Arc<str>, usize)| used.contains(id) || *message <= compacted as usize;
        deed.place = match deed.place {
            _ if deed.uses.iter().any(is_past) => Place::Past,
            Place::DoneAgain => Place::DoneAgain,
            Place::Past | Place::Beyond => Place::Beyond,
        };
    }
}
