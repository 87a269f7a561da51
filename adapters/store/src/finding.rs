//! What can be found in a store that is not whole: by these names damage is reported, and known
//! again once it was acknowledged.

use std::fmt;

use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};
use serde::{Deserialize, Serialize};

use crate::mark::Location;
use crate::segment::Segment;

/// Damage, and what follows from it.
///
/// The log keeps some of them as notes of what was acknowledged, by their order here: a new one
/// goes to the end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Finding {
    /// A file of HEAD is missing or cannot be read. While there is another, nothing is lost by
    /// that.
    Head {
        /// Its name.
        file: String,
    },
    /// A part of the log cannot be recognised.
    Part {
        /// From where.
        from: Location,
        /// To where.
        to: Location,
    },
    /// The log goes on to a segment behind which no whole commit stands: it is another log's, or
    /// what stood between is lost.
    Stray {
        /// Where the last whole commit ends.
        end: Location,
        /// The last segment.
        segment: u32,
    },
    /// The first record of a segment is damaged, which holds the key of the store for the case that
    /// HEAD is lost.
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
        /// Its name; where the store is encrypted and the record does not tell it, the one that the
        /// log has for it.
        hash: ContentHash,
    },
    /// The record of a checkpoint is damaged.
    Checkpoint {
        /// Its number.
        id: CheckpointId,
    },
    /// A process has not ended as far as is known, and may go on in a part of the log that is lost.
    End {
        /// The process.
        pid: Pid,
        /// Its last fact that is known.
        last: FactNumber,
    },
    /// The log ends before the place that HEAD vouches for.
    Short {
        /// Where the last whole commit ends.
        end: Location,
        /// How far HEAD vouches for it.
        vouched: Location,
        /// The commits that are missing.
        commits: u64,
    },
    /// Nothing says whether anything stood behind the last whole commit.
    Unvouched {
        /// Where it ends.
        end: Location,
        /// Its number.
        commit: u64,
    },
}

impl Finding {
    /// Whether a repair mends it without loss.
    #[must_use]
    pub fn can_be_mended(&self) -> bool {
        matches!(self, Self::Head { .. } | Self::Image { .. })
    }

    /// Whether a repair can do nothing about it: something else has to be done first.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Stray { .. })
    }

    /// What is the same about it whenever it is found: what was found before is known again by
    /// this.
    pub(crate) fn known_by(self) -> Self {
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

impl fmt::Display for Finding {
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

/// A part of the log, with the files that may be missing in it.
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
