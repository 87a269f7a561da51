//! What processes did outside of themselves.

use dormouse_actors::handle::{ProcessEffect, ProcessEffects};
use dormouse_proto::record::EffectPlace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An effect, as `dormouse effects --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EffectView {
    /// The call, such as `0.7`.
    pub call: String,
    /// The fact by which it began; `null` if it is not retained.
    pub fact: Option<u64>,
    /// The tool, as the model calls it.
    pub tool: String,
    /// The access that the tool needs.
    pub access: String,
    /// The beginning of the arguments: JSON text.
    pub args: String,
    /// Where the effect is, seen from the present of the process.
    pub place: String,
    /// The beginning of the answer; `null` if none is recorded.
    pub answer: Option<String>,
    /// Whether the answer was an error.
    pub is_error: bool,
}

impl From<&ProcessEffect> for EffectView {
    fn from(effect: &ProcessEffect) -> Self {
        Self {
            call: effect.call.to_string(),
            fact: effect.fact.map(|fact| fact.0),
            tool: effect.tool.to_string(),
            access: effect.access.word().to_owned(),
            args: effect.args.to_string(),
            place: Self::place_word(effect.place).to_owned(),
            answer: effect.answer.as_deref().map(str::to_owned),
            is_error: effect.is_error,
        }
    }
}

impl EffectView {
    /// The words for a place.
    #[must_use]
    pub fn place_word(place: EffectPlace) -> &'static str {
        match place {
            EffectPlace::Ran { .. } => "done",
            EffectPlace::Recalled { .. } => "recorded answer given again",
            EffectPlace::Beyond => "beyond a point gone back to",
            EffectPlace::DoneAgain => "done again since",
        }
    }
}

/// What a process did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EffectsView {
    /// The effects, oldest first.
    pub effects: Vec<EffectView>,
    /// How many older effects are not listed, since they are not kept.
    pub dropped: u32,
}

impl From<&ProcessEffects> for EffectsView {
    fn from(listed: &ProcessEffects) -> Self {
        Self {
            effects: listed.effects.iter().map(EffectView::from).collect(),
            dropped: listed.dropped,
        }
    }
}
