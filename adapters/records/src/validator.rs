//! The rules of a commit, the same for every store: journals without gaps, creations before facts,
//! numbers that are never reused, and no deletion of a process or fact that a checkpoint needs.
//!
//! A store validates a whole commit before it writes any of it. What it knows of a process for
//! that, its last numbers and its state, is called the *progress* of the process.
//!
//! A store does not check that a deleted process has ended: `kernel/machine/src/retention.rs`
//! chooses the processes to delete. A store only refuses the deletion of one that was opened again
//! after it had been chosen.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_actors::ports::{Batch, CommittedFacts, OwnerToken, StoreError, WriteOp};
use dormouse_proto::checkpoint::{Checkpoint, Member};
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::record::codec::MAX_PAYLOAD_BYTES;

use crate::chunks::Chunks;
use crate::error::refused;

/// Refuses any token but the newest.
///
/// # Errors
/// [`StoreError::Stale`].
pub fn check_owner(token: OwnerToken, newest: OwnerToken) -> Result<(), StoreError> {
    if token == newest {
        Ok(())
    } else {
        Err(StoreError::Stale {
            stale: token,
            newest,
        })
    }
}

/// The last numbers of the facts and temporary file changes of a process, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessProgress {
    /// The last fact of the process.
    pub last: FactNumber,
    /// The last change of the temporary files of the tree with this root; 0 if there is none.
    pub temp_files: u64,
    /// Whether the process exists, and whether it was opened again.
    pub state: ProcessState,
}

/// Whether a process that was created still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// The process exists, and may be deleted. If it was opened again, it has ended since.
    Exists,
    /// The process was opened again and has not ended since: it cannot be deleted. A garbage
    /// collection may have chosen it before.
    Reopened,
    /// The process was deleted. Its pid is never used again.
    Deleted,
}

/// The result of a valid commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedCommit {
    /// The checkpoints of the commit, in order. Their `commit` is 0, because the number of the
    /// commit is assigned when it is written.
    pub checkpoints: Vec<Checkpoint>,
    /// The progress of each changed process after the commit.
    pub progress: BTreeMap<Pid, ProcessProgress>,
}

/// Refuses a batch whose ops do not continue the journals. `progress_of` returns the progress of a
/// process before the commit; `None` for an unknown process.
///
/// # Errors
/// [`StoreError::UnknownProcess`]; [`StoreError::UnknownFact`] for a snapshot or a truncation at a
/// fact that does not exist; [`StoreError::UnknownCheckpoint`] for a drop of one that does not
/// exist; [`StoreError::Refused`] for a gap, a reused number, an oversized part, the deletion of
/// something that a checkpoint needs, or the truncation of a history that an earlier operation of
/// the batch continues.
pub fn check_ops(
    batch: Batch<'_>,
    checkpoints: StoredCheckpoints<'_>,
    progress_of: impl Fn(Pid) -> Option<ProcessProgress>,
) -> Result<CheckedCommit, StoreError> {
    let mut validator = CommitValidator {
        progress_of: &progress_of,
        checkpoints,
        at_ms: batch.at_ms,
        dropped: BTreeSet::new(),
        checked: CheckedCommit::default(),
    };
    batch.ops.iter().try_for_each(|op| validator.check(op))?;
    Ok(validator.checked)
}

/// The checkpoints that a store contains.
#[derive(Clone, Copy)]
pub struct StoredCheckpoints<'a> {
    /// The highest number that was ever assigned.
    pub last: u64,
    /// Whether a checkpoint with this number exists.
    pub exists: &'a dyn Fn(CheckpointId) -> bool,
    /// The earliest position of a process in any checkpoint.
    pub earliest_needed: &'a dyn Fn(Pid) -> Option<FactNumber>,
}

/// Computes [`StoredCheckpoints::earliest_needed`] for these checkpoints.
pub fn earliest_needed_fact<'a>(
    checkpoints: impl Iterator<Item = &'a Checkpoint>,
    pid: Pid,
) -> Option<FactNumber> {
    checkpoints
        .filter_map(|checkpoint| checkpoint.position_of(pid))
        .min()
}

/// Refuses to read a fact before the start of a truncated history. A truncated history starts with
/// a snapshot at fact `oldest_snapshot`, so the first fact that can be read is the one after it.
///
/// # Errors
/// [`StoreError::DeletedFact`].
pub fn check_not_deleted(
    pid: Pid,
    first: FactNumber,
    oldest_snapshot: FactNumber,
) -> Result<(), StoreError> {
    if oldest_snapshot == FactNumber(0) || first > oldest_snapshot {
        return Ok(());
    }
    Err(StoreError::DeletedFact {
        pid,
        requested: first,
        first_kept: oldest_snapshot.plus(1),
    })
}

