//! Looking a store over: every record, with its payload, and what follows from damage; and mending what can be.
//!
//! To look changes nothing. To repair loses nothing that could still be read:
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
use std::sync::Arc;

use dormouse_actors::garbage::Piece;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};

use crate::census::{Census, Content, Health, Records};
use crate::disk::{Reading, System};
use crate::draft::Draft;
use crate::envelope::{HEADER_BYTES, Header, StoreKey};
use crate::error::{damaged, io};
use crate::head::Head;
use crate::index::Index;
use crate::lock::StoreLock;
use crate::log::{Log, segment_numbers};
use crate::mark::{Hash, Location, Mark};
use crate::options::Options;
use crate::read_only::{beside_a_writer, moment};
use crate::recover::{check_log, check_tail, keys_of};
use crate::secret::{NO_CHECK, StoreSecret, check_of};
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
    /// The log goes on to a segment behind which no whole commit stands: it is another log's, or what stood between is lost.
    Stray {
        /// Where the last whole commit ends.
        end: String,
        /// The last segment.
        segment: u32,
    },
    /// The first record of a segment is damaged, which holds the key of the store for the case that HEAD is lost.
    Opening {
        /// The segment.
        segment: u32,
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
        /// Its name; where the store is encrypted and the record does not tell it, the one that the log has for it.
        hash: ContentHash,
    },
    /// The record of a checkpoint is damaged.
    Checkpoint {
        /// Its number.
        id: CheckpointId,
    },
}

