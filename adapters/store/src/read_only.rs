//! Opening a store to look into it, beside whoever writes it. It takes no lock and changes nothing.
//!
//! What the writer does meanwhile must not look like damage:
//! * HEAD is read before the log, so that the log reaches as far as HEAD says, and again after it:
//!   where HEAD has come to another segment, or there are other segments, the opening begins anew.
//!   So what a sweep moves out of one segment is in another that was opened after it, and the
//!   segment that HEAD speaks of was not swept.
//! * An open segment stays what it was: it is read up to the length that it had, and its file lives
//!   on when another takes its name. Nothing is mapped, since the writer may cut off what it failed
//!   to write.
//! * What stands behind the last whole commit is on its way and no concern of ours. It is not cut.

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

/// A writer begins a segment now and then, not all the time.
const ATTEMPTS: usize = 64;
/// So often damage that nobody vouches for is looked at again.
const DOUBTED: usize = 4;

/// A store that is only read.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) log: Arc<Log>,
    pub(crate) index: Index,
    /// It refuses everything.
    pub(crate) writer: Writer,
}

/// Opens the store in `dir` as it is at this moment.
///
/// # Errors
/// [`StoreError::Io`] of kind `NotFound` where there is none, [`StoreError::Key`],
/// [`StoreError::Damaged`], [`StoreError::Newer`], [`StoreError::Io`].
pub(crate) fn open(dir: &Path, options: &Options) -> Result<Opened, StoreError> {
    retry_beside_writer(|| {
        let (opened, vouched) = open_once(dir, options)?;
        let is_doubtful = opened.index.processes().is_lost_behind(vouched);
        Ok((opened, is_doubtful))
    })
}

/// Looks again while what a writer does meanwhile may be in the way. `look` returns what it saw,
/// and whether there is damage behind HEAD's mark: what was written during the look can seem
/// damaged, but not again and again.
///
/// # Errors
/// As `look`.
pub(crate) fn retry_beside_writer<T>(
    mut look: impl FnMut() -> Result<(T, bool), StoreError>,
) -> Result<T, StoreError> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        match look() {
            // The writer gave back room behind the end of a segment during the look.
            Err(StoreError::Io { source, .. })
                if source.kind() == io::ErrorKind::UnexpectedEof && attempts > 0 => {}
            Ok((_, true)) if attempts > ATTEMPTS - DOUBTED => {}
            seen => return seen.map(|(seen, _)| seen),
        }
    }
}

/// The moment, and what HEAD vouches for in it.
fn open_once(dir: &Path, options: &Options) -> Result<(Opened, Location), StoreError> {
    let (head, log) = open_consistent(dir, options)?;
    check_log(&log, head.position)?;
    let (index, position) = Index::in_memory(&log, head.position)?;
    check_tail(&log, position)?;
    let last = || log.segment(log.numbers().last().copied()?);
    // Whoever made the store came no further than HEAD if there is none.
    let none = || Arc::new(Segment::empty(position.end.segment));
    let segment = log
        .segment(position.end.segment)
        .or_else(last)
        .unwrap_or_else(none);
    if segment.number() == position.end.segment {
        // Behind it stands room that a writer has reserved, or what it is about to commit.
        segment.acknowledge(position.end.offset);
    }
    let log = Arc::new(log);
    let vouched = head.position.end;
    let writer = Writer::read_only(
        dir.to_owned(),
        Arc::clone(&log),
        segment,
        Head { position, ..head },
        options,
    );
    Ok((Opened { log, index, writer }, vouched))
}

/// HEAD, and the segments that belong to it.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_consistent(dir: &Path, options: &Options) -> Result<(Head, Log), StoreError> {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnlyDisk::paced(options.pace.clone()));
    let folder = dir.join("log");
    let read_head = || Head::read(&*disk, dir)?.ok_or_else(|| no_store(dir));
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
        "look into {}: whoever writes it begins a segment each moment. Try again",
        dir.display()
    );
    Err(io_error(doing)(io::ErrorKind::WouldBlock.into()))
}

fn no_store(dir: &Path) -> StoreError {
    io_error(format!("look into {}: nothing stands in it", dir.display()))(
        io::ErrorKind::NotFound.into(),
    )
}
