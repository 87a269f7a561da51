//! CALL-1 and CALL-2: what comes of a call is applied once, and what must not happen twice is not
//! begun twice.

use dormouse_kernel::process::{Effect, Fact, State, Work};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::record::{CallFact, ChildFact, Phase};

use super::ledger::Applied;
use super::{Held, ensure};
use crate::world::World;

impl World {
    /// CALL-1.
    pub(super) fn call_1(&mut self, pid: Pid, number: u64, fact: &Fact) -> Held {
        let key = match fact {
            Fact::Call(CallFact::ToolReturned { call, .. }) => (Applied::ToolReturned, *call, 0),
            Fact::Call(CallFact::ModelReplied { call, .. }) => (Applied::ModelReplied, *call, 0),
            Fact::Child(ChildFact::Ended { call, index, .. }) => {
                (Applied::ChildEnded, *call, *index)
            }
            Fact::Child(ChildFact::Started { call, .. }) => (Applied::ChildStarted, *call, 0),
            Fact::Child(ChildFact::Reported { call, .. }) => (Applied::ChildReported, *call, 0),
            _ => return Ok(()),
        };
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        let before = ledger.applied.insert(key, number);
        ensure(before.is_none(), "CALL-1", || {
            format!("{pid} applies {key:?} at fact {number}, and did at {before:?}")
        })
    }

    /// CALL-2: what is not to be repeated is begun once for a call, through all lives of the
    /// kernel.
    pub(crate) fn check_started(
        &mut self,
        pid: Pid,
        call: CallId,
        tool: &str,
        is_repeatable: bool,
    ) -> Held {
        let times = self.started.entry((pid, call)).or_default();
        *times += 1;
        let times = *times;
        if times > 1 {
            self.tally.count("calls made again");
        }
        ensure(times == 1 || is_repeatable, "CALL-2", || {
            format!("{tool} is begun {times} times for {call} of {pid}")
        })
    }
}

/// The intent of a call is a fact before the call is begun.
pub(super) fn intents(state: &State, effects: &[Effect]) -> Held {
    for effect in effects {
        let Effect::StartWork {
            call,
            work: Work::Tool { .. } | Work::WriteFile(_) | Work::TempFile(_),
        } = effect
        else {
            continue;
        };
        let Phase::Acting { pending_calls, .. } = state.phase() else {
            continue;
        };
        let is_meant = pending_calls
            .iter()
            .any(|pending_call| pending_call.call == *call && pending_call.started);
        ensure(is_meant, "CALL-2", || {
            format!("{call} is begun, and no fact says so")
        })?;
    }
    Ok(())
}
