//! How a tree moves to another shard, under new pids.
//!
//! The node that has the shard of the tree does it, when it finds the move in the table:
//!
//! 1. It begins an attempt, and brings the shard to rest, as for a drain. From here on no process
//!    of the shard runs, and calls for them wait.
//! 2. It exports the tree from a kernel that holds all processes.
//! 3. The other shard makes a copy, held, labelled with the attempt.
//! 4. One statement commits the attempt, if this node still has the shard. **The tree has moved**:
//!    the table says where each process went.
//! 5. The shard is opened again. Before anything runs in it, the processes of the old tree are
//!    ended.
//! 6. The copy runs, and the move is done.
//!
//! If the node dies before 4, the next owner of the shard opens it with the old tree in it, and
//! begins another attempt. If it dies after 4, the next owner begins with 5. A copy whose attempt
//! was not committed never runs. So at each moment one of both trees is the one that goes on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse::id::Pid;
use dormouse::{Kernel, KernelError, Recovery};
use dormouse_postgres::{Claim, ShardId};

use crate::call::{Blob, Call, CallError, Reply};
use crate::copies::{self, ImportCall, MAX_EXPORT_BYTES};
use crate::database::on_database;
use crate::held::ShardState;
use crate::move_tables::{MoveState, TreeMove};
use crate::node::{Node, Phase};
use crate::shards::Shard;

/// How often a node looks for moves.
const EVERY: Duration = Duration::from_millis(500);

/// How long a tree is left where it is after an attempt that failed: each brings a shard to rest.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long the other shard may take to be reached, before the shard of the tree is opened again.
const TARGET_LIMIT: Duration = Duration::from_secs(20);

/// How long processes may take to end that only have to record it.
const END_LIMIT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(100);

/// Why an attempt did not move a tree.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    /// No attempt can.
    #[error("{0}")]
    Never(String),
    /// Another one may.
    #[error("{0}")]
    Later(String),
}

impl From<KernelError> for AttemptError {
    fn from(error: KernelError) -> Self {
        Self::Later(error.to_string())
    }
}

impl From<dormouse::ports::StoreError> for AttemptError {
    fn from(error: dormouse::ports::StoreError) -> Self {
        Self::Later(error.to_string())
    }
}

impl Node {
    /// Moves trees of the shards of this node, one at a time, until it leaves.
    pub(crate) async fn move_trees(self: Arc<Self>) {
        let mut failed: HashMap<String, Instant> = HashMap::new();
        while self.phase() == Phase::Running {
            tokio::time::sleep(EVERY).await;
            failed.retain(|_, at| at.elapsed() < RETRY_AFTER);
            let held = self.caller.held.all();
            let open = held.iter().filter(|(_, it)| it.state == ShardState::Open);
            let open: Vec<ShardId> = open.map(|(shard, _)| *shard).collect();
            let tables = self.caller.tables.clone();
            let moves = match on_database(move || tables.unfinished_moves(&open)).await {
                Ok(moves) => moves,
                Err(error) => {
                    tracing::warn!(%error, "moves were not read");
                    continue;
                }
            };
            for (from, tree_move) in moves {
                let id = tree_move.id.clone();
                if failed.contains_key(&id) {
                    continue;
                }
                let result = match tree_move.state {
                    MoveState::Wanted => self.move_tree(from, tree_move).await,
                    MoveState::Moved => self.finish_move(&tree_move).await,
                    MoveState::Done | MoveState::Refused => Ok(()),
                };
                match result {
                    Ok(()) => {}
                    Err(AttemptError::Later(why)) => {
                        tracing::warn!(%id, %why, "a tree has not moved yet");
                        failed.insert(id, Instant::now());
                    }
                    Err(AttemptError::Never(why)) => {
                        tracing::warn!(%id, %why, "a tree does not move");
                        let tables = self.caller.tables.clone();
                        let refusing = on_database(move || tables.refuse_move(&id, &why)).await;
                        if let Err(error) = refusing {
                            tracing::warn!(%error, "a move was not refused");
                        }
                    }
                }
            }
        }
    }

