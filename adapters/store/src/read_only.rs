//! Opens a store for reading while another program may be writing it. Takes no lock and changes
//! nothing.
//!
//! Changes by the writer in the meantime must not look like damage:
//! * HEAD is read before the log, so that the log reaches HEAD's position, and again after it: if
//!   HEAD has moved to another segment, or the set of segments has changed, the opening starts
//!   again. Therefore a record that a compaction moved out of one segment is found in another that
//!   was opened later, and HEAD's segment was not compacted.
//! * An open segment does not change: it is read up to the length that it had, and its file stays
//!   accessible when another file takes its name. Nothing is mapped, because the writer may
//!   truncate a failed write.
//! * What follows the last whole commit may be a commit in progress. It is ignored, and not cut.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dormouse_actors::ports::StoreError;

use crate::disk::{Disk, ReadOnlyDisk};
use crate::error::io as io_error;
use crate::head::Head;
use crate::index::Index;
use crate::log::{Log, segment_numbers};
use crate::options::Options;
use crate::recovery::{check_log, check_secret, check_tail};
use crate::segment::Segment;
use crate::writer::Writer;

/// A writer starts a segment now and then, so a consistent view is soon found.
const ATTEMPTS: usize = 64;
/// Damage after HEAD's position is believed once so many attempts have found it.
const ATTEMPTS_AT_DAMAGE: usize = 4;

/// The result of one attempt to read a store that another program may be writing.
pub(crate) enum Attempt<T> {
    /// What was read. No writer interfered.
    Certain(T),
    /// What was read, or why nothing could be read, with damage after HEAD's position. A commit in
    /// progress can look like such damage once, but not several times in a row.
    DamagedAfterHead(Result<T, StoreError>),
}

/// A store opened for reading.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    pub(crate) log: Arc<Log>,
    pub(crate) index: Index,
    /// Refuses every write.
    pub(crate) writer: Writer,
}

/// Opens the store in `dir` as it is at this moment.
///
/// # Errors
/// [`StoreError::Io`] of kind `NotFound` if there is none, [`StoreError::Key`],
/// [`StoreError::Damaged`], [`StoreError::Newer`], [`StoreError::Io`].
pub(crate) fn open(dir: &Path, options: &Options) -> Result<OpenedStore, StoreError> {
    retry_during_writes(|| open_once(dir, options))
}

