//! Pauses at limits, as `actors/src/supervisor/pausing.rs` has them: what is below a paused process
//! begins nothing.

use dormouse_kernel::process::{Input, Signal, State};
use dormouse_proto::id::Pid;

use super::table::Run;
use crate::defect::Defect;
use crate::event::Event;
use crate::world::World;

impl World {
    /// A process is paused, or goes on: so do those below it that run. What does not run is told
    /// when it does.
    pub(super) fn pause_below(&mut self, pid: Pid, is_paused: bool) {
        if !self.supervisor.table.set_paused(pid, is_paused) {
            return;
        }
        for below in self.supervisor.table.tree(pid).into_iter().skip(1) {
            let is_below_paused = self.supervisor.table.is_below_paused(below);
            if !is_below_paused && let Some(running) = self.running.get_mut(&below) {
                running.begins_below_paused = false;
            }
            let signal = match self.supervisor.table.run_of(below) {
                None | Some(Run::Held | Run::Ended) => continue,
                Some(Run::Hibernated) if is_below_paused => continue,
                Some(_) if is_below_paused => Signal::Suspend,
                Some(_) => Signal::Release,
            };
            if signal == Signal::Suspend && !self.is_draining && self.random.percent(30) {
                // A life that is lost before it hears of the pause.
                self.schedule.after(0, Event::Fault { pid: below });
            }
            self.deliver(below, Input::Signal(signal));
        }
    }

    /// The inputs of a process that begins to run. What was said to an earlier life does not count:
    /// the table says whether a process above it is paused.
    pub(super) fn with_hold(&mut self, mut waiting: Vec<Input>, state: &State) -> Vec<Input> {
        waiting.retain(|input| !matches!(input, Input::Signal(Signal::Suspend | Signal::Release)));
        let resume = waiting
            .iter()
            .position(|input| matches!(input, Input::Signal(Signal::Resume)))
            .unwrap_or(0);
        let pid = state.pid();
        let is_exhausted = self.is_exhausted(pid) && self.defect != Some(Defect::LooksAtNoLabel);
        let is_below_paused = self.supervisor.table.is_below_paused(pid);
        if is_exhausted {
            self.hold_by_label(pid);
            waiting.insert(resume, Input::SignalBeforeResume(Signal::Suspend));
        } else if is_below_paused && self.defect != Some(Defect::ForgetsAPauseAbove) {
            waiting.insert(resume, Input::SignalBeforeResume(Signal::Suspend));
        } else if !is_below_paused && state.is_suspended() {
            let at = (resume + 1).min(waiting.len());
            waiting.insert(at, Input::Signal(Signal::Release));
        }
        waiting
    }

    /// Whether the rows on the disk say that a process above this one is paused.
    pub(super) fn is_below_paused_on_disk(&self, pid: Pid) -> bool {
        let journals = &self.store.disk.journals;
        let parent = |pid: Pid| journals.get(&pid).and_then(|journal| journal.row.parent);
        let mut above = std::iter::successors(parent(pid), |pid| parent(*pid));
        above.any(|pid| journals.get(&pid).is_some_and(|it| it.row.is_paused))
    }
}
