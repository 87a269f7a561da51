//! One branch of a race: it begins, comes to rest, is judged, and is chosen or ended.

use std::sync::Arc;
use std::time::Duration;

use dormouse_kernel::process::Signal;
use dormouse_kernel::race::JudgedBranch;
use dormouse_proto::budget::Paused;
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::model::Usage;
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{Fact, Phase, TurnFact};
use dormouse_proto::user_input::UserInput;
use serde_json::Value;
use tokio::sync::oneshot;

use super::judge::json_of;
use crate::error::{KernelError, ProcessError};
use crate::event::ProcessView;
use crate::handle::kernel::Kernel;
use crate::handle::process::Process;
use crate::held_call::HeldCall;
use crate::recovery::decode_fact;
use crate::supervisor::TreeMessage;

/// How many facts are read at once in search of the end of a turn. It is among the last ones, unless
/// a summary or the host followed it.
const FACTS_AT_ONCE: u64 = 16;

/// A branch that has come to rest, as its judge sees it: its turn has ended, or it stands at calls
/// that wait.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The process.
    pub pid: Pid,
    /// The number of the branch within its level, from 1.
    pub branch: u32,
    /// The level of a beam search, from 1.
    pub level: u32,
    /// How its turn ended; `None` if it stands at `calls`.
    pub end: Option<Exit>,
    /// The text of the last reply of its model, or its result.
    pub message: Arc<str>,
    /// The calls that wait: those that act outside of it, which are made if the branch is chosen, and
    /// those that a person has to answer.
    pub calls: Vec<HeldCall>,
    /// What the process itself has used, including what was used before the point.
    pub usage: Usage,
}

impl Candidate {
    /// The candidate as JSON, as commands and programs that judge read it: `pid`, `branch`, `level`,
    /// `status` (`"at_write"`, or the status of the turn), `message`, `result` (the value that it
    /// submitted, or null), `calls` (each with `tool` and `args`), and `usage`.
    #[must_use]
    pub fn json(&self) -> Value {
        let calls = self.calls.iter().map(|call| {
            let args = json_of(&call.args).unwrap_or_else(|| (&*call.args).into());
            (&*call.tool, args)
        });
        let judged = JudgedBranch {
            pid: self.pid,
            branch: self.branch,
            level: self.level,
            end: self.end.as_ref(),
            message: &self.message,
            calls: calls.collect(),
            usage: self.usage,
        };
        judged.json()
    }

    /// The texts that a schema judges: the arguments of the calls at which the candidate stands, or
    /// its result, or its message.
    pub(super) fn judged_texts(&self) -> Vec<&str> {
        match self.calls.is_empty() {
            true => vec![&*self.message],
            false => self.calls.iter().map(|call| &*call.args).collect(),
        }
    }

    /// Whether another turn can follow: the candidate stands at no call.
    pub(super) fn can_continue(&self) -> bool {
        self.calls.is_empty()
    }
}

/// A branch in a race.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) process: Process,
    root: Pid,
    pub(super) branch: u32,
    pub(super) level: u32,
}

/// Why a branch did not become a candidate.
#[derive(Debug)]
pub(super) enum NoCandidate {
    /// Its turn failed.
    Ended(Exit),
    Overdue(Duration),
    /// It is paused at a limit, or a process above it is.
    Paused(Option<Paused>),
    Kernel(KernelError),
}

impl From<KernelError> for NoCandidate {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl Contender {
    /// `process` was created stopped. The race sets the number and the level of the branch later.
    pub(super) async fn new(process: Process) -> Result<Self, KernelError> {
        let root = process.kernel.process_tree(process.pid()).await?.root;
        Ok(Self {
            process,
            root,
            branch: 1,
            level: 1,
        })
    }

    fn kernel(&self) -> &Kernel {
        &self.process.kernel
    }

    /// Gives the branch its input, lets its tree run, and waits until it has come to rest.
    pub(super) async fn run(
        &self,
        input: Option<UserInput>,
        deadline: Option<Duration>,
    ) -> Result<Candidate, NoCandidate> {
        // A process that had ended at the point is opened again by its input.
        let earlier_end = self.process.exit().filter(|_| input.is_some());
        let earlier_end = earlier_end.map(|exit| exit.reopenings);
        if let Some(input) = input {
            self.process.input(input).await?;
        }
        let root = self.kernel().process(self.root).await?;
        match root.tree().cont().await {
            Err(KernelError::Process(ProcessError::Ended(_))) => {}
            continued => continued?,
        }
        match deadline {
            None => self.rest(earlier_end).await?,
            Some(deadline) => tokio::time::timeout(deadline, self.rest(earlier_end))
                .await
                .map_err(|_| NoCandidate::Overdue(deadline))??,
        }
        self.candidate().await
    }

    /// Waits until the branch has come to rest, or has ended.
    async fn rest(&self, earlier_end: Option<u32>) -> Result<(), KernelError> {
        let rests = self
            .process
            .wait_for(|view| has_come_to_rest(view, earlier_end));
        tokio::select! {
            // First, since an ended process has a view too.
            biased;
            rests = rests => rests.map(drop),
            ended = self.process.wait(), if earlier_end.is_none() => ended.map(drop),
        }
    }

