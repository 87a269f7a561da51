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
use crate::log_position::Location;
use crate::options::Options;
use crate::recovery::{check_log, check_secret, check_tail};
use crate::segment::Segment;
use crate::writer::Writer;

/// A writer starts a segment now and then, so a consistent view is soon found.
const ATTEMPTS: usize = 64;
/// Damage after HEAD's position is believed from this attempt on.
const DAMAGE_RETRIES: usize = 4;

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
    retry_during_writes(|| {
        let (opened, head_end) = open_once(dir, options)?;
        let may_be_in_progress = opened.index.processes().has_loss_after(head_end);
        Ok((opened, may_be_in_progress))
    })
}

/// Repeats `read_store` while a writer may have interfered. `read_store` returns its result, and
/// whether there is damage after HEAD's position: a commit in progress can look like damage once,
/// but not several times in a row.
///
/// # Errors
/// As `read_store`.
pub(crate) fn retry_during_writes<T>(
    mut read_store: impl FnMut() -> Result<(T, bool), StoreError>,
) -> Result<T, StoreError> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        match read_store() {
            // The writer truncated reserved space at the end of a segment during the read.
            Err(StoreError::Io { source, .. })
                if source.kind() == io::ErrorKind::UnexpectedEof && attempts > 0 => {}
            Ok((_, true)) if attempts > ATTEMPTS - DAMAGE_RETRIES => {}
            result => return result.map(|(value, _)| value),
        }
    }
}

/// Opens the store once. Also returns HEAD's position.
fn open_once(dir: &Path, options: &Options) -> Result<(OpenedStore, Location), StoreError> {
    let (head, log) = open_consistent(dir, options)?;
    check_log(&log, head.position)?;
    let (index, position) = Index::in_memory(&log, head.position)?;
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
    let head_end = head.position.end;
    let writer = Writer::read_only(
        dir.to_owned(),
        Arc::clone(&log),
        segment,
        Head { position, ..head },
        options,
    );
    Ok((OpenedStore { log, index, writer }, head_end))
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
