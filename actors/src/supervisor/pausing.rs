//! Pauses at limits, as the supervisor sees them: which processes are paused, and what is below
//! them. What labels hold up is in `labels.rs`.
//!
//! A process can be *paused* at a limit; then all processes below it are *suspended*, and none of
//! them begins anything (`kernel/machine/src/process/pausing.rs`). The row of a paused process
//! says so, in the commit of the fact (`WriteOp::Waiting`). So the supervisor knows before any
//! journal is read which processes must not begin anything. What it tells a process that is loaded
//! follows from the table alone: the signals that were sent to an earlier actor of the process, and
//! their order, do not matter (PAUSE-1).

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::Pid;

use super::Supervisor;
use super::entry::RunState;
use crate::process::Delivery;

impl Supervisor {
    /// Records that a process is paused, or goes on. The processes below it that are loaded stop or
    /// go on with it. What is not loaded is told when it is.
    pub(super) fn set_paused(&mut self, pid: Pid, is_paused: bool) {
        if !self.table.set_paused(pid, is_paused) {
            return;
        }
        for below in self.table.living_tree(pid).into_iter().skip(1) {
            let is_below_paused = self.drain.is_some() || self.table.is_below_paused(below);
            let signal = match self.table.run_state(below) {
                None | Some(RunState::Held | RunState::Ended) => continue,
                Some(RunState::Hibernated { .. }) if is_below_paused => continue,
                Some(_) if is_below_paused => Signal::Suspend,
                // A process that a label holds up ignores it.
                Some(_) => Signal::Release,
            };
            self.deliver_internal(below, Input::Signal(signal));
        }
    }

    /// The signal that a process gets when it begins to run, if a process above it is paused, a label
    /// of its tree is used up or the kernel is drained, or none of that is the case any more.
    pub(super) fn find_hold_of_new_life(&mut self, pid: Pid, is_suspended: bool) -> Option<Signal> {
        let exhausted = self.exhausted_label(pid);
        let is_held =
            exhausted.is_some() || self.drain.is_some() || self.table.is_below_paused(pid);
        if let Some(exhausted) = exhausted {
            self.hold_by_label(pid, exhausted);
        }
        match (is_held, is_suspended) {
            (true, _) => Some(Signal::Suspend),
            (false, true) => Some(Signal::Release),
            (false, false) => None,
        }
    }
}

/// The inputs of a process that is loaded, with this signal in place of the suspensions and
/// releases that waited. A suspension comes before the resume signal, and a release after it.
pub(super) fn with_hold(mut inputs: Vec<Delivery>, hold: Option<Signal>) -> Vec<Delivery> {
    inputs.retain(|delivery| {
        !matches!(
            delivery.input,
            Input::Signal(Signal::Suspend | Signal::Release)
                | Input::SignalBeforeResume(Signal::Suspend)
        )
    });
    let Some(signal) = hold else {
        return inputs;
    };
    let is_resume = |delivery: &Delivery| matches!(delivery.input, Input::Signal(Signal::Resume));
    let resume = inputs.iter().position(is_resume).unwrap_or(0);
    let delivery = Delivery::internal(Input::Signal(signal));
    match signal {
        Signal::Suspend => inputs.insert(resume, delivery.before_resume()),
        _ => inputs.insert((resume + 1).min(inputs.len()), delivery),
    }
    inputs
}
