//! The rules of a commit, which every store keeps: journals without gaps, births before facts,
//! numbers that are never used again, and nothing deleted that a checkpoint needs.
//!
//! A store checks a whole commit before it writes any of it.

use std::collections::BTreeMap;

use dormouse_actors::ports::{Entry, OwnerToken, StoreError, Written};
use dormouse_proto::checkpoint::{Checkpoint, Member};
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};
use dormouse_proto::record::codec::MAX_PAYLOAD_BYTES;

use crate::chunks::Chunks;
use crate::error::refused;

/// Refuses any token but the newest.
///
/// # Errors
/// [`StoreError::Stale`].
pub fn check_owner(shown: OwnerToken, newest: OwnerToken) -> Result<(), StoreError> {
    if shown == newest {
        Ok(())
    } else {
        Err(StoreError::Stale {
            stale: shown,
            newest,
        })
    }
}

/// How far the numbered records of a process go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessProgress {
    /// Its last fact.
    pub last: FactNumber,
    /// The last change of the temporary files of the tree that begins with it; 0 where there is
    /// none.
    pub temp_files: u64,
    /// Whether the process is still there.
    pub state: ProcessState,
}

/// Whether a process that was born is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It is.
    Kept,
    /// It was deleted. Its number is never given again.
    Deleted,
}

/// What a commit that keeps the rules comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedCommit {
    /// The members of each checkpoint among its entries, in order.
    pub members: Vec<Vec<Member>>,
    /// How far each process that it continues has come after it.
    pub progress: BTreeMap<Pid, ProcessProgress>,
}

/// Refuses entries that do not continue the journals. `progress_of` says how far a process has
/// come; none for an unknown process.
///
/// # Errors
/// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`] for a snapshot of the future, and
/// [`StoreError::Refused`] for a gap, a second birth or an oversized part.
pub fn check_entries(
    entries: &[Entry],
    checkpoints: StoredCheckpoints<'_>,
    progress_of: impl Fn(Pid) -> Option<ProcessProgress>,
) -> Result<CheckedCommit, StoreError> {
    let mut validator = CommitValidator {
        progress_of: &progress_of,
        checkpoints,
        checked: CheckedCommit::default(),
    };
    entries
        .iter()
        .try_for_each(|entry| validator.check(entry))?;
    Ok(validator.checked)
}

/// The checkpoints that a store holds.
#[derive(Clone, Copy)]
pub struct StoredCheckpoints<'a> {
    /// The highest number that was ever given.
    pub last: u64,
    /// Whether there is one of this number.
    pub is_held: &'a dyn Fn(CheckpointId) -> bool,
    /// How far a process had come at the first of them that it is in.
    pub needs: &'a dyn Fn(Pid) -> Option<FactNumber>,
}

/// What [`StoredCheckpoints::needs`] answers for these checkpoints.
pub fn needed<'a>(
    checkpoints: impl Iterator<Item = &'a Checkpoint>,
    pid: Pid,
) -> Option<FactNumber> {
    checkpoints
        .filter_map(|checkpoint| checkpoint.position_of(pid))
        .min()
}

/// Refuses to show a fact from before what is kept: the fact that a history begins at is in its
/// image, and is gone itself.
///
/// # Errors
/// [`StoreError::ForgottenFact`].
pub fn check_kept(pid: Pid, first: FactNumber, since: FactNumber) -> Result<(), StoreError> {
    if since == FactNumber(0) || first > since {
        return Ok(());
    }
    Err(StoreError::ForgottenFact {
        pid,
        asked: first,
        since: since.plus(1),
    })
}

/// Takes from what was written together the facts that are no longer kept.
pub fn clip(written: &mut Written, since: FactNumber) {
    if since > FactNumber(0) && written.first <= since {
        let gone = since.0 + 1 - written.first.0;
        (written.first, written.count) = (since.plus(1), written.count.saturating_sub(gone));
    }
}

/// Refuses a content that does not have the hash it comes with.
///
/// # Errors
/// [`StoreError::Refused`].
pub fn check_name(hash: ContentHash, chunks: &Chunks) -> Result<(), StoreError> {
    if chunks.name() == hash.0 {
        return Ok(());
    }
    Err(refused(format!(
        "the content {hash} does not have this hash: its bytes hash to {}",
        ContentHash(chunks.name())
    )))
}

struct CommitValidator<'a> {
    progress_of: &'a dyn Fn(Pid) -> Option<ProcessProgress>,
    checkpoints: StoredCheckpoints<'a>,
    checked: CheckedCommit,
}

