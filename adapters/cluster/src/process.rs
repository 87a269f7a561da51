//! A handle on a process that is valid wherever the process runs.

use std::sync::Arc;

use dormouse::checkpoint::{Checkpoint, Scope};
use dormouse::id::{CallId, Pid};
use dormouse::process::Exit;
use dormouse::user_input::UserInput;
use dormouse::{Budget, Paused, Verdict};
use futures_util::Stream;

use crate::call::{
    Call, ClusterFact, ClusterPosition, ClusterProcessInfo, ClusterProcessView, Reply, Signal,
    parts_of,
};
use crate::caller::Caller;
use crate::database::on_database;
use crate::error::ClusterError;
use crate::events::{ClusterEvent, events};
use crate::random;
use crate::shard::shard_of;

/// A process of a cluster. The handle is a number and a way to nodes: making one asks nobody, and
/// it stays valid when the process moves.
///
/// If the node that runs the process is gone, each method tries again until the process runs at
/// another one, at most as long as [`failover_limit`](crate::ClusterOptions::failover_limit).
#[derive(Clone)]
pub struct ClusterProcess {
    caller: Arc<Caller>,
    pid: Pid,
}

impl ClusterProcess {
    pub(crate) fn new(caller: Arc<Caller>, pid: Pid) -> Self {
        Self { caller, pid }
    }

    /// The pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends user input, once. It is durable when this returns.
    ///
    /// # Errors
    /// [`ClusterError::Refused`], [`ClusterError::NoOwner`]: nothing was sent.
    /// [`ClusterError::OutcomeUnknown`] if a node was lost in the middle and another input to the
    /// process came at about the same time, so that the journal does not show which arrived.
    pub async fn input(&self, input: impl Into<UserInput>) -> Result<(), ClusterError> {
        self.input_as(random::id()?, input).await
    }