/// Removes facts before the start of a truncated history.
pub fn remove_deleted_facts(written: &mut CommittedFacts, oldest_snapshot: FactNumber) {
    if oldest_snapshot > FactNumber(0) && written.first <= oldest_snapshot {
        let removed = oldest_snapshot.0 + 1 - written.first.0;
        (written.first, written.count) = (
            oldest_snapshot.plus(1),
            written.count.saturating_sub(removed),
        );
    }
}

/// Refuses a content whose bytes do not have the given hash.
///
/// # Errors
/// [`StoreError::Refused`].
pub fn check_content_hash(hash: ContentHash, chunks: &Chunks) -> Result<(), StoreError> {
    if chunks.content_hash() == hash.0 {
        return Ok(());
    }
    Err(refused(format!(
        "the content {hash} does not have this hash: its bytes hash to {}",
        ContentHash(chunks.content_hash())
    )))
}

/// Validates the ops of a commit in order.
struct CommitValidator<'a> {
    progress_of: &'a dyn Fn(Pid) -> Option<ProcessProgress>,
    checkpoints: StoredCheckpoints<'a>,
    at_ms: u64,
    /// The checkpoints that earlier operations of the batch drop.
    dropped: BTreeSet<CheckpointId>,
    checked: CheckedCommit,
}

