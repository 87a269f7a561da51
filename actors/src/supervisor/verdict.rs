//! Records verdicts on held calls of processes that are not loaded, without running them.
//!
//! A verdict is what a person decides about a held call. Meanwhile the process counts as being
//! loaded, so that nothing else writes its journal: inputs and callers wait, and load it
//! afterwards.

use dormouse_kernel::process::{self, Verdict};
use dormouse_proto::id::{Pid, ProcessCallId};
use dormouse_proto::process::Waiting;
use tokio::sync::oneshot;

use super::entry::RunState;
use super::{RunMessage, Supervisor};
use crate::checkpoint::LogRecord;
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::handle::NotRecorded;
use crate::recovery::{self, LoadError, LoadPurpose};

/// Receives the result of recording a verdict.
pub(crate) type VerdictReply = oneshot::Sender<Result<(), NotRecorded>>;

impl Supervisor {
    pub(super) fn record_verdict(
        &mut self,
        call: ProcessCallId,
        verdict: Verdict,
        reply: VerdictReply,
    ) {
        let pid = call.pid;
        let refusal = match self.table.run_state(pid) {
            Some(RunState::Held) => None,
            Some(RunState::Ended) => Some(NotRecorded::Failed(ProcessError::Ended(pid).into())),
            Some(_) => Some(NotRecorded::Loaded(verdict.clone())),
            None => Some(NotRecorded::Failed(
                self.or_lost_record(NotFound::Process(pid).into()),
            )),
        };
        if let Some(refusal) = refusal {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(Err(refusal));
            return;
        }
        self.table.set_run_state(pid, RunState::Loading);
        let context = self.context.clone();
        let myself = self.myself.clone();
        let finish = move |result: Result<Waiting, KernelError>| {
            // First the supervisor, so that the caller sees the process as held again. If it has
            // stopped, the kernel is shutting down.
            let waiting = result.as_ref().ok().copied();
            let _ = myself.cast(RunMessage::VerdictRecorded { pid, waiting }.into());
            let _ = reply.send(result.map(drop).map_err(NotRecorded::Failed));
        };
        let record = move |_durable| {
            tokio::task::spawn_blocking(move || match verdict_records(&context, call, verdict) {
                Err(error) => finish(Err(error)),
                Ok((records, waiting)) => context.append_records(
                    records,
                    Box::new(move |result| {
                        finish(result.map(|_| waiting).map_err(KernelError::from))
                    }),
                ),
            });
        };
        // Records of the process that wait, such as its birth, are written first.
        self.context.append_records(Vec::new(), Box::new(record));
    }

    /// The process is not loaded again. Inputs and callers that came meanwhile load it. `waiting` is
    /// what it waits for now, if the verdict was recorded.
    pub(super) fn on_verdict_recorded(&mut self, pid: Pid, waiting: Option<Waiting>) {
        if self.table.run_state(pid) != Some(RunState::Loading) {
            return;
        }
        if let Some(waiting) = waiting {
            self.table.set_waiting(pid, waiting);
        }
        self.table.set_run_state(pid, RunState::Held);
        if self.table.has_pending_input(pid) || self.table.has_run_waiters(pid) {
            self.load(pid);
        }
    }
}

/// The records of a verdict, from the journal of the process, and what the process waits for then.
fn verdict_records(
    context: &KernelContext,
    call: ProcessCallId,
    verdict: Verdict,
) -> Result<(Vec<LogRecord>, Waiting), KernelError> {
    let store = context.store_handle().ok_or(LoadError::NoStore)?;
    let pid = call.pid;
    let loaded = recovery::load_process(&*store, context, pid, None, LoadPurpose::Inspect)?;
    let (facts, waiting) = process::record_verdict(&loaded.state, call.call, verdict, now_ms())
        .map_err(|error| ProcessError::NotAnswered {
            call,
            reason: error.to_string(),
        })?;
    let facts = LogRecord::Facts {
        pid,
        first: loaded.last_fact.plus(1),
        facts: facts.into(),
    };
    let records = vec![
        facts,
        LogRecord::Waiting {
            pid,
            waiting,
            is_paused: loaded.state.paused().is_some(),
        },
        LogRecord::VerdictGiven,
    ];
    Ok((records, waiting))
}
