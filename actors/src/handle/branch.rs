//! Branches: new processes that continue from a past state of others. The original processes are not
//! affected.
//!
//! A branch is made of a *cut*, the states of all processes of a tree after one commit.
//! `consistent_cut.rs` finds a cut and loads its processes, and the supervisor creates the new ones
//! in one commit (`supervisor/branch.rs`).

use std::future::IntoFuture;

use dormouse_kernel::budget::Account;
use dormouse_kernel::process::{
    Image, StartMode, image_of_copy, with_speculation, with_start_mode,
};
use dormouse_kernel::program::Program;
use dormouse_proto::budget::Budget;
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::record::Speculation;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::kernel::Kernel;
use super::process::Process;
use super::temporary_checkpoint::TemporaryCheckpoint;
use crate::clock::now_ms;
use crate::consistent_cut::{self, ConsistentCut};
use crate::context::KernelContext;
use crate::error::{KernelError, NotFound};
use crate::in_use::CheckpointGuard;
use crate::ports::{History, Store, StoreError};
use crate::recovery::{self, LoadError, LoadPurpose, Loaded};
use crate::supervisor::{
    BirthMessage, BranchReply, BranchRequest, BranchResult, Launch, LookupMessage, NewRoot,
    ProcessTree,
};

/// A position in the journal of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The present, including everything that is queued for the store.
    Now,
    /// After the commit that holds this fact. That commit may also hold other facts of the process,
    /// and facts of other processes.
    Fact(FactNumber),
    /// A checkpoint that the process is a member of.
    Checkpoint(CheckpointId),
}

impl From<FactNumber> for Position {
    fn from(fact: FactNumber) -> Self {
        Self::Fact(fact)
    }
}

impl From<CheckpointId> for Position {
    fn from(checkpoint: CheckpointId) -> Self {
        Self::Checkpoint(checkpoint)
    }
}

/// A branch to be created: `.await` creates it.
#[derive(Debug)]
#[must_use = "a branch is made when this is awaited"]
pub struct Branch {
    kernel: Kernel,
    source: BranchSource,
    settings: BranchSettings,
}

/// How the processes of a branch begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BranchSettings {
    pub(crate) start_mode: StartMode,
    /// What happens to calls that repeat an effect beyond the point.
    pub(crate) effects: Option<EffectPolicy>,
    pub(crate) speculation: Speculation,
    /// What the requested process may use from the point on, in addition to what it has used.
    pub(crate) budget: Option<Budget>,
}

impl BranchSettings {
    /// The processes run, and nothing but their programs limits them.
    pub(crate) const RUNNING: Self = Self {
        start_mode: StartMode::Running,
        effects: None,
        speculation: Speculation::None,
        budget: None,
    };
}

#[derive(Debug)]
enum BranchSource {
    Branch(Pid, Position),
    Restore(CheckpointId),
    Copy(Pid, Option<FactNumber>),
}

impl Branch {
    /// Creates the processes stopped: the host can send them other input, or return them to an
    /// earlier position, before it continues them ([`Tree::cont`](super::Tree::cont)).
    pub fn stopped(mut self) -> Self {
        self.settings.start_mode = StartMode::Stopped;
        self
    }

    /// Names what happens to calls that repeat what the original processes did beyond the position.
    /// It takes the place of the policies of programs and tools. Branches that are made in order to
    /// compare what follows name one: [`Recorded`](EffectPolicy::Recorded) does nothing twice. If
    /// none is named, the policies of the programs hold.
    pub fn effects(mut self, policy: EffectPolicy) -> Self {
        self.settings.effects = Some(policy);
        self
    }