    /// As [`input`](Self::input), with an id of the caller's own: of all inputs with one id one
    /// arrives, also after the program of the caller was started again, within an hour.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub async fn input_as(
        &self,
        request_id: impl Into<Arc<str>>,
        input: impl Into<UserInput>,
    ) -> Result<(), ClusterError> {
        let call = Call::Input {
            pid: self.pid,
            parts: parts_of(input.into()),
            request: request_id.into(),
        };
        self.call(call).await.map(drop)
    }

    /// Waits for the end of the process, whichever nodes it runs at until then.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if there is no such process, or it is held.
    pub async fn wait(&self) -> Result<Exit, ClusterError> {
        loop {
            if let Reply::Exit(Some(exit)) = self.call(Call::Wait { pid: self.pid }).await? {
                return Ok(exit);
            }
        }
    }

    /// The events of the process from now on, up to its end.
    pub fn events(&self) -> impl Stream<Item = ClusterEvent> + Send + use<> {
        events(self.caller.clone(), self.pid)
    }

    /// Sends a signal to the process, or to all processes of its subtree.
    ///
    /// # Errors
    /// [`ClusterError::Refused`], [`ClusterError::NoOwner`]; for [`Signal::Interrupt`] also
    /// [`ClusterError::OutcomeUnknown`], since a second one could end a later turn.
    pub async fn signal(&self, signal: Signal, scope: Scope) -> Result<(), ClusterError> {
        let pid = self.pid;
        self.call(Call::Signal { pid, signal, scope })
            .await
            .map(drop)
    }

    /// Ends the process and its children.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub async fn kill(&self) -> Result<(), ClusterError> {
        self.signal(Signal::Kill, Scope::Process).await
    }

    /// Ends the current turn.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub async fn interrupt(&self) -> Result<(), ClusterError> {
        self.signal(Signal::Interrupt, Scope::Process).await
    }

    /// Creates a checkpoint. Its id is one of the shard of the process.
    ///
    /// # Errors
    /// [`ClusterError::Refused`], [`ClusterError::NoOwner`]; [`ClusterError::OutcomeUnknown`] if a
    /// node was lost in the middle.
    pub async fn checkpoint(
        &self,
        label: impl Into<Arc<str>>,
        scope: Scope,
    ) -> Result<Checkpoint, ClusterError> {
        let call = Call::Checkpoint {
            pid: self.pid,
            label: label.into(),
            scope,
        };
        match self.call(call).await? {
            Reply::Checkpoint(checkpoint) => Ok(checkpoint),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a branch of the process and its tree, in the same shard, which runs at once or is
    /// stopped.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub async fn branch(&self, at: ClusterPosition, runs: Runs) -> Result<Self, ClusterError> {
        let call = Call::Branch {
            pid: self.pid,
            at,
            is_stopped: runs == Runs::Stopped,
        };
        match self.call(call).await? {
            Reply::Process(pid) => Ok(Self::new(self.caller.clone(), pid)),
            other => Err(unexpected(&other)),
        }
    }

    /// The row of the process table.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if there is no such process; [`ClusterError::NoOwner`].
    pub async fn info(&self) -> Result<ClusterProcessInfo, ClusterError> {
        match self.call(Call::Info { pid: self.pid }).await? {
            Reply::Info(info) => Ok(*info),
            other => Err(unexpected(&other)),
        }
    }

    /// The rows of the process and of all processes below it, the process first. Costs a pass over
    /// the process table of the shard.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if there is no such process; [`ClusterError::NoOwner`].
    pub async fn tree(&self) -> Result<Vec<ClusterProcessInfo>, ClusterError> {
        match self.call(Call::Tree { pid: self.pid }).await? {
            Reply::Processes(rows) => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    /// Raises limits of the process by amounts; one that is paused at a limit goes on. Returns the
    /// limit that it is still paused at.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if the limits cannot be raised, [`ClusterError::NoOwner`];
    /// [`ClusterError::OutcomeUnknown`] if a node was lost in the middle.
    pub async fn raise(&self, by: Budget) -> Result<Option<Paused>, ClusterError> {
        match self.call(Call::Raise { pid: self.pid, by }).await? {
            Reply::Raised(paused) => Ok(paused),
            other => Err(unexpected(&other)),
        }
    }

    /// Decides about a call of the process that waits for a person. The process goes on.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if no such call waits, or the verdict does not apply to it;
    /// [`ClusterError::NoOwner`]; [`ClusterError::OutcomeUnknown`] if a node was lost in the
    /// middle.
    pub async fn decide(&self, call: CallId, verdict: Verdict) -> Result<(), ClusterError> {
        let pid = self.pid;
        let call = Call::Verdict { pid, call, verdict };
        self.call(call).await.map(drop)
    }

    /// The state of the process after its last durable fact, in numbers. Costs reading its journal
    /// from the latest snapshot on.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if there is no such process; [`ClusterError::NoOwner`].
    pub async fn inspect(&self) -> Result<ClusterProcessView, ClusterError> {
        match self.call(Call::Inspect { pid: self.pid }).await? {
            Reply::View(view) => Ok(view),
            other => Err(unexpected(&other)),
        }
    }

    /// The retained facts of the process, beginning with its birth if that is retained. Costs its
    /// whole journal.
    ///
    /// # Errors
    /// [`ClusterError::Refused`] if there is no such process; [`ClusterError::NoOwner`].
    pub async fn log(&self) -> Result<Vec<ClusterFact>, ClusterError> {
        match self.call(Call::Log { pid: self.pid }).await? {
            Reply::Log(facts) => Ok(facts),
            other => Err(unexpected(&other)),
        }
    }

    /// The name of the node that has the lease of the shard of the process; `None` if no node has.
    /// One round trip to the database.
    ///
    /// # Errors
    /// [`ClusterError::Database`].
    pub async fn node(&self) -> Result<Option<String>, ClusterError> {
        let (tables, shard) = (self.caller.tables.clone(), shard_of(self.pid));
        Ok(on_database(move || tables.owner_name(shard)).await?)
    }

    async fn call(&self, call: Call) -> Result<Reply, ClusterError> {
        self.caller.call(shard_of(self.pid), call).await
    }
}

/// Whether the processes of a branch run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// They run.
    AtOnce,
    /// They are stopped.
    Stopped,
}

impl std::fmt::Debug for ClusterProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClusterProcess").field(&self.pid).finish()
    }
}

/// A node of another version has answered.
pub(crate) fn unexpected(reply: &Reply) -> ClusterError {
    ClusterError::Refused {
        kind: crate::Refusal::Other,
        message: format!("the node answered another call: {reply:?}"),
    }
}
