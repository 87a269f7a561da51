//! Raises of limits: a process that is paused at a limit goes on.

use dormouse_kernel::process::{HostRequest, Input};
use dormouse_proto::budget::{Budget, Paused};
use dormouse_proto::id::Pid;
use dormouse_proto::process::{Origin, ProcessRow};
use dormouse_proto::tool::Answer;
use tokio::sync::oneshot;

use super::kernel::Kernel;
use super::process::Process;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::supervisor::{ListFilter, RunMessage};

/// Why the supervisor did not record a raise itself.
pub(crate) enum RaiseNotRecorded {
    /// The process or its parent is loaded or hibernates: the raise is an input.
    Loaded,
    /// The limits cannot be raised, or the raise cannot be recorded.
    Failed(KernelError),
}

impl Process {
    /// Raises limits of the process by these amounts. A process that is paused at a limit goes on
    /// once no limit is reached any more, and so do the processes below it. Returns the limit that
    /// the process is still paused at.
    ///
    /// The limits of a child are a share of its parent's budget, and are raised from what the parent
    /// has left. The raise is durable when this returns. A process that is not loaded is loaded and
    /// runs.
    ///
    /// # Errors
    /// [`ProcessError::NotRaised`] if the process has no limit of an amount, or its parent has too
    /// little left; [`ProcessError::Ended`], [`ProcessError::Busy`].
    pub async fn raise(&self, by: Budget) -> Result<Option<Paused>, KernelError> {
        let row = self.kernel.row(self.pid()).await?;
        // A child is raised only if it still has the limits that the new share was computed from.
        let expected = match child_slot(&row) {
            None => None,
            Some((parent, call, index)) => {
                let limits = *self.kernel.inspect(self.pid()).await?.budget.limits();
                let parent = self.kernel.process(parent).await?;
                let request = HostRequest::RaiseShare {
                    call,
                    index,
                    limits: limits.raised_by(&by),
                };
                let answer = parent
                    .request_answer(|request_id| Input::Host {
                        request_id,
                        request,
                    })
                    .await?;
                self.check_raised(&answer)?;
                Some(limits)
            }
        };
        let request = HostRequest::Raise { by, expected };
        let answer = self
            .request_answer(|request_id| Input::Host {
                request_id,
                request,
            })
            .await?;
        self.check_raised(&answer)?;
        Ok(self.view().and_then(|view| view.paused))
    }

    fn check_raised(&self, answer: &Answer) -> Result<(), KernelError> {
        match answer.is_error {
            true => Err(ProcessError::NotRaised {
                pid: self.pid(),
                reason: answer.text.to_string(),
            }
            .into()),
            false => Ok(()),
        }
    }
}

impl Kernel {
    /// Raises limits of a process, as [`Process::raise`] does. A process that was not loaded since
    /// the kernel was opened stays so, and goes on when it is resumed.
    ///
    /// # Errors
    /// As [`Process::raise`], and [`StoreFailure`](crate::StoreFailure) if a journal cannot be read
    /// or written.
    pub async fn record_raise(&self, pid: Pid, by: Budget) -> Result<Option<Paused>, KernelError> {
        let (reply, recorded) = oneshot::channel();
        self.cast(RunMessage::RecordRaise { pid, by, reply })?;
        match recorded.await.map_err(|_| KernelError::Closed)? {
            Ok(paused) => Ok(paused),
            Err(RaiseNotRecorded::Loaded) => self.process(pid).await?.raise(by).await,
            Err(RaiseNotRecorded::Failed(error)) => Err(error),
        }
    }

    /// The row of one process.
    async fn row(&self, pid: Pid) -> Result<ProcessRow, KernelError> {
        let before = pid.0.checked_sub(1).map(Pid);
        let rows = self.list(ListFilter::After(before, 1)).await?;
        let mut rows = rows.into_iter().map(|info| info.row);
        let row = rows.find(|row| row.pid == pid);
        row.ok_or_else(|| NotFound::Process(pid).into())
    }
}

/// The parent of a process, the call that created the process, and its index within the call.
fn child_slot(row: &ProcessRow) -> Option<(Pid, dormouse_proto::id::CallId, u32)> {
    match row.origin {
        Origin::Forked { call, index } => Some((row.parent?, call, index)),
        Origin::Spawned { call } => Some((row.parent?, call, 0)),
        Origin::Started | Origin::Copied { .. } => None,
    }
}