    /// Makes the branch speculative: a call of one of its models that acts outside of its process is
    /// held ([`HoldReason::Speculation`]) before it begins, and nobody can approve it alone. The
    /// process stands at its write, where the call can be looked at. [`Process::choose`] ends the
    /// speculation; [`Tree::kill`](super::Tree::kill) gives the branch up. A branch or a copy of a
    /// speculative process is speculative too. [`Kernel::race`] makes several such branches and
    /// chooses one.
    ///
    /// Temporary files belong to the branch, so calls that change them are not held. A root that is
    /// done does not end, but waits to be chosen. Calls of the host itself are not held.
    ///
    /// [`HoldReason::Speculation`]: dormouse_proto::record::HoldReason::Speculation
    pub fn speculative(mut self) -> Self {
        self.settings.speculation = Speculation::Branch;
        self
    }

    /// Limits what the process and its descendants may use from the position on. Limits that they
    /// have already stay.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.settings.budget = Some(budget);
        self
    }

    async fn create(self) -> Result<Process, KernelError> {
        let Self {
            kernel,
            source,
            settings,
        } = self;
        let mut guard = None;
        let (pid, cut) = match source {
            BranchSource::Restore(id) => {
                let checkpoint = kernel.checkpoint(id).await?;
                (checkpoint.pid, BranchCut::Checkpoint(checkpoint))
            }
            BranchSource::Copy(pid, at) => {
                let at = match at {
                    Some(fact) => Some(kernel.end_of_commit(pid, fact).await?),
                    None => None,
                };
                return kernel.copy_at(pid, at, settings).await;
            }
            BranchSource::Branch(pid, Position::Checkpoint(id)) => {
                (pid, BranchCut::Checkpoint(kernel.checkpoint(id).await?))
            }
            BranchSource::Branch(pid, Position::Fact(fact)) => (pid, BranchCut::AfterFact(fact)),
            BranchSource::Branch(pid, Position::Now) => {
                let ProcessTree { root, .. } = kernel.process_tree(pid).await?;
                let (checkpoint, new_guard) = kernel
                    .make_checkpoint(root, Scope::Tree, "branch".into())
                    .await?;
                guard = Some(new_guard);
                (pid, BranchCut::Checkpoint(checkpoint))
            }
        };
        match cut {
            BranchCut::Checkpoint(Checkpoint {
                scope: Scope::Process,
                id,
                pid: checkpoint_pid,
                ref members,
                ..
            }) => {
                let at = members
                    .first()
                    .filter(|_| checkpoint_pid == pid)
                    .map(|member| member.at);
                let at = at.ok_or(NotFound::InCheckpoint {
                    pid,
                    checkpoint: id,
                })?;
                kernel.copy_at(pid, Some(at), settings).await
            }
            cut => kernel.branch_tree(pid, cut, guard, settings).await,
        }
    }
}

/// The cut of a branch.
enum BranchCut {
    Checkpoint(Checkpoint),
    /// The state after the commit that holds this fact.
    AfterFact(FactNumber),
}

impl IntoFuture for Branch {
    type Output = Result<Process, KernelError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.create())
    }
}

