//! The invariants of the kernel, each asserted after every step for what the step touched. A
//! function or a file is named for what it checks; what does not hold is reported by the name in
//! `ARCHITECTURE.md`.
//!
//! Two more names: HISTORY (every tool use is answered in the message that follows) and PROGRESS
//! (nobody waits for what nothing is on its way for).

mod alarms;
mod answers;
mod budget;
mod calls;
mod compaction;
mod descriptors;
mod durability;
pub(crate) mod fence;
mod forks;
mod held;
mod history;
pub(crate) mod labels;
pub(crate) mod ledger;
mod mail;
mod pages;
mod pausing;
pub(crate) mod plain_files;
mod progress;
mod provenance;
mod reopening;
mod speculation;

use dormouse_kernel::process::{Effect, Fact, State};

use crate::process::Running;
use crate::world::World;

/// An invariant that does not hold.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn of(invariant: &'static str, what: String) -> Self {
        Self { invariant, what }
    }
}

/// What a check comes to.
pub(crate) type Held = Result<(), Violation>;

pub(crate) fn ensure(holds: bool, invariant: &'static str, what: impl FnOnce() -> String) -> Held {
    if holds {
        Ok(())
    } else {
        Err(Violation::of(invariant, what()))
    }
}

impl World {
    /// What must hold before a process makes its next step: nobody else's step was seen in it.
    pub(crate) fn check_before(&self, running: &Running) -> Held {
        self.hold_the_same(running, "FORK-1")
    }

    /// All that a step may have broken: `before` is the state that it was decided on, and the
    /// process stands as it is after.
    pub(crate) fn check_step(
        &mut self,
        running: &Running,
        before: &State,
        facts: &[Fact],
        effects: &[Effect],
    ) -> Held {
        let pid = running.pid();
        for (number, fact) in (running.last() + 1..).zip(facts) {
            self.tally.count_of("fact", fact.name());
            self.reopen_1(before, number, fact)?;
            self.fd_1(pid, number, fact)?;
            self.call_1(pid, number, fact)?;
            self.held_1(before, &running.state, fact)?;
            self.spec_1(before, &running.state, fact)?;
            self.fd_3(pid, fact)?;
            self.pages_of(fact)?;
            self.xml_1(before, &running.state, fact)?;
            self.compact_1(running, before, facts, fact)?;
            self.note_return(pid, fact, running.state.last_compacted());
        }
        self.label_1(running, before, facts)?;
        self.pause_1(running, facts, effects)?;
        self.fence_1(before, running.last() + 1, facts)?;
        self.mail_1(before, &running.state, running.last() + 1, facts)?;
        self.alarm_1(&running.state, running.last() + 1, facts)?;
        self.fd_2(running)?;
        calls::intents(&running.state, effects)?;
        self.tree_1(running, before, facts)?;
        self.fork_1(running)?;
        if self.steps.is_multiple_of(256) {
            self.check_replay(pid)?;
        }
        Ok(())
    }
}
