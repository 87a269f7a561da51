//! The kinds of damage that a check can find. Acknowledged damage is recognised by the same values.

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
    Part {
        /// Where the range starts.
        from: Location,
        /// Where the range ends.
        to: Location,
    },
    /// The log continues in a segment after which no whole commit follows: the segment belongs to
    /// another log, or segments before it are missing.
    Stray {
        /// Where the last whole commit ends.
        end: Location,
        /// The last segment.
        segment: u32,
    },
    /// The first record of a segment is damaged. It contains the store's key, which is needed only
    /// if HEAD is lost.
    Opening {
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
        again_from: Option<FactNumber>,
    },
    /// An image of a process is damaged, and an earlier one leads to the same state.
    Image {
        /// The process.
        pid: Pid,
        /// The last fact in the image.
        at: FactNumber,
    },
    /// The first image of a process is damaged: its history before the next image is unreadable.
    Beginning {
        /// The process.
        pid: Pid,
        /// The next readable image.
        again_from: Option<FactNumber>,
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
    End {
        /// The process.
        pid: Pid,
        /// Its last known fact.
        last: FactNumber,
    },
    /// The log ends before HEAD's position.
    Short {
        /// Where the last whole commit ends.
        end: Location,
        /// HEAD's position.
        vouched: Location,
        /// How many commits are missing.
        commits: u64,
    },
    /// Nothing shows whether more commits followed the last whole one.
    Unvouched {
        /// Where the last whole commit ends.
        end: Location,
        /// The number of that commit.
        commit: u64,
    },
}

impl Issue {
    /// Whether a repair removes the damage without loss.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        matches!(self, Self::Head { .. } | Self::Image { .. })
    }

    /// Whether the issue prevents a repair: the caller has to act first.
    #[must_use]
    pub fn blocks_repair(&self) -> bool {
        matches!(self, Self::Stray { .. })
    }

    /// The part of the issue that stays the same each time it is found, by which an acknowledged
    /// issue is recognised.
    pub(crate) fn identity(self) -> Self {
        match self {
            Self::Facts {
                pid, first, last, ..
            } => Self::Facts {
                pid,
                first,
                last,
                again_from: None,
            },
            Self::Beginning { pid, .. } => Self::Beginning {
                pid,
                again_from: None,
            },
            other => other,
        }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head { file } => write!(f, "{file}: it is missing or damaged"),
            Self::Part { from, to } => part(f, *from, *to),
            Self::Stray { end, segment } => write!(
                f,
                "log: no whole commit stands behind {end}, though it goes on to segment \
                 {segment:08}. Take what is behind out of the folder, or put back what is missing \
                 between"
            ),
            Self::Opening { segment } => write!(
                f,
                "log: the first record of segment {segment:08} is damaged, which only matters \
                 where HEAD is lost"
            ),
            Self::Row { pid } => write!(
                f,
                "process {pid}: the record of its birth or end is damaged"
            ),
            Self::Facts {
                pid,
                first,
                last,
                again_from,
            } => {
                let upto = first.0.saturating_sub(1);
                write!(
                    f,
                    "process {pid}: facts {first}-{last} are lost, it can be read up to {upto}"
                )?;
                again_from.map_or(Ok(()), |from| write!(f, " and from {from} on"))
            }
            Self::Image { pid, at } => {
                write!(
                    f,
                    "process {pid}: its snapshot at fact {at} is damaged, and is replayed from an \
                     earlier one"
                )
            }
            Self::Beginning {
                pid,
                again_from: Some(from),
            } => {
                write!(
                    f,
                    "process {pid}: its first image is damaged, it can be read from fact {from} on"
                )
            }
            Self::Beginning {
                pid,
                again_from: None,
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
                    "checkpoint {id}: its record is damaged: which processes it needs is not known"
                )
            }
            Self::End { pid, last } => {
                write!(
                    f,
                    "process {pid}: it may go on behind fact {last} in what is lost, it can be \
                     read up to {last}"
                )
            }
            Self::Short {
                end,
                vouched,
                commits,
            } => write!(
                f,
                "log: it ends with {end}, and HEAD vouches for it up to {vouched}. Commits that \
                 are missing: {commits}. Put back {}, if there is a copy",
                files(end.segment, vouched.segment)
            ),
            Self::Unvouched { end, commit } => write!(
                f,
                "log: nothing vouches for what stood behind commit {commit}, the last whole one, \
                 which ends with {end}"
            ),
        }
    }
}

/// A lost range of the log, with the files that may be missing in it.
fn part(f: &mut fmt::Formatter<'_>, from: Location, to: Location) -> fmt::Result {
    write!(f, "log: nothing can be recognised from {from} to {to}")?;
    let first = if from.offset == 0 {
        from.segment
    } else {
        from.segment + 1
    };
    if first < to.segment {
        write!(f, ". {} may be missing", files(first, to.segment - 1))?;
    }
    Ok(())
}

fn files(first: u32, last: u32) -> String {
    match last <= first {
        true => Segment::file_name(first),
        false => format!(
            "{} to {}",
            Segment::file_name(first),
            Segment::file_name(last)
        ),
    }
}
