//! Loading and running of processes. A process that faults is restarted from its journal with
//! growing delays, and ends as faulted after a limited number of faults within a time window.

use std::time::Duration;

use dormouse_proto::id::Pid;
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};
use dormouse_proto::record::Speculation;
use futures_util::future::BoxFuture;
use ractor::{Actor, ActorId};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Supervisor;
use super::at_rest::RecordRequest;
use super::entry::RunState;
use super::lookup::HandleReply;
use super::pausing::with_hold;
use super::reopening::{RaiseOfEnded, ReopeningOutcome};
use crate::checkpoint::{AppendSize, CommitError, LogRecord};
use crate::error::{KernelError, StoreFailure};
use crate::event::{Event, ProcessView};
use crate::ownership::CloseReason;
use crate::ports::StoreError;
use crate::process::{
    CopyReply, Delivery, ProcessActor, ProcessArgs, ProcessMessage, StartedSignal,
};
use crate::recovery::{self, LoadError, LoadPurpose, Loaded, StoredWait};

/// A fault that is older than this does not count towards the limit of restarts.
const FAULT_WINDOW: Duration = Duration::from_secs(600);
/// The delay after the first fault. It doubles with each further fault.
const FIRST_RESTART_DELAY: Duration = Duration::from_millis(50);

/// Requests to load and run processes, and reports about their loads, faults and ends.
pub(crate) enum RunMessage {
    /// Load a process and run it.
    Resume { pid: Pid, reply: HandleReply },
    /// Load these processes, a few at a time.
    Recover { pids: Vec<Pid> },
    /// The delay after a fault has elapsed.
    Restart { pid: Pid },
    /// The delay after a load that failed has elapsed.
    RetryLoad { pid: Pid },
    /// A journal was read, or could not be read.
    Loaded {
        pid: Pid,
        result: Result<Box<Loaded>, LoadError>,
    },
    /// A process stopped because its facts could not be made durable.
    NotDurable { pid: Pid, error: CommitError },
    /// A process ended, durably.
    Ended { pid: Pid, exit: Exit },
    /// Record a decision of the host in the journal of a held process.
    Record(Box<RecordRequest>),
    /// The decision was recorded, or could not be.
    RecordFinished {
        pid: Pid,
        /// How the process waits now; `None` if nothing was recorded.
        wait: Option<StoredWait>,
    },
    /// Ask a parent to open an ended child again.
    AskParent {
        parent: Pid,
        delivery: Box<Delivery>,
    },
    /// An ended process was opened by an input, or could not be.
    ReopeningFinished {
        pid: Pid,
        delivery: Box<Delivery>,
        outcome: ReopeningOutcome,
    },
    /// The kernel has closed without a shutdown: no process runs any more.
    KernelClosed { reason: CloseReason },
    /// Raise limits of an ended root, which opens it again.
    RaiseEnded(RaiseOfEnded),
    /// An ended root was opened by a raise of its limits, or could not be.
    RaisedReopening {
        pid: Pid,
        result: Result<(), KernelError>,
        reply: oneshot::Sender<Result<(), KernelError>>,
    },
    /// Copy a running process. The reply is dropped if the process does not run.
    Copy { pid: Pid, reply: CopyReply },
}

impl Supervisor {
    pub(super) async fn handle_run(&mut self, message: RunMessage) {
        match message {
            RunMessage::Resume { pid, reply } => self.resume(pid, reply),
            RunMessage::Recover { pids } => self.recover(pids),
            RunMessage::Restart { pid } => self.restart(pid),
            RunMessage::RetryLoad { pid } => self.retry_load(pid),
            RunMessage::Loaded { pid, result } => self.on_loaded(pid, result).await,
            RunMessage::NotDurable { pid, error } => self.on_commit_failed(pid, &error),
            RunMessage::Ended { pid, exit } => self.on_process_ended(pid, exit),
            RunMessage::Record(request) => self.record_at_rest(*request),
            RunMessage::RecordFinished { pid, wait } => self.on_record_finished(pid, wait),
            RunMessage::AskParent { parent, delivery } => self.deliver(parent, *delivery),
            RunMessage::ReopeningFinished {
                pid,
                delivery,
                outcome,
            } => self.on_reopening_finished(pid, *delivery, outcome),
            RunMessage::KernelClosed { reason } => self.stop_all(&reason.to_string()),
            RunMessage::RaiseEnded(request) => self.reopen_raised(request),
            RunMessage::RaisedReopening { pid, result, reply } => {
                self.on_raised_reopening(pid, result, reply);
            }
            RunMessage::Copy { pid, reply } => self.copy(pid, reply),
        }
    }

