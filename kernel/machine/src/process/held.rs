//! Held calls: tool calls of the model that a person has to approve, and questions of the model to
//! the person (`ask_user`).
//!
//! Before any call of a reply begins, each call that a rule of `tools.ask` matches is *held*, which
//! is a fact. Nothing of a held call has begun in this process. While a call of the turn is held,
//! calls that only read go on; a call that needs more than read access waits until nothing of the
//! turn is held. An approval is a fact before the intent of the call, so a call that was approved
//! and not begun runs once after a restart. A refusal, an answer and an expiry are the answer of
//! the call.
//!
//! `tools.rs` (`start_calls`) goes through the open calls of a turn, at first and after each
//! verdict. Its steps are in this order:
//!
//! 1. Calls of tools that the model has called as often as it may are refused (`call_limits.rs`).
//! 2. The fence (`fence.rs`) looks for calls that repeat an effect from beyond a point that the
//!    process went back to. It refuses such a call, *recalls* the effect (the recorded answer
//!    becomes that of the call, which does not run), or holds the call, by [`Draft::hold_call`].
//! 3. In a speculative process, each call that would act outside of it is held until the process is
//!    chosen (`speculation.rs`); no person is asked about it.
//! 4. [`Draft::hold_calls`] holds those that a rule matches, unless they are held or approved
//!    already: each has at most one *gate* (`PendingCall::gate`).
//! 5. Each call that does not wait ([`Draft::waits_for_person`]) begins, or is answered.
//!
//! A verdict of a person comes as a request of the host, to [`Draft::answer_held_call`]. The timer
//! of the next expiry leads to [`Draft::expire_held_calls`].
//!
//! Invariant kept here: HELD-1, no held call begins unanswered, and an answer applies to one call
//! of one process. A copy of a process holds its calls anew ([`hold_anew`]), also a call that had
//! been started and may be repeated: the original may have run it, the copy has not.

use std::sync::Arc;

use dormouse_program::AskedCall;
use dormouse_proto::id::CallId;
use dormouse_proto::record::{
    ArgumentEdit, CallFact, Caller, EditedArguments, EffectOutcome, Gate, Hold, HoldReason,
    PendingCall, Phase, RepeatedEffect,
};
use dormouse_proto::shown::ShownText;
use dormouse_proto::tool::{Access, Answer};
use dormouse_proto::xml::Element;
use serde_json::Value;

use super::decide::Draft;
use super::{Effect, Question, Report, State, Verdict, VerdictError};
use crate::tool::{ProcessHandler, Refusal};

/// Beginning of the answer to a call that nobody approved in time.
const EXPIRED: &str = "Refused: nobody answered within the time that the program sets.";
/// Beginning of the answer to a call that a person refused.
const REFUSED: &str = "Refused by a person.";
/// Answer if the host itself calls `ask_user`.
const ASKED_BY_HOST: &str = "Nobody was asked: this tool is for the model of a process.";

impl Draft {
    /// Holds the calls of the turn that a person is asked about, before any of them begins. The
    /// calls of the host are not asked about: they are made by the person, or on their behalf.
    pub(super) fn hold_calls(&mut self) {
        if self.caller() == Caller::Host {
            return;
        }
        // A call that has begun was approved, if a rule asks about it. Only one that its original had
        // begun, and that was held until its speculative process was chosen, has no approval: it
        // would be repeated.
        let open =
            self.state.pending_calls().iter().filter(|pending_call| {
                pending_call.answer.is_none() && pending_call.gate.is_none()
            });
        let holds: Vec<_> = open
            .filter_map(|pending_call| Some((pending_call.call, self.hold_reason(pending_call)?)))
            .collect();
        for (call, reason) in holds {
            self.hold_call(call, reason);
        }
    }

    /// Holds a call that has not begun.
    pub(super) fn hold_call(&mut self, call: CallId, reason: HoldReason) {
        let expires_ms = match reason {
            // No person is asked.
            HoldReason::Speculation => None,
            HoldReason::Rule { .. } | HoldReason::Question | HoldReason::Repeats { .. } => {
                self.state.program.ask_expires_ms()
            }
        };
        let hold = Hold {
            reason,
            since_ms: self.now_ms,
            expires_ms: expires_ms.map(|after| self.now_ms.saturating_add(after)),
        };
        self.emit(CallFact::Held { call, hold });
        self.schedule(Effect::Report(Report::Held { call }));
    }

