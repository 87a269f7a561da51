//! HELD-1: no call that a person is asked about begins before the host approved it, and an approval
//! of one process begins no call of another.

use dormouse_kernel::process::{Fact, State};
use dormouse_proto::id::CallId;
use dormouse_proto::record::{CallFact, Caller, PendingCall, Phase};

use super::{Held, ensure};
use crate::programs::needs_approval;
use crate::world::World;

impl World {
    pub(super) fn held_1(&mut self, before: &State, after: &State, fact: &Fact) -> Held {
        let Fact::Call(CallFact::ToolCalled { call }) = fact else {
            return Ok(());
        };
        let found = call_of_model(after, *call).or_else(|| call_of_model(before, *call));
        let Some(pending_call) = found else {
            return Ok(());
        };
        let (pid, tool) = (after.pid(), &pending_call.tool);
        if !needs_approval(after.program(), tool) {
            return Ok(());
        }
        self.tally.count("approved calls begun");
        ensure(self.approved.contains(&(pid, *call)), "HELD-1", || {
            format!("{tool} is begun for {call} of {pid}, and nobody approved it")
        })
    }
}

pub(super) fn call_of_model(state: &State, call: CallId) -> Option<&PendingCall> {
    let Phase::Acting {
        caller: Caller::Model,
        pending_calls,
    } = state.phase()
    else {
        return None;
    };
    pending_calls
        .iter()
        .find(|pending_call| pending_call.call == call)
}
