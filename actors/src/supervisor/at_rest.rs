//! Records what a host decides about held processes, without running them: verdicts on held calls,
//! and raises of limits.
//!
//! The process counts as being loaded meanwhile, so that nothing else writes its journal: inputs and
//! callers wait, and load it afterwards. A further decision of the host waits too, and loads nothing:
//! it is asked again once the process is held, or runs.

use dormouse_kernel::process::{Recorded, State};
use dormouse_proto::budget::Paused;
use dormouse_proto::id::Pid;
use tokio::sync::oneshot;

use super::entry::RunState;
use super::{RunMessage, Supervisor};
use crate::checkpoint::LogRecord;
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::recovery::{self, LoadError, LoadPurpose, StoredWait};

/// A decision of the host about one process, to be recorded in its journal if the process is held.
pub(crate) struct RecordRequest {
    pub(crate) pid: Pid,
    /// Decides on the state of the process at a time (milliseconds since the epoch, UTC).
    pub(crate) decide: DecideAtRest,
    /// A record that is appended together with the facts.
    pub(crate) with: Option<LogRecord>,
    pub(crate) reply: RecordReply,
}

/// The facts of a decision about a process that is not loaded, or why there are none.
pub(crate) type DecideAtRest =
    Box<dyn FnOnce(&State, u64) -> Result<Recorded, ProcessError> + Send>;

/// Receives the limit that the process is paused at, once the decision is recorded.
pub(crate) type RecordReply = oneshot::Sender<Result<Option<Paused>, NotRecorded>>;

/// Why the supervisor did not record a decision itself.
#[derive(Debug)]
pub(crate) enum NotRecorded {
    /// The process is loaded or hibernates: the decision is an input for it.
    Loaded,
    /// The decision does not apply, or cannot be recorded.
    Failed(KernelError),
}

/// What was recorded, as the supervisor has to know it.
struct RecordedWait {
    wait: StoredWait,
    paused: Option<Paused>,
}

impl Supervisor {
    /// Records a decision in the journal of a held process, which stays held.
    pub(super) fn record_at_rest(&mut self, request: RecordRequest) {
        let pid = request.pid;
        let refusal = match self.table.run_state(pid) {
            Some(RunState::Held) => return self.begin_record(request),
            Some(RunState::Loading) => return self.waiting_records.push(request),
            Some(RunState::Ended) => NotRecorded::Failed(ProcessError::Ended(pid).into()),
            Some(_) => NotRecorded::Loaded,
            None => NotRecorded::Failed(self.or_lost_record(NotFound::Process(pid).into())),
        };
        // The requester has dropped its receiver if it no longer waits.
        let _ = request.reply.send(Err(refusal));
    }

    fn begin_record(&mut self, request: RecordRequest) {
        let RecordRequest {
            pid,
            decide,
            with,
            reply,
        } = request;
        self.table.set_run_state(pid, RunState::Loading);
        let context = self.context.clone();
        let myself = self.myself.clone();
        let finish = move |result: Result<RecordedWait, KernelError>| {
            let wait = result.as_ref().ok().map(|recorded| recorded.wait);
            // First the supervisor, so that the caller sees the process as held again. If it has
            // stopped, the kernel is shutting down.
            let _ = myself.cast(RunMessage::RecordFinished { pid, wait }.into());
            let result = result.map(|recorded| recorded.paused);
            let _ = reply.send(result.map_err(NotRecorded::Failed));
        };
        let record = move |_durable| {
            tokio::task::spawn_blocking(move || {
                match read_and_decide(&context, pid, decide) {
                    Err(error) => finish(Err(error)),
                    Ok((mut records, recorded)) => {
                        records.extend(with);
                        context.append_records(
                            records,
                            Box::new(move |result| {
                                finish(result.map(|_| recorded).map_err(KernelError::from))
                            }),
                        );
                    }
                };
            });
        };
        // Records of the process that wait, such as its birth, are written first.
        self.context.append_records(Vec::new(), Box::new(record));
    }

    /// Holds the process again. Inputs and callers that came meanwhile load it. `wait` is how it
    /// waits now, if the decision was recorded.
    pub(super) fn on_record_finished(&mut self, pid: Pid, wait: Option<StoredWait>) {
        if self.table.run_state(pid) != Some(RunState::Loading) {
            return;
        }
        if let Some(wait) = wait {
            self.table.set_waiting(pid, wait.waiting);
            self.set_paused(pid, wait.is_paused);
        }
        self.table.set_run_state(pid, RunState::Held);
        if self.table.has_waiting_input(pid) || self.table.has_run_waiters(pid) {
            self.load(pid);
        }
    }

    /// Takes up the decisions that waited for a process which is no longer being loaded.
    pub(super) fn take_up_waiting_records(&mut self) {
        // A decision that is taken up may begin another load of its process.
        for request in std::mem::take(&mut self.waiting_records) {
            self.record_at_rest(request);
        }
    }
}

/// The records of a decision about a process, from its journal.
fn read_and_decide(
    context: &KernelContext,
    pid: Pid,
    decide: DecideAtRest,
) -> Result<(Vec<LogRecord>, RecordedWait), KernelError> {
    let store = context.store_handle().ok_or(LoadError::NoStore)?;
    let loaded = recovery::load_process(&*store, context, pid, None, LoadPurpose::Inspect)?;
    let Recorded {
        facts,
        waiting,
        paused,
    } = decide(&loaded.state, now_ms())?;
    let wait = StoredWait {
        waiting,
        is_paused: paused.is_some(),
    };
    let mut records = Vec::new();
    if !facts.is_empty() {
        let first = loaded.last_fact.plus(1);
        let facts = facts.into();
        records.push(LogRecord::Facts { pid, first, facts });
        records.push(wait.record(pid));
    }
    Ok((records, RecordedWait { wait, paused }))
}