/// Repeats `read_store` while a writer may have interfered. The two causes are counted apart: a
/// reader that has met one of them often still repeats the other.
///
/// # Errors
/// As `read_store`.
pub(crate) fn retry_during_writes<T>(
    mut read_store: impl FnMut() -> Result<Attempt<T>, StoreError>,
) -> Result<T, StoreError> {
    let mut cut_attempts = 0;
    let mut damaged_attempts = 0;
    loop {
        match read_store() {
            Ok(Attempt::Certain(value)) => return Ok(value),
            Ok(Attempt::DamagedAfterHead(result)) => {
                damaged_attempts += 1;
                if damaged_attempts == ATTEMPTS_AT_DAMAGE {
                    return result;
                }
            }
            // The writer truncated reserved space at the end of a segment during the read.
            Err(StoreError::Io { source, .. })
                if source.kind() == io::ErrorKind::UnexpectedEof && cut_attempts + 1 < ATTEMPTS =>
            {
                cut_attempts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Opens the store once.
fn open_once(dir: &Path, options: &Options) -> Result<Attempt<OpenedStore>, StoreError> {
    let (head, log) = open_consistent(dir, options)?;
    check_log(&log, head.position)?;
    let (index, position) = match Index::in_memory(&log, head.position) {
        // The log fits HEAD, so the walk found damage behind it: a later record says that a commit
        // was synced, and the walk came by before that commit was written.
        Err(error @ StoreError::Damaged { .. }) => {
            return Ok(Attempt::DamagedAfterHead(Err(error)));
        }
        built => built?,
    };
    check_tail(&log, position)?;
    let last_segment = || log.segment(log.numbers().last().copied()?);
    // Without a segment, the store was created and nothing written yet.
    let empty_segment = || Arc::new(Segment::empty(position.end.segment));
    let segment = log
        .segment(position.end.segment)
        .or_else(last_segment)
        .unwrap_or_else(empty_segment);
    if segment.number() == position.end.segment {
        // The rest of the segment is reserved space, or a commit in progress.
        segment.acknowledge(position.end.offset);
    }
    let log = Arc::new(log);
    let may_be_in_progress = index.processes().has_loss_after(head.position.end);
    let writer = Writer::read_only(
        dir.to_owned(),
        Arc::clone(&log),
        segment,
        Head { position, ..head },
        options,
    );
    let opened = OpenedStore { log, index, writer };
    Ok(match may_be_in_progress {
        true => Attempt::DamagedAfterHead(Ok(opened)),
        false => Attempt::Certain(opened),
    })
}

/// Reads HEAD and opens the segments that belong to it, at one moment.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_consistent(dir: &Path, options: &Options) -> Result<(Head, Log), StoreError> {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::throttled(options.throttle.clone()));
    let folder = dir.join("log");
    let read_head = || Head::read(&*disk, dir)?.ok_or_else(|| no_store_error(dir));
    let numbers = || {
        segment_numbers(&*disk, &folder)
            .map_err(io_error(format!("open the log in {}", folder.display())))
    };
    for _ in 0..ATTEMPTS {
        let head = read_head()?;
        let log = Log::open(
            Arc::clone(&disk),
            &folder,
            check_secret(&head, options.secret.as_ref(), dir)?,
        )?;
        if read_head()?.position.end.segment == head.position.end.segment
            && numbers()? == log.numbers()
        {
            return Ok((head, log));
        }
    }
    let doing = format!(
        "look into {}: its writer keeps starting segments. Try again",
        dir.display()
    );
    Err(io_error(doing)(io::ErrorKind::WouldBlock.into()))
}

fn no_store_error(dir: &Path) -> StoreError {
    io_error(format!(
        "look into {}: it is empty or does not exist",
        dir.display()
    ))(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;
    use dormouse_actors::ports::{Batch, Store as _, WriteOp};
    use dormouse_proto::id::{ContentHash, FactNumber, Pid};
    use dormouse_proto::process::ProcessRow;

    use super::*;
    use crate::error::damaged;
    use crate::log_store::LogStore;

    #[test]
    fn damage_after_head_is_believed_after_several_attempts_whatever_else_was_repeated() {
        // Attempts at which a segment became shorter, attempts that found damage, whether the
        // result is an error.
        for (cut, with_damage, is_error) in [
            (0, 0, false),
            (0, ATTEMPTS_AT_DAMAGE - 1, false),
            (0, ATTEMPTS_AT_DAMAGE, true),
            (ATTEMPTS - 1, 0, false),
            (ATTEMPTS, 0, true),
            (ATTEMPTS - 1, ATTEMPTS_AT_DAMAGE - 1, false),
        ] {
            let mut attempts = 0;
            let read = retry_during_writes(|| {
                attempts += 1;
                if attempts <= cut {
                    Err(io_error("read")(io::ErrorKind::UnexpectedEof.into()))
                } else if attempts <= cut + with_damage {
                    Ok(Attempt::DamagedAfterHead(Err(damaged("a gap"))))
                } else {
                    Ok(Attempt::Certain(()))
                }
            });
            assert_eq!(read.is_err(), is_error, "{cut}, {with_damage}: {read:?}");
        }
    }

    /// A reader comes by the place of a commit before the commit is written, and then finds the
    /// first record of the next one, which says that the commit before it was synced.
    #[test]
    fn a_reader_overtaken_by_two_commits_reads_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        let commit = |ops: &[WriteOp]| store.commit(owner, Batch::durable(ops, 0)).unwrap();
        let facts = |number| WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(number),
            facts: vec![vec![7; 9]],
        };
        let end = || store.writer().position().end.offset as usize;
        commit(&[WriteOp::ProcessCreated {
            row: Box::new(ProcessRow::started(Pid(1), "p")),
            image: vec![1],
        }]);
        let heads = ["HEAD", "HEAD2"].map(|name| folder.path().join(name));
        let before = heads.each_ref().map(|path| fs::read(path).unwrap());
        let first_end = end();
        commit(&[facts(1)]);
        let second_end = end();
        let bytes = Bytes::from(vec![8; 2_000]);
        commit(&[
            facts(2),
            WriteOp::Content {
                hash: ContentHash(*blake3::hash(&bytes).as_bytes()),
                bytes,
                index: Bytes::new(),
            },
        ]);
        drop(store);
        let segment = folder.path().join("log").join(Segment::file_name(1));
        let whole = fs::read(&segment).unwrap();
        let mut seen = whole[..whole.len() - 1_000].to_vec();
        seen[first_end..second_end].fill(0);
        fs::write(&segment, seen).unwrap();
        for (path, bytes) in heads.iter().zip(before) {
            fs::write(path, bytes).unwrap();
        }
        let options = LogStore::options();
        let error = open(folder.path(), &options).map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let mut attempts = 0;
        let opened = retry_during_writes(|| {
            attempts += 1;
            if attempts == 2 {
                fs::write(&segment, &whole).unwrap();
            }
            open_once(folder.path(), &options)
        });
        let row = opened.unwrap().index.processes().entry(Pid(1));
        assert_eq!(
            (row.map(|entry| entry.last), attempts),
            (Some(FactNumber(2)), 2)
        );
    }
}
