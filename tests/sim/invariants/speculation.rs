//! SPEC-1: no call of a model acts outside of a process that was born as a speculative branch,
//! unless the host has chosen that branch.
//!
//! The world keeps its own list of such processes. What the machine knows of it is not looked at.

use dormouse_kernel::process::{Fact, State};
use dormouse_proto::id::Pid;
use dormouse_proto::record::{CallFact, Speculation};

use super::held::call_of_model;
use super::{Held, ensure};
use crate::world::World;

/// The tools that act outside of their process.
const TOOLS: [&str; 5] = ["grep", "send_message", "fork", "spawn", "fd_to_file"];
/// Those of them that, once begun, wait for children.
const MAKES_CHILDREN: [&str; 2] = ["fork", "spawn"];

impl World {
    /// A process is born. One that is lost in a crash may leave its pid to another.
    pub(crate) fn note_speculation(&mut self, pid: Pid, speculation: Speculation) {
        self.chosen.remove(&pid);
        match speculation {
            Speculation::None => self.speculative.remove(&pid),
            Speculation::Branch | Speculation::Child => self.speculative.insert(pid),
        };
    }

    pub(super) fn spec_1(&mut self, before: &State, after: &State, fact: &Fact) -> Held {
        let Fact::Call(CallFact::ToolCalled { call }) = fact else {
            return Ok(());
        };
        let pid = before.pid();
        if !self.speculative.contains(&pid) {
            return Ok(());
        }
        let found = call_of_model(after, *call).or_else(|| call_of_model(before, *call));
        let Some(pending_call) = found else {
            return Ok(());
        };
        let tool = &*pending_call.tool;
        let was_begun = call_of_model(before, *call).is_some_and(|before| before.started);
        if !TOOLS.contains(&tool) || (was_begun && MAKES_CHILDREN.contains(&tool)) {
            return Ok(());
        }
        self.tally.count("writes of chosen branches");
        ensure(self.chosen.contains(&pid), "SPEC-1", || {
            format!("{tool} is begun for {call} of {pid}, a branch that was not chosen")
        })
    }
}
