//! Draining: before a kernel is shut down, its processes come to rest.
//!
//! Each process is asked to hibernate. One that is at work declines, and is suspended by the signal
//! that also holds up what is below a paused process: its calls in flight go on and their results are
//! recorded, and nothing else begins. It is asked again until it hibernates. Where the store is opened
//! again, nothing above the process is paused, and it is released when it is loaded (`pausing.rs`).

use std::collections::BTreeSet;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::id::Pid;
use tokio::sync::oneshot;

use super::Supervisor;
use super::entry::RunState;
use crate::process::HibernationBlocker;

/// A drain that has begun. It ends with the kernel.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// The loaded processes whose calls only wait for a timeout. They stay loaded, and are not waited
    /// for.
    waiting: BTreeSet<Pid>,
}

impl Supervisor {
    /// Asks the processes that run to hibernate. Replies with the number of those that are at work, as
    /// far as they have answered earlier requests. Costs a pass over the table.
    pub(super) fn go_on_draining(&mut self, reply: oneshot::Sender<usize>) {
        self.drain.get_or_insert_default();
        let mut at_work = 0;
        let living: Vec<_> = self.table.living().collect();
        for pid in living {
            match self.table.run_state(pid) {
                Some(RunState::Running) => self.begin_hibernation(pid),
                Some(RunState::Loading | RunState::Hibernating) => {}
                None | Some(RunState::Held | RunState::Hibernated { .. } | RunState::Ended) => {
                    continue;
                }
            }
            let waits = |drain: &Drain| drain.waiting.contains(&pid);
            at_work += usize::from(!self.drain.as_ref().is_some_and(waits));
        }
        // The requester has dropped its receiver if it no longer waits.
        let _ = reply.send(at_work);
    }

    /// Suspends a process that cannot hibernate yet, if the kernel is drained.
    pub(super) fn suspend_for_drain(&mut self, pid: Pid, blocker: &HibernationBlocker) {
        let Some(drain) = &mut self.drain else {
            return;
        };
        match blocker {
            HibernationBlocker::Timeouts => drain.waiting.insert(pid),
            _ => drain.waiting.remove(&pid),
        };
        self.deliver_internal(pid, Input::Signal(Signal::Suspend));
    }
}