impl Kernel {
    /// Begins to create new processes from a past state of a process and of its whole tree,
    /// consistently: with new pids, the messages in flight between them, and the temporary files of
    /// the tree. The original processes are not affected. A process that was created later is not
    /// included; one that had ended has ended in the branch too. The result is the branch of `pid`.
    /// For a checkpoint, the branch has the members of that checkpoint.
    ///
    /// Each process resumes as after a restart: a pending model call is made again; a tool call in
    /// flight is answered as interrupted, unless it may be repeated; a message in flight is sent
    /// again and received once. If a requested call had not begun, as in a stopped process, both
    /// the original and the branch make it. Within the branch, processes keep the ids of the
    /// originals, which appear in their conversations. Processes outside of the branch see the
    /// original and its branch as two processes: both send a message that is in flight to such a
    /// process. Usage up to the cut counts in the branch too, and the branch has the wall time that
    /// remained at the cut. A name that the host assigned stays with the original.
    ///
    /// A call that repeats what an original did beyond the position is decided by a policy
    /// ([`Branch::effects`]).
    ///
    /// All processes are created in one commit, and no content is copied. A branch costs its
    /// process states, and for a fact number a read for each commit of the processes of the tree.
    /// The processes run, unless the branch is created [`stopped`](Branch::stopped).
    ///
    /// # Errors
    /// When awaited: [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`NotFound::Process`](crate::NotFound::Process),
    /// [`StoreFailure::Store`](crate::StoreFailure::Store) for an unknown fact or checkpoint,
    /// [`NotFound::InCheckpoint`](crate::NotFound::InCheckpoint),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load),
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable).
    pub fn branch(&self, pid: Pid, at: impl Into<Position>) -> Branch {
        Branch {
            kernel: self.clone(),
            source: BranchSource::Branch(pid, at.into()),
            settings: BranchSettings::RUNNING,
        }
    }

    /// Like [`branch`](Self::branch), for all members of a checkpoint. A checkpoint of one process
    /// gives a copy of that process alone, as [`copy`](Self::copy) does.
    ///
    /// # Errors
    /// As [`branch`](Self::branch).
    pub fn restore(&self, checkpoint: CheckpointId) -> Branch {
        Branch {
            kernel: self.clone(),
            source: BranchSource::Restore(checkpoint),
            settings: BranchSettings::RUNNING,
        }
    }

    /// Begins to create a new process from any position of the journal of another, alone: its state after
    /// the commit that holds fact `at` (`None`: its last fact), as for a [branch](Position::Fact).
    /// A call in flight is answered as interrupted, unless it may be repeated. The copy runs the
    /// program that the original was created with, even if the original was stopped; if the
    /// original had ended, the copy waits for input. The copy has no children and no temporary
    /// files; [`branch`](Self::branch) keeps them. For a fact number, it costs a read for each
    /// commit of the process.
    ///
    /// # Errors
    /// When awaited: [`StoreFailure::NoStore`](crate::StoreFailure::NoStore),
    /// [`StoreFailure::Load`](crate::StoreFailure::Load) for an unknown process or fact, or a
    /// damaged journal.
    pub fn copy(&self, from: Pid, at: Option<FactNumber>) -> Branch {
        Branch {
            kernel: self.clone(),
            source: BranchSource::Copy(from, at),
            settings: BranchSettings::RUNNING,
        }
    }

    /// The last fact of a process in the commit that holds `fact`.
    async fn end_of_commit(&self, pid: Pid, fact: FactNumber) -> Result<FactNumber, KernelError> {
        let last_fact = move |history: History| {
            Ok(history
                .last_fact_by(history.commit_of(fact)?.commit)?
                .unwrap_or(fact))
        };
        let query = move |store: &dyn Store, _: &KernelContext| match store
            .history(pid)
            .and_then(last_fact)
        {
            Ok(last) => Ok(last),
            // A truncated history begins at a snapshot, and no snapshot is taken in the middle
            // of the facts of a commit.
            Err(StoreError::DeletedFact {
                requested,
                first_kept,
                ..
            }) if requested.plus(1) == first_kept => Ok(requested),
            Err(error) => Err(LoadError::from(error).into()),
        };
        self.context.query_store(query).await
    }

    async fn copy_at(
        &self,
        from: Pid,
        at: Option<FactNumber>,
        settings: BranchSettings,
    ) -> Result<Process, KernelError> {
        self.wait_for_queued_writes().await;
        let read = self.context.query_store(move |store, context| {
            let history = context.in_use.guard_histories([from]);
            let Loaded {
                state, last_fact, ..
            } = recovery::load_process(store, context, from, at, LoadPurpose::Run)?;
            let program = state.program().clone();
            // The state may be one of the past: what the original did since lies beyond it.
            let image = consistent_cut::with_effects_since(
                store,
                context,
                from,
                state.image(),
                settings.effects,
            );
            Ok((program, image, last_fact, history))
        });
        // The guard is held until the birth of the copy, which refers to its contents, is durable.
        let (program, image, at, _history) = read.await?;
        let image = with_start_mode(image_of_copy(image, now_ms()), settings.start_mode);
        let image = with_speculation(image, settings.speculation);
        let image = self.with_budget(&program, image, settings.budget)?;
        self.create(NewRoot::copied(program, image, from, at)).await
    }

    /// Creates the processes of a branch, and returns the branch of `pid`. Drops a checkpoint that
    /// was created only for this branch.
    async fn branch_tree(
        &self,
        pid: Pid,
        cut: BranchCut,
        guard: Option<CheckpointGuard>,
        settings: BranchSettings,
    ) -> Result<Process, KernelError> {
        let top_pid = match &cut {
            BranchCut::Checkpoint(checkpoint) => checkpoint.pid,
            BranchCut::AfterFact(_) => self.process_tree(pid).await?.root,
        };
        let temporary = TemporaryCheckpoint::new(self, guard);
        let process_tree = self.process_tree(top_pid).await?;
        let read = self.context.query_store(move |store, context| {
            let history = context.in_use.guard_histories(process_tree.pids());
            let cut = match &cut {
                BranchCut::Checkpoint(checkpoint) => {
                    let missing = KernelError::NotFound(NotFound::InCheckpoint {
                        pid,
                        checkpoint: checkpoint.id,
                    });
                    checkpoint.position_of(pid).ok_or(missing)?;
                    ConsistentCut::at_checkpoint(checkpoint)
                }
                BranchCut::AfterFact(fact) => {
                    ConsistentCut::after_fact(store, pid, *fact, &process_tree)?
                }
            };
            let ProcessTree { root, rows, .. } = process_tree;
            let temp_files = consistent_cut::temp_files_at(store, context, root, &cut)?;
            Ok((
                consistent_cut::processes_at(store, context, rows, &cut, settings)?,
                temp_files,
                history,
            ))
        });
        // The guard is held until the births, which refer to the contents of the cut, are durable.
        let (mut processes, temp_files, _history) = read.await?;
        let requested_index = processes
            .iter()
            .position(|process| process.row.pid == pid)
            .ok_or(NotFound::Process(pid))?;
        if let Some(requested) = processes.get_mut(requested_index) {
            let image = Image::clone(&requested.image);
            *requested.image = self.with_budget(&requested.program, image, settings.budget)?;
        }
        // The commit of the new processes drops the checkpoint, if it succeeds.
        let guard = temporary.into_guard();
        let drop_checkpoint = guard.as_ref().map(|guard| guard.id);
        let request = |reply| BranchRequest {
            processes,
            requested_index,
            temp_files,
            drop_checkpoint,
            launch: Launch::Run,
            reply,
        };
        match self.create_branch(request).await {
            Ok((process, _)) => Ok(process),
            Err(error) => {
                drop(TemporaryCheckpoint::new(self, guard));
                Err(error)
            }
        }
    }

    /// The image with what the process may use from now on.
    fn with_budget(
        &self,
        program: &Program,
        mut image: Image,
        budget: Option<Budget>,
    ) -> Result<Image, KernelError> {
        let Some(budget) = budget else {
            return Ok(image);
        };
        if budget.cost_nanos.is_some() {
            program.check_prices(&self.context.host_context.prices)?;
        }
        let account = Account::new(image.budget, image.usage);
        image.budget = account.with_further(&budget).ledger();
        Ok(image)
    }

    /// Creates processes. Returns the requested one, and the pids of all.
    pub(crate) async fn create_branch(
        &self,
        request: impl FnOnce(BranchReply) -> BranchRequest,
    ) -> Result<(Process, Vec<Pid>), KernelError> {
        let events = self.context.subscribe();
        let (reply, branch_result) = oneshot::channel();
        self.cast(BirthMessage::Branch(Box::new(request(reply))))?;
        let BranchResult { handle, pids } =
            branch_result.await.map_err(|_| KernelError::Closed)??;
        Ok((Process::new(self.clone(), handle, events), pids))
    }

    pub(super) async fn process_tree(&self, pid: Pid) -> Result<ProcessTree, KernelError> {
        let (reply, process_tree) = oneshot::channel();
        self.cast(LookupMessage::ListTree { pid, reply })?;
        process_tree.await.map_err(|_| KernelError::Closed)?
    }
}