    /// Loads a process; the reply waits until it runs.
    fn resume(&mut self, pid: Pid, reply: HandleReply) {
        if let Some(reply) = self.table.await_run(pid, reply) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(self.handle_parts(pid));
        }
        self.release_tree(pid);
        self.wake(pid);
    }

    /// Loads a process that is held or hibernated.
    pub(super) fn wake(&mut self, pid: Pid) {
        if matches!(
            self.table.run_state(pid),
            Some(RunState::Held | RunState::Hibernated { .. })
        ) {
            self.load(pid);
        }
    }

    /// Loads a process once the delay after its fault has elapsed. One that was stopped meanwhile
    /// stays held.
    fn restart(&mut self, pid: Pid) {
        if self.table.run_state(pid) == Some(RunState::Loading) {
            self.load(pid);
        }
    }

    /// Reads a journal on a blocking thread, after all queued records of the process have reached
    /// the store. A hibernated process has no queued records.
    pub(super) fn load(&mut self, pid: Pid) {
        if let Some(reason) = self.context.ownership.close_reason() {
            return self.refuse_load(pid, &reason);
        }
        let is_hibernated = matches!(self.table.run_state(pid), Some(RunState::Hibernated { .. }));
        self.table.mark_loading(pid);
        if self.table.defer_load_until_stopped(pid) {
            return;
        }
        if let Some(live) = self.table.live_mut(pid) {
            live.is_waking = is_hibernated;
        }
        let context = self.context.clone();
        let myself = self.myself.clone();
        let start_load = move |_durable| {
            tokio::task::spawn_blocking(move || {
                let loaded = match context.store_handle() {
                    Some(store) => {
                        recovery::load_process(&*store, &context, pid, None, LoadPurpose::Run)
                    }
                    None => Err(LoadError::NoStore),
                };
                let _ = myself.cast(
                    RunMessage::Loaded {
                        pid,
                        result: loaded.map(Box::new),
                    }
                    .into(),
                );
            });
        };
        if is_hibernated {
            start_load(Ok(AppendSize::default()))
        } else {
            self.context
                .append_records(Vec::new(), Box::new(start_load))
        }
    }

    /// Starts the actor of a loaded process.
    async fn on_loaded(&mut self, pid: Pid, result: Result<Box<Loaded>, LoadError>) {
        let is_recovery = self.on_recovery_load_finished(pid);
        match result {
            Ok(loaded) => {
                self.forget_failed_loads(pid);
                match is_recovery && self.is_unjudged(&loaded) {
                    true => self.leave_unloaded(pid),
                    false => self.start_actor(*loaded, None).await,
                }
            }
            Err(error) => self.on_load_failed(pid, error),
        }
    }

    /// Holds a process whose journal cannot be read. Nothing is written: a later attempt may succeed,
    /// for instance with another tool or a repaired disk. If the cause may pass by itself, the
    /// process is read again, and its parent waits for it.
    fn on_load_failed(&mut self, pid: Pid, error: LoadError) {
        let waiting = self.table.take_run_waiters(pid);
        let reason = error.to_string();
        match &error {
            // The store does not answer, as in an outage of the network.
            LoadError::Store(StoreError::Io { .. }) => {
                tracing::error!(%pid, reason, "a process cannot be read");
                self.table.unload(pid, &reason);
                self.wake_due_processes();
                self.retry_load_later(pid);
            }
            // It is not known whether its bytes are damaged or cannot be reached.
            LoadError::Content(_) => {
                self.unload_failed(pid, &reason);
                self.retry_load_later(pid);
            }
            _ => {
                self.forget_failed_loads(pid);
                self.unload_failed(pid, &reason);
            }
        }
        let KernelError::Store(StoreFailure::Load(error)) = error.into() else {
            return;
        };
        waiting
            .into_iter()
            .for_each(|reply| drop(reply.send(Err(StoreFailure::Load(error.clone()).into()))));
    }

    /// Whether nobody asked for this process, and it is a branch whose race ended with its kernel:
    /// nobody judges it any more.
    fn is_unjudged(&self, Loaded { pid, state, .. }: &Loaded) -> bool {
        state.speculation() == Speculation::Branch
            && !self.table.has_pending_input(*pid)
            && !self.table.has_run_waiters(*pid)
    }

    fn copy(&self, pid: Pid, reply: CopyReply) {
        let running = self
            .table
            .get(pid)
            .filter(|entry| entry.run_state == RunState::Running);
        if let Some(actor) = running.and_then(|entry| entry.live()?.actor.as_ref()) {
            // An actor that has just ended drops the reply.
            let _ = actor.cast(ProcessMessage::Copy { reply });
        }
    }

    /// Handles an actor that has stopped, on request or because its process ended or hibernated.
    pub(super) fn on_actor_stopped(&mut self, actor: ActorId) {
        if let Some(pid) = self.table.remove_actor(actor)
            && self.table.finish_stopping(pid)
        {
            self.load(pid);
        }
    }

    /// Starts the actor of a process. It handles the signals that waited, resumes, then handles the
    /// other inputs.
    ///
    /// The future is boxed: it holds the state of a process, and would otherwise be part of the
    /// future of each message to the supervisor, which is moved several times.
    pub(super) fn start_actor(
        &mut self,
        loaded: Loaded,
        started_signal: Option<StartedSignal>,
    ) -> BoxFuture<'_, ()> {
        Box::pin(self.spawn_actor(loaded, started_signal))
    }

    async fn spawn_actor(
        &mut self,
        Loaded {
            pid,
            state,
            last_fact,
            journal_tail,
            stored_wait,
        }: Loaded,
        started_signal: Option<StartedSignal>,
    ) {
        let root = self.table.root(pid);
        let labels = self.table.labels(pid);
        let is_paused = state.paused().is_some();
        let hold = self.find_hold_of_new_life(pid, state.is_suspended());
        let Some(entry) = self
            .table
            .get_mut(pid)
            .filter(|entry| entry.run_state == RunState::Loading)
        else {
            return;
        };
        let waiting = with_hold(entry.take_startup_inputs(), hold);
        let parent = entry.parent();
        let program = entry.program().clone();
        let Some(live) = entry.live_mut() else { return };
        let watched = live.watched.clone();
        watched.send_modify(|watched| watched.view = Some(ProcessView::of(&state, last_fact)));
        let event = match std::mem::take(&mut live.is_waking) {
            true => Event::Woke { pid },
            false => Event::Started {
                pid,
                parent,
                program,
            },
        };
        let supervisor = self.myself.clone();
        let args = ProcessArgs {
            pid,
            context: self.context.clone(),
            supervisor,
            state,
            root,
            labels,
            last_fact,
            journal_tail,
            stored_wait,
            watched,
            started_signal,
        };
        let spawned =
            ProcessActor::spawn_linked(None, ProcessActor, args, self.myself.get_cell()).await;
        let Ok((actor, _task)) = spawned else {
            return self.end_as_faulted(pid, "its actor could not be started");
        };
        self.context.publish(event);
        self.table.mark_running(pid, actor);
        // An earlier actor of the process may have stopped before it reported this.
        self.set_paused(pid, is_paused);
        waiting
            .into_iter()
            .for_each(|delivery| self.deliver(pid, delivery));
        for reply in self.table.take_run_waiters(pid) {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(self.handle_parts(pid));
        }
        self.hibernate_due_processes();
    }

    /// Unloads a process whose journal cannot be read or written. It can be resumed later. Its
    /// parent and all callers that wait for it get the reason.
    pub(super) fn unload_failed(&mut self, pid: Pid, reason: &str) {
        tracing::error!(%pid, reason, "a process was stopped");
        let unloaded = self.table.unload(pid, reason);
        self.wake_due_processes();
        if let Some(row) = unloaded {
            let exit = Exit {
                reopenings: row.reopenings,
                ..Exit::new(ExitStatus::Faulted, reason)
            };
            self.report_to_parent(&ProcessRow {
                exit: Some(exit),
                ..row
            });
        }
    }

    /// Restarts a process after a delay, or ends it once it has faulted too often.
    pub(super) fn on_actor_failed(&mut self, actor: ActorId, reason: &str) {
        let Some(pid) = self.table.remove_actor(actor) else {
            return;
        };
        if self.table.finish_stopping(pid) {
            return self.load(pid);
        }
        let max_restarts = self.context.limits.max_restarts as usize;
        let Some(live) = self
            .table
            .get_mut(pid)
            .filter(|entry| entry.run_state != RunState::Ended)
            .and_then(|entry| entry.live_mut())
        else {
            return;
        };
        let now = Instant::now();
        live.faults
            .retain(|at| now.duration_since(*at) < FAULT_WINDOW);
        live.faults.push(now);
        let faults = live.faults.len();
        self.table.wake_queue.finish_waking(pid);
        tracing::error!(%pid, reason, faults, "a process faulted");
        if faults > max_restarts {
            return self.end_as_faulted(
                pid,
                &format!("it faulted {faults} times, the last time with: {reason}"),
            );
        }
        self.table.set_run_state(pid, RunState::Loading);
        let restart_delay = FIRST_RESTART_DELAY * 2_u32.saturating_pow(faults as u32 - 1);
        let myself = self.myself.clone();
        tokio::spawn(async move {
            tokio::time::sleep(restart_delay).await;
            let _ = myself.cast(RunMessage::Restart { pid }.into());
        });
    }

    /// Ends a process that cannot run with the status `Faulted`, which is reported to its parent.
    pub(super) fn end_as_faulted(&mut self, pid: Pid, reason: &str) {
        let exit = Exit {
            reopenings: self.table.row(pid).map_or(0, |row| row.reopenings),
            ..Exit::new(ExitStatus::Faulted, reason)
        };
        tracing::error!(%pid, reason, "a process ended as faulted");
        let records = vec![LogRecord::Ended {
            pid,
            exit: exit.clone(),
        }];
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |_result| {
            // Even if the record was not written, callers that wait for the process get its end.
            let _ = myself.cast(RunMessage::Ended { pid, exit }.into());
        });
        self.context.append_records(records, acknowledge);
    }
}
