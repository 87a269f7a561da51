//! The effects of a process: the calls by which it changed something outside of itself.
//!
//! When a process goes back to an earlier point, its effects after that point leave its history and
//! are still done: they are then *beyond* the point. `kernel/machine/src/process/effect_log.rs`
//! keeps the log, and `fence.rs` next to it decides about calls that repeat an effect.

use std::sync::Arc;

use imbl::Vector;
use serde::{Deserialize, Serialize};

use super::Entry;
use crate::effect::EffectPolicy;
use crate::id::{CallId, ContentHash, FdId};
use crate::tool::{Access, Answer};

/// The latest effects of a process, and which of them lie beyond a point that it went back to.
///
/// An effect keeps its number for good: the `n`th effect is the `n`th of the process, of its
/// branches and of its copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(deserialize = "C: Clone + Deserialize<'de>"))]
pub struct EffectLog<C: Clone> {
    /// The policy that was named when the process went back; `None` if that of its program holds.
    pub policy: Option<EffectPolicy>,
    /// The effects, oldest first.
    pub effects: Vector<RecordedEffect<C>>,
    /// How many older effects are not kept. The first of `effects` has this number.
    pub dropped: u32,
    /// The last message that made an effect which is not kept, counted from 1; 0 if there is none.
    pub dropped_through: u32,
    /// The number of the message after which effects were recorded: 0 if all of them were. `None`
    /// in an image of a version that recorded none.
    pub begins_after: Option<u32>,
    /// Number of the first effect that the process made itself. Those before it belong to the
    /// process that it was created from.
    pub own_from: u32,
    /// Whether there may be effects beyond a point that are not known.
    pub has_unknown: bool,
}

/// A call that changed something outside of its process, or may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEffect<C> {
    /// The call that ran.
    pub call: CallId,
    /// Name of the tool, as the model calls it.
    pub tool: Arc<str>,
    /// The access that the tool needs.
    pub access: Access,
    /// Hash of what makes two calls the same: the arguments, or those that the tool declares.
    pub key: ContentHash,
    /// The beginning of the arguments, for people.
    pub args: Arc<str>,
    /// Where the effect is, seen from the present of the process.
    pub place: EffectPlace,
    /// What became of the call.
    pub outcome: EffectOutcome<C>,
}

/// Where an effect is, seen from the present of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EffectPlace {
    /// In the history of the process: this call ran.
    Ran {
        /// The call.
        call: CallId,
        /// Number of the last message when the call began, counted from 1.
        message: u32,
    },
    /// In the history of the process: this call repeated the effect, did not run, and got the
    /// recorded answer.
    Recalled {
        /// The call.
        call: CallId,
        /// Number of the last message when the call was answered, counted from 1.
        message: u32,
    },
    /// Beyond a point that the process went back to.
    Beyond,
    /// Beyond such a point, and another call did the same anew since.
    DoneAgain,
}

/// What became of a call that had an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EffectOutcome<C> {
    /// The call was begun, and no answer was recorded.
    Unknown,
    /// The call was answered, and the answer is too long to be kept here.
    NotKept {
        /// Whether the answer was an error.
        is_error: bool,
    },
    /// The call was answered.
    Answered {
        /// The answer.
        answer: Answer,
        /// The descriptors that the call opened, which the answer names.
        opened: Vec<(FdId, Entry<C>)>,
    },
}

/// The log of an image of a version that recorded no effects.
impl<C: Clone> Default for EffectLog<C> {
    fn default() -> Self {
        Self {
            begins_after: None,
            ..Self::new()
        }
    }
}

impl<C: Clone> EffectLog<C> {
    /// The log of a process that has done nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            policy: None,
            effects: Vector::new(),
            dropped: 0,
            dropped_through: 0,
            begins_after: Some(0),
            own_from: 0,
            has_unknown: false,
        }
    }

    /// How many effects there were, including those that are not kept: the number of the next one.
    #[must_use]
    pub fn count(&self) -> u32 {
        let kept = u32::try_from(self.effects.len()).unwrap_or(u32::MAX);
        self.dropped.saturating_add(kept)
    }

    /// The effect with this number, if it is kept.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&RecordedEffect<C>> {
        let index = number.checked_sub(self.dropped)?;
        self.effects.get(index as usize)
    }

    /// The effects that are kept, each with its number.
    pub fn numbered(&self) -> impl DoubleEndedIterator<Item = (u32, &RecordedEffect<C>)> {
        let effects = self.effects.iter().enumerate();
        effects.map(|(index, effect)| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            (self.dropped.saturating_add(index), effect)
        })
    }

    /// The log of a child that begins with the conversation: the effects so far are those of its
    /// parent.
    #[must_use]
    pub fn of_child(&self) -> Self {
        Self {
            own_from: self.count(),
            ..self.clone()
        }
    }

    /// The log without its effects, which are not known from then on. `last_message` is the number
    /// of the last message so far.
    #[must_use]
    pub fn without_effects(&self, last_message: u32) -> Self {
        Self {
            effects: Vector::new(),
            dropped: self.count(),
            dropped_through: last_message,
            has_unknown: self.can_be_repeated(),
            ..self.clone()
        }
    }

    /// Whether a call could repeat an effect beyond a point that the process went back to.
    #[must_use]
    pub fn can_be_repeated(&self) -> bool {
        let mut effects = self.effects.iter();
        self.has_unknown || effects.any(|effect| effect.place == EffectPlace::Beyond)
    }

    /// The contents of the log.
    pub fn contents(&self) -> impl Iterator<Item = &C> {
        self.effects
            .iter()
            .flat_map(|effect| match &effect.outcome {
                EffectOutcome::Answered { opened, .. } => &opened[..],
                EffectOutcome::Unknown | EffectOutcome::NotKept { .. } => &[],
            })
            .map(|(_, entry)| &entry.content)
    }

    /// Converts the representation of the contents.
    ///
    /// # Errors
    /// Errors of `convert`.
    pub fn try_map<D: Clone, E>(
        self,
        convert: &mut impl FnMut(C) -> Result<D, E>,
    ) -> Result<EffectLog<D>, E> {
        let effects = self.effects.into_iter();
        Ok(EffectLog {
            effects: effects
                .map(|effect| effect.try_map(convert))
                .collect::<Result<_, E>>()?,
            policy: self.policy,
            dropped: self.dropped,
            dropped_through: self.dropped_through,
            begins_after: self.begins_after,
            own_from: self.own_from,
            has_unknown: self.has_unknown,
        })
    }
}

impl<C> RecordedEffect<C> {
    fn try_map<D, E>(
        self,
        convert: &mut impl FnMut(C) -> Result<D, E>,
    ) -> Result<RecordedEffect<D>, E> {
        let outcome = match self.outcome {
            EffectOutcome::Unknown => EffectOutcome::Unknown,
            EffectOutcome::NotKept { is_error } => EffectOutcome::NotKept { is_error },
            EffectOutcome::Answered { answer, opened } => {
                let opened = opened.into_iter();
                EffectOutcome::Answered {
                    answer,
                    opened: opened
                        .map(|(id, entry)| Ok((id, entry.try_map(convert)?)))
                        .collect::<Result<_, E>>()?,
                }
            }
        };
        Ok(RecordedEffect {
            call: self.call,
            tool: self.tool,
            access: self.access,
            key: self.key,
            args: self.args,
            place: self.place,
            outcome,
        })
    }
}
