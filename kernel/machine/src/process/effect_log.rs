//! The log of effects: what a process did outside of itself, and what of it lies beyond a point
//! that the process went back to.
//!
//! The log follows from the facts: [`evolve`](super::evolve()) records a call when its intent is
//! recorded, and its outcome with its answer. A `goto` or a restore moves the effects after its
//! point beyond it. A branch or a copy of an earlier state gets the log of its origin
//! ([`with_effects_of`]). `fence.rs` decides what happens to a call that repeats such an effect.
//!
//! Each effect has a *key* (two calls of a tool with one key have the same effect), an outcome and
//! a *place*: in the history of the process, beyond a point, or done again since by another call.
//! The log keeps the newest effects; `has_unknown` says that there may be others beyond a point.
//!
//! Only calls that act outside of the process are effects: an external tool with write access or
//! more, a file that is written, a message, a child. A change that goes back with the process, such
//! as a descriptor or an alarm, is none.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dormouse_content::{Content, hash_bytes};
use dormouse_proto::effect::{EffectPolicy, RepeatRule};
use dormouse_proto::id::{CallId, ContentHash};
use dormouse_proto::record::{
    ArgumentEdit, EffectLog, EffectOutcome, EffectPlace, Gate, Hold, HoldReason, PendingCall,
    Phase, RecordedEffect,
};
use dormouse_proto::tool::{Access, Answer};
use serde_json::Value;

use super::toolbox::{BoundTool, ToolBinding};
use super::tools::MAX_ARGUMENT_BYTES;
use super::{Image, State};
use crate::tool::{Group, Handler, ProcessHandler};
use dormouse_proto::text::truncate;

/// The most effects that are kept. Of older effects only their number is kept.
const MAX_EFFECTS: usize = 1024;
/// The longest answer that is kept with its effect, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The most characters of the arguments that are kept for people.
const MAX_ARGS_CHARS: usize = 200;

impl BoundTool {
    /// Whether a call changes something that does not go back with the process.
    pub(super) fn acts_outside(&self) -> bool {
        match self {
            Self::External(_) => true,
            Self::Kernel(tool) => match tool.handler {
                Handler::Table(_) => tool.group != Group::TempFiles,
                Handler::Process(handler) => matches!(
                    handler,
                    ProcessHandler::Fork { .. }
                        | ProcessHandler::Explore { .. }
                        | ProcessHandler::Spawn { .. }
                        | ProcessHandler::SendMessage(_)
                ),
            },
        }
    }
}

impl ToolBinding {
    /// Whether a call is an effect.
    pub(super) fn has_effect(&self) -> bool {
        self.access >= Access::Write && self.tool.acts_outside()
    }

    /// Whether a call changes the temporary files of the tree.
    pub(super) fn writes_temp_files(&self) -> bool {
        let is_for_temp_files = match &self.tool {
            BoundTool::External(_) => false,
            BoundTool::Kernel(tool) => tool.group == Group::TempFiles,
        };
        self.access >= Access::Write && is_for_temp_files
    }
}

impl State {
    /// The effects of the process, and those that lie beyond points that it went back to.
    #[must_use]
    pub fn effects(&self) -> &EffectLog<Content> {
        &self.effects
    }

    /// The key of a call: two calls of a tool with one key have the same effect, in whatever
    /// spelling their arguments are written. O(arguments).
    pub(super) fn effect_key(&self, pending_call: &PendingCall, tool: &BoundTool) -> ContentHash {
        let by_program = self
            .program
            .repeat_rule(&pending_call.tool, tool.name_in_program());
        let declared = match tool {
            BoundTool::External(tool) => Some(&tool.repeat),
            BoundTool::Kernel(_) => None,
        };
        let identifies = |rule: &&RepeatRule| !rule.volatile.is_empty() || !rule.key.is_empty();
        let rule = by_program.filter(identifies).or(declared);
        let canonical_names = |names: &[String]| {
            let names = names.iter().map(|name| tool.canonical_argument(name));
            names.map(Cow::into_owned).collect::<Vec<_>>()
        };
        let rule = rule.map(|rule| RepeatRule {
            key: canonical_names(&rule.key),
            volatile: canonical_names(&rule.volatile),
            ..rule.clone()
        });
        key_of_arguments(&pending_call.args, rule.as_ref(), |args| {
            self.canonical_arguments(tool, args)
        })
    }