    /// Makes an attempt, and releases the shard: it is opened again at once.
    async fn move_tree(&self, from: ShardId, tree_move: TreeMove) -> Result<(), AttemptError> {
        // The shard is brought to rest only for a target that is there.
        if self.caller.held.get(tree_move.to).is_none() {
            let address = self.caller.address(tree_move.to).await;
            address.map_err(|error| AttemptError::Later(error.to_string()))?;
        }
        let held = self.caller.held.get(from);
        let open = held.and_then(|held| Some((held.kernel?, held.claim?)));
        let Some((kernel, claim)) = open else {
            return Ok(());
        };
        check_root(&kernel, tree_move.root).await?;
        let (tables, id, source) = (
            self.caller.tables.clone(),
            tree_move.id.clone(),
            claim.clone(),
        );
        let attempt = on_database(move || tables.begin_attempt(&id, Some(&source))).await?;
        let (Some(attempt), Some(held)) = (attempt, self.caller.held.begin_closing(from)) else {
            return Ok(());
        };
        tracing::info!(id = %tree_move.id, attempt, step = "begun", "a tree moves");
        let drained = kernel.clone().drain(self.options.drain_deadline).await;
        self.caller.held.take_kernel(from, &held);
        self.close_slices(&claim, Some(&kernel)).await;
        let moved = match drained {
            Ok(_) => self.carry(&claim, &tree_move, attempt).await,
            Err(error) => Err(error.into()),
        };
        self.let_go(claim, &held).await;
        moved
    }

    /// Copies the tree, whose shard is at rest, and commits the attempt.
    async fn carry(
        &self,
        claim: &Claim,
        tree_move: &TreeMove,
        attempt: u64,
    ) -> Result<(), AttemptError> {
        let kernel = self.build_held(claim).await?;
        let exported = async {
            let row = copies::row_of(&kernel, tree_move.root).await?;
            Ok::<_, KernelError>((row, copies::export_tree(&kernel, tree_move.root).await?))
        };
        let exported = exported.await;
        kernel.shutdown().await?;
        let (row, export) = exported?;
        if export.len() > MAX_EXPORT_BYTES {
            return Err(AttemptError::Never(format!(
                "the export of the tree has {} bytes, and at most {MAX_EXPORT_BYTES} can move: end \
                 processes of it that are no longer needed",
                export.len()
            )));
        }
        tracing::info!(id = %tree_move.id, step = "exported", "a tree moves");
        let call = ImportCall {
            move_id: tree_move.id.clone(),
            attempt,
            labels: copies::labels_to_keep(&row),
            is_from_shard: true,
            export: Blob(export),
        };
        let pids = self.import_at(tree_move.to, call).await?;
        tracing::info!(id = %tree_move.id, step = "copied", "a tree moves");
        self.commit(claim, tree_move, attempt, pids).await
    }

