//! The fence: decides what happens to a call of the model that repeats an effect beyond a point
//! that the process went back to, by a branch, a restore or a `goto`.
//!
//! A model that is taken back makes its calls again, under new ids. A call of the same tool with the
//! same key ([`effect_log`](super::effect_log)) repeats the effect: a policy decides whether it gets
//! the recorded answer, waits for a person, runs anew, or is refused. The policy that was named when
//! the process went back comes first, then that of the program for the tool, that of the tool
//! itself, and that of the program. Each effect is repeated by one call; a further call of the model
//! is a new one.
//!
//! Invariant kept here: FENCE-1, no effect beyond such a point is done again unless a policy or a
//! person said so.

use std::sync::Arc;

use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::message::Media;
use dormouse_proto::record::{
    CallFact, Caller, EffectOutcome, HoldReason, PendingCall, RecordedEffect, RepeatedEffect,
    Speculation,
};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;

use super::decide::Draft;
use super::effect_log::fence_hold;
use super::toolbox::{BoundTool, ToolBinding};
use super::{Attendance, Effect, State};
use crate::tool::Handler;
use dormouse_content::Content;
use dormouse_proto::text::truncate;

/// The most characters of an earlier answer that a person is shown.
const MAX_ANSWER_CHARS: usize = 200;
/// Answer to a call that may repeat an effect that is not known.
const UNKNOWN: &str = "Not run: this process went back to an earlier point, and what ran beyond \
that point is not known. This call may do it again, and nobody can be asked. A host that knows \
better names the policy `run` (effects).";

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    /// The call begins, unless something else holds it.
    Begins,
    /// The call gets the answer that was recorded for the effect with this number.
    Recalls(u32),
    /// The call waits for a person. `None` if it is not known what it repeats.
    Waits(Option<u32>),
    /// The call is refused. `None` as above.
    IsRefused(Option<u32>),
}

/// Judges a call. `repeated` is the number of the effect that it repeats.
fn judge(
    repeated: Option<u32>,
    has_unknown: bool,
    policy: Option<EffectPolicy>,
    default: EffectPolicy,
) -> Judgement {
    match (repeated, policy.unwrap_or(default)) {
        (None, _) if !has_unknown => Judgement::Begins,
        (_, EffectPolicy::Run) => Judgement::Begins,
        (_, EffectPolicy::Ask) => Judgement::Waits(repeated),
        (_, EffectPolicy::Refuse) => Judgement::IsRefused(repeated),
        (Some(number), EffectPolicy::Recorded) => Judgement::Recalls(number),
        (None, EffectPolicy::Recorded) => Judgement::IsRefused(None),
    }
}

impl State {
    /// The policy that was named for a call of this tool.
    fn effect_policy(&self, called: &str, tool: &BoundTool) -> Option<EffectPolicy> {
        let rule = self.program.repeat_rule(called, tool.name_in_program());
        let declared = match tool {
            BoundTool::External(tool) => tool.repeat.policy,
            BoundTool::Kernel(_) => None,
        };
        self.effects
            .policy
            .or(rule.and_then(|rule| rule.policy))
            .or(declared)
            .or(self.program.effect_policy())
    }

    fn judge_call(&self, pending_call: &PendingCall) -> Judgement {
        let binding = self.toolbox.find(&pending_call.tool);
        let Some(binding) =
            binding.filter(|binding| binding.has_effect() && binding.access <= self.access)
        else {
            return Judgement::Begins;
        };
        let ToolBinding { tool, .. } = binding;
        let key = self.effect_key(pending_call, tool);
        let repeated = self.find_repeated(pending_call, key);
        let default = match self.host.attendance {
            _ if may_run_twice(tool, &pending_call.args) => EffectPolicy::Run,
            Attendance::Attended => EffectPolicy::Ask,
            Attendance::Unattended => EffectPolicy::Recorded,
        };
        let policy = self.effect_policy(&pending_call.tool, tool);
        judge(repeated, self.effects.has_unknown, policy, default)
    }
}

/// Whether two calls have the effect of one, as the tool declares. The kernel recognises a message
/// or a child only by the id of its call, so that two calls are two messages.
fn may_run_twice(tool: &BoundTool, args: &str) -> bool {
    match tool {
        BoundTool::External(tool) => tool.policy.idempotent,
        BoundTool::Kernel(tool) => match tool.handler {
            Handler::Table(_) => (tool.may_repeat)(args),
            Handler::Process(_) => false,
        },
    }
}

