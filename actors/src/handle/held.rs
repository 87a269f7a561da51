//! Held calls: lists what waits for a person, and records what the person decides.

use dormouse_kernel::process::{self, HostRequest, Input, State, Verdict};
use dormouse_proto::budget::Paused;
use dormouse_proto::id::{Pid, ProcessCallId};
use serde_json::Value;
use tokio::sync::oneshot;

use super::kernel::Kernel;
use crate::checkpoint::LogRecord;
use crate::context::KernelContext;
use crate::error::{KernelError, ProcessError};
use crate::held_call::HeldCall;
use crate::ports::{Store, StoreError};
use crate::recovery::{self, LoadError, LoadPurpose};
use crate::server_questions::ServerQuestion;
use crate::supervisor::{
    DecideAtRest, LookupMessage, MAX_EXAMINED, NotRecorded, RecordRequest, RunMessage,
};

/// What waits for a person.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PendingCalls {
    /// The held calls, sorted by process, and within a process in the order of its model.
    pub calls: Vec<HeldCall>,
    /// The questions of tool servers whose calls wait for the answer, in the order in which they
    /// came. Only in a kernel that was built with
    /// [`server_questions`](super::KernelBuilder::server_questions).
    pub server_questions: Vec<ServerQuestion>,
    /// The processes whose journals could not be read, and why. Calls of theirs may be held.
    pub unreadable: Vec<(Pid, String)>,
}