    /// Has a shard make the copy. A call that may have been done is not made again: that is for the
    /// next attempt.
    async fn import_at(
        &self,
        to: ShardId,
        call: ImportCall,
    ) -> Result<Vec<(Pid, Pid)>, AttemptError> {
        let begun = tokio::time::Instant::now();
        loop {
            let call = Call::Import(Box::new(call.clone()));
            match self.caller.attempt(to, call).await {
                Ok(Reply::Imported(pids)) => return Ok(pids),
                Err(CallError::NotOwner(_)) if begun.elapsed() < TARGET_LIMIT => {
                    self.caller.forget_route(to);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(CallError::Refused { message, .. }) => {
                    return Err(AttemptError::Never(message));
                }
                Err(error) => return Err(AttemptError::Later(error.to_string())),
                Ok(other) => return Err(AttemptError::Later(format!("{to} answered {other:?}"))),
            }
        }
    }

    /// Commits the attempt. While it is not known whether that was done, the shard stays at rest,
    /// for as long as this node has it.
    async fn commit(
        &self,
        claim: &Claim,
        tree_move: &TreeMove,
        attempt: u64,
        pids: Vec<(Pid, Pid)>,
    ) -> Result<(), AttemptError> {
        loop {
            let (tables, id) = (self.caller.tables.clone(), tree_move.id.clone());
            let (source, pids) = (claim.clone(), pids.clone());
            let commit = move || tables.commit_move(&id, attempt, Some(&source), &pids);
            match on_database(commit).await {
                Ok(true) => {
                    tracing::info!(id = %tree_move.id, step = "moved", "a tree moves");
                    return Ok(());
                }
                Ok(false) => {
                    let why = "another node has the shard of the tree by now";
                    return Err(AttemptError::Later(why.to_owned()));
                }
                Err(error) if !claim.is_surely_held() => return Err(error.into()),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Runs the copy, whose old tree has been ended when its shard was opened.
    async fn finish_move(&self, tree_move: &TreeMove) -> Result<(), AttemptError> {
        tracing::info!(id = %tree_move.id, step = "opened", "a tree moves");
        let pids = tree_move.pids.iter().map(|(_, new)| *new).collect();
        let resumed = self.caller.call(tree_move.to, Call::ResumeCopy { pids });
        let resumed = resumed.await;
        resumed.map_err(|error| AttemptError::Later(error.to_string()))?;
        tracing::info!(id = %tree_move.id, step = "resumed", "a tree moves");
        let (tables, id) = (self.caller.tables.clone(), tree_move.id.clone());
        Ok(on_database(move || tables.finish_move(&id)).await?)
    }

    /// Ends the trees that have moved from a shard, before anything runs in it.
    pub(crate) async fn end_moved(&self, claim: &Claim) -> Result<(), KernelError> {
        let (tables, shard) = (self.caller.tables.clone(), claim.shard());
        let moves = on_database(move || tables.unfinished_moves(&[shard])).await?;
        let moves = moves.into_iter().map(|(_, tree_move)| tree_move);
        let moved = moves.filter(|it| it.state == MoveState::Moved);
        let moved: Vec<TreeMove> = moved.collect();
        if moved.is_empty() {
            return Ok(());
        }
        let kernel = self.build_held(claim).await?;
        let ended = async {
            for tree_move in &moved {
                end_tree(&kernel, tree_move).await?;
            }
            Ok(())
        };
        let ended = ended.await;
        kernel.shutdown().await?;
        ended
    }

    /// A kernel of a shard in which no process runs.
    async fn build_held(&self, claim: &Claim) -> Result<Kernel, KernelError> {
        let (tables, id) = (self.caller.tables.clone(), claim.shard());
        let mut needs = on_database(move || tables.needs()).await?;
        let needs = needs.remove(&id).unwrap_or_default();
        self.build_kernel(claim, Shard { id, needs }, Recovery::Hold)
            .await
    }
}

/// Ends all processes of a tree that has moved. They do nothing before.
async fn end_tree(kernel: &Kernel, tree_move: &TreeMove) -> Result<(), KernelError> {
    let living = async || {
        let mut living = Vec::new();
        for (old, _) in &tree_move.pids {
            if copies::lives(kernel, *old).await? {
                living.push(*old);
            }
        }
        Ok::<_, KernelError>(living)
    };
    for pid in living().await? {
        // Its parent may have ended it by now.
        if let Err(error) = kernel.process(pid).await?.kill().await {
            tracing::debug!(%pid, %error, "a process that has moved is not killed");
        }
    }
    let begun = tokio::time::Instant::now();
    while !living().await?.is_empty() {
        if begun.elapsed() > END_LIMIT {
            return Err(dormouse::ProcessError::Unanswered(tree_move.root).into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Checks that a process is one that can move.
async fn check_root(kernel: &Kernel, pid: Pid) -> Result<(), AttemptError> {
    let row = copies::row_of(kernel, pid).await;
    let row = row.map_err(|error| match error {
        KernelError::NotFound(_) => AttemptError::Never(error.to_string()),
        error => error.into(),
    })?;
    match row.parent {
        None => Ok(()),
        Some(parent) => Err(AttemptError::Never(format!(
            "process {pid} is a child of process {parent}, and only whole trees move: move the root"
        ))),
    }
}
