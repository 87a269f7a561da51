//! Garbage collection: deletes the data that the retention rules select, and frees the space of
//! deleted data and of contents that no record refers to.
//!
//! A collection has three steps:
//! 1. Read the records that were written since the last collection into an inventory: which record
//!    refers to which content.
//! 2. Apply the retention rules. Each deletion is a commit of its own, after which no reader sees
//!    the deleted data.
//! 3. Sweep: free the space of everything that the inventory does not refer to.
//!
//! Processes commit during a collection. Before the first step the collection begins a mark: until
//! the mark ends, the store pins every content that a commit refers to.
//!
//! The inventory stays in memory, so a collection reads only what changed since the last one. The
//! first collection after a start reads every retained journal.
//!
//! A collection runs on a blocking thread. Before each bounded part of its work it calls a function
//! that decides whether to continue. If the collection is stopped, deleted data stays deleted, no
//! more space is freed, and the next collection continues.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use dormouse_kernel::inventory::Inventory;
use dormouse_kernel::retention::{Retention, by_tree, without_ancestors};
use dormouse_proto::id::{ContentHash, Pid};
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::{ContentRef, Fact, Image};
use dormouse_proto::temp_file::TempFileRecord;

pub use crate::in_use::InUse;
use crate::ports::{
    Batch, Deletions, InventoryUpdate, KeptContents, MarkToken, OwnerToken, Store, StoreError,
    SweepLimits, SweepMode, SweepOutcome, SweepReport, SweepRequest, SweepStep, SyncLevel, WriteOp,
};

/// The parameters of a garbage collection.
pub struct CollectionRequest<'a> {
    /// The token of the current writer.
    pub owner: OwnerToken,
    /// The inventory of the last collection since the store was opened. An empty inventory costs a
    /// pass over all retained data.
    pub inventory: &'a mut Inventory,
    /// The rules that select the data to delete.
    pub retention: &'a Retention,
    /// What operations on the store use; it is kept.
    pub in_use: &'a InUse,
    /// Whether contents and processes are kept while a record that may need them cannot be read.
    pub unreadable: UnreadablePolicy,
    /// Whether anything is written.
    pub mode: SweepMode,
    /// The size of the work units.
    pub limits: SweepLimits,
    /// The time: milliseconds since the epoch, UTC.
    pub now_ms: u64,
    /// Called with the deleted processes as soon as the store has deleted them, even if a later
    /// step fails.
    pub on_deleted: &'a mut dyn FnMut(&BTreeSet<Pid>),
    /// Called before each stage. If it returns `Break`, the collection stops; the store stays
    /// consistent.
    pub watch: &'a mut dyn FnMut(CollectionStep) -> ControlFlow<()>,
}

/// A bounded part of a collection that is about to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionStep {
    /// Read some of the new records of the store.
    Read,
    /// A step of the sweep.
    Sweep(SweepStep),
}

/// Whether contents and processes are kept while a record that may need them cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnreadablePolicy {
    /// All contents are kept: an unreadable part may refer to any of them, and may be restored from
    /// a copy. If it may have been a checkpoint or a process, all processes and their histories are
    /// kept too.
    #[default]
    KeepAll,
    /// Only contents that a readable record refers to are kept.
    Discard,
}

/// The result of a collection, or of counting what a collection would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionReport {
    /// The checkpoints, processes and histories that the retention rules deleted.
    pub deletions: Deletions,
    /// The number of contents that a record refers to.
    pub live_contents: u64,
    /// The number of log records that were read.
    pub read: u64,
    /// Descriptions of the records that cannot be read. They may refer to any content.
    pub unreadable: Vec<String>,
    /// Whether some of them are damage that no repair of the store has acknowledged.
    pub is_damage_new: bool,
    /// The result of the sweep.
    pub swept: SweepReport,
}