    /// Why a call has to wait for a person; `None` if it may begin, or is refused without asking:
    /// an unknown tool, a lack of access, an invalid question.
    fn hold_reason(&self, pending_call: &PendingCall) -> Option<HoldReason> {
        let binding = self.state.toolbox.find(&pending_call.tool)?;
        if binding.access > self.state.access {
            return None;
        }
        if let Some(ProcessHandler::AskUser(question)) = binding.tool.process_handler() {
            return question(&pending_call.args)
                .is_ok()
                .then_some(HoldReason::Question);
        }
        if !self.state.program.has_ask_rules() {
            return None;
        }
        let name = binding.tool.name_in_program();
        let written = serde_json::from_str::<Value>(&pending_call.args).ok();
        let forms = written.into_iter().flat_map(|written| {
            let canonical = self
                .state
                .canonical_arguments(&binding.tool, written.clone());
            [written, canonical]
        });
        let forms: Vec<_> = forms.collect();
        let rule = self.state.program.ask_rule(&AskedCall {
            called: &pending_call.tool,
            name,
            access: binding.access,
            args: &forms,
            expands_handles: self.state.program.expands(name),
        });
        let rule = rule.or_else(|| self.ask_rule_of_judge(binding, pending_call))?;
        Some(HoldReason::Rule {
            rule: rule.text().clone(),
        })
    }

    /// Handles a question that is not held: its arguments are invalid, or the host asks it.
    pub(super) fn ask_user(
        &mut self,
        call: CallId,
        question: fn(&str) -> Result<Question, Refusal>,
    ) {
        let answer = match question(&self.pending_call(call).args) {
            Err(refusal) => refusal.into(),
            Ok(_) => Answer::failed(ASKED_BY_HOST),
        };
        self.answer_in_full(call, answer);
    }

    /// Applies the verdict of a person to a held call, and tells the host whether it was applied.
    pub(super) fn answer_held_call(
        &mut self,
        request_id: Arc<str>,
        call: CallId,
        verdict: Verdict,
    ) {
        let has_expired = self.expire_held_calls(self.now_ms);
        let applied = self.apply_verdict(call, verdict);
        let goes_on = has_expired || applied.is_ok();
        let answer = match applied {
            Ok(()) => Answer::shown("Answered."),
            Err(error) => Answer::failed(error.to_string()),
        };
        self.schedule(Effect::AnswerHost { request_id, answer });
        if goes_on {
            self.start_unstarted_calls();
        }
    }

    pub(super) fn apply_verdict(
        &mut self,
        call: CallId,
        verdict: Verdict,
    ) -> Result<(), VerdictError> {
        let (pending_call, hold) = self.find_held_call(call)?;
        let is_question = hold.reason == HoldReason::Question;
        if hold.reason == HoldReason::Speculation && !matches!(verdict, Verdict::Refuse { .. }) {
            return Err(VerdictError::Speculative(call));
        }
        let answered = match verdict {
            Verdict::Approve { .. } | Verdict::Recall if is_question => {
                return Err(VerdictError::IsQuestion(call));
            }
            Verdict::Answer { .. } if !is_question => {
                let tool = pending_call.tool;
                return Err(VerdictError::NoQuestion { call, tool });
            }
            Verdict::Recall => {
                let number = self.recorded_effect(&hold.reason);
                self.recall_effect(call, number.ok_or(VerdictError::NoRecordedAnswer(call))?);
                None
            }
            Verdict::Approve { args } => {
                let edited = args.map(|args| edited_arguments(&pending_call, &args));
                self.emit(CallFact::Approved {
                    call,
                    edited: edited.transpose()?.flatten(),
                });
                None
            }
            Verdict::Refuse { why } => {
                Some(Answer::failed(refusal_text(&why, pending_call.started)))
            }
            Verdict::Answer { value } => {
                self.question_of(&pending_call)?.check(&value)?;
                Some(Answer::shown(match value {
                    Value::String(text) => text,
                    value => value.to_string(),
                }))
            }
        };
        if let Some(answer) = answered {
            self.answer_in_full(call, answer);
        }
        self.schedule(Effect::Report(Report::HeldAnswered { call }));
        Ok(())
    }

    /// The number of the effect that a held call repeats, if its answer is recorded.
    fn recorded_effect(&self, reason: &HoldReason) -> Option<u32> {
        let HoldReason::Repeats {
            effect: Some(RepeatedEffect { number, .. }),
        } = reason
        else {
            return None;
        };
        let effect = self.state.effects.get(*number)?;
        matches!(effect.outcome, EffectOutcome::Answered { .. }).then_some(*number)
    }

    fn find_held_call(&self, call: CallId) -> Result<(PendingCall, Hold), VerdictError> {
        let mut held = self.state.phase.held_calls();
        let found = held.find(|(pending_call, _)| pending_call.call == call);
        let found = found.map(|(pending_call, hold)| (pending_call.clone(), hold.clone()));
        let pid = self.state.pid;
        found.ok_or(VerdictError::NotHeld { pid, call })
    }