impl Finding {
    /// Whether a repair mends it.
    #[must_use]
    pub fn can_be_mended(&self) -> bool {
        match self {
            Self::Head | Self::Image { .. } | Self::Content { .. } => true,
            Self::Part { .. }
            | Self::Stray { .. }
            | Self::Opening { .. }
            | Self::Row { .. }
            | Self::Facts { .. }
            | Self::Beginning { .. }
            | Self::TempFile { .. }
            | Self::Checkpoint { .. } => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head => write!(f, "HEAD: it is missing or damaged, and the log proves itself without it"),
            Self::Part { between } => write!(f, "log: nothing can be recognised from {between}"),
            Self::Stray { end, segment } => write!(
                f,
                "log: no whole commit stands behind {end}, though it goes on to segment {segment:08}. Take what is behind out of the \
                 folder, or put back what is missing between"
            ),
            Self::Opening { segment } => {
                write!(
                    f,
                    "log: the first record of segment {segment:08} is damaged, which only matters where HEAD is lost"
                )
            }
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

/// Looks over the store in `dir`, which is opened as `options` say; mends it, if so asked, after all was read. `reader` is told
/// of every piece of a journal that can be read, perhaps more than once, so that who can decode them knows what refers to a content.
/// Costs a pass over the whole log.
///
/// To look takes no lock and changes no byte: it works beside a writer, of whose log it sees one moment, and on a file system that is
/// read-only. To repair, the store must be nobody else's.
///
/// # Errors
/// [`StoreError::InUse`], to repair; [`StoreError::Key`] where it is encrypted otherwise; [`StoreError::Damaged`] where log and HEAD do
/// not belong together, or HEAD is lost and the log cannot prove itself: nothing was changed then. [`StoreError::Io`].
pub fn fsck(
    dir: &Path,
    options: &Options,
    repair: Repair,
    reader: &mut dyn FnMut(Pid, Piece<'_>),
) -> Result<Checkup, StoreError> {
    if !dir.join("log").is_dir() {
        return Err(damaged(format!("{} is not a store: it holds no log", dir.display())));
    }
    let secret = options.secret.as_ref();
    let read_head = || match Head::read(&System, dir) {
        Err(StoreError::Damaged { .. }) => Ok(None),
        other => other,
    };
    // Who does not have the key leaves no trace, not even in LOCK.
    if let Some(head) = read_head()? {
        keys_of(&head, secret, dir)?;
    }
    let lock = match repair {
        Repair::Yes => Some(StoreLock::take(dir)?),
        Repair::No => None,
    };
    let Seen { head, log, census, end } = beside_a_writer(|| {
        let seen = match read_head()? {
            Some(_) => {
                let (head, log) = moment(dir, options)?;
                check_log(&log, head.mark)?;
                let (census, end) = Census::take(&log, head.mark, reader)?;
                Seen { head: Some(head), log, census, end }
            }
            None => {
                let keys = keys_of(&head_in(dir, secret)?, secret, dir)?;
                let log = Log::open(Arc::new(Reading), &dir.join("log"), keys)?;
                let (census, end) = Census::take(&log, Mark::EMPTY, reader)?;
                Seen { head: None, log, census, end }
            }
        };
        let vouched = seen.head.map(|head| head.mark.end);
        let is_doubtful = vouched.is_some_and(|vouched| seen.census.lost.iter().any(|lost| lost.from >= vouched));
        Ok((seen, is_doubtful))
    })?;
    if head.is_none() && (!census.lost.is_empty() || end.is_empty()) {
        return Err(damaged(
            "HEAD is lost, and the log is damaged: it cannot be told whether it is whole. Put back a copy of HEAD and log \
             together",
        ));
    }
    let mut findings = findings(&census);
    if check_tail(&log, end).is_err() {
        let segment = log.numbers().last().copied().unwrap_or_default();
        findings.insert(0, Finding::Stray { end: end.end.to_string(), segment });
    }
    if head.is_none() {
        findings.insert(0, Finding::Head);
    }
    let checkup = Checkup { records: census.records, bytes: log.bytes(), findings };
    if repair == Repair::Yes {
        if head.is_none() {
            let head = Head { epoch: EPOCH_BEHIND_ALL, mark: end, ..head_in(dir, secret)? };
            head.write(&System, dir).map_err(io("write HEAD"))?;
        }
        Index::remove(&dir.join("index")).map_err(io("remove the index"))?;
        drop((log, lock));
        mend(dir, options, &census, &checkup.findings)?;
    }
    Ok(checkup)
}

/// One moment of a store.
struct Seen {
    /// None if HEAD is lost.
    head: Option<Head>,
    log: Log,
    census: Census,
    /// The last whole commit.
    end: Mark,
}

/// Notes what is lost, so that the next who asks is told at once.
fn mend(dir: &Path, options: &Options, census: &Census, findings: &[Finding]) -> Result<(), StoreError> {
    let contents = damaged_contents(census).map(|(name, _)| Draft::content_lost(*name));
    let images = findings.iter().filter_map(|finding| match finding {
        Finding::Image { pid, at } => Some(Draft::snapshot_dropped(*pid, *at)),
        Finding::Head
        | Finding::Content { .. }
        | Finding::Part { .. }
        | Finding::Stray { .. }
        | Finding::Opening { .. }
        | Finding::Row { .. }
        | Finding::Facts { .. }
        | Finding::Beginning { .. }
        | Finding::TempFile { .. }
        | Finding::Checkpoint { .. } => None,
    });
    options.clone().open(dir)?.write_notes(contents.chain(images).collect(), census.end_ms)
}

fn findings(census: &Census) -> Vec<Finding> {
    let parts = census.lost.iter().map(|lost| Finding::Part { between: format!("{} to {}", lost.from, lost.to) });
    let parts = parts.chain(census.openings.iter().map(|segment| Finding::Opening { segment: *segment }));
    let processes = census.processes.iter().flat_map(|(pid, records)| of_process(*pid, records));
    let contents = damaged_contents(census).map(|(_, content)| Finding::Content { hash: content.hash });
    let checkpoints = census.checkpoints.iter().filter(|(_, health)| **health == Health::Damaged);
    let checkpoints = checkpoints.map(|(id, _)| Finding::Checkpoint { id: *id });
    parts.chain(processes).chain(contents).chain(checkpoints).collect()
}

fn damaged_contents(census: &Census) -> impl Iterator<Item = (&Hash, &Content)> {
    census.contents.iter().filter(|(_, content)| content.health == Some(Health::Damaged))
}

/// So many lost changes of the files of a tree are named: a number in a forged header can leave out any number of them.
const MOST_LOST_CHANGES: usize = 1_000;

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
    let lost = (1..=last).filter(is_lost).take(MOST_LOST_CHANGES);
    found.extend(lost.map(|number| Finding::TempFile { root: pid, number }));
    found
}

/// What stood in a HEAD that is lost. The key of the store stands in the first record of each segment, which opens with it, or
/// with one that is made of it and the secret; a segment that was swept has no such record.
fn head_in(dir: &Path, secret: Option<&StoreSecret>) -> Result<Head, StoreError> {
    let folder = dir.join("log");
    let numbers = segment_numbers(&System, &folder).map_err(io("look for a log"))?;
    for number in numbers.into_iter().rev() {
        let mut start = Vec::new();
        let file = File::open(folder.join(Segment::file_name(number))).map_err(io("open a segment"))?;
        file.take((HEADER_BYTES + size_of::<Hash>()) as u64).read_to_end(&mut start).map_err(io("read a segment"))?;
        let payload = start.get(HEADER_BYTES..HEADER_BYTES + size_of::<Hash>());
        let Some(key) = payload.and_then(|bytes| bytes.first_chunk()).map(|key| StoreKey(*key)) else { continue };
        let at = Location { segment: number, offset: 0 };
        let check = secret.map_or(NO_CHECK, |secret| check_of(secret, key));
        let head = Head { key, epoch: 0, mark: Mark::EMPTY, check };
        let keys = keys_of(&head, secret, dir)?;
        let opens = |bytes| matches!(Header::open(bytes, keys.headers(), at), Ok(Some(_)));
        if start.first_chunk().is_some_and(opens) {
            return Ok(head);
        }
    }
    Err(damaged(
        "HEAD is lost, and no segment says what the key of the store was; if it is encrypted, only its own secret shows that. \
         Put back a copy of HEAD",
    ))
}
