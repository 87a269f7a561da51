//! SPEC-1: no call of a model acts outside of a process that was born as a speculative branch,
//! unless the host has chosen that branch. A child of the tool `explore` is chosen by nobody, and
//! writes no temporary file either: it ends at its write.
//!
//! The world keeps its own list of such processes. What the machine knows of it is not looked at.

use dormouse_kernel::process::{Fact, State};
use dormouse_proto::id::Pid;
use dormouse_proto::record::{CallFact, Speculation};

use super::held::call_of_model;
use super::{Held, ensure};
use crate::world::World;

/// The tools that act outside of their process.
const TOOLS: [&str; 6] = [
    "grep",
    "send_message",
    "fork",
    "explore",
    "spawn",
    "fd_to_file",
];
/// Those of them that, once begun, wait for children.
const MAKES_CHILDREN: [&str; 3] = ["fork", "explore", "spawn"];
/// The tools that change the temporary files of the tree.
const CHANGES_FILES: [&str; 4] = [
    "create_temp_file",
    "write_temp_file",
    "append_temp_file",
    "delete_temp_file",
];

impl World {
    /// A process is born. One that is lost in a crash may leave its pid to another.
    pub(crate) fn note_speculation(&mut self, pid: Pid, speculation: Speculation) {
        for kept in [&mut self.chosen, &mut self.speculative, &mut self.explorers] {
            kept.remove(&pid);
        }
        if speculation != Speculation::None {
            self.speculative.insert(pid);
        }
        if speculation == Speculation::Child {
            self.explorers.insert(pid);
        }
    }

    pub(super) fn spec_1(&mut self, before: &State, after: &State, fact: &Fact) -> Held {
        let pid = before.pid();
        let is_explorer = self.explorers.contains(&pid);
        if matches!(fact, Fact::Exited { exit } if is_explorer && exit.is_result) {
            self.tally.count("writes proposed");
        }
        let Fact::Call(CallFact::ToolCalled { call }) = fact else {
            return Ok(());
        };
        if !self.speculative.contains(&pid) {
            return Ok(());
        }
        let found = call_of_model(after, *call).or_else(|| call_of_model(before, *call));
        let Some(pending_call) = found else {
            return Ok(());
        };
        let tool = &*pending_call.tool;
        let was_begun = call_of_model(before, *call).is_some_and(|before| before.started);
        let is_write = TOOLS.contains(&tool) || (is_explorer && CHANGES_FILES.contains(&tool));
        if !is_write || (was_begun && MAKES_CHILDREN.contains(&tool)) {
            return Ok(());
        }
        if !is_explorer {
            self.tally.count("writes of chosen branches");
        }
        let is_chosen = !is_explorer && self.chosen.contains(&pid);
        ensure(is_chosen, "SPEC-1", || {
            format!("{tool} is begun for {call} of {pid}, a branch that was not chosen")
        })
    }
}