/// Collects the garbage of a store, or only counts it. Blocks. Costs a read of the records since
/// the inventory was updated and of the records that are moved; for an empty inventory a pass over
/// the log. Only one collection at a time frees space: starting another makes this one fail.
///
/// # Errors
/// The errors of the store. Data that was deleted or freed before stays deleted or freed.
pub fn collect(
    store: &dyn Store,
    request: CollectionRequest<'_>,
) -> Result<CollectionReport, StoreError> {
    let CollectionRequest {
        owner,
        inventory,
        retention,
        in_use,
        unreadable,
        mode,
        limits,
        now_ms,
        on_deleted,
        watch,
    } = request;
    let mark = match mode {
        SweepMode::Free => MarkGuard {
            store,
            token: store.begin_mark(owner)?,
        },
        SweepMode::Count => MarkGuard {
            store,
            token: MarkToken::default(),
        },
    };
    let mut report = CollectionReport::default();
    let mut planner = DeletionPlanner {
        store,
        inventory,
        watch,
    };
    if planner.update_inventory(&mut report)? == SweepOutcome::Done {
        report.deletions = planner.select_deletions(retention, in_use, unreadable, now_ms)?;
        if mode == SweepMode::Free {
            let deletions = &mut report.deletions;
            commit_deletions((store, owner), in_use, now_ms, deletions, on_deleted)?;
            planner.update_inventory(&mut report)?;
        }
    }
    let DeletionPlanner {
        inventory, watch, ..
    } = planner;
    let not_yet_deleted = if mode == SweepMode::Free {
        Deletions::default()
    } else {
        report.deletions.clone()
    };
    let removals = inventory.removals(&not_yet_deleted);
    report.live_contents = inventory.live_contents(&removals);
    let listing = store.processes()?;
    let missing = listing.all_losses().map(str::to_owned).collect();
    report.unreadable = [missing, inventory.unreadable()].concat();
    let of_processes = inventory.unreadable_processes();
    report.is_damage_new =
        !listing.losses.is_empty() || of_processes.iter().any(|pid| !is_acknowledged(store, *pid));
    if report.swept.outcome == SweepOutcome::Done {
        let keeps_all = unreadable == UnreadablePolicy::KeepAll && !report.unreadable.is_empty();
        let contents = if keeps_all {
            KeptContents::All
        } else {
            KeptContents::Referenced
        };
        let watch = &mut |step| watch(CollectionStep::Sweep(step));
        let mark = mark.token;
        let deletions = &not_yet_deleted;
        report.swept = store.sweep(
            owner,
            SweepRequest {
                mark,
                inventory,
                contents,
                deletions,
                mode,
                limits,
                watch,
            },
        )?;
    }
    if !report.unreadable.is_empty() {
        // The missing records may be restored, so the next collection reads everything again.
        *inventory = Inventory::default();
    }
    Ok(report)
}

/// Whether the loss of records of a process was acknowledged by a repair: what cannot be read of it is
/// then answered as lost.
fn is_acknowledged(store: &dyn Store, pid: Pid) -> bool {
    let answers = [store.journal(pid, None).err(), store.temp_files(pid).err()];
    let is_lost = |error: &StoreError| matches!(error, StoreError::Lost { .. });
    answers.iter().flatten().any(is_lost)
}

/// Ends the mark when it is dropped, even if the collection fails.
struct MarkGuard<'a> {
    store: &'a dyn Store,
    token: MarkToken,
}

impl Drop for MarkGuard<'_> {
    fn drop(&mut self) {
        self.store.end_mark(self.token);
    }
}

/// Updates the inventory of a store, and selects the data to delete.
struct DeletionPlanner<'a, 'w> {
    store: &'a dyn Store,
    inventory: &'a mut Inventory,
    watch: &'w mut dyn FnMut(CollectionStep) -> ControlFlow<()>,
}

impl DeletionPlanner<'_, '_> {
    /// Updates the inventory to the present content of the store.
    fn update_inventory(
        &mut self,
        report: &mut CollectionReport,
    ) -> Result<SweepOutcome, StoreError> {
        let inventory = &mut *self.inventory;
        let watch = &mut || (self.watch)(CollectionStep::Read);
        let references = &mut |record: EncodedRecord<'_>| record.contents();
        let updated = self.store.update_inventory(InventoryUpdate {
            inventory,
            references,
            watch,
        });
        if updated.is_err() {
            *self.inventory = Inventory::default();
        }
        let updated = updated?;
        report.read += updated.records;
        report.swept.outcome = updated.outcome;
        Ok(updated.outcome)
    }

    /// Selects what the rules delete. If lost records, acknowledged or not, may include a
    /// checkpoint or a process, only checkpoints are deleted.
    fn select_deletions(
        &self,
        retention: &Retention,
        in_use: &InUse,
        unreadable: UnreadablePolicy,
        now_ms: u64,
    ) -> Result<Deletions, StoreError> {
        let listing = self.store.processes()?;
        let has_lost_records =
            unreadable == UnreadablePolicy::KeepAll && listing.all_losses().next().is_some();
        let checkpoint_rules = Retention {
            checkpoints: retention.checkpoints.clone(),
            ..Retention::default()
        };
        let retention = if has_lost_records {
            &checkpoint_rules
        } else {
            retention
        };
        let ended_ms = |pid| self.inventory.ended_ms(pid);
        let history_start = |pid, floor| self.inventory.history_start_for(pid, floor);
        let checkpoints = self.store.checkpoints()?;
        Ok(retention.deletions(
            &listing.rows,
            checkpoints,
            &in_use.checkpoints(),
            ended_ms,
            history_start,
            now_ms,
        ))
    }
}

