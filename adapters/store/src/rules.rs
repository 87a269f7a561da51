//! What a commit must be like. The same rules for every store of this crate; nothing is written of a commit that breaks
//! one.

use std::collections::BTreeMap;

use dormouse_actors::ports::{Entry, OwnerToken, StoreError};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::record::codec::MAX_PAYLOAD_BYTES;

use crate::chunks::Chunks;
use crate::error::refused;

/// Refuses any token but the newest.
///
/// # Errors
/// [`StoreError::Stale`].
pub(crate) fn check_owner(shown: OwnerToken, newest: OwnerToken) -> Result<(), StoreError> {
    if shown == newest { Ok(()) } else { Err(StoreError::Stale { stale: shown, newest }) }
}

/// Refuses entries that do not fit the journals as they stand. `last_fact` gives the last fact of a process, none where
/// there is no such process.
///
/// # Errors
/// [`StoreError::UnknownProcess`], [`StoreError::UnknownFact`] for a snapshot of the future, and [`StoreError::Io`] of
/// kind `InvalidInput` for a gap, a second birth or an oversized part.
pub(crate) fn check_entries(
    entries: &[Entry],
    last_fact: impl Fn(Pid) -> Option<FactNumber>,
) -> Result<(), StoreError> {
    let mut journals = Journals { last_fact: &last_fact, changed: BTreeMap::new() };
    entries.iter().try_for_each(|entry| journals.check(entry))
}

/// Refuses a content that does not have the hash it comes with.
///
/// # Errors
/// [`StoreError::Io`] of kind `InvalidInput`.
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
    last_fact: &'a dyn Fn(Pid) -> Option<FactNumber>,
    changed: BTreeMap<Pid, FactNumber>,
}

impl Journals<'_> {
    fn check(&mut self, entry: &Entry) -> Result<(), StoreError> {
        match entry {
            Entry::Content { .. } => Ok(()),
            Entry::Born { row, image } => self.born(row.pid, image),
            Entry::Facts { pid, first, facts } => self.facts(*pid, *first, facts),
            Entry::Snapshot { pid, at, image } => self.snapshot(*pid, *at, image),
            Entry::Ended { pid, .. } => self.last(*pid).map(|_| ()),
        }
    }

    fn known(&self, pid: Pid) -> Option<FactNumber> {
        self.changed.get(&pid).copied().or_else(|| (self.last_fact)(pid))
    }

    fn last(&self, pid: Pid) -> Result<FactNumber, StoreError> {
        self.known(pid).ok_or(StoreError::UnknownProcess(pid))
    }

    fn born(&mut self, pid: Pid, image: &[u8]) -> Result<(), StoreError> {
        if self.known(pid).is_some() {
            return Err(refused(format!("process {pid} was born before: a pid is never used again")));
        }
        self.changed.insert(pid, FactNumber(0));
        check_size(&format!("the image of process {pid}"), image)
    }

    fn facts(&mut self, pid: Pid, first: FactNumber, facts: &[Vec<u8>]) -> Result<(), StoreError> {
        let last = self.last(pid)?;
        if first != last.plus(1) {
            return Err(refused(format!(
                "process {pid} stands at fact {last}: the next is {}, but {first} was given",
                last.plus(1)
            )));
        }
        self.changed.insert(pid, last.plus(facts.len()));
        facts.iter().try_for_each(|fact| check_size(&format!("a fact of process {pid}"), fact))
    }

    fn snapshot(&self, pid: Pid, at: FactNumber, image: &[u8]) -> Result<(), StoreError> {
        let last = self.last(pid)?;
        if at > last {
            return Err(StoreError::UnknownFact { pid, asked: at, last });
        }
        check_size(&format!("the image of process {pid}"), image)
    }
}

fn check_size(what: &str, bytes: &[u8]) -> Result<(), StoreError> {
    if bytes.len() <= MAX_PAYLOAD_BYTES {
        return Ok(());
    }
    Err(refused(format!(
        "{what} has {} bytes, more than the {MAX_PAYLOAD_BYTES} of a record: keep what is large in contents",
        bytes.len()
    )))
}