impl CommitValidator<'_> {
    fn check(&mut self, entry: &Entry) -> Result<(), StoreError> {
        match entry {
            Entry::Content { .. } | Entry::Held { .. } => Ok(()),
            Entry::Born { row, image } => self.born(row.pid, image),
            Entry::Facts { pid, first, facts } => self.facts(*pid, *first, facts),
            Entry::Snapshot { pid, at, image } => self.snapshot(*pid, *at, image),
            Entry::Ended { pid, .. } => self.progress(*pid).map(|_| ()),
            Entry::TempFile {
                root,
                number,
                record,
            } => self.temp_file(*root, *number, record),
            Entry::Checkpoint { id, members, .. } => self.checkpoint(*id, members),
            Entry::CheckpointDropped { id } if (self.checkpoints.is_held)(*id) => Ok(()),
            Entry::CheckpointDropped { id } => Err(StoreError::UnknownCheckpoint(*id)),
            Entry::Forgotten { pid } => self.forgotten(*pid),
            Entry::Shortened { pid, below } => self.shortened(*pid, *below),
        }
    }

    fn checkpoint(&mut self, id: CheckpointId, members: &[Pid]) -> Result<(), StoreError> {
        let last = self.checkpoints.last;
        if id.0 <= last {
            return Err(refused(format!(
                "the next checkpoint is cp:{}, but {id} was given",
                last + 1
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
        self.checked.members.push(members);
        Ok(())
    }

    fn known(&self, pid: Pid) -> Option<ProcessProgress> {
        self.checked
            .progress
            .get(&pid)
            .copied()
            .or_else(|| (self.progress_of)(pid))
    }

    fn progress(&self, pid: Pid) -> Result<ProcessProgress, StoreError> {
        self.known(pid)
            .filter(|progress| progress.state == ProcessState::Kept)
            .ok_or(StoreError::UnknownProcess(pid))
    }

    fn forgotten(&mut self, pid: Pid) -> Result<(), StoreError> {
        let progress = self.progress(pid)?;
        if let Some(at) = (self.checkpoints.needs)(pid) {
            return Err(refused(format!(
                "process {pid} is in a checkpoint, at fact {at}: drop that first"
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

    fn shortened(&self, pid: Pid, below: FactNumber) -> Result<(), StoreError> {
        let last = self.progress(pid)?.last;
        if below > last {
            return Err(StoreError::UnknownFact {
                pid,
                asked: below,
                last,
            });
        }
        if let Some(at) = (self.checkpoints.needs)(pid).filter(|at| *at < below) {
            return Err(refused(format!(
                "fact {at} of process {pid} is in a checkpoint: drop that first"
            )));
        }
        // What was brought by the same commit has no place yet.
        if self.checked.progress.contains_key(&pid) {
            return Err(refused(format!(
                "the history of process {pid} cannot be given up by a commit that goes on with it"
            )));
        }
        Ok(())
    }

    fn born(&mut self, pid: Pid, image: &[u8]) -> Result<(), StoreError> {
        if self.known(pid).is_some() {
            return Err(refused(format!(
                "process {pid} was born before: a pid is never used again"
            )));
        }
        self.checked.progress.insert(
            pid,
            ProcessProgress {
                last: FactNumber(0),
                temp_files: 0,
                state: ProcessState::Kept,
            },
        );
        check_size(&format!("the image of process {pid}"), image)
    }

    fn facts(&mut self, pid: Pid, first: FactNumber, facts: &[Vec<u8>]) -> Result<(), StoreError> {
        let progress = self.progress(pid)?;
        let last = progress.last;
        if first != last.plus(1) {
            return Err(refused(format!(
                "process {pid} stands at fact {last}: the next is {}, but {first} was given",
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

    fn snapshot(&self, pid: Pid, at: FactNumber, image: &[u8]) -> Result<(), StoreError> {
        let last = self.progress(pid)?.last;
        if at > last {
            return Err(StoreError::UnknownFact {
                pid,
                asked: at,
                last,
            });
        }
        if at == FactNumber(0) {
            return Err(refused(format!(
                "the image of process {pid} at fact 0 is the one that it was born with"
            )));
        }
        check_size(&format!("the image of process {pid}"), image)
    }

    fn temp_file(&mut self, root: Pid, number: u64, record: &[u8]) -> Result<(), StoreError> {
        let progress = self.progress(root)?;
        let next = progress.temp_files + 1;
        if number != next {
            return Err(refused(format!(
                "the temporary files of process {root} stand at change {}: the next is {next}, but \
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

/// The error of a history that is to be given up before a fact where there is no image to begin
/// from.
pub fn no_image(pid: Pid, below: FactNumber) -> StoreError {
    refused(format!(
        "the history of process {pid} cannot begin at fact {below}: no image of it stands there"
    ))
}