/// Commits the deletions, one commit for each checkpoint, tree and history. Data that an operation
/// uses is kept, and so is data that is needed again, for which the store refuses the deletion.
fn commit_deletions(
    (store, owner): (&dyn Store, OwnerToken),
    in_use: &InUse,
    at_ms: u64,
    deletions: &mut Deletions,
    on_deleted: &mut dyn FnMut(&BTreeSet<Pid>),
) -> Result<(), StoreError> {
    let commit_deletion = |ops: &[WriteOp]| match store.commit(
        owner,
        Batch {
            ops,
            at_ms,
            sync_level: SyncLevel::Written,
        },
    ) {
        Ok(_) => Ok(true),
        Err(StoreError::Refused { .. } | StoreError::UnknownProcess(_)) => Ok(false),
        Err(StoreError::UnknownCheckpoint(_)) => Ok(true),
        Err(error) => Err(error),
    };
    let mut first_error = None;
    // Records the first error, and reports whether the deletion was committed.
    let mut is_committed = |outcome: Result<bool, StoreError>| {
        outcome.unwrap_or_else(|error| {
            first_error.get_or_insert(error);
            false
        })
    };
    // A process may have been created in the meantime as a copy or branch of a selected process.
    // The selected process and its checkpoints are then kept.
    let rows = store.processes()?.rows;
    let mut trees = by_tree(&rows, &deletions.processes);
    trees.retain(|tree| !in_use.has_history_of(tree));
    let deletable = without_ancestors(&rows, trees.into_iter().flatten().collect());
    let kept_processes: BTreeSet<Pid> = deletions
        .processes
        .difference(&deletable)
        .copied()
        .collect();
    let mut kept_checkpoints = store.checkpoints()?;
    kept_checkpoints.retain(|checkpoint| {
        checkpoint
            .members
            .iter()
            .any(|member| kept_processes.contains(&member.pid))
    });
    deletions.checkpoints.retain(|id| {
        kept_checkpoints
            .iter()
            .all(|checkpoint| checkpoint.id != *id)
    });
    deletions.processes = deletable;
    deletions
        .checkpoints
        .retain(|id| is_committed(commit_deletion(&[WriteOp::CheckpointDropped { id: *id }])));
    // A tree is deleted in one commit, so that a collection that stops early deletes no part of it.
    for tree in by_tree(&rows, &deletions.processes) {
        let ops: Vec<_> = tree
            .iter()
            .map(|pid| WriteOp::ProcessDeleted { pid: *pid })
            .collect();
        let outcome = in_use.delete_unless_used(&tree, || commit_deletion(&ops));
        if !is_committed(outcome.unwrap_or(Ok(false))) {
            deletions.processes.retain(|pid| !tree.contains(pid));
        }
    }
    deletions.histories.retain(|pid, below| {
        let op = WriteOp::HistoryTruncated {
            pid: *pid,
            below: *below,
        };
        let delete = || commit_deletion(&[op]);
        let outcome = in_use.delete_unless_used(&BTreeSet::from([*pid]), delete);
        is_committed(outcome.unwrap_or(Ok(false)))
    });
    on_deleted(&deletions.processes);
    if let Some(error) = first_error {
        return Err(error);
    }
    store.commit(owner, Batch::durable(&[], at_ms)).map(drop)
}

/// An encoded record that can refer to contents.
#[derive(Clone, Copy, Debug)]
pub enum EncodedRecord<'a> {
    /// An image of a process.
    Image(&'a [u8]),
    /// A fact.
    Fact(&'a [u8]),
    /// A change of temporary files.
    TempFile(&'a [u8]),
}

impl EncodedRecord<'_> {
    /// The hashes of the contents that the record refers to.
    ///
    /// # Errors
    /// The record does not decode.
    pub fn contents(self) -> Result<Vec<ContentHash>, CodecError> {
        let mut contents = Vec::new();
        let mut collect = |reference: ContentRef| {
            contents.push(reference.hash);
            Ok::<_, Infallible>(reference)
        };
        match self {
            Self::Image(bytes) => {
                let _ = codec::decode::<Image<ContentRef>>(bytes)?.try_map(&mut collect);
            }
            Self::Fact(bytes) => {
                drop(codec::decode::<Fact<ContentRef>>(bytes)?.try_map(&mut collect))
            }
            Self::TempFile(bytes) => {
                let _ = codec::decode::<TempFileRecord<ContentRef>>(bytes)?.try_map(&mut collect);
            }
        }
        Ok(contents)
    }
}