    /// The number of the effect that a call repeats: the first one beyond a point that has this key,
    /// and that no other held call repeats.
    pub(super) fn find_repeated(
        &self,
        pending_call: &PendingCall,
        key: ContentHash,
    ) -> Option<u32> {
        let mut numbered = self.effects.numbered();
        let found = numbered.find(|(number, effect)| {
            effect.place == EffectPlace::Beyond
                && effect.key == key
                && effect.tool == pending_call.tool
                && !self.is_claimed(*number, pending_call.call)
        });
        found.map(|(number, _)| number)
    }

    /// Whether a call other than `call` waits for a person in order to repeat this effect.
    fn is_claimed(&self, number: u32, call: CallId) -> bool {
        let mut others = self.pending_calls().iter().filter(|pending_call| {
            pending_call.call != call && pending_call.answer.is_none() && !pending_call.started
        });
        others.any(|pending_call| claimed_effect(pending_call) == Some(number))
    }

    /// Records that a call begins, if it is an effect. Called once for each `ToolCalled`.
    pub(super) fn record_effect(&mut self, call: CallId) {
        let mut pending_calls = self.pending_calls().iter();
        let found = pending_calls.find(|pending_call| pending_call.call == call);
        let Some(pending_call) = found else {
            return;
        };
        let Some(binding) = self.toolbox.find(&pending_call.tool) else {
            return;
        };
        if !binding.has_effect() || self.effect_of(call).is_some() {
            return;
        }
        let key = self.effect_key(pending_call, &binding.tool);
        let repeated = match fence_hold(pending_call) {
            Some(_) => claimed_effect(pending_call),
            None => self.find_repeated(pending_call, key),
        };
        let message = u32::try_from(self.last_message_number()).unwrap_or(u32::MAX);
        let effect = RecordedEffect {
            call,
            tool: pending_call.tool.clone(),
            access: binding.access,
            key,
            args: truncate(&pending_call.args, MAX_ARGS_CHARS).into(),
            place: EffectPlace::Ran { call, message },
            outcome: EffectOutcome::Unknown,
        };
        if let Some(number) = repeated {
            self.set_effect_place(number, EffectPlace::DoneAgain);
        }
        self.effects.effects.push_back(effect);
        if self.effects.effects.len() > MAX_EFFECTS {
            drop_oldest(&mut self.effects);
        }
    }

    /// Records the answer of a call, if the call is an effect.
    pub(super) fn record_outcome(&mut self, call: CallId, answer: &Answer) {
        let Some(number) = self.effect_of(call) else {
            return;
        };
        let opened = answer.opened.iter();
        let opened = opened.filter_map(|id| Some((id.clone(), self.table.get(id)?.clone())));
        let outcome = match answer.text.len() > MAX_ANSWER_BYTES {
            true => EffectOutcome::NotKept {
                is_error: answer.is_error,
            },
            false => EffectOutcome::Answered {
                answer: answer.clone(),
                opened: opened.collect(),
            },
        };
        if let Some(effect) = effect_mut(&mut self.effects, number) {
            effect.outcome = outcome;
        }
    }

    /// Records that a call got the recorded answer of an effect.
    pub(super) fn record_recall(&mut self, call: CallId, number: u32) {
        let message = u32::try_from(self.last_message_number()).unwrap_or(u32::MAX);
        self.set_effect_place(number, EffectPlace::Recalled { call, message });
    }

    /// The number of the effect of a call of the present history that has no outcome yet.
    pub(super) fn effect_of(&self, call: CallId) -> Option<u32> {
        let mut newest_first = self.effects.numbered().rev();
        let found = newest_first.find(
            |(_, effect)| matches!(effect.place, EffectPlace::Ran { call: ran, .. } if ran == call),
        );
        let (number, effect) = found?;
        (effect.outcome == EffectOutcome::Unknown).then_some(number)
    }

    fn set_effect_place(&mut self, number: u32, place: EffectPlace) {
        if let Some(effect) = effect_mut(&mut self.effects, number) {
            effect.place = place;
        }
    }
}

