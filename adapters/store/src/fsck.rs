//! Looking a store over: every record, with its payload, and what follows from damage; and mending what can be.
//!
//! To look changes nothing but who stands in LOCK. To repair loses nothing that could still be read:
//! * the index is built again;
//! * an image that is damaged is given up where an earlier one leads to the same state;
//! * a content that is damaged is noted as lost, so that who reads it is told at once, and kept again when it is committed again;
//! * HEAD is written where the log proves itself: whole from its first record on.
//!
//! Segments with damage are never changed: a copy of one can still be put back.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};

use crate::census::{Census, Health, Records};
use crate::draft::Draft;
use crate::envelope::{HEADER_BYTES, Header, StoreKey};
use crate::error::{damaged, io};
use crate::head::Head;
use crate::index::Index;
use crate::lock::StoreLock;
use crate::log::{Log, segment_numbers};
use crate::log_store::LogStore;
use crate::mark::{Hash, Location, Mark};
use crate::recover::check_log;
use crate::segment::Segment;

/// The newest owner of a store whose HEAD was lost: more than any that there was.
const EPOCH_BEHIND_ALL: u64 = 1 << 40;

/// Whether damage is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It is only reported.
    No,
    /// What can be mended is.
    Yes,
}

/// What was found in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkup {
    /// Records that were read.
    pub records: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// The damage.
    pub findings: Vec<Finding>,
}

/// Damage, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// HEAD is missing or cannot be read, though the log is whole.
    Head,
    /// A part of the log cannot be recognised.
    Part {
        /// From where to where.
        between: String,
    },
    /// The record of a birth or an end cannot be read: the process is not listed.
    Row {
        /// The process.
        pid: Pid,
    },
    /// Facts of a process are lost.
    Facts {
        /// The process.
        pid: Pid,
        /// The first.
        first: FactNumber,
        /// The last.
        last: FactNumber,
        /// The image behind them from which on it can be read again.
        again_from: Option<FactNumber>,
    },
    /// An image of a process is damaged, and an earlier one leads to the same state.
    Image {
        /// The process.
        pid: Pid,
        /// The fact that it stands at.
        at: FactNumber,
    },
    /// The first image of a process is damaged: what is before the next one cannot be read.
    Beginning {
        /// The process.
        pid: Pid,
        /// The next one that can be read.
        again_from: Option<FactNumber>,
    },
    /// A change of the temporary files of a tree is lost, and with it all of them.
    TempFile {
        /// The process that the tree begins with.
        root: Pid,
        /// The change.
        number: u64,
    },
    /// A content is damaged.
    Content {
        /// Its name.
        hash: ContentHash,
    },
    /// The record of a checkpoint is damaged.
    Checkpoint {
        /// Its number.
        id: CheckpointId,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => write!(f, "HEAD: it is missing or damaged, and the log proves itself without it"),
            Self::Part { between } => write!(f, "log: nothing can be recognised from {between}"),
            Self::Row { pid } => write!(f, "process {pid}: the record of its birth or end is damaged"),
            Self::Facts { pid, first, last, again_from } => {
                let upto = first.0.saturating_sub(1);
                write!(f, "process {pid}: facts {first}-{last} are lost, it can be read up to {upto}")?;
                again_from.map_or(Ok(()), |from| write!(f, " and from {from} on"))
            }
            Self::Image { pid, at } => {
                write!(f, "process {pid}: its snapshot at fact {at} is damaged, and is replayed from an earlier one")
            }
            Self::Beginning { pid, again_from: Some(from) } => {
                write!(f, "process {pid}: its first image is damaged, it can be read from fact {from} on")
            }
            Self::Beginning { pid, again_from: None } => write!(f, "process {pid}: no image of it can be read"),
            Self::TempFile { root, number } => {
                write!(f, "process {root}: change {number} of the temporary files of its tree is lost")
            }
            Self::Content { hash } => write!(f, "content {hash}: it is damaged"),
            Self::Checkpoint { id } => write!(f, "checkpoint {id}: its record is damaged"),
        }
    }
}

