//! Limits of single tools (`tools.limits`): how many calls of a tool the model of one process may
//! make.
//!
//! The count follows from facts: a call counts once its intent is a fact, or, for a tool that has
//! none, once it is answered without an error. No return to an earlier point takes a count back.

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::record::{Caller, PendingCall, Phase};
use dormouse_proto::tool::Answer;
use imbl::OrdMap;

use super::State;
use super::decide::Draft;

impl State {
    /// The name of the tool of a call and how many calls of it the model may make, if that is
    /// limited. Calls of the host are not.
    fn call_limit(&self, pending_call: &PendingCall) -> Option<(Arc<str>, u32)> {
        let tool = &self.toolbox.find(&pending_call.tool)?.tool;
        let name = tool.name_in_program();
        let max_calls = self.program.max_calls(&pending_call.tool, name)?;
        Some((name.into(), max_calls))
    }

    /// A call has begun: its intent is a fact, or it is answered.
    pub(super) fn count_limited_call(&mut self, call: CallId) {
        let Phase::Acting {
            caller: Caller::Model,
            pending_calls,
        } = &self.phase
        else {
            return;
        };
        let mut pending_calls = pending_calls.iter();
        let found = pending_calls.find(|pending_call| pending_call.call == call);
        let limited = found
            .filter(|pending_call| !pending_call.started)
            .and_then(|pending_call| self.call_limit(pending_call));
        if let Some((name, _)) = limited {
            let calls = self.limited_calls.entry(name).or_default();
            *calls = calls.saturating_add(1);
        }
    }
}

impl Draft {
    /// Answers the calls of the turn that exceed the limits of their tools, before anything is begun
    /// or anybody is asked for them.
    pub(super) fn refuse_calls_over_limit(&mut self) {
        if self.caller() == Caller::Host {
            return;
        }
        let mut counts: OrdMap<Arc<str>, u32> = self.state.limited_calls.clone();
        let mut refused = Vec::new();
        let unstarted = self.state.pending_calls().iter();
        for pending_call in unstarted.filter(|call| !call.started && call.answer.is_none()) {
            let Some((name, max_calls)) = self.state.call_limit(pending_call) else {
                continue;
            };
            let calls = counts.entry(name).or_default();
            if *calls < max_calls {
                *calls += 1;
            } else {
                refused.push((pending_call.call, pending_call.tool.clone(), max_calls));
            }
        }
        for (call, tool, max_calls) in refused {
            let text = format!(
                "Refused: this process has made {max_calls} calls of '{tool}', which is what its \
                 program allows (tools.limits, max_calls). Nothing of this call has run. Go on \
                 without it."
            );
            self.answer_in_full(call, Answer::failed(text));
        }
    }
}