fn effect_mut(log: &mut EffectLog<Content>, number: u32) -> Option<&mut RecordedEffect<Content>> {
    let index = number.checked_sub(log.dropped)?;
    log.effects.get_mut(index as usize)
}

/// Drops the oldest effect. From then on it is not known whether a call from before repeats it.
fn drop_oldest(log: &mut EffectLog<Content>) {
    let Some(oldest) = log.effects.pop_front() else {
        return;
    };
    log.dropped = log.dropped.saturating_add(1);
    match oldest.place {
        EffectPlace::Ran { message, .. } | EffectPlace::Recalled { message, .. } => {
            log.dropped_through = log.dropped_through.max(message);
        }
        EffectPlace::Beyond => log.has_unknown = true,
        EffectPlace::DoneAgain => {}
    }
}

/// The fence's hold on a call: the call is held because it repeats an effect, or was approved
/// although it does.
pub(super) fn fence_hold(pending_call: &PendingCall) -> Option<&Hold> {
    let (Gate::Held(hold) | Gate::Approved { hold, .. }) = pending_call.gate.as_ref()?;
    matches!(hold.reason, HoldReason::Repeats { .. }).then_some(hold)
}

/// The number of the effect that a held or approved call repeats.
fn claimed_effect(pending_call: &PendingCall) -> Option<u32> {
    match &fence_hold(pending_call)?.reason {
        HoldReason::Repeats { effect } => effect.as_ref().map(|effect| effect.number),
        HoldReason::Rule { .. } | HoldReason::Question | HoldReason::Speculation => None,
    }
}

/// The log after the process went back to message `to` of its conversation.
pub(super) fn go_back_to_message(log: &mut EffectLog<Content>, to: u32) {
    let known_from = log.begins_after.unwrap_or(0).max(log.dropped_through);
    log.has_unknown |= to < known_from;
    for effect in &mut log.effects {
        if is_after(effect.place, to) {
            effect.place = EffectPlace::Beyond;
        }
    }
}

fn is_after(place: EffectPlace, message: u32) -> bool {
    match place {
        EffectPlace::Ran { message: at, .. } | EffectPlace::Recalled { message: at, .. } => {
            at > message
        }
        EffectPlace::Beyond | EffectPlace::DoneAgain => false,
    }
}

/// The log of a process that goes back to an earlier state, or starts from it. `now` is the log as
/// it is now, of the process itself or of the one that the earlier state belongs to. A call that was
/// in flight in the earlier state lies beyond it: its answer is lost there. So does an effect whose
/// recorded answer had not reached its call yet.
pub(super) fn gone_back(earlier: &Image, now: &EffectLog<Content>) -> EffectLog<Content> {
    let mut log = now.clone();
    let before = &earlier.effects;
    if before.begins_after.is_none()
        || before.begins_after != now.begins_after
        || before.count() < now.dropped
    {
        // The numbers of the two logs do not mean the same effects.
        go_back_to_message(&mut log, last_message(earlier));
        log.has_unknown = true;
        return log;
    }
    log.has_unknown |= before.has_unknown;
    let first = log.dropped;
    for (number, effect) in (first..).zip(&mut log.effects) {
        match before.get(number) {
            Some(known) if is_in_flight(known) || is_being_recalled(earlier, known) => {
                effect.place = EffectPlace::Beyond;
            }
            Some(known) => effect.place = known.place,
            None if effect.place == EffectPlace::DoneAgain => {}
            None => effect.place = EffectPlace::Beyond,
        }
    }
    log
}

fn is_in_flight(effect: &RecordedEffect<Content>) -> bool {
    matches!(effect.place, EffectPlace::Ran { .. }) && effect.outcome == EffectOutcome::Unknown
}

/// Whether the effect's recorded answer goes to a call that is still open in the image.
fn is_being_recalled(image: &Image, effect: &RecordedEffect<Content>) -> bool {
    let EffectPlace::Recalled { call, .. } = effect.place else {
        return false;
    };
    let mut pending_calls = image.phase.pending_calls().iter();
    pending_calls.any(|pending_call| pending_call.call == call && pending_call.answer.is_none())
}

fn last_message(image: &Image) -> u32 {
    u32::try_from(image.last_message_number()).unwrap_or(u32::MAX)
}

