//! PROGRESS: when nothing is on its way, nobody waits for it. A process that lives is stopped,
//! waits for input, or waits for children that live.

use dormouse_kernel::process::State;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::Origin;
use dormouse_proto::record::{Lifetime, PendingCall, Phase};

use super::{Held, ensure};
use crate::process::Running;
use crate::store::From;
use crate::supervisor::table::Run;
use crate::world::World;

impl World {
    /// Nothing is on its way.
    pub(crate) fn check_rest(&mut self) -> Held {
        self.tally.count("times at rest");
        self.label_records()?;
        self.label_holds()?;
        for pid in self.supervisor.table.living() {
            match self.supervisor.table.run_of(pid) {
                Some(Run::Running(life)) => {
                    let running = self
                        .running
                        .get(&pid)
                        .filter(|running| running.life == life);
                    let fault = running
                        .map_or(Some("is gone and nobody noticed".to_owned()), |it| {
                            self.waits_in_vain(it)
                        });
                    ensure(fault.is_none(), "PROGRESS", || {
                        format!("{pid} {}", fault.unwrap_or_default())
                    })?;
                }
                // One that is held waits to be run.
                Some(Run::Held) => {}
                Some(Run::Hibernated) => self.check_sleeper(pid)?,
                run => ensure(false, "PROGRESS", || format!("{pid} is {run:?} for ever"))?,
            }
        }
        Ok(())
    }

    /// One that hibernates has nothing to do: it stands so that it would wait if it were awake, and
    /// not in vain.
    fn check_sleeper(&self, pid: Pid) -> Held {
        ensure(!self.supervisor.table.has_waiting(pid), "PROGRESS", || {
            format!("{pid} sleeps, and something waits")
        })?;
        let (state, last) =
            self.store
                .disk
                .read(&self.programs, pid, None, From::Snapshot, self.defect)?;
        let fault = self.waits_in_vain(&Running::new(0, state, pid, last, last, Vec::new()));
        ensure(fault.is_none(), "PROGRESS", || {
            format!("{pid} sleeps, and {}", fault.unwrap_or_default())
        })
    }

    fn waits_in_vain(&self, running: &Running) -> Option<String> {
        let (pid, state) = (running.pid(), &running.state);
        if !running.undurable.is_empty() {
            return Some("waits for a commit".to_owned());
        }
        if state.is_stopped() {
            return None;
        }
        match state.phase() {
            Phase::Idle if state.waiting_messages() > 0 => {
                Some("is idle, and messages wait".to_owned())
            }
            Phase::Idle if !running.tickets.is_empty() => {
                Some(format!("has not answered {:?}", running.tickets))
            }
            Phase::Idle => self.idles_in_vain(pid, state),
            Phase::Acting { pending_calls, .. } => {
                let mut open = pending_calls
                    .iter()
                    .filter(|pending_call| pending_call.answer.is_none())
                    .peekable();
                if open.peek().is_none() {
                    return Some("acts, and all is answered".to_owned());
                }
                let waits = |pending_call: &PendingCall| match &*pending_call.tool {
                    "wait" => has_background_child(state),
                    _ => self.has_living_child(pid, pending_call.call),
                };
                if state.phase().held_calls().next().is_some() {
                    return None;
                }
                let lost = open.find(|pending_call| !pending_call.started || !waits(pending_call));
                lost.map(|pending_call| {
                    format!(
                        "waits for {} ({}), and nothing is on its way",
                        pending_call.call, pending_call.tool
                    )
                })
            }
            // All that is left is reserved for children that live.
            Phase::Ready { .. }
                if state.budget().waits_for_shares() && self.has_share_out(pid, state) =>
            {
                None
            }
            phase => Some(format!("stands at {phase:?}")),
        }
    }

    /// A task is idle only while children run in the background that it is to hear of, while it has
    /// an alarm, or where it was restored after its end.
    fn idles_in_vain(&self, pid: Pid, state: &State) -> Option<String> {
        if let Some((call, child)) = state
            .background()
            .iter()
            .find(|(call, _)| !self.has_living_child(pid, **call))
        {
            return Some(format!("was not told of the end of {child} ({call})"));
        }
        if let Some(lost) = state
            .reopened_children()
            .find(|reopened| !self.has_living_child(pid, reopened.call))
        {
            return Some(format!("was not told of the next end of {}", lost.child));
        }
        let is_restored = matches!(
            self.supervisor.table.row(pid)?.origin,
            Origin::Copied { .. }
        );
        let is_task = state.image().lifetime == Lifetime::Task;
        let has_alarm = state.alarms().next().is_some();
        (is_task && !is_restored && !has_alarm && !has_background_child(state))
            .then(|| "is a task that is over and lives on".to_owned())
    }

    fn has_share_out(&self, pid: Pid, state: &State) -> bool {
        state
            .budget()
            .shares()
            .any(|((call, _), _)| self.has_living_child(pid, call))
    }

    fn has_living_child(&self, pid: Pid, call: CallId) -> bool {
        self.supervisor
            .table
            .living_children(pid)
            .iter()
            .any(|(_, of)| *of == call)
    }

    /// Everything was killed: nothing lives, and the store agrees.
    pub(crate) fn check_over(&mut self) -> Held {
        let living = self.supervisor.table.living();
        ensure(living.is_empty(), "PROGRESS", || {
            format!("{living:?} outlive their killing")
        })?;
        for pid in self.supervisor.table.all() {
            self.check_replay_at_times(pid)?;
        }
        Ok(())
    }
}

fn has_background_child(state: &State) -> bool {
    !state.background().is_empty() || state.reopened_children().len() > 0
}
