//! Running processes, and what becomes of one that faults: restarted from its journal with growing pauses, given up after
//! a bounded number of faults within a window.

use std::time::Duration;

use dormouse_proto::id::Pid;
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};
use ractor::{Actor, ActorId};
use tokio::time::Instant;

use super::entry::Run;
use super::{Supervisor, SupervisorMessage};
use crate::checkpoint::Durable;
use crate::event::{Event, View};
use crate::process::{Begin, Herald, ProcessActor};
use crate::recovery::Loaded;

const WINDOW: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Starts the actor of a process: it takes the signals that waited for it, resumes, then takes the rest.
    pub(super) async fn run(&mut self, Loaded { pid, state, last, tail }: Loaded, herald: Option<Herald>) {
        let root = self.table.root(pid);
        let Some(entry) = self.table.get_mut(pid).filter(|entry| entry.run == Run::Loading) else { return };
        let waiting = entry.begin();
        let (parent, program) = (entry.parent(), entry.program().clone());
        let Some(live) = entry.live_mut() else { return };
        let view = live.view.clone();
        view.send_replace(Some(View::of(&state, last)));
        let event = match std::mem::take(&mut live.is_waking) {
            true => Event::Woke { pid },
            false => Event::Started { pid, parent, program },
        };
        let supervisor = self.myself.clone();
        let begin = Begin { pid, world: self.world.clone(), supervisor, state, root, last, tail, view, herald };
        let spawned = ProcessActor::spawn_linked(None, ProcessActor, begin, self.myself.get_cell()).await;
        let Ok((actor, _task)) = spawned else { return self.give_up(pid, "its actor could not be started") };
        self.world.report(event);
        self.table.running(pid, actor);
        waiting.into_iter().for_each(|delivery| self.deliver(pid, delivery));
        for reply in self.table.take_awaiting(pid) {
            // Who no longer waits has dropped its side.
            let _ = reply.send(self.seat(pid));
        }
        self.hibernate_due();
    }

    /// A process that could not be read or written stays what its journal says, to be resumed later. Who waits for it,
    /// its parent too, is told that it does not end now.
    pub(super) fn park(&mut self, pid: Pid, reason: &str) {
        tracing::error!(%pid, reason, "a process was stopped");
        if let Some(row) = self.table.park(pid, reason) {
            let exit = Exit::new(ExitStatus::Faulted, reason);
            self.report_to_parent(&ProcessRow { exit: Some(exit), ..row });
        }
    }

    pub(super) fn faulted(&mut self, actor: ActorId, reason: &str) {
        let Some(pid) = self.table.forget_actor(actor) else { return };
        if self.table.has_stopped(pid) {
            return self.load(pid);
        }
        let limit = self.world.limits.restarts as usize;
        let Some(live) =
            self.table.get_mut(pid).filter(|entry| entry.run != Run::Ended).and_then(|entry| entry.live_mut())
        else {
            return;
        };
        let now = Instant::now();
        live.faults.retain(|at| now.duration_since(*at) < WINDOW);
        live.faults.push(now);
        let faults = live.faults.len();
        tracing::error!(%pid, reason, faults, "a process faulted");
        if faults > limit {
            return self.give_up(pid, &format!("it faulted {faults} times, the last time with: {reason}"));
        }
        self.table.set_run(pid, Run::Loading);
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(faults as u32 - 1);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = myself.cast(SupervisorMessage::Restart { pid });
        });
    }

    /// A process that cannot be run ends as faulted; its parent gets that as an answer.
    pub(super) fn give_up(&mut self, pid: Pid, reason: &str) {
        let exit = Exit::new(ExitStatus::Faulted, reason);
        tracing::error!(%pid, reason, "a process was given up");
        let entries = vec![Durable::Ended { pid, exit: exit.clone() }];
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |_result| {
            // Durable or not, whoever waits has to know.
            let _ = myself.cast(SupervisorMessage::Ended { pid, exit });
        });
        self.world.append(entries, acknowledge);
    }
}