/// The image of a process that starts from an earlier state of another one, with the effects of the
/// other beyond that state. `origin` is the log of the other as it is now; `None` if it is not
/// known. `policy` takes the place of the policy that the other was given.
#[must_use]
pub fn with_effects_of(
    mut image: Image,
    origin: Option<&EffectLog<Content>>,
    policy: Option<EffectPolicy>,
) -> Image {
    let policy_before = image.effects.policy;
    match origin {
        Some(origin) => image.effects = gone_back(&image, origin),
        None => image.effects.has_unknown = true,
    }
    image.effects.policy = policy_before;
    let log = &image.effects;
    let ran_beyond = |call: CallId| {
        let mut effects = log.effects.iter();
        effects.any(|effect| effect.call == call && effect.place == EffectPlace::Beyond)
    };
    if let Phase::Acting { pending_calls, .. } = &mut image.phase {
        for pending_call in pending_calls.iter_mut().filter(|call| !call.started) {
            // The fence decides anew about a call that ran beyond the point.
            if ran_beyond(pending_call.call) {
                void_verdict(pending_call);
            }
        }
    }
    with_effect_policy(image, policy)
}

/// The image of a new process in which `policy` decides about calls that repeat an effect, also
/// about those that its original had decided about; with `None`, the image as it is.
#[must_use]
pub fn with_effect_policy(mut image: Image, policy: Option<EffectPolicy>) -> Image {
    let Some(policy) = policy else {
        return image;
    };
    image.effects.policy = Some(policy);
    if let Phase::Acting { pending_calls, .. } = &mut image.phase {
        for pending_call in pending_calls.iter_mut().filter(|call| !call.started) {
            if fence_hold(pending_call).is_some() {
                void_verdict(pending_call);
            }
        }
    }
    image
}

/// Takes back what a person was asked about a call, and answered.
pub(super) fn void_verdict(pending_call: &mut PendingCall) {
    if let Some(Gate::Approved {
        edit: Some(ArgumentEdit { original, .. }),
        ..
    }) = pending_call.gate.take()
    {
        pending_call.args = original;
    }
}

/// The log of a new process that starts with this image: the effects so far belong to another.
pub(super) fn log_of_new_process(image: &Image) -> EffectLog<Content> {
    let mut log = gone_back(image, &image.effects);
    log.begins_after.get_or_insert(last_message(image));
    log.own_from = log.count();
    log
}

/// The key of arguments in their canonical form. Arguments that are no JSON object, or that are
/// longer than a decision parses, are compared as they are written.
fn key_of_arguments(
    args: &str,
    rule: Option<&RepeatRule>,
    canonical: impl FnOnce(Value) -> Value,
) -> ContentHash {
    let parsed = match args.len() > MAX_ARGUMENT_BYTES {
        true => None,
        false => serde_json::from_str::<Value>(args).ok(),
    };
    let Some(mut value) = parsed.filter(Value::is_object).map(canonical) else {
        return hash_bytes(args.trim().as_bytes());
    };
    if let Some(rule) = rule {
        let chosen = rule.key.iter().map(|name| argument(&value, name));
        let chosen: Vec<_> = chosen.map(|found| found.cloned()).collect();
        if chosen.iter().any(Option::is_some) {
            let chosen = chosen.into_iter().map(Option::unwrap_or_default);
            value = Value::Array(chosen.collect());
        } else {
            rule.volatile
                .iter()
                .for_each(|name| remove(&mut value, name));
        }
    }
    let mut canonical = String::new();
    write_canonical(&value, &mut canonical);
    hash_bytes(canonical.as_bytes())
}

fn argument<'a>(args: &'a Value, name: &str) -> Option<&'a Value> {
    match name.starts_with('/') {
        true => args.pointer(name),
        false => args.get(name),
    }
}

fn remove(args: &mut Value, name: &str) {
    let (parent, key) = match name.rsplit_once('/') {
        Some((parent, key)) => (args.pointer_mut(parent), key),
        None => (Some(args), name),
    };
    let key = key.replace("~1", "/").replace("~0", "~");
    if let Some(Value::Object(object)) = parent {
        object.remove(&key);
    }
}

/// Writes JSON with the keys of objects in order, and without spaces.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(object) => {
            let sorted: BTreeMap<_, _> = object.iter().collect();
            out.push('{');
            for (key, value) in sorted {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests;
