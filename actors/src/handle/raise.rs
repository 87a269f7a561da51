//! Raises of limits: a process that is paused at a limit goes on.
//!
//! A raise changes limits, and loads nothing that is held: neither the process nor its parent. Each
//! of the two decides by itself: in its journal where it is held, and otherwise as an input. So
//! what goes on after a raise is what is loaded or hibernates, and the rest does when it is
//! resumed. A root that has ended and reached a limit is opened again by a raise, and held.

use dormouse_kernel::process::{self, HostRequest, Input, State};
use dormouse_proto::budget::{Budget, Paused};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::process::{Exit, ProcessRow};
use tokio::sync::oneshot;

use super::kernel::Kernel;
use super::process::Process;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::supervisor::{
    DecideAtRest, ListFilter, NotRecorded, RaiseOfEnded, RunMessage, child_slot,
};

impl Process {
    /// Raises limits of the process by these amounts. A process that is paused at a limit goes on
    /// once no limit is reached any more, and so do the processes below it. Returns the limit that
    /// the process is still paused at.
    ///
    /// The limits of a child are a share of its parent's budget, and are raised from what the
    /// parent has left. The raise is durable when this returns. A raise loads nothing that is held:
    /// such a process stays held, and goes on when it is [resumed](Kernel::resume).
    ///
    /// A root that has ended and reached a limit is opened again: its next turn begins with the
    /// message that the limit was raised, once it is resumed. An ended child got its share back to
    /// its parent: a message opens it with a new one.
    ///
    /// # Errors
    /// [`ProcessError::NotRaised`] if the process has no limit of an amount, its parent has too
    /// little left, or it has ended and is not opened by a raise; [`ProcessError::Busy`], and
    /// [`StoreFailure`](crate::StoreFailure) if a journal cannot be read or written.
    pub async fn raise(&self, by: Budget) -> Result<Option<Paused>, KernelError> {
        let row = self.kernel.row(self.pid()).await?;
        if let Some(exit) = &row.exit {
            self.raise_ended(&row, exit, by).await?;
            return Ok(None);
        }
        let Some((parent, slot)) = row.parent.zip(child_slot(&row.origin)) else {
            return self.raise_limits(by, None).await;
        };
        loop {
            let limits = self.limits().await?;
            process::check_raise(row.local_id(), &limits, &by)
                .map_err(|error| not_raised(self.pid(), &error))?;
            self.raise_share(parent, slot, limits.raised_by(&by))
                .await?;
            match self.raise_limits(by, Some(limits)).await {
                // Another raise came in between: the share has to be larger by both.
                Err(KernelError::Process(ProcessError::NotRaised { .. }))
                    if self.limits().await? != limits => {}
                raised => return raised,
            }
        }
    }

    /// Opens the process again with raised limits, if it is a root that has reached a limit.
    async fn raise_ended(
        &self,
        row: &ProcessRow,
        exit: &Exit,
        by: Budget,
    ) -> Result<(), KernelError> {
        let pid = self.pid();
        if let Some(reason) = why_not_opened_by_raise(row, exit) {
            return Err(ProcessError::NotRaised { pid, reason }.into());
        }
        let (reply, raised) = oneshot::channel();
        let request = RaiseOfEnded { pid, by, reply };
        self.kernel.cast(RunMessage::RaiseEnded(request))?;
        raised.await.unwrap_or(Err(KernelError::Closed))
    }

    async fn limits(&self) -> Result<Budget, KernelError> {
        Ok(*self.present_state().await?.budget().limits())
    }

    /// Reserves a larger share of the parent's budget for this process, so that it may have these
    /// limits.
    async fn raise_share(
        &self,
        parent: Pid,
        (call, index): (CallId, u32),
        limits: Budget,
    ) -> Result<(), KernelError> {
        let pid = self.pid();
        let decide = move |state: &State, now_ms| {
            process::record_share(state, (call, index), &limits, now_ms)
                .map_err(|error| not_raised(pid, &error))
        };
        let request = HostRequest::RaiseShare {
            call,
            index,
            limits,
        };
        let parent = self.kernel.process(parent).await?;
        self.raise_in(&parent, Box::new(decide), request)
            .await
            .map(drop)
    }

    /// Raises the limits of this process, which have to be as `expected`.
    async fn raise_limits(
        &self,
        by: Budget,
        expected: Option<Budget>,
    ) -> Result<Option<Paused>, KernelError> {
        let pid = self.pid();
        let decide = move |state: &State, now_ms| {
            process::record_raise(state, &by, expected.as_ref(), now_ms)
                .map_err(|error| not_raised(pid, &error))
        };
        let request = HostRequest::Raise { by, expected };
        self.raise_in(self, Box::new(decide), request).await
    }

    /// Records a part of the raise of this process in the journal of `process`, if that is held, or
    /// else sends it as an input. Returns the limit that `process` is paused at.
    async fn raise_in(
        &self,
        process: &Self,
        decide: DecideAtRest,
        request: HostRequest,
    ) -> Result<Option<Paused>, KernelError> {
        let recorded = self.kernel.record_at_rest(process.pid(), decide, None);
        match recorded.await {
            Ok(paused) => return Ok(paused),
            Err(NotRecorded::Failed(error)) => return Err(error),
            Err(NotRecorded::Loaded) => {}
        }
        let input = |request_id| Input::Host {
            request_id,
            request,
        };
        let answer = process.request_answer(input).await?;
        match answer.is_error {
            true => Err(ProcessError::NotRaised {
                pid: self.pid(),
                reason: answer.text.to_string(),
            }
            .into()),
            false => Ok(process.view().and_then(|view| view.paused)),
        }
    }
}

impl Kernel {
    /// The row of one process.
    async fn row(&self, pid: Pid) -> Result<ProcessRow, KernelError> {
        let before = pid.0.checked_sub(1).map(Pid);
        let rows = self.list(ListFilter::After(before, 1)).await?;
        let mut rows = rows.into_iter().map(|info| info.row);
        let row = rows.find(|row| row.pid == pid);
        row.ok_or_else(|| NotFound::Process(pid).into())
    }
}

/// Why a raise does not open a process that has ended, and what to do; `None` if it does.
fn why_not_opened_by_raise(row: &ProcessRow, exit: &Exit) -> Option<String> {
    let status = exit.status.word();
    match (exit.status, row.parent) {
        // Whether it has reached a limit is known from its journal.
        (status, None) if status.can_be_reopened() => None,
        (status, Some(parent)) if status.can_be_reopened() => Some(format!(
            "it has ended, and what was left of its share is its parent's again. Send it a message: \
             that opens it with a new share, of what process {parent} has left"
        )),
        _ => Some(format!(
            "it has ended as {status}. To continue from an earlier state, branch from a fact or a \
             checkpoint"
        )),
    }
}

fn not_raised(pid: Pid, error: &process::RaiseError) -> ProcessError {
    ProcessError::NotRaised {
        pid,
        reason: error.to_string(),
    }
}
