//! Past states of a process tree. A consistent cut is the state of all processes of the tree after
//! one commit. This module finds the cut of a checkpoint or of a fact number, loads the processes
//! and temporary files at a cut, and lists the checkpoints that a process can return to.
//!
//! All functions read the store and block. Every position between two commits is a consistent state
//! of the kernel, messages in flight included, because each effect waits for the facts before it.
//! Loading a cut is therefore the same as recovery after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_content::Content;
use dormouse_kernel::process::{
    CheckpointImage, CheckpointInfo, Image, image_of_branch, with_effects_of, with_speculation,
};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::{CheckpointId, CommitNumber, FactNumber, Pid};
use dormouse_proto::process::{BranchOrigin, ImportSource, ProcessRow};
use dormouse_proto::record::{ContentRef, codec};
use dormouse_proto::temp_file::TempFileRecord;

use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::handle::BranchSettings;
use crate::in_use::HistoryGuard;
use crate::ports::{CommittedFacts, Store, StoreError};
use crate::recovery::{self, LoadError, LoadPurpose};
use crate::supervisor::{Lineage, ProcessTree, RestoredProcess};

/// A past state of the store, restricted to one tree.
#[derive(Clone, Debug)]
pub(crate) struct ConsistentCut {
    /// The last commit that belongs to the cut.
    pub(crate) commit: CommitNumber,
    /// The time of that commit: milliseconds since the epoch, UTC.
    pub(crate) at_ms: u64,
    /// The last fact of each process that existed.
    pub(crate) members: BTreeMap<Pid, FactNumber>,
}

impl ConsistentCut {
    /// The cut of a checkpoint.
    pub(crate) fn at_checkpoint(checkpoint: &Checkpoint) -> Self {
        let members = checkpoint
            .members
            .iter()
            .map(|member| (member.pid, member.at))
            .collect();
        Self {
            commit: checkpoint.commit,
            at_ms: checkpoint.at_ms,
            members,
        }
    }

    /// The cut after the commit that holds fact `at` of process `pid`. Costs a read for each commit
    /// of each process of the tree.
    ///
    /// # Errors
    /// As [`History::commit_of`](crate::ports::History::commit_of); [`StoreError::DeletedFact`]
    /// also if the retained history of another process of the tree begins later;
    /// [`StoreError::Damaged`] if the state of a process at the cut is lost.
    pub(crate) fn after_fact(
        store: &dyn Store,
        pid: Pid,
        at: FactNumber,
        process_tree: &ProcessTree,
    ) -> Result<Self, StoreError> {
        let CommittedFacts { commit, at_ms, .. } = store.history(pid)?.commit_of(at)?;
        let mut members = BTreeMap::new();
        for row in &process_tree.rows {
            let history = match store.history(row.pid) {
                // The birth is not durable yet, so the process did not exist at the cut.
                Err(StoreError::UnknownProcess(_)) => continue,
                history => history?,
            };
            // If the beginning of a history was deleted, neither the state at the cut nor the
            // existence of the process is known.
            let first_retained = history
                .commits
                .first()
                .filter(|facts| facts.first > FactNumber(0) && facts.commit > commit);
            if let Some(retained) = first_retained {
                let requested = FactNumber(retained.first.0 - 1);
                return Err(StoreError::DeletedFact {
                    pid: row.pid,
                    requested,
                    first_kept: retained.first,
                });
            }
            members.extend(history.last_fact_by(commit)?.map(|last| (row.pid, last)));
        }
        Ok(Self {
            commit,
            at_ms,
            members,
        })
    }
}

/// Finds the checkpoint with this number.
///
/// # Errors
/// [`StoreError::UnknownCheckpoint`]; [`StoreError::Damaged`] if it may be among the lost
/// records; and other errors of the store.
pub(crate) fn find_checkpoint(
    store: &dyn Store,
    id: CheckpointId,
) -> Result<Checkpoint, StoreError> {
    let checkpoints = store.checkpoints()?;
    if let Ok(at) = checkpoints.binary_search_by_key(&id, |checkpoint| checkpoint.id) {
        return Ok(checkpoints[at].clone());
    }
    let listing = store.processes()?;
    let lost: Vec<_> = listing.all_losses().collect();
    if lost.is_empty() {
        return Err(StoreError::UnknownCheckpoint(id));
    }
    let what = format!(
        "checkpoint {id} is not known, and may be among what is lost: {}",
        lost.join("; ")
    );
    Err(StoreError::Damaged { what })
}

/// The checkpoints that a process can return to: its own, and those of the processes that it was
/// copied or restored from.
///
/// # Errors
/// The errors of the store.
pub(crate) fn restorable_checkpoints(
    store: &dyn Store,
    lineage: &Lineage,
) -> Result<Vec<CheckpointInfo>, StoreError> {
    Ok(store
        .checkpoints()?
        .iter()
        .filter_map(|checkpoint| Some(locate_checkpoint(checkpoint, lineage)?.1))
        .collect())
}