impl Kernel {
    /// All calls that wait for a person, also those of processes that hibernate or were not loaded
    /// since the kernel was opened; no process is woken. Costs a pass over the process table, and
    /// reads the journal of each process with held calls that is not in memory.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub async fn pending(&self) -> Result<PendingCalls, KernelError> {
        let mut pending = PendingCalls::default();
        if let Some(client) = &self.context.server_questions {
            pending.server_questions = client.0.list();
        }
        let mut unloaded = Vec::new();
        let mut after = None;
        loop {
            let (reply, page) = oneshot::channel();
            self.cast(LookupMessage::ListHeld { after, reply })?;
            let page = page.await.map_err(|_| KernelError::Closed)?;
            pending.calls.extend(page.calls);
            unloaded.extend(page.unloaded);
            after = page.last;
            if page.examined < MAX_EXAMINED {
                break;
            }
        }
        if !unloaded.is_empty() {
            self.wait_for_queued_writes().await;
            let read = self
                .context
                .query_store(move |store, context| Ok(read_pending(store, context, &unloaded)))
                .await?;
            pending.calls.extend(read.calls);
            pending.unreadable = read.unreadable;
            pending.calls.sort_by_key(|call| call.id);
        }
        Ok(pending)
    }

    /// Approves a held call: it runs as its model made it. The approval is durable when this
    /// returns, and is used once. A process that is not loaded is loaded and runs.
    ///
    /// # Errors
    /// [`ProcessError::NotAnswered`] if no such call is held,
    /// [`NotFound::Process`](crate::NotFound::Process), [`ProcessError::Ended`].
    pub async fn approve(&self, call: ProcessCallId) -> Result<(), KernelError> {
        self.answer_held(call, Verdict::Approve { args: None })
            .await
    }

    /// Approves a held call with other arguments (a JSON object, as text). The model is told with
    /// which arguments the call ran.
    ///
    /// # Errors
    /// As [`approve`](Self::approve), and [`ProcessError::NotAnswered`] for invalid arguments.
    pub async fn approve_with(
        &self,
        call: ProcessCallId,
        args: impl Into<String>,
    ) -> Result<(), KernelError> {
        let args = Some(args.into());
        self.answer_held(call, Verdict::Approve { args }).await
    }

    /// Answers a held call that repeats an effect ([`HoldReason::Repeats`]) with the answer that was
    /// recorded for the effect. The call does not run.
    ///
    /// # Errors
    /// As [`approve`](Self::approve); [`ProcessError::NotAnswered`] for a call that repeats no
    /// effect which is known.
    ///
    /// [`HoldReason::Repeats`]: dormouse_proto::record::HoldReason::Repeats
    pub async fn recall(&self, call: ProcessCallId) -> Result<(), KernelError> {
        self.answer_held(call, Verdict::Recall).await
    }

    /// Refuses a held call: it does not run, and the model reads why.
    ///
    /// # Errors
    /// As [`approve`](Self::approve).
    pub async fn refuse(
        &self,
        call: ProcessCallId,
        why: impl Into<String>,
    ) -> Result<(), KernelError> {
        self.answer_held(call, Verdict::Refuse { why: why.into() })
            .await
    }

    /// Answers a question of a model (`ask_user`).
    ///
    /// # Errors
    /// As [`approve`](Self::approve); [`ProcessError::NotAnswered`] if the value is none of the
    /// choices, or does not match the schema of the question, which the text then says.
    pub async fn answer(&self, call: ProcessCallId, value: Value) -> Result<(), KernelError> {
        self.answer_held(call, Verdict::Answer { value }).await
    }

    /// Records a verdict. A process that was not loaded since the kernel was opened stays so, and
    /// the verdict takes effect when it is resumed; any other process goes on at once.
    ///
    /// # Errors
    /// As [`approve`](Self::approve) and [`answer`](Self::answer), and
    /// [`StoreFailure`](crate::StoreFailure) if a journal cannot be read or written.
    pub async fn record_verdict(
        &self,
        call: ProcessCallId,
        verdict: Verdict,
    ) -> Result<(), KernelError> {
        let recorded = verdict.clone();
        let decide = move |state: &State, now_ms| {
            process::record_verdict(state, call.call, recorded, now_ms).map_err(|error| {
                ProcessError::NotAnswered {
                    call,
                    reason: error.to_string(),
                }
            })
        };
        let with = Some(LogRecord::VerdictGiven);
        match self.record_at_rest(call.pid, Box::new(decide), with).await {
            Ok(_) => Ok(()),
            Err(NotRecorded::Loaded) => self.answer_held(call, verdict).await,
            Err(NotRecorded::Failed(error)) => Err(error),
        }
    }

    /// Records a decision in the journal of a process that is held, which stays held. Returns the
    /// limit that it is paused at.
    ///
    /// # Errors
    /// [`NotRecorded::Loaded`] for any other process: the decision is an input for it.
    pub(super) async fn record_at_rest(
        &self,
        pid: Pid,
        decide: DecideAtRest,
        with: Option<LogRecord>,
    ) -> Result<Option<Paused>, NotRecorded> {
        let (reply, recorded) = oneshot::channel();
        let request = RecordRequest {
            pid,
            decide,
            with,
            reply,
        };
        self.cast(RunMessage::Record(Box::new(request)))
            .map_err(NotRecorded::Failed)?;
        recorded
            .await
            .unwrap_or(Err(NotRecorded::Failed(KernelError::Closed)))
    }

    async fn answer_held(&self, call: ProcessCallId, verdict: Verdict) -> Result<(), KernelError> {
        let process = self.process(call.pid).await?;
        let answer = process
            .request_answer(|request_id| Input::Host {
                request_id,
                request: HostRequest::AnswerHeld {
                    call: call.call,
                    verdict,
                },
            })
            .await?;
        match answer.is_error {
            true => Err(ProcessError::NotAnswered {
                call,
                reason: answer.text.to_string(),
            }
            .into()),
            false => Ok(()),
        }
    }
}

/// Reads which calls these processes hold. A process whose birth is not durable yet, or that was
/// deleted, holds none.
fn read_pending(store: &dyn Store, context: &KernelContext, pids: &[Pid]) -> PendingCalls {
    let mut pending = PendingCalls::default();
    for pid in pids {
        match recovery::load_process(store, context, *pid, None, LoadPurpose::Inspect) {
            Ok(loaded) => {
                let held = HeldCall::all(*pid, loaded.state.phase());
                pending.calls.extend(held);
            }
            Err(LoadError::Store(StoreError::UnknownProcess(_))) => {}
            Err(error) => pending.unreadable.push((*pid, error.to_string())),
        }
    }
    pending
}
