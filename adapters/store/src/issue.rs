//! The kinds of damage that [`fsck`](crate::fsck()) can find. The log stores acknowledged damage as
//! values of the same type.

use std::fmt;

use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};
use serde::{Deserialize, Serialize};

use crate::log_position::Location;
use crate::segment::Segment;

/// Damage, and its consequences.
///
/// The log stores acknowledged issues by the index of their variant: add new variants at the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Issue {
    /// A file of HEAD is missing or unreadable. Nothing is lost as long as the other file is whole.
    Head {
        /// The file's name.
        file: String,
    },
    /// A range of the log contains no recognisable record.
    LostRange {
        /// Where the range starts.
        from: Location,
        /// Where the range ends.
        to: Location,
    },
    /// The log continues in a segment after which no whole commit follows: the segment belongs to
    /// another log, or segments before it are missing.
    StraySegment {
        /// Where the last whole commit ends.
        end: Location,
        /// The last segment.
        segment: u32,
    },
    /// The first record of a segment is damaged. It contains the store's key, which is needed only
    /// if HEAD is lost.
    SegmentStart {
        /// The segment's number.
        segment: u32,
    },
    /// The record of a process's creation or end is unreadable: the process is not listed.
    Row {
        /// The process.
        pid: Pid,
    },
    /// Facts of a process are lost.
    Facts {
        /// The process.
        pid: Pid,
        /// The first lost fact.
        first: FactNumber,
        /// The last lost fact.
        last: FactNumber,
        /// The first image after the gap, from which on the process can be read again.
        readable_from: Option<FactNumber>,
    },
    /// An image of a process is damaged, and an earlier one leads to the same state.
    Snapshot {
        /// The process.
        pid: Pid,
        /// The last fact in the image.
        at: FactNumber,
    },
    /// The first image of a process is damaged: its history before the next image is unreadable.
    FirstSnapshot {
        /// The process.
        pid: Pid,
        /// The next readable image.
        readable_from: Option<FactNumber>,
    },
    /// A change of the temporary files of a tree is lost, and with it all of the tree's files.
    TempFile {
        /// The root process of the tree.
        root: Pid,
        /// The number of the change.
        number: u64,
    },
    /// A content is damaged.
    Content {
        /// The content's hash; in an encrypted store whose record does not show it, the log's name
        /// of the content.
        hash: ContentHash,
    },
    /// The record of a checkpoint is damaged.
    Checkpoint {
        /// The checkpoint.
        id: CheckpointId,
    },
    /// A process has no recorded end, and may continue in a lost range of the log.
    MayContinueInLoss {
        /// The process.
        pid: Pid,
        /// Its last known fact.
        last: FactNumber,
    },
    /// The log ends before HEAD's position.
    LogTooShort {
        /// Where the last whole commit ends.
        end: Location,
        /// HEAD's position.
        head: Location,
        /// How many commits are missing.
        commits: u64,
    },
    /// It is unknown whether more commits followed the last whole one.
    UnknownEnd {
        /// Where the last whole commit ends.
        end: Location,
        /// The number of that commit.
        commit: u64,
    },
    /// The latest record of a label is damaged.
    Label {
        /// The number of the label.
        number: u64,
    },
}

impl Issue {
    /// Whether a repair removes the damage without loss.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        matches!(self, Self::Head { .. } | Self::Snapshot { .. })
    }

    /// Whether the issue prevents a repair: the caller has to act first.
    #[must_use]
    pub fn blocks_repair(&self) -> bool {
        matches!(self, Self::StraySegment { .. })
    }

    /// The issue without the fields that can differ the next time it is found. An acknowledged
    /// issue is recognised by its identity.
    pub(crate) fn identity(self) -> Self {
        match self {
            Self::Facts {
                pid, first, last, ..
            } => Self::Facts {
                pid,
                first,
                last,
                readable_from: None,
            },
            Self::FirstSnapshot { pid, .. } => Self::FirstSnapshot {
                pid,
                readable_from: None,
            },
            other => other,
        }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head { file } => write!(f, "{file}: missing or damaged"),
            Self::LostRange { from, to } => write_lost_range(f, *from, *to),
            Self::StraySegment { end, segment } => write!(
                f,
                "log: no whole commit follows {end}, although the log continues to segment \
                 {segment:08}. Remove the later segments from the folder, or restore the missing \
                 ones"
            ),
            Self::SegmentStart { segment } => write!(
                f,
                "log: the first record of segment {segment:08} is damaged, which matters only if \
                 HEAD is lost"
            ),
            Self::Row { pid } => write!(
                f,
                "process {pid}: the record of its creation or end is damaged"
            ),
            Self::Facts {
                pid,
                first,
                last,
                readable_from,
            } => {
                let up_to = first.0.saturating_sub(1);
                write!(
                    f,
                    "process {pid}: facts {first}-{last} are lost; it can be read up to {up_to}"
                )?;
                readable_from.map_or(Ok(()), |from| write!(f, " and from {from} on"))
            }
            Self::Snapshot { pid, at } => {
                write!(
                    f,
                    "process {pid}: its snapshot at fact {at} is damaged; it is replayed from an \
                     earlier one"
                )
            }
            Self::FirstSnapshot {
                pid,
                readable_from: Some(from),
            } => {
                write!(
                    f,
                    "process {pid}: its first image is damaged; it can be read from fact {from} on"
                )
            }
            Self::FirstSnapshot {
                pid,
                readable_from: None,
            } => write!(f, "process {pid}: no image of it can be read"),
            Self::TempFile { root, number } => {
                write!(
                    f,
                    "process {root}: change {number} of the temporary files of its tree is lost"
                )
            }
            Self::Content { hash } => write!(f, "content {hash}: it is damaged"),
            Self::Checkpoint { id } => {
                write!(
                    f,
                    "checkpoint {id}: its record is damaged: the processes it needs are unknown"
                )
            }
            Self::Label { number } => write!(
                f,
                "label {number}: its record is damaged: its name, its budget and what was used of \
                 it are unknown. Set the budgets of your labels again"
            ),
            Self::MayContinueInLoss { pid, last } => {
                write!(
                    f,
                    "process {pid}: it may continue after fact {last} in a lost range; it can be \
                     read up to {last}"
                )
            }
            Self::LogTooShort { end, head, commits } => write!(
                f,
                "log: it ends at {end}, before HEAD's position, {head}. Missing commits: \
                 {commits}. Restore {}, if there is a copy",
                describe_files(end.segment, head.segment)
            ),
            Self::UnknownEnd { end, commit } => write!(
                f,
                "log: it is unknown whether more followed commit {commit}, the last whole one, \
                 which ends at {end}"
            ),
        }
    }
}

/// A lost range of the log, with the files that may be missing in it.
fn write_lost_range(f: &mut fmt::Formatter<'_>, from: Location, to: Location) -> fmt::Result {
    write!(f, "log: no record is recognisable from {from} to {to}")?;
    let first = if from.offset == 0 {
        from.segment
    } else {
        from.segment + 1
    };
    if first < to.segment {
        write!(
            f,
            ". {} may be missing",
            describe_files(first, to.segment - 1)
        )?;
    }
    Ok(())
}

/// The names of the segment files from `first` to `last`, for a message.
fn describe_files(first: u32, last: u32) -> String {
    match last <= first {
        true => Segment::file_name(first),
        false => format!(
            "{} to {}",
            Segment::file_name(first),
            Segment::file_name(last)
        ),
    }
}
