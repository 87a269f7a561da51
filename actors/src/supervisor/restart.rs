//! Running processes, and what becomes of one that faults: restarted from its journal with growing pauses, given up after
//! a bounded number of faults within a window.

use std::time::{Duration, Instant};

use dormouse_kernel::process::{Input, State};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::{Exit, ExitStatus};
use ractor::{Actor, ActorId};

use super::table::Run;
use super::{Supervisor, SupervisorMessage};
use crate::checkpoint::Durable;
use crate::event::{Event, View};
use crate::process::{Begin, Delivery, ProcessActor, ProcessMessage};

const WINDOW: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Starts the actor of a process: it resumes, then takes what waited for it.
    pub(super) async fn run(&mut self, state: State, last: FactNumber) {
        let pid = state.pid();
        let Some(entry) = self.table.get_mut(pid).filter(|entry| matches!(entry.run, Run::Loading)) else { return };
        let view = entry.view.clone();
        view.send_replace(Some(View::of(&state, last)));
        let waiting = std::mem::take(&mut entry.waiting);
        let (parent, program) = (entry.row.parent, entry.row.program.clone());
        let begin = Begin { world: self.world.clone(), supervisor: self.myself.clone(), state, last, view };
        let spawned = ProcessActor::spawn_linked(None, ProcessActor, begin, self.myself.get_cell()).await;
        let Ok((actor, task)) = spawned else { return self.give_up(pid, "its actor could not be started") };
        self.tasks.retain(|task| !task.is_finished());
        self.tasks.push(task);
        self.world.report(Event::Started { pid, parent, program });
        for delivery in std::iter::once(Delivery::internal(Input::Resumed)).chain(waiting) {
            // An actor that faults at once is heard of as a fault.
            let _ = actor.cast(ProcessMessage::Input(Box::new(delivery)));
        }
        self.table.running(pid, actor);
    }

    pub(super) fn faulted(&mut self, actor: ActorId, reason: &str) {
        let Some(pid) = self.table.forget_actor(actor) else { return };
        let limit = self.world.limits.restarts as usize;
        let Some(entry) = self.table.get_mut(pid).filter(|entry| !matches!(entry.run, Run::Ended)) else { return };
        let now = Instant::now();
        entry.faults.retain(|at| now.duration_since(*at) < WINDOW);
        entry.faults.push(now);
        let faults = entry.faults.len();
        tracing::error!(%pid, reason, faults, "a process faulted");
        if faults > limit {
            return self.give_up(pid, &format!("it faulted {faults} times, the last time with: {reason}"));
        }
        entry.run = Run::Loading;
        let pause = FIRST_PAUSE * 2_u32.saturating_pow(faults as u32 - 1);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let _ = myself.cast(SupervisorMessage::Restart { pid });
        });
    }

    /// A process that cannot be run ends as faulted; its parent gets that as an answer.
    pub(super) fn give_up(&mut self, pid: Pid, reason: &str) {
        let exit = Exit { status: ExitStatus::Faulted, message: reason.into() };
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
