//! Records raises of limits of processes that are not loaded, without running them.
//!
//! The limits of a child are a share of its parent's budget: the facts of both are one append.
//! Meanwhile parent and child count as being loaded, so that nothing else writes their journals.

use dormouse_kernel::process::{self, ParentOfRaised, RecordedRaise};
use dormouse_proto::budget::{Budget, Paused};
use dormouse_proto::id::{CallId, Pid};
use tokio::sync::oneshot;

use super::entry::{RunState, child_slot};
use super::{RunMessage, Supervisor};
use crate::checkpoint::LogRecord;
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::handle::RaiseNotRecorded;
use crate::recovery::{self, LoadError, LoadPurpose, StoredWait};

/// Receives the result of recording a raise: the limit that the process is still paused at.
pub(crate) type RaiseReply = oneshot::Sender<Result<Option<Paused>, RaiseNotRecorded>>;

/// The process above one whose limits are raised.
#[derive(Clone, Copy)]
struct Parent {
    pid: Pid,
    call: CallId,
    index: u32,
}

impl Supervisor {
    pub(super) fn record_raise(&mut self, pid: Pid, by: Budget, reply: RaiseReply) {
        let parent = self.table.row(pid).and_then(|row| {
            let (call, index) = child_slot(&row.origin)?;
            let pid = row.parent?;
            Some(Parent { pid, call, index })
        });
        let pids: Vec<Pid> = std::iter::once(pid)
            .chain(parent.map(|parent| parent.pid))
            .collect();
        let is_held = |pid: &Pid| self.table.run_state(*pid) == Some(RunState::Held);
        let refusal = match self.table.run_state(pid) {
            None => Some(RaiseNotRecorded::Failed(
                self.or_lost_record(NotFound::Process(pid).into()),
            )),
            Some(RunState::Ended) => {
                Some(RaiseNotRecorded::Failed(ProcessError::Ended(pid).into()))
            }
            Some(_) if !pids.iter().all(is_held) => Some(RaiseNotRecorded::Loaded),
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(Err(refusal));
            return;
        }
        for pid in &pids {
            self.table.set_run_state(*pid, RunState::Loading);
        }
        let context = self.context.clone();
        let myself = self.myself.clone();
        let finish = move |result: Result<AfterRaise, KernelError>| {
            let wait = result.as_ref().ok().map(|after| after.wait);
            // First the supervisor, so that the caller sees the process as held again. If it has
            // stopped, the kernel is shutting down.
            let _ = myself.cast(RunMessage::RaiseRecorded { pids, wait }.into());
            let result = result.map(|after| after.paused);
            let _ = reply.send(result.map_err(RaiseNotRecorded::Failed));
        };
        let record = move |_durable| {
            tokio::task::spawn_blocking(move || match raise_records(&context, pid, parent, &by) {
                Err(error) => finish(Err(error)),
                Ok((records, outcome)) => context.append_records(
                    records,
                    Box::new(move |result| {
                        finish(result.map(|_| outcome).map_err(KernelError::from))
                    }),
                ),
            });
        };
        // Records of the processes that wait, such as their births, are written first.
        self.context.append_records(Vec::new(), Box::new(record));
    }

    /// The processes are not loaded again. Inputs and callers that came meanwhile load them.
    /// `wait` is how the first of them waits now, if the raise was recorded.
    pub(super) fn on_raise_recorded(&mut self, pids: &[Pid], wait: Option<StoredWait>) {
        let mut waiting = wait.map(|wait| wait.waiting);
        for pid in pids {
            self.on_verdict_recorded(*pid, waiting.take());
        }
        if let (Some(pid), Some(wait)) = (pids.first(), wait) {
            self.set_paused(*pid, wait.is_paused);
        }
    }
}

/// A process whose limits were raised.
struct AfterRaise {
    /// The limit that it is still paused at.
    paused: Option<Paused>,
    wait: StoredWait,
}

/// The records of a raise, from the journals of the processes, and what they lead to.
fn raise_records(
    context: &KernelContext,
    pid: Pid,
    parent: Option<Parent>,
    by: &Budget,
) -> Result<(Vec<LogRecord>, AfterRaise), KernelError> {
    let store = context.store_handle().ok_or(LoadError::NoStore)?;
    let load = |pid| recovery::load_process(&*store, context, pid, None, LoadPurpose::Inspect);
    let loaded = load(pid)?;
    let loaded_parent = parent.map(|parent| load(parent.pid)).transpose()?;
    let of_raised = parent
        .zip(loaded_parent.as_ref())
        .map(|(parent, loaded)| ParentOfRaised {
            state: &loaded.state,
            call: parent.call,
            index: parent.index,
        });
    let RecordedRaise {
        facts,
        of_parent,
        paused,
        waiting,
    } = process::record_raise(&loaded.state, of_raised, by, now_ms()).map_err(|error| {
        ProcessError::NotRaised {
            pid,
            reason: error.to_string(),
        }
    })?;
    let wait = StoredWait {
        waiting,
        is_paused: paused.is_some(),
    };
    let mut records = vec![
        LogRecord::Facts {
            pid,
            first: loaded.last_fact.plus(1),
            facts: facts.into(),
        },
        wait.record(pid),
    ];
    if let Some(loaded) = loaded_parent.filter(|_| !of_parent.is_empty()) {
        records.push(LogRecord::Facts {
            pid: loaded.pid,
            first: loaded.last_fact.plus(1),
            facts: of_parent.into(),
        });
    }
    Ok((records, AfterRaise { paused, wait }))
}
