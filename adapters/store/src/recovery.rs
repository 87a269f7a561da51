//! Opens a store for writing.
//!
//! The steps have to be in this order: take the lock; read HEAD, which says what the log must
//! contain; check the log against HEAD; check the index against the log. Only then the torn tail (a
//! commit that a crash interrupted) is cut, the log is synced, and HEAD is moved to the end of the
//! log. `log_walk.rs` distinguishes a torn tail from damage; `index.rs` opens or rebuilds the
//! index.

use std::io;
use std::path::Path;
use std::sync::Arc;

use dormouse_actors::ports::StoreError;

use crate::append_file::AppendFile as _;
use crate::disk::{Disk, OsDisk};
use crate::error::{damaged, io as io_error};
use crate::head::Head;
use crate::index::Index;
use crate::lock::StoreLock;
use crate::log::{Log, segment_numbers};
use crate::log_position::LogPosition;
use crate::log_walk::check_written_by_store;
use crate::options::Options;
use crate::segment::Segment;
use crate::writer::Writer;
use dormouse_records::secret::{Keys, StoreSecret};

/// An open store.
#[derive(Debug)]
pub(crate) struct RecoveredStore {
    pub(crate) lock: StoreLock,
    pub(crate) log: Arc<Log>,
    pub(crate) index: Index,
    pub(crate) writer: Writer,
}

/// Opens the store in `dir`, or creates one.
///
/// # Errors
/// [`StoreError::InUse`], [`StoreError::Key`] if it is encrypted with another key or not encrypted,
/// [`StoreError::Damaged`] if HEAD and log do not belong together, [`StoreError::Newer`],
/// [`StoreError::Io`].
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: &Options,
) -> Result<RecoveredStore, StoreError> {
    // The secret is checked before the lock is taken: a caller with the wrong key changes nothing,
    // not even LOCK.
    if let Some(head) = Head::read(&*disk, dir)? {
        check_secret(&head, options.secret.as_ref(), dir)?;
    }
    // Lock and index use the real file system, whatever `disk` is.
    make_folder(&OsDisk, dir)?;
    // Resolve symbolic links once: replacing one later cannot redirect the store to another folder.
    let dir = &std::fs::canonicalize(dir)
        .map_err(io_error(format!("find the folder {}", dir.display())))?;
    let lock = StoreLock::acquire(dir)?;
    open_locked(disk, dir, options, lock)
}

/// Opens the store in `dir`, or creates one, under a lock that the caller has taken. The folder
/// exists, and its path contains no symbolic links.
///
/// # Errors
/// As [`open`], except [`StoreError::InUse`].
pub(crate) fn open_locked(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: &Options,
    lock: StoreLock,
) -> Result<RecoveredStore, StoreError> {
    let mut head = match Head::read(&*disk, dir)? {
        Some(head) => head,
        None => create_head(&*disk, dir, options.secret.as_ref())?,
    };
    let is_behind = Head::read_files(&*disk, dir)?.is_behind;
    let keys = check_secret(&head, options.secret.as_ref(), dir)?;
    let log_folder = dir.join("log");
    make_folder(&*disk, &log_folder)?;
    let log = Arc::new(Log::open(disk.clone(), &log_folder, keys)?);
    check_log(&log, head.position)?;
    let (index, position) = Index::open(&dir.join("index"), &log, head.position)?;
    check_tail(&log, position)?;
    let segment = truncate_torn_tail(&log, position).map_err(io_error("cut the end of the log"))?;
    if head.position != position || is_behind {
        head.position = position;
        head.write(&*disk, dir).map_err(io_error("write HEAD"))?;
    }
    let writer = Writer::new(
        disk,
        dir.to_owned(),
        Arc::clone(&log),
        segment,
        head,
        options,
    )
    .with_second_head();
    Ok(RecoveredStore {
        lock,
        log,
        index,
        writer,
    })
}

/// Derives the keys of the store that HEAD belongs to from the secret, after checking the secret.
///
/// # Errors
/// [`StoreError::Key`].
pub(crate) fn check_secret(
    head: &Head,
    secret: Option<&StoreSecret>,
    dir: &Path,
) -> Result<Keys, StoreError> {
    let fault = |fault| StoreError::Key {
        path: dir.display().to_string(),
        fault,
    };
    Keys::derive(head.key, &head.check, secret).map_err(fault)
}