/// Looks over the store in `dir`; mends it, if so asked, after all was read. `reader` is told of every piece of a journal that
/// can be read, so that who can decode them knows what refers to a content. Costs a pass over the whole log.
///
/// # Errors
/// [`StoreError::InUse`]; [`StoreError::Damaged`] where log and HEAD do not belong together, or HEAD is lost and the log cannot
/// prove itself: nothing was changed then. [`StoreError::Io`].
pub fn fsck(dir: &Path, repair: Repair, reader: &mut dyn FnMut(Pid, Piece<'_>)) -> Result<Checkup, StoreError> {
    if !dir.join("log").is_dir() {
        return Err(damaged(format!("{} is not a store: it holds no log", dir.display())));
    }
    let lock = StoreLock::take(dir)?;
    let head = Head::read(dir).or_else(|error| if is_damage(&error) { Ok(None) } else { Err(error) })?;
    let log = Log::open(&dir.join("log"), head.map_or_else(|| key_in(dir), |head| Ok(head.key))?)?;
    if let Some(head) = head {
        check_log(&log, head.mark)?;
    }
    let (census, end) = Census::take(&log, head.map_or(Mark::EMPTY, |head| head.mark), reader)?;
    if head.is_none() && (!census.lost.is_empty() || end.is_empty()) {
        return Err(damaged(
            "HEAD is lost, and the log is damaged: it cannot be told whether it is whole. Put back a copy of HEAD and log \
             together",
        ));
    }
    let mut findings = findings(&census);
    if head.is_none() {
        findings.insert(0, Finding::Head);
    }
    let checkup = Checkup { records: census.records, bytes: log.bytes(), findings };
    if repair == Repair::Yes {
        if head.is_none() {
            let head = Head { key: *log.key(), epoch: EPOCH_BEHIND_ALL, mark: end };
            head.write(dir).map_err(io("write HEAD"))?;
        }
        Index::remove(&dir.join("index")).map_err(io("remove the index"))?;
        drop((log, lock));
        mend(dir, &census, &checkup.findings)?;
    }
    Ok(checkup)
}

/// Notes what is lost, so that the next who asks is told at once.
fn mend(dir: &Path, census: &Census, findings: &[Finding]) -> Result<(), StoreError> {
    let notes = findings.iter().filter_map(|finding| match finding {
        Finding::Content { hash } => Some(Draft::content_lost(hash.0)),
        Finding::Image { pid, at } => Some(Draft::snapshot_dropped(*pid, *at)),
        Finding::Head
        | Finding::Part { .. }
        | Finding::Row { .. }
        | Finding::Facts { .. }
        | Finding::Beginning { .. }
        | Finding::TempFile { .. }
        | Finding::Checkpoint { .. } => None,
    });
    LogStore::open(dir)?.write_notes(notes.collect(), census.end_ms)
}

fn findings(census: &Census) -> Vec<Finding> {
    let parts = census.lost.iter().map(|lost| Finding::Part { between: format!("{} to {}", lost.from, lost.to) });
    let processes = census.processes.iter().flat_map(|(pid, records)| of_process(*pid, records));
    let contents = census.contents.iter().filter(|(_, health)| **health == Some(Health::Damaged));
    let contents = contents.map(|(hash, _)| Finding::Content { hash: ContentHash(*hash) });
    let checkpoints = census.checkpoints.iter().filter(|(_, health)| **health == Health::Damaged);
    let checkpoints = checkpoints.map(|(id, _)| Finding::Checkpoint { id: *id });
    parts.chain(processes).chain(contents).chain(checkpoints).collect()
}

fn of_process(pid: Pid, records: &Records) -> Vec<Finding> {
    let mut found = Vec::new();
    if records.row != Some(Health::Whole) || records.end == Some(Health::Damaged) {
        found.push(Finding::Row { pid });
    }
    if records.images.get(&records.since) != Some(&Health::Whole) {
        found.push(Finding::Beginning { pid, again_from: records.image_from(records.since) });
    }
    found.extend(records.damaged_images().into_iter().map(|at| Finding::Image { pid, at }));
    let facts = records.lost_facts().into_iter();
    found.extend(facts.map(|(first, last)| Finding::Facts { pid, first, last, again_from: records.image_from(last) }));
    let last = records.temp_files.last_key_value().map_or(0, |(number, _)| *number);
    let is_lost = |number: &u64| records.temp_files.get(number) != Some(&Health::Whole);
    found.extend((1..=last).filter(is_lost).map(|number| Finding::TempFile { root: pid, number }));
    found
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Damaged { .. })
}

/// The key of a store whose HEAD is lost: it stands in the first record of each segment, which opens with it.
fn key_in(dir: &Path) -> Result<StoreKey, StoreError> {
    let folder = dir.join("log");
    let numbers = segment_numbers(&folder).map_err(io("look for a log"))?;
    for number in numbers.into_iter().rev() {
        let mut start = Vec::new();
        let file = File::open(folder.join(Segment::file_name(number))).map_err(io("open a segment"))?;
        file.take((HEADER_BYTES + size_of::<Hash>()) as u64).read_to_end(&mut start).map_err(io("read a segment"))?;
        let payload = start.get(HEADER_BYTES..HEADER_BYTES + size_of::<Hash>());
        let Some(key) = payload.and_then(|bytes| bytes.first_chunk()).map(|key| StoreKey(*key)) else { continue };
        let at = Location { segment: number, offset: 0 };
        if start.first_chunk().is_some_and(|bytes| Header::open(bytes, &key, at).is_some()) {
            return Ok(key);
        }
    }
    Err(damaged("HEAD is lost, and no segment says what the key of the store was. Put back a copy of HEAD".to_owned()))
}
