//! Records verdicts on held calls of processes that are not loaded, without running them.
//!
//! The process counts as being loaded meanwhile, so that nothing else writes its journal: inputs and
//! callers wait, and load it afterwards.

use dormouse_kernel::process::{self, Verdict};
use dormouse_proto::id::{Pid, ProcessCallId};
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
        let finish = move |result: Result<(), KernelError>| {
            // First the supervisor, so that the caller sees the process as held again. If it has
            // stopped, the kernel is shutting down.
            let _ = myself.cast(RunMessage::VerdictRecorded { pid }.into());
            let _ = reply.send(result.map_err(NotRecorded::Failed));
        };
        let record = move |_durable| {
            tokio::task::spawn_blocking(move || match verdict_record(&context, call, verdict) {
                Err(error) => finish(Err(error)),
                Ok(record) => context.append_records(
                    vec![record],
                    Box::new(move |result| finish(result.map(drop).map_err(KernelError::from))),
                ),
            });
        };
        // Records of the process that wait, such as its birth, are written first.
        self.context.append_records(Vec::new(), Box::new(record));
    }

    /// The process is not loaded again. Inputs and callers that came meanwhile load it.
    pub(super) fn on_verdict_recorded(&mut self, pid: Pid) {
        if self.table.run_state(pid) != Some(RunState::Loading) {
            return;
        }
        self.table.set_run_state(pid, RunState::Held);
        if self.table.has_pending_input(pid) || self.table.has_run_waiters(pid) {
            self.load(pid);
        }
    }
}

/// The facts that record a verdict, from the journal of the process.
fn verdict_record(
    context: &KernelContext,
    call: ProcessCallId,
    verdict: Verdict,
) -> Result<LogRecord, KernelError> {
    let store = context.store_handle().ok_or(LoadError::NoStore)?;
    let pid = call.pid;
    let loaded = recovery::load_process(&*store, context, pid, None, LoadPurpose::Inspect)?;
    let facts =
        process::record_verdict(&loaded.state, call.call, verdict, now_ms()).map_err(|error| {
            ProcessError::NotAnswered {
                call,
                reason: error.to_string(),
            }
        })?;
    Ok(LogRecord::Facts {
        pid,
        first: loaded.last_fact.plus(1),
        facts: facts.into(),
    })
}
