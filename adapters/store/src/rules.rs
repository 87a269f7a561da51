//! What a commit must be like. The same rules for every store of this crate; nothing is written of
//! a commit that breaks one.

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
pub(crate) fn check_owner(shown: OwnerToken, newest: OwnerToken) -> Result<(), StoreError> {
    if shown == newest {
        Ok(())
    } else {
        Err(StoreError::Stale {
            stale: shown,
            newest,
        })
    }
}

/// How far what is numbered goes for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    /// Its last fact.
    pub(crate) last: FactNumber,
    /// The last change of the temporary files of the tree that begins with it; 0 where there is
    /// none.
    pub(crate) temp_files: u64,
    /// Whether it is still there.
    pub(crate) life: Life,
}

/// Whether a process that was born is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It is.
    Kept,
    /// It was given up, and its number is not given again.
    Forgotten,
}

/// Refuses entries that do not fit the journals as they stand. `stand_of` tells how a process
/// stands, none where there is no such process. Answers with the members of each checkpoint among
/// the entries, in order.
///
/// # Errors
/// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`] for a snapshot of the future, and
/// [`StoreError::Refused`] for a gap, a second birth or an oversized part.
pub(crate) fn check_entries(
    entries: &[Entry],
    checkpoints: Checkpoints<'_>,
    stand_of: impl Fn(Pid) -> Option<Stand>,
) -> Result<Vec<Vec<Member>>, StoreError> {
    let (changed, members) = (BTreeMap::new(), Vec::new());
    let mut journals = Journals {
        stand_of: &stand_of,
        changed,
        checkpoints,
        members,
    };
    entries.iter().try_for_each(|entry| journals.check(entry))?;
    Ok(journals.members)
}

/// What the checkpoints so far are.
#[derive(Clone, Copy)]
pub(crate) struct Checkpoints<'a> {
    /// The highest number that was ever given.
    pub(crate) last: u64,
    /// Whether there is one of this number.
    pub(crate) is_held: &'a dyn Fn(CheckpointId) -> bool,
    /// How far a process had come at the first of them that it is in.
    pub(crate) needs: &'a dyn Fn(Pid) -> Option<FactNumber>,
}

/// What [`Checkpoints::needs`] answers for these.
pub(crate) fn needed<'a>(
    checkpoints: impl Iterator<Item = &'a Checkpoint>,
    pid: Pid,
) -> Option<FactNumber> {
    checkpoints
        .filter_map(|checkpoint| checkpoint.standing(pid))
        .min()
}

/// Refuses to show a fact from before what is kept: the fact that a history begins at is in its
/// image, and is gone itself.
///
/// # Errors
/// [`StoreError::ForgottenFact`].
pub(crate) fn check_kept(pid: Pid, first: FactNumber, since: FactNumber) -> Result<(), StoreError> {
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
pub(crate) fn clip(written: &mut Written, since: FactNumber) {
    if since > FactNumber(0) && written.first <= since {
        let gone = since.0 + 1 - written.first.0;
        (written.first, written.count) = (since.plus(1), written.count.saturating_sub(gone));
    }
}

/// Refuses a content that does not have the hash it comes with.
///
/// # Errors
/// [`StoreError::Refused`].
pub(crate) fn check_name(hash: ContentHash, chunks: &Chunks) -> Result<(), StoreError> {
    if chunks.name() == hash.0 {
        return Ok(());
    }
    Err(refused(format!(
        "the content {hash} does not have this hash: its bytes hash to {}",
        ContentHash(chunks.name())
    )))
}

struct Journals<'a> {
    stand_of: &'a dyn Fn(Pid) -> Option<Stand>,
    changed: BTreeMap<Pid, Stand>,
    checkpoints: Checkpoints<'a>,
    members: Vec<Vec<Member>>,
}

impl Journals<'_> {
    fn check(&mut self, entry: &Entry) -> Result<(), StoreError> {
        match entry {
            Entry::Content { .. } | Entry::Held { .. } => Ok(()),
            Entry::Born { row, image } => self.born(row.pid, image),
            Entry::Facts { pid, first, facts } => self.facts(*pid, *first, facts),
            Entry::Snapshot { pid, at, image } => self.snapshot(*pid, *at, image),
            Entry::Ended { pid, .. } => self.stand(*pid).map(|_| ()),
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
                    at: self.stand(*pid).ok()?.last,
                })
            })
            .collect();
        members.sort_unstable_by_key(|member| member.pid);
        members.dedup();
        self.members.push(members);
        Ok(())
    }

    fn known(&self, pid: Pid) -> Option<Stand> {
        self.changed
            .get(&pid)
            .copied()
            .or_else(|| (self.stand_of)(pid))
    }

    fn stand(&self, pid: Pid) -> Result<Stand, StoreError> {
        self.known(pid)
            .filter(|stand| stand.life == Life::Kept)
            .ok_or(StoreError::UnknownProcess(pid))
    }

    fn forgotten(&mut self, pid: Pid) -> Result<(), StoreError> {
        let stand = self.stand(pid)?;
        if let Some(at) = (self.checkpoints.needs)(pid) {
            return Err(refused(format!(
                "process {pid} is in a checkpoint, at fact {at}: drop that first"
            )));
        }
        self.changed.insert(
            pid,
            Stand {
                life: Life::Forgotten,
                ..stand
            },
        );
        Ok(())
    }

    fn shortened(&self, pid: Pid, below: FactNumber) -> Result<(), StoreError> {
        let last = self.stand(pid)?.last;
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
        if self.changed.contains_key(&pid) {
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
        self.changed.insert(
            pid,
            Stand {
                last: FactNumber(0),
                temp_files: 0,
                life: Life::Kept,
            },
        );
        check_size(&format!("the image of process {pid}"), image)
    }

    fn facts(&mut self, pid: Pid, first: FactNumber, facts: &[Vec<u8>]) -> Result<(), StoreError> {
        let stand = self.stand(pid)?;
        let last = stand.last;
        if first != last.plus(1) {
            return Err(refused(format!(
                "process {pid} stands at fact {last}: the next is {}, but {first} was given",
                last.plus(1)
            )));
        }
        self.changed.insert(
            pid,
            Stand {
                last: last.plus(facts.len()),
                ..stand
            },
        );
        facts
            .iter()
            .try_for_each(|fact| check_size(&format!("a fact of process {pid}"), fact))
    }

    fn snapshot(&self, pid: Pid, at: FactNumber, image: &[u8]) -> Result<(), StoreError> {
        let last = self.stand(pid)?.last;
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
        let stand = self.stand(root)?;
        let next = stand.temp_files + 1;
        if number != next {
            return Err(refused(format!(
                "the temporary files of process {root} stand at change {}: the next is {next}, but \
                 {number} was given",
                stand.temp_files
            )));
        }
        self.changed.insert(
            root,
            Stand {
                temp_files: number,
                ..stand
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
pub(crate) fn no_image(pid: Pid, below: FactNumber) -> StoreError {
    refused(format!(
        "the history of process {pid} cannot begin at fact {below}: no image of it stands there"
    ))
}