/// Creates HEAD for a new store. The folder must contain nothing but LOCK.
fn create_head(
    disk: &dyn Disk,
    dir: &Path,
    secret: Option<&StoreSecret>,
) -> Result<Head, StoreError> {
    let segments = segment_numbers(disk, &dir.join("log")).map_err(io_error("look for a log"))?;
    if !segments.is_empty() || dir.join("index").exists() {
        return Err(damaged(format!(
            "{} has a log but no HEAD, so it is unknown whether the log is whole. Restore a copy of \
             HEAD, HEAD2 and log together. dormouse fsck shows what can be done without one",
            dir.display()
        )));
    }
    let head = Head::new_store(secret)?;
    head.write(disk, dir).map_err(io_error("write HEAD"))?;
    Ok(head)
}

/// Refuses a log that ends before HEAD's position, and the log of another store.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Io`].
pub(crate) fn check_log(log: &Log, head: LogPosition) -> Result<(), StoreError> {
    let last_segment = log.numbers().last().copied().unwrap_or(0);
    if is_truncated(log, head) {
        let file = Segment::file_name(head.end.segment);
        let found = match log.segment(head.end.segment) {
            Some(segment) => format!("{file} has {} bytes", segment.end()),
            None if last_segment == 0 => format!("no segment is there, {file} is missing"),
            None => format!(
                "{file} is missing, the last segment that is there is {}",
                Segment::file_name(last_segment)
            ),
        };
        return Err(damaged(format!(
            "the log is shorter than HEAD says: it should reach {}, and {found}. It is an older \
             copy, or was cut. Restore the whole log, or a copy of HEAD, HEAD2 and log together. \
             If there is none, dormouse fsck --repair continues with what is there",
            head.end
        )));
    }
    if log.contains_commit(&head)? {
        Ok(())
    } else {
        check_written_by_store(log, head)
    }
}

/// Whether the log ends before HEAD's position. If a later segment exists, the log continued after
/// the missing part: the segment was started when the log was whole, or by a repair.
pub(crate) fn is_truncated(log: &Log, head: LogPosition) -> bool {
    let last_segment = log.numbers().last().copied().unwrap_or(0);
    let end = log
        .segment(head.end.segment)
        .map_or(0, |segment| segment.end());
    !head.is_empty()
        && (last_segment < head.end.segment
            || (last_segment == head.end.segment && end < head.end.offset))
}

/// Refuses a log with segments that cannot be a torn tail. A torn tail can only be in the segment
/// of the last commit, or in the one started after it. Later segments must not be cut.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn check_tail(log: &Log, position: LogPosition) -> Result<(), StoreError> {
    let last_segment = log.numbers().last().copied().unwrap_or(0);
    if last_segment <= position.end.segment + 1 {
        return Ok(());
    }
    Err(damaged(format!(
        "no whole commit follows {}, although the log continues to segment {last_segment:08}. Restore a \
         copy of HEAD and log together",
        position.end
    )))
}

/// Cuts the bytes after the last commit, and syncs the commit itself before it can be read. Returns
/// the segment that the writer continues in.
fn truncate_torn_tail(log: &Log, position: LogPosition) -> io::Result<Arc<Segment>> {
    let last = log
        .numbers()
        .last()
        .copied()
        .unwrap_or(0)
        .max(position.end.segment);
    for number in position.end.segment..=last {
        let end = if number == position.end.segment {
            position.end.offset
        } else {
            0
        };
        let segment = match log.segment(number) {
            Some(segment) => segment,
            // The segment is missing and can still be restored, so its name is not used again.
            None if number < last => continue,
            None => log.add_segment(number)?,
        };
        if segment.end() > end {
            tracing::info!(
                segment = number,
                from = end,
                to = segment.end(),
                "cutting what follows the last commit"
            );
            segment.truncate_durably(end)?;
        }
        segment.sync()?;
        if number == last {
            return Ok(segment);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn make_folder(disk: &dyn Disk, dir: &Path) -> Result<(), StoreError> {
    disk.make_folder(dir)
        .map_err(io_error(format!("make the folder {}", dir.display())))
}
