//! Lists what processes did outside of themselves.
//!
//! The state of a process holds a log of its recorded effects, with arguments and answers
//! (`kernel/machine/src/process/effect_log.rs`). The journal says by which fact each call began. If
//! the process went back to an earlier point, the effects after that point lie *beyond* it
//! ([`EffectPlace`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::process::Image;
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::record::{CallFact, EffectOutcome, EffectPlace, Fact, RecordedEffect};
use dormouse_proto::tool::Access;

use super::branch::Position;
use super::history::image_at;
use super::kernel::Kernel;
use crate::context::KernelContext;
use crate::error::KernelError;
use crate::ports::{Store, StoreError};
use crate::recovery::decode_fact;

/// The most characters of an answer that are listed.
const MAX_ANSWER_CHARS: usize = 200;

/// A call by which a process changed something outside of itself, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEffect {
    /// The call.
    pub call: CallId,
    /// The fact by which the call began: a branch from the fact before it does not include it.
    /// `None` if the fact is not retained.
    pub fact: Option<FactNumber>,
    /// The tool, as the model calls it.
    pub tool: Arc<str>,
    /// The access that the tool needs.
    pub access: Access,
    /// The beginning of the arguments: JSON text.
    pub args: Arc<str>,
    /// Where the effect is, seen from the present of the process.
    pub place: EffectPlace,
    /// The beginning of the answer; `None` if the call was begun and no answer is recorded, or if the
    /// answer was too long to be kept.
    pub answer: Option<Arc<str>>,
    /// Whether the answer was an error. The call may have had an effect all the same.
    pub is_error: bool,
}

/// What a process did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessEffects {
    /// The effects, oldest first.
    pub effects: Vec<ProcessEffect>,
    /// How many older effects of the process are not listed, since they are not kept.
    pub dropped: u32,
}

impl Kernel {
    /// What a process did outside of itself since a position (`None`: since its creation): the calls
    /// of tools that need write access or more, files that it wrote, messages, and children. This is
    /// what remains of a branch that is given up. Effects of its children are listed by their pids.
    /// A process that was branched or copied lists none of the original's. Costs its whole journal.
    ///
    /// # Errors
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) for an unknown process or fact,
    /// [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load).
    pub async fn effects(
        &self,
        pid: Pid,
        since: Option<Position>,
    ) -> Result<ProcessEffects, KernelError> {
        self.wait_for_queued_writes().await;
        self.context
            .query_store(move |store, context| read_effects(store, context, pid, since))
            .await
    }
}

fn read_effects(
    store: &dyn Store,
    context: &KernelContext,
    pid: Pid,
    since: Option<Position>,
) -> Result<ProcessEffects, KernelError> {
    let earlier = match since {
        Some(position) => Some(image_at(store, context, (pid, position))?),
        None => None,
    };
    let log = image_at(store, context, (pid, Position::Now))?.effects;
    // The effects before `own_from` are those of the process that this one was made from.
    let from = match &earlier {
        Some(earlier) => first_effect_after(earlier).max(log.own_from),
        None => log.own_from,
    };
    let facts = facts_of_calls(store, pid)?;
    let since = log.numbered().filter(|(number, _)| *number >= from);
    Ok(ProcessEffects {
        effects: since.map(|(_, effect)| describe(effect, &facts)).collect(),
        dropped: log.dropped.saturating_sub(from),
    })
}

/// The number of the first effect that was not complete at a position.
fn first_effect_after(earlier: &Image) -> u32 {
    let mut numbered = earlier.effects.numbered();
    let open = numbered.find(|(_, effect)| {
        matches!(effect.place, EffectPlace::Ran { .. }) && effect.outcome == EffectOutcome::Unknown
    });
    open.map_or(earlier.effects.count(), |(number, _)| number)
}

/// The fact by which each call began, as far as facts are retained and can be read.
fn facts_of_calls(
    store: &dyn Store,
    pid: Pid,
) -> Result<BTreeMap<CallId, FactNumber>, KernelError> {
    let mut facts = BTreeMap::new();
    let history = store.history(pid)?;
    let (commits, _) = history.up_to_loss();
    for committed in commits {
        let first = FactNumber(committed.first.0.max(1));
        let read = match store.facts(pid, first, committed.last()) {
            Err(StoreError::Damaged { .. } | StoreError::Lost { .. }) => break,
            read => read?,
        };
        for (number, fact) in (first.0..).zip(&read) {
            if let Fact::Call(CallFact::ToolCalled { call }) = decode_fact(pid, fact)? {
                facts.entry(call).or_insert(FactNumber(number));
            }
        }
    }
    Ok(facts)
}

fn describe(
    effect: &RecordedEffect<Content>,
    facts: &BTreeMap<CallId, FactNumber>,
) -> ProcessEffect {
    let (answer, is_error) = match &effect.outcome {
        EffectOutcome::Unknown => (None, false),
        EffectOutcome::NotKept { is_error } => (None, *is_error),
        EffectOutcome::Answered { answer, .. } => {
            let text: String = answer.text.chars().take(MAX_ANSWER_CHARS).collect();
            (Some(text.into()), answer.is_error)
        }
    };
    ProcessEffect {
        call: effect.call,
        fact: facts.get(&effect.call).copied(),
        tool: effect.tool.clone(),
        access: effect.access,
        args: effect.args.clone(),
        place: effect.place,
        answer,
        is_error,
    }
}