impl CommitValidator<'_> {
    fn check(&mut self, op: &WriteOp) -> Result<(), StoreError> {
        match op {
            WriteOp::Content { .. } | WriteOp::ContentReferenced { .. } => Ok(()),
            WriteOp::ProcessCreated { row, image } => self.check_creation(row.pid, image),
            WriteOp::Facts { pid, first, facts } => self.check_facts(*pid, *first, facts),
            WriteOp::Snapshot { pid, at, image } => self.check_snapshot(*pid, *at, image),
            WriteOp::Waiting { pid, .. } => self.progress(*pid).map(|_| ()),
            WriteOp::ProcessEnded { pid, .. } => self.set_state(*pid, ProcessState::Exists),
            WriteOp::ProcessReopened { pid, .. } => self.set_state(*pid, ProcessState::Reopened),
            WriteOp::TempFile {
                root,
                number,
                record,
            } => self.check_temp_file(*root, *number, record),
            WriteOp::Checkpoint {
                id,
                label,
                pid,
                root,
                scope,
                members,
            } => {
                let members = self.check_checkpoint(*id, members)?;
                self.checked.checkpoints.push(Checkpoint {
                    id: *id,
                    label: label.clone(),
                    pid: *pid,
                    root: *root,
                    scope: *scope,
                    members,
                    commit: CommitNumber::default(),
                    at_ms: self.at_ms,
                });
                Ok(())
            }
            WriteOp::Label { number, record } => {
                check_size(&format!("the record of label {number}"), record)
            }
            WriteOp::CheckpointDropped { id } => {
                match (self.checkpoints.exists)(*id) && self.dropped.insert(*id) {
                    true => Ok(()),
                    false => Err(StoreError::UnknownCheckpoint(*id)),
                }
            }
            WriteOp::ProcessDeleted { pid } => self.check_deletion(*pid),
            WriteOp::HistoryTruncated { pid, below } => self.check_truncation(*pid, *below),
        }
    }

    /// Checks the number of a new checkpoint. Returns the members, each at its last fact, without
    /// those that the store does not know or has deleted.
    fn check_checkpoint(
        &mut self,
        id: CheckpointId,
        members: &[Pid],
    ) -> Result<Vec<Member>, StoreError> {
        let last = self.checkpoints.last;
        if id.0 <= last {
            return Err(refused(format!(
                "a new checkpoint needs a number above cp:{last}, but {id} was given"
            )));
        }
        self.checkpoints.last = id.0;
        let mut members: Vec<_> = members
            .iter()
            .filter_map(|pid| {
                Some(Member {
                    pid: *pid,
                    at: self.progress(*pid).ok()?.last,
                })
            })
            .collect();
        members.sort_unstable_by_key(|member| member.pid);
        members.dedup();
        Ok(members)
    }

    /// The progress of a process, including the ops of this commit so far.
    fn latest_progress(&self, pid: Pid) -> Option<ProcessProgress> {
        self.checked
            .progress
            .get(&pid)
            .copied()
            .or_else(|| (self.progress_of)(pid))
    }

    /// As [`CommitValidator::latest_progress`], of a process that is not deleted.
    fn progress(&self, pid: Pid) -> Result<ProcessProgress, StoreError> {
        self.latest_progress(pid)
            .filter(|progress| progress.state != ProcessState::Deleted)
            .ok_or(StoreError::UnknownProcess(pid))
    }

    /// The earliest position of a process in any checkpoint, stored or of this commit. A checkpoint
    /// that this commit drops still counts: only a later commit may delete what it needs.
    fn earliest_needed(&self, pid: Pid) -> Option<FactNumber> {
        let stored = (self.checkpoints.earliest_needed)(pid);
        let new = earliest_needed_fact(self.checked.checkpoints.iter(), pid);
        stored.into_iter().chain(new).min()
    }

    fn set_state(&mut self, pid: Pid, state: ProcessState) -> Result<(), StoreError> {
        let progress = self.progress(pid)?;
        if progress.state != state {
            self.checked
                .progress
                .insert(pid, ProcessProgress { state, ..progress });
        }
        Ok(())
    }

    fn check_deletion(&mut self, pid: Pid) -> Result<(), StoreError> {
        let progress = self.progress(pid)?;
        if progress.state == ProcessState::Reopened {
            return Err(refused(format!(
                "process {pid} was opened again: only a process that has ended is deleted"
            )));
        }
        if let Some(at) = self.earliest_needed(pid) {
            return Err(refused(format!(
                "process {pid} is in a checkpoint, at fact {at}: drop the checkpoint first, by an \
                 earlier commit"
            )));
        }
        self.checked.progress.insert(
            pid,
            ProcessProgress {
                state: ProcessState::Deleted,
                ..progress
            },
        );
        Ok(())
    }

    fn check_truncation(&self, pid: Pid, below: FactNumber) -> Result<(), StoreError> {
        let last = self.progress(pid)?.last;
        if below > last {
            return Err(StoreError::UnknownFact {
                pid,
                requested: below,
                last,
            });
        }
        if let Some(at) = self.earliest_needed(pid).filter(|at| *at < below) {
            return Err(refused(format!(
                "fact {at} of process {pid} is in a checkpoint: drop the checkpoint first, by an \
                 earlier commit"
            )));
        }
        // A truncation refers to stored records by their place in the log, which those of this
        // commit do not have yet.
        if self.checked.progress.contains_key(&pid) {
            return Err(refused(format!(
                "the history of process {pid} cannot be truncated by a commit that changes it"
            )));
        }
        Ok(())
    }

    fn check_creation(&mut self, pid: Pid, image: &[u8]) -> Result<(), StoreError> {
        if self.latest_progress(pid).is_some() {
            return Err(refused(format!(
                "process {pid} already exists or was deleted: a pid is never reused"
            )));
        }
        self.checked.progress.insert(
            pid,
            ProcessProgress {
                last: FactNumber(0),
                temp_files: 0,
                state: ProcessState::Exists,
            },
        );
        check_size(&format!("the image of process {pid}"), image)
    }

    fn check_facts(
        &mut self,
        pid: Pid,
        first: FactNumber,
        facts: &[Vec<u8>],
    ) -> Result<(), StoreError> {
        let progress = self.progress(pid)?;
        let last = progress.last;
        if first != last.plus(1) {
            return Err(refused(format!(
                "process {pid} is at fact {last}: the next is {}, but {first} was given",
                last.plus(1)
            )));
        }
        self.checked.progress.insert(
            pid,
            ProcessProgress {
                last: last.plus(facts.len()),
                ..progress
            },
        );
        facts
            .iter()
            .try_for_each(|fact| check_size(&format!("a fact of process {pid}"), fact))
    }

    fn check_snapshot(&self, pid: Pid, at: FactNumber, image: &[u8]) -> Result<(), StoreError> {
        let last = self.progress(pid)?.last;
        if at > last {
            return Err(StoreError::UnknownFact {
                pid,
                requested: at,
                last,
            });
        }
        if at == FactNumber(0) {
            return Err(refused(format!(
                "the image of process {pid} at fact 0 is the one that it was created with"
            )));
        }
        check_size(&format!("the image of process {pid}"), image)
    }

    fn check_temp_file(&mut self, root: Pid, number: u64, record: &[u8]) -> Result<(), StoreError> {
        let progress = self.progress(root)?;
        let next = progress.temp_files + 1;
        if number != next {
            return Err(refused(format!(
                "the temporary files of process {root} are at change {}: the next is {next}, but \
                 {number} was given",
                progress.temp_files
            )));
        }
        self.checked.progress.insert(
            root,
            ProcessProgress {
                temp_files: number,
                ..progress
            },
        );
        check_size(
            &format!("a change of the temporary files of process {root}"),
            record,
        )
    }
}

fn check_size(what: &str, bytes: &[u8]) -> Result<(), StoreError> {
    if bytes.len() <= MAX_PAYLOAD_BYTES {
        return Ok(());
    }
    Err(refused(format!(
        "{what} has {} bytes, more than the {MAX_PAYLOAD_BYTES} of a record: keep what is large in \
         contents",
        bytes.len()
    )))
}

/// The error of a truncation at a fact without an image.
pub fn no_image_error(pid: Pid, below: FactNumber) -> StoreError {
    refused(format!(
        "the history of process {pid} cannot begin at fact {below}: it has no image there"
    ))
}