impl Draft {
    /// Judges the calls of the model that have not begun. An approval does not pass the fence unless
    /// the person knew that the call repeats an effect. Calls of the host are not judged.
    pub(super) fn fence_calls(&mut self) {
        if self.caller() == Caller::Host || !self.state.effects.can_be_repeated() {
            return;
        }
        let pending_calls = self.state.pending_calls().iter();
        let unjudged = pending_calls.filter(|pending_call| {
            pending_call.answer.is_none()
                && !pending_call.started
                && fence_hold(pending_call).is_none()
        });
        let unjudged: Vec<_> = unjudged.map(|pending_call| pending_call.call).collect();
        for call in unjudged {
            match self.state.judge_call(self.pending_call(call)) {
                Judgement::Begins => {}
                Judgement::Recalls(number) => self.recall_effect(call, number),
                // A speculative process holds the call in any case (`speculation.rs`). The fence
                // judges it again when the process is chosen.
                Judgement::Waits(_) if self.state.speculation != Speculation::None => {}
                Judgement::Waits(number) => self.hold_repeated(call, number),
                Judgement::IsRefused(number) => self.refuse_repeated(call, number),
            }
        }
    }

    /// Names the policy for calls of this process that repeat effects, at the request of the host.
    pub(super) fn set_effect_policy(&mut self, request_id: Arc<str>, policy: Option<EffectPolicy>) {
        if self.state.effects.policy != policy {
            self.emit(CallFact::EffectPolicySet { policy });
        }
        let answer = Answer::shown("Set.".to_owned());
        self.schedule(Effect::AnswerHost { request_id, answer });
    }

    fn hold_repeated(&mut self, call: CallId, number: Option<u32>) {
        let effect = number.and_then(|number| {
            let effect = self.state.effects.get(number)?;
            Some(RepeatedEffect {
                number,
                call: effect.call,
                answer: answer_for_people(effect),
            })
        });
        self.hold_call(call, HoldReason::Repeats { effect });
    }

    fn refuse_repeated(&mut self, call: CallId, number: Option<u32>) {
        let effect = number.and_then(|number| self.state.effects.get(number));
        let answer = match effect {
            None => Answer::failed(UNKNOWN),
            Some(effect) => Answer::failed(format!(
                "Not run: call {} did this before, beyond the point that this process went back to, \
                 and it is not done again (policy `refuse`).",
                effect.call
            )),
        };
        self.answer_in_full(call, answer);
    }

    /// Answers a call with the recorded answer of an effect, and says that it is that. Descriptors
    /// that the answer names are opened again, under new numbers if theirs are gone. An effect
    /// without an answer is not used up: each call that repeats it is refused.
    pub(super) fn recall_effect(&mut self, call: CallId, number: u32) {
        let Some(effect) = self.state.effects.get(number).cloned() else {
            return self.answer_in_full(call, Answer::failed(UNKNOWN));
        };
        let ran = effect.call;
        let EffectOutcome::Answered { answer, opened } = effect.outcome else {
            let refused = format!(
                "Not run: call {ran} did this before, beyond the point that this process went back \
                 to, or was about to. Its answer was not recorded. Look at what it did."
            );
            return self.answer_in_full(call, Answer::failed(refused));
        };
        self.emit(CallFact::Recalled {
            call,
            effect: number,
        });
        let mut notice = Element::new("recorded_answer")
            .attribute("call", ran)
            .child(Element::new("message").text(format!(
            "This call did not run. Call {ran} did the same, beyond the point that this process \
                 went back to. The answer that was recorded then follows."
        )));
        let mut renamed = Vec::new();
        for (was, entry) in opened {
            let known = self.state.table.get(&was);
            if known.is_some_and(|known| known.content == entry.content) {
                continue;
            }
            let now = self.state.table.next_id();
            self.open_under_id(now.clone(), entry);
            notice = notice.child(
                Element::new("descriptor")
                    .attribute("was", &was)
                    .attribute("now", &now),
            );
            renamed.push((was, now));
        }
        let mut recalled = Answer {
            text: format!("{}\n{}", notice.to_xml(), answer.text).into(),
            is_error: answer.is_error,
            media: Vec::new(),
            opened: Vec::new(),
        };
        for media in answer.media {
            let fd = renamed_fd(&renamed, media.fd);
            self.add_fitting_media(&mut recalled, Media { fd, ..media });
        }
        self.answer_in_full(call, recalled);
    }

    /// Shows an item with an answer, if the conversation has room for it.
    fn add_fitting_media(&self, answer: &mut Answer, media: Media) {
        let Some(entry) = self.state.table.get(&media.fd) else {
            return;
        };
        let shown = self.state.measure_shown_media(answer);
        if shown.with(&media, entry.content.len_bytes()).fits() {
            answer.media.push(media);
        }
    }
}

fn renamed_fd(renamed: &[(FdId, FdId)], fd: FdId) -> FdId {
    let mut renamed = renamed.iter();
    let found = renamed.find(|(was, _)| *was == fd);
    found.map_or(fd, |(_, now)| now.clone())
}

/// The beginning of the answer of an effect, in one line.
fn answer_for_people(effect: &RecordedEffect<Content>) -> Option<Arc<str>> {
    match &effect.outcome {
        EffectOutcome::Unknown | EffectOutcome::NotKept { .. } => None,
        EffectOutcome::Answered { answer, .. } => {
            Some(truncate(&answer.text, MAX_ANSWER_CHARS).into())
        }
    }
}
