//! The entry of a process in the process table. `entry_codec.rs` encodes it.

use dormouse_proto::id::FactNumber;
use dormouse_proto::process::{Exit, ProcessRow, Waiting};

use crate::log_position::Location;
use crate::log_walk::LostRange;
use crate::record_header::RecordHeader;
use dormouse_records::validator::{ProcessProgress, ProcessState};

/// The state of a process as its records in the log show it. A compaction that moves the records
/// changes only locations here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    /// The row that the process was created with; `None` if the creation record is damaged, or has
    /// not been applied yet.
    pub(crate) creation_row: Option<ProcessRow>,
    /// The location of the creation record; the log's start if none has been applied.
    pub(crate) creation_at: Location,
    /// The end of the process, if it has ended and was not opened again since.
    pub(crate) end: Option<EndEntry>,
    /// How much of its history is kept.
    pub(crate) retained: RetainedHistory,
    /// The last fact of the process.
    pub(crate) last: FactNumber,
    /// The latest creation, facts or end record of the process. Records that follow it may be lost.
    pub(crate) last_record: LastRecord,
    /// The changes of temporary files, if this process is the root of its tree.
    pub(crate) temp_files: NumberedRecords,
    /// The latest record of what the process waits for; `None` if there is none, so that the row of
    /// the creation says it.
    pub(crate) waiting: Option<WaitingEntry>,
    /// The latest record by which the process was opened again.
    pub(crate) reopened: Option<ReopenedEntry>,
}

/// The record by which an ended process was opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReopenedEntry {
    /// The commit in which it was first written.
    pub(crate) first_commit: u64,
    /// The record's location.
    pub(crate) at: Location,
    /// How often the process was opened again, this time included.
    pub(crate) reopenings: u32,
}

/// The record of what a process waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingEntry {
    /// The commit in which it was first written.
    pub(crate) first_commit: u64,
    /// The record's location.
    pub(crate) at: Location,
    /// What the process waits for; [`Waiting::Unknown`] if the record is damaged.
    pub(crate) waiting: Waiting,
    /// Whether the process is paused at a limit.
    pub(crate) is_paused: bool,
}

/// The record of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndEntry {
    /// The commit in which it was first written.
    pub(crate) first_commit: u64,
    /// The record's location.
    pub(crate) at: Location,
    /// How the process ended; `None` if the record is damaged.
    pub(crate) exit: Option<Exit>,
    /// The last fact, according to the record; 0 in older stores, whose records do not contain it.
    pub(crate) last: FactNumber,
}

/// How much of a process is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetainedHistory {
    /// Its whole history.
    Whole,
    /// Its history from the image after this fact on, and the location of the record that truncated
    /// it.
    From(FactNumber, Location),
    /// Nothing but its number, and the location of the record that deleted it.
    Deleted(Location),
}

/// The latest of several records: by the commit in which each was first written, then by location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LastRecord {
    /// The commit in which the record was first written.
    pub(crate) first_commit: u64,
    /// The record's location. The log's start for a moved record: compaction places it among
    /// records of other commits, so its location says nothing about order.
    pub(crate) at: Location,
}

/// The end of a series of records that are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedRecords {
    /// The number of the last record; 0 if there is none.
    pub(crate) last: u64,
    /// That record; if there is none, the creation record of the process.
    pub(crate) last_record: LastRecord,
}

impl LastRecord {
    /// The record at `at` with this header.
    pub(crate) fn from_header(at: Location, header: &RecordHeader) -> Self {
        Self {
            first_commit: header.first_commit,
            at: if header.is_moved() {
                Location::START
            } else {
                at
            },
        }
    }

    /// No record.
    pub(crate) const NONE: Self = Self {
        first_commit: 0,
        at: Location::START,
    };

    /// Whether a later record may be in a lost range.
    pub(crate) fn may_be_followed_in(self, lost: &LostRange) -> bool {
        self.at < lost.end && self.first_commit <= lost.last_commit
    }
}

impl ProcessEntry {
    /// A process of which nothing is known before `last_record`.
    pub(crate) fn new(last_record: LastRecord) -> Self {
        let temp_files = NumberedRecords {
            last: 0,
            last_record: LastRecord::NONE,
        };
        let creation_at = Location::START;
        let last = FactNumber(0);
        Self {
            creation_row: None,
            creation_at,
            end: None,
            retained: RetainedHistory::Whole,
            last,
            last_record,
            temp_files,
            waiting: None,
            reopened: None,
        }
    }

    /// A process that the record at `at` deleted.
    pub(crate) fn deleted(at: Location) -> Self {
        Self {
            retained: RetainedHistory::Deleted(at),
            ..Self::new(LastRecord::NONE)
        }
    }

    /// The row, including the end; `None` if the record of creation or end is damaged.
    pub(crate) fn row(&self) -> Option<ProcessRow> {
        self.clone().into_row()
    }

    /// As [`ProcessEntry::row`].
    pub(super) fn into_row(self) -> Option<ProcessRow> {
        let mut creation_row = self.creation_row?;
        if let Some(reopened) = self.reopened {
            creation_row.reopenings = reopened.reopenings;
            // A truncation by an earlier version stored the exit that the process had then.
            creation_row.exit = None;
            creation_row.waiting = Waiting::Nothing;
            creation_row.is_paused = false;
        }
        // What the process waited for in an earlier life ended with it.
        let reopened_in = self.reopened.map_or(0, |reopened| reopened.first_commit);
        let waiting = self
            .waiting
            .filter(|entry| entry.first_commit >= reopened_in);
        match self.end {
            None => Some(ProcessRow {
                waiting: waiting.map_or(creation_row.waiting, |entry| entry.waiting),
                is_paused: waiting.map_or(creation_row.is_paused, |entry| entry.is_paused),
                ..creation_row
            }),
            Some(end) => end.exit.map(|exit| ProcessRow {
                exit: Some(exit),
                waiting: Waiting::Nothing,
                is_paused: false,
                ..creation_row
            }),
        }
    }

    /// The last fact and the last change of temporary files, for the validation of a commit.
    pub(crate) fn progress(&self) -> ProcessProgress {
        let state = match self.retained {
            RetainedHistory::Deleted(_) => ProcessState::Deleted,
            _ if self.reopened.is_some() && self.end.is_none() => ProcessState::Reopened,
            _ => ProcessState::Exists,
        };
        ProcessProgress {
            last: self.last,
            temp_files: self.temp_files.last,
            state,
        }
    }

    /// The fact of the oldest existing image. Facts after it can be queried.
    pub(crate) fn oldest_image_at(&self) -> FactNumber {
        match self.retained {
            RetainedHistory::From(below, _) => below,
            RetainedHistory::Whole | RetainedHistory::Deleted(_) => FactNumber(0),
        }
    }

    /// Whether the process has ended, and its end names the last known fact: no fact is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| end.last == self.last && self.last > FactNumber(0))
    }

    /// Whether the process was deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self.retained, RetainedHistory::Deleted(_))
    }
}