    async fn candidate(&self) -> Result<Candidate, NoCandidate> {
        let pid = self.process.pid();
        let state = self.process.present_state().await?;
        if state.paused().is_some() || state.is_suspended() {
            return Err(NoCandidate::Paused(state.paused().cloned()));
        }
        let end = match state.phase() {
            Phase::Ended { exit } => Some(exit.clone()),
            Phase::Idle => Some(match state.submitted_result() {
                Some(value) => Exit::with_result(value.clone()),
                None => self.end_of_turn(state.last_reply()).await?,
            }),
            Phase::Thinking { .. } | Phase::Acting { .. } | Phase::Ready { .. } => None,
        };
        if let Some(end) = end.as_ref().filter(|end| end.status != ExitStatus::Done) {
            return Err(NoCandidate::Ended(end.clone()));
        }
        let message = end.as_ref().map(|end| end.message.clone());
        Ok(Candidate {
            pid,
            branch: self.branch,
            level: self.level,
            message: message.unwrap_or_else(|| state.last_reply()),
            end,
            calls: HeldCall::all(pid, state.phase()),
            usage: state.usage(),
        })
    }

    /// How the last turn of an idle process ended, from its journal, which is read backwards.
    async fn end_of_turn(&self, last_reply: Arc<str>) -> Result<Exit, KernelError> {
        let pid = self.process.pid();
        self.kernel().wait_for_queued_writes().await;
        let read = self.kernel().context.query_store(move |store, _| {
            let history = store.history(pid)?;
            let commits = &history.commits;
            let oldest = commits.first().map_or(1, |commit| commit.first.0.max(1));
            let mut last = commits.last().map_or(0, |commit| commit.last().0);
            while last >= oldest {
                let first = last.saturating_sub(FACTS_AT_ONCE - 1).max(oldest);
                let facts = store.facts(pid, FactNumber(first), FactNumber(last))?;
                for fact in facts.iter().rev() {
                    match decode_fact(pid, fact)? {
                        Fact::Turn(TurnFact::Ended { status, reason }) => {
                            return Ok(Some((status, reason)));
                        }
                        // The turn was given up: what is before it is of an earlier turn.
                        Fact::Turn(TurnFact::Began) => return Ok(None),
                        _ => {}
                    }
                }
                last = first - 1;
            }
            Ok(None)
        });
        let (status, reason) = read.await?.unwrap_or((ExitStatus::Done, None));
        Ok(Exit::new(status, reason.unwrap_or(last_reply)))
    }

    /// The calls at which the branch stands now.
    pub(super) fn calls(&self) -> Vec<HeldCall> {
        let view = self.process.view();
        view.map_or_else(Vec::new, |view| {
            HeldCall::all(self.process.pid(), &view.phase)
        })
    }

    /// Ends the branch with its tree. One that has ended stays so.
    pub(super) async fn kill(&self) -> Result<(), KernelError> {
        let (durable_reply, killed) = oneshot::channel();
        let message = kill_message(self.root, durable_reply);
        self.kernel().cast(message)?;
        match killed.await {
            Ok(Ok(())) | Err(_) => Ok(()),
            Ok(Err(KernelError::Process(ProcessError::Ended(_)))) => Ok(()),
            Ok(Err(error)) => Err(error),
        }
    }

    /// Ends the branch when the value is dropped.
    pub(super) fn guard(&self) -> KillGuard {
        KillGuard::new(self.kernel(), self.root)
    }
}

/// Whether nothing happens in the process before somebody decides. `earlier_end` is set if the
/// process had ended at the point of the race, and its input opens it again: how often it had been
/// opened again by then. That end does not count.
fn has_come_to_rest(view: &ProcessView, earlier_end: Option<u32>) -> bool {
    match &view.phase {
        Phase::Ended { exit } => earlier_end != Some(exit.reopenings),
        _ if view.paused.is_some() || view.suspended => true,
        _ if view.stopped => false,
        Phase::Idle => view.is_idle(),
        _ => view.rests && view.phase.asks(),
    }
}

fn kill_message(root: Pid, durable_reply: oneshot::Sender<Result<(), KernelError>>) -> TreeMessage {
    TreeMessage::SignalTree {
        root,
        signal: Signal::Kill,
        durable_reply,
    }
}

/// Ends a tree when it is dropped, unless it was released: nobody waits for what it was made for.
#[derive(Debug)]
pub(super) struct KillGuard {
    kernel: Kernel,
    root: Option<Pid>,
}

impl KillGuard {
    pub(super) fn new(kernel: &Kernel, root: Pid) -> Self {
        Self {
            kernel: kernel.clone(),
            root: Some(root),
        }
    }

    /// The tree is left as it is.
    pub(super) fn release(&mut self) {
        self.root = None;
    }
}

impl Drop for KillGuard {
    fn drop(&mut self) {
        if let Some(root) = self.root {
            let (durable_reply, _) = oneshot::channel();
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = self.kernel.cast(kill_message(root, durable_reply));
        }
    }
}