/// The state of a process at a checkpoint; `None` if it cannot return to that checkpoint. The guard
/// keeps the contents of that state until a record of the process refers to them.
///
/// # Errors
/// The errors of the journal; [`StoreError::Damaged`] if the checkpoint may be among the lost
/// records.
pub(crate) fn state_at_checkpoint(
    store: &dyn Store,
    context: &KernelContext,
    id: CheckpointId,
    lineage: &Lineage,
) -> Result<Option<(CheckpointImage, HistoryGuard)>, LoadError> {
    let history = context
        .in_use
        .guard_histories(lineage.iter().map(|(pid, _)| *pid));
    let checkpoint = match find_checkpoint(store, id) {
        Err(StoreError::UnknownCheckpoint(_)) => return Ok(None),
        found => found?,
    };
    let Some((pid, checkpoint)) = locate_checkpoint(&checkpoint, lineage) else {
        return Ok(None);
    };
    let image = recovery::load_process(store, context, pid, Some(checkpoint.at), LoadPurpose::Run)?
        .state
        .image();
    Ok(Some((CheckpointImage { checkpoint, image }, history)))
}

/// The process of the lineage whose journal holds the checkpoint, and the checkpoint with its
/// position in that journal.
fn locate_checkpoint(checkpoint: &Checkpoint, lineage: &Lineage) -> Option<(Pid, CheckpointInfo)> {
    let (pid, at) = lineage.iter().find_map(|(pid, up_to)| {
        let at = checkpoint.position_of(*pid)?;
        up_to.is_none_or(|up_to| at <= up_to).then_some((*pid, at))
    })?;
    let Checkpoint {
        id, label, scope, ..
    } = checkpoint;
    Some((
        pid,
        CheckpointInfo {
            id: *id,
            label: Arc::clone(label),
            at,
            scope: *scope,
        },
    ))
}

/// The processes of the tree that existed at the cut, in their states there.
///
/// # Errors
/// The errors of a journal.
pub(crate) fn processes_at(
    store: &dyn Store,
    context: &KernelContext,
    rows: Vec<ProcessRow>,
    cut: &ConsistentCut,
    settings: BranchSettings,
) -> Result<Vec<RestoredProcess>, LoadError> {
    let mut processes = Vec::new();
    for row in rows {
        let Some(at) = cut.members.get(&row.pid).copied() else {
            continue;
        };
        let state =
            recovery::load_process(store, context, row.pid, Some(at), LoadPurpose::Run)?.state;
        let image = with_effects_since(store, context, row.pid, state.image(), settings.effects);
        let image = image_of_branch(image, now_ms(), settings.start_mode);
        let image = Box::new(with_speculation(image, settings.speculation));
        // A branch of an imported tree keeps the ids of the tree's source store.
        let import = row.branched_from.and_then(|origin| origin.import);
        let import = import.map(|import| ImportSource {
            export: None,
            ..import
        });
        let branched_from = BranchOrigin {
            pid: row.pid,
            fact: at,
            local_id: row.local_id(),
            import,
        };
        let row = ProcessRow { name: None, ..row };
        let program = state.program().clone();
        processes.push(RestoredProcess {
            row,
            branched_from,
            program,
            image,
        });
    }
    Ok(processes)
}

/// An image of the past of a process, with the effects that the process had since: the fence then
/// recognizes calls that repeat them. If the present state cannot be read, the image records that
/// unknown effects follow it.
pub(crate) fn with_effects_since(
    store: &dyn Store,
    context: &KernelContext,
    pid: Pid,
    image: Image,
    effects: Option<EffectPolicy>,
) -> Image {
    let present = recovery::load_process(store, context, pid, None, LoadPurpose::Inspect);
    let present = present.as_ref().ok().map(|loaded| loaded.state.effects());
    with_effects_of(image, present, effects)
}

/// The changes of the temporary files of a tree up to the cut. The contents of the files are not
/// read.
///
/// # Errors
/// The errors of the store; [`StoreError::Damaged`] for a change that does not decode.
pub(crate) fn temp_files_at(
    store: &dyn Store,
    context: &KernelContext,
    root: Pid,
    cut: &ConsistentCut,
) -> Result<Vec<TempFileRecord<Content>>, StoreError> {
    let changes = store.temp_files_up_to(root, cut.commit)?.into_iter();
    let with_contents = |record: TempFileRecord<ContentRef>| {
        record
            .try_map(&mut |reference| Ok::<_, StoreError>(context.content_cache.content(reference)))
    };
    let decode_error = |error: codec::CodecError| StoreError::Damaged {
        what: format!("a change of the temporary files of process {root} does not decode: {error}"),
    };
    changes
        .map(|change| with_contents(codec::decode(&change.record).map_err(decode_error)?))
        .collect()
}