    fn question_of(&self, pending_call: &PendingCall) -> Result<Question, VerdictError> {
        match self.process_handler_of(pending_call) {
            Some(ProcessHandler::AskUser(question)) => {
                question(&pending_call.args).map_err(VerdictError::Question)
            }
            _ => Err(VerdictError::NoTool),
        }
    }

    /// Refuses the held calls that expire at `at_ms` or earlier. Returns whether there were any.
    pub(super) fn expire_held_calls(&mut self, at_ms: u64) -> bool {
        let held = self.state.phase.held_calls();
        let expired: Vec<_> = held
            .filter(|(_, hold)| hold.expires_ms.is_some_and(|expires| expires <= at_ms))
            .map(|(pending_call, _)| (pending_call.call, pending_call.started))
            .collect();
        for (call, started) in &expired {
            let text = format!("{EXPIRED} {}", what_has_run(*started));
            self.answer_in_full(*call, Answer::failed(text));
            self.schedule(Effect::Report(Report::HeldAnswered { call: *call }));
        }
        !expired.is_empty()
    }

    /// Whether a call must not begin yet: it is held itself, or it needs more than read access
    /// while another call of the turn is held.
    pub(super) fn waits_for_person(&self, call: CallId) -> bool {
        self.state.waits_for_person(self.pending_call(call))
    }
}

impl State {
    /// As [`Draft::waits_for_person`].
    pub(super) fn waits_for_person(&self, pending_call: &PendingCall) -> bool {
        let is_reading = self
            .toolbox
            .find(&pending_call.tool)
            .is_some_and(|binding| binding.access == Access::Read);
        pending_call.hold().is_some() || (!is_reading && self.phase.held_calls().next().is_some())
    }
}

/// Checks the arguments of a person. `None` if they are those of the model.
fn edited_arguments(
    pending_call: &PendingCall,
    args: &str,
) -> Result<Option<EditedArguments>, VerdictError> {
    let parsed: Value =
        serde_json::from_str(args).map_err(|error| VerdictError::EditNotJson(error.to_string()))?;
    if !parsed.is_object() {
        return Err(VerdictError::EditNoObject);
    }
    if serde_json::from_str(&pending_call.args).is_ok_and(|original: Value| original == parsed) {
        return Ok(None);
    }
    let notice =
        Element::new("edited_arguments")
            .child(Element::new("message").text(
                "A person changed the arguments of this call before it ran. It ran with these:",
            ))
            .child(Element::new("edited_json").text(args));
    Ok(Some(EditedArguments {
        args: args.into(),
        notice: notice.to_xml().into(),
    }))
}

/// What the model reads about a call that is not run. A held call that was started is one of a
/// copy.
fn what_has_run(started: bool) -> &'static str {
    match started {
        false => "Nothing of this call has run.",
        true => {
            "The process that this one was copied from had started this call, so that it may have \
             run. It was not run again."
        }
    }
}

fn refusal_text(why: &str, started: bool) -> ShownText {
    let refused = format!("{REFUSED} {}", what_has_run(started));
    match why.trim() {
        "" => ShownText::from(refused),
        why => ShownText::from(format!("{refused} The reason: {why}")),
    }
}

/// Holds the calls of a copy anew: what a person decided about the original does not apply to it.
/// An approved call waits again, with the arguments of the model; all calls wait since `now_ms`.
pub(super) fn hold_anew(phase: Phase, now_ms: u64) -> Phase {
    let Phase::Acting {
        caller,
        mut pending_calls,
    } = phase
    else {
        return phase;
    };
    for pending_call in &mut pending_calls {
        if pending_call.answer.is_some() {
            continue;
        }
        pending_call.gate = pending_call.gate.take().map(|gate| {
            let hold = match gate {
                Gate::Held(hold) => hold,
                Gate::Approved { hold, edit } => {
                    if let Some(ArgumentEdit { original, .. }) = edit {
                        pending_call.args = original;
                    }
                    hold
                }
            };
            Gate::Held(renew(hold, now_ms))
        });
    }
    Phase::Acting {
        caller,
        pending_calls,
    }
}

/// The hold, beginning at `now_ms`.
fn renew(hold: Hold, now_ms: u64) -> Hold {
    let expires_ms = hold.expires_ms.map(|expires_ms| {
        let after_ms = expires_ms.saturating_sub(hold.since_ms);
        now_ms.saturating_add(after_ms)
    });
    Hold {
        since_ms: now_ms,
        expires_ms,
        ..hold
    }
}
