//! The encoding of an entry of the process table, in memory and in the index.
//!
//! A table has an entry for every process that ever existed, and all of them are in memory. So an
//! entry is written by hand, in few bytes, and read in part: flags (2 bytes), then the fields that
//! the flags name. Numbers are little-endian with seven bits in each byte. What few processes have
//! (a name, labels, an exit) is encoded by the codec of records, after its length. The pid is not
//! encoded: an entry is stored under it.
//!
//! The index verifies the bytes before they are decoded. After a change of the encoding, raise
//! `VERSION` in `location_index.rs`.

use std::sync::Arc;

use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::label::Label;
use dormouse_proto::process::{BranchOrigin, Exit, Origin, ProcessRow, Waiting};
use dormouse_proto::record::codec;

use super::entry::{
    EndEntry, LastRecord, NumberedRecords, ProcessEntry, ReopenedEntry, RetainedHistory,
    WaitingEntry,
};
use super::program_names::ProgramNames;
use crate::log_position::Location;

/// The process was deleted: only the location of the record follows.
const DELETED: u16 = 1;
/// The row of the creation is readable.
const ROW: u16 = 1 << 1;
const PARENT: u16 = 1 << 2;
/// The row has a field that few rows have ([`UncommonFields`]).
const UNCOMMON: u16 = 1 << 3;
const ROW_PAUSED: u16 = 1 << 4;
const END: u16 = 1 << 5;
/// The exit is readable.
const EXIT: u16 = 1 << 6;
const TRUNCATED: u16 = 1 << 7;
/// The latest record of temporary files is the creation, as for a process without such files.
const NO_TEMP_FILES: u16 = 1 << 8;
const WAITING: u16 = 1 << 9;
const WAITING_PAUSED: u16 = 1 << 10;
const REOPENED: u16 = 1 << 11;

/// Name, branch origin, exit, reopenings and labels of a row.
type UncommonFields = (
    Option<Arc<str>>,
    Option<BranchOrigin>,
    Option<Exit>,
    u32,
    Arc<[Label]>,
);

impl ProcessEntry {
    /// Encodes the entry. A deleted process takes few bytes.
    ///
    /// # Errors
    /// If a name, a label or an exit cannot be encoded.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, codec::CodecError> {
        let mut out = EntryWriter::default();
        if let RetainedHistory::Deleted(at) = self.retained {
            out.flags = DELETED;
            out.location(at);
            return Ok(out.finish());
        }
        if let Some(row) = &self.creation_row {
            out.row(row)?;
        }
        out.location(self.creation_at);
        out.number(self.last.0);
        out.record(self.last_record.first_commit, self.last_record.at);
        let NumberedRecords { last, last_record } = self.temp_files;
        out.number(last_record.first_commit);
        if last == 0 && last_record.at == self.creation_at {
            out.flags |= NO_TEMP_FILES;
        } else {
            out.location(last_record.at);
            out.number(last);
        }
        if let Some(end) = &self.end {
            out.flags |= END;
            out.record(end.first_commit, end.at);
            out.number(end.last.0);
            if let Some(exit) = &end.exit {
                out.flags |= EXIT;
                out.framed(&codec::encode(exit)?);
            }
        }
        if let RetainedHistory::From(below, at) = self.retained {
            out.flags |= TRUNCATED;
            out.record(below.0, at);
        }
        if let Some(entry) = &self.waiting {
            out.flags |= WAITING;
            out.flag_if(entry.is_paused, WAITING_PAUSED);
            out.record(entry.first_commit, entry.at);
            out.waiting(entry.waiting);
        }
        if let Some(entry) = &self.reopened {
            out.flags |= REOPENED;
            out.record(entry.first_commit, entry.at);
            out.number(entry.reopenings.into());
        }
        Ok(out.finish())
    }

    /// The reverse of [`ProcessEntry::to_bytes`], for the bytes of process `pid` that were
    /// verified.
    pub(crate) fn from_bytes(pid: Pid, bytes: &[u8], names: &mut ProgramNames) -> Option<Self> {
        let mut input = EntryReader::new(bytes)?;
        if input.has(DELETED) {
            let entry = Self::deleted(input.location()?);
            return input.rest.is_empty().then_some(entry);
        }
        let creation_row = match input.has(ROW) {
            true => Some(input.row(pid, names)?),
            false => None,
        };
        let creation_at = input.location()?;
        let last = FactNumber(input.number()?);
        let last_record = input.record()?;
        let first_commit = input.number()?;
        let (at, last_temp_file) = match input.has(NO_TEMP_FILES) {
            true => (creation_at, 0),
            false => (input.location()?, input.number()?),
        };
        let temp_files = NumberedRecords {
            last: last_temp_file,
            last_record: LastRecord { first_commit, at },
        };
        let end = match input.has(END) {
            true => Some(input.end()?),
            false => None,
        };
        let retained = match input.has(TRUNCATED) {
            true => RetainedHistory::From(FactNumber(input.number()?), input.location()?),
            false => RetainedHistory::Whole,
        };
        let waiting = match input.has(WAITING) {
            true => Some(WaitingEntry {
                first_commit: input.number()?,
                at: input.location()?,
                waiting: input.waiting()?,
                is_paused: input.has(WAITING_PAUSED),
            }),
            false => None,
        };
        let reopened = match input.has(REOPENED) {
            true => Some(ReopenedEntry {
                first_commit: input.number()?,
                at: input.location()?,
                reopenings: input.number()?.try_into().ok()?,
            }),
            false => None,
        };
        input.rest.is_empty().then_some(Self {
            creation_row,
            creation_at,
            end,
            retained,
            last,
            last_record,
            temp_files,
            waiting,
            reopened,
        })
    }
}

/// The latest state of an entry.
pub(super) enum LatestEntry<'t> {
    /// It has not changed since it was encoded.
    Encoded(&'t [u8]),
    /// It has changed, or is new.
    Changed(&'t ProcessEntry),
}

impl LatestEntry<'_> {
    /// Whether the process was deleted. Decodes nothing.
    pub(super) fn is_deleted(&self) -> bool {
        match self {
            Self::Encoded(bytes) => flags_of(bytes) & DELETED != 0,
            Self::Changed(entry) => entry.is_deleted(),
        }
    }

    /// Whether the record of the creation or of the end is damaged, so that there is no row.
    /// Decodes nothing.
    pub(super) fn is_row_lost(&self) -> bool {
        match self {
            Self::Encoded(bytes) => {
                let flags = flags_of(bytes);
                let has_row = flags & ROW != 0 && (flags & END == 0 || flags & EXIT != 0);
                flags & DELETED == 0 && !has_row
            }
            Self::Changed(entry) => !entry.is_deleted() && entry.row().is_none(),
        }
    }

    /// The entry; `None` if its bytes cannot be decoded.
    pub(super) fn decode(&self, pid: Pid, names: &mut ProgramNames) -> Option<ProcessEntry> {
        match self {
            Self::Encoded(bytes) => ProcessEntry::from_bytes(pid, bytes, names),
            Self::Changed(entry) => Some((*entry).clone()),
        }
    }
}

fn flags_of(bytes: &[u8]) -> u16 {
    bytes
        .first_chunk()
        .map_or(0, |flags| u16::from_le_bytes(*flags))
}

/// An entry that is being encoded.
#[derive(Default)]
struct EntryWriter {
    flags: u16,
    fields: Vec<u8>,
}

impl EntryWriter {
    fn finish(self) -> Vec<u8> {
        [&self.flags.to_le_bytes()[..], &self.fields].concat()
    }

    fn flag_if(&mut self, condition: bool, flag: u16) {
        self.flags |= if condition { flag } else { 0 };
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.fields.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.fields.push(number as u8);
    }

    fn location(&mut self, at: Location) {
        self.number(at.segment.into());
        self.number(at.offset);
    }

    /// The number of a commit or a fact, and the location of a record.
    fn record(&mut self, number: u64, at: Location) {
        self.number(number);
        self.location(at);
    }

    fn framed(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.fields.extend(bytes);
    }

    fn waiting(&mut self, waiting: Waiting) {
        let (kind, time_ms) = match waiting {
            Waiting::Nothing => (0, None),
            Waiting::Alarm { due_ms } => (1, Some(due_ms)),
            Waiting::Person { expires_ms: None } => (2, None),
            Waiting::Person { expires_ms } => (3, expires_ms),
            Waiting::Unknown => (4, None),
        };
        self.fields.push(kind);
        time_ms.into_iter().for_each(|ms| self.number(ms));
    }

    fn origin(&mut self, origin: &Origin) {
        let (kind, numbers) = match origin {
            Origin::Started => (0, [0; 3]),
            Origin::Forked { call, index } => (1, [call.epoch, call.seq, *index].map(u64::from)),
            Origin::Spawned { call } => (2, [call.epoch, call.seq, 0].map(u64::from)),
            Origin::Copied { from, at } => (3, [from.0, at.0, 0]),
            Origin::Judge { call, index } => (4, [call.epoch, call.seq, *index].map(u64::from)),
        };
        self.fields.push(kind);
        for number in &numbers[..origin_numbers(kind)] {
            self.number(*number);
        }
    }

    fn row(&mut self, row: &ProcessRow) -> Result<(), codec::CodecError> {
        let ProcessRow {
            pid: _,
            parent,
            program,
            name,
            origin,
            branched_from,
            exit,
            waiting,
            reopenings,
            is_paused,
            labels,
        } = row;
        self.flags |= ROW;
        if let Some(parent) = parent {
            self.flags |= PARENT;
            self.number(parent.0);
        }
        self.framed(program.as_bytes());
        self.origin(origin);
        self.waiting(*waiting);
        self.flag_if(*is_paused, ROW_PAUSED);
        let has_only_common_fields = name.is_none()
            && branched_from.is_none()
            && exit.is_none()
            && *reopenings == 0
            && labels.is_empty();
        if !has_only_common_fields {
            self.flags |= UNCOMMON;
            let fields = (name, branched_from, exit, reopenings, labels);
            self.framed(&codec::encode(&fields)?);
        }
        Ok(())
    }
}

/// How many numbers follow the kind of an origin.
fn origin_numbers(kind: u8) -> usize {
    match kind {
        0 => 0,
        2 | 3 => 2,
        _ => 3,
    }
}

/// The unread rest of an encoded entry.
struct EntryReader<'b> {
    flags: u16,
    rest: &'b [u8],
}

impl<'b> EntryReader<'b> {
    fn new(bytes: &'b [u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first_chunk()?;
        let flags = u16::from_le_bytes(*flags);
        Some(Self { flags, rest })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn location(&mut self) -> Option<Location> {
        Some(Location {
            segment: self.number()?.try_into().ok()?,
            offset: self.number()?,
        })
    }

    fn record(&mut self) -> Option<LastRecord> {
        Some(LastRecord {
            first_commit: self.number()?,
            at: self.location()?,
        })
    }

    fn framed(&mut self) -> Option<&'b [u8]> {
        let length = self.number()?.try_into().ok()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn waiting(&mut self) -> Option<Waiting> {
        Some(match self.byte()? {
            0 => Waiting::Nothing,
            1 => Waiting::Alarm {
                due_ms: self.number()?,
            },
            2 => Waiting::Person { expires_ms: None },
            3 => Waiting::Person {
                expires_ms: Some(self.number()?),
            },
            4 => Waiting::Unknown,
            _ => return None,
        })
    }

    fn origin(&mut self) -> Option<Origin> {
        let kind = self.byte()?;
        let mut numbers = [0; 3];
        for number in &mut numbers[..origin_numbers(kind)] {
            *number = self.number()?;
        }
        let call = || {
            Some(CallId {
                epoch: numbers[0].try_into().ok()?,
                seq: numbers[1].try_into().ok()?,
            })
        };
        let index = || u32::try_from(numbers[2]).ok();
        Some(match kind {
            0 => Origin::Started,
            1 => Origin::Forked {
                call: call()?,
                index: index()?,
            },
            2 => Origin::Spawned { call: call()? },
            3 => Origin::Copied {
                from: Pid(numbers[0]),
                at: FactNumber(numbers[1]),
            },
            4 => Origin::Judge {
                call: call()?,
                index: index()?,
            },
            _ => return None,
        })
    }

    /// A row, whose parent must be older than the process: a walk from child to parent must
    /// terminate.
    fn row(&mut self, pid: Pid, names: &mut ProgramNames) -> Option<ProcessRow> {
        let parent = match self.has(PARENT) {
            true => Some(Pid(self.number()?)),
            false => None,
        };
        let program = names.share(std::str::from_utf8(self.framed()?).ok()?);
        let origin = self.origin()?;
        let waiting = self.waiting()?;
        let (name, branched_from, exit, reopenings, labels): UncommonFields =
            match self.has(UNCOMMON) {
                true => codec::decode(self.framed()?).ok()?,
                false => Default::default(),
            };
        let row = ProcessRow {
            pid,
            parent,
            program,
            name,
            origin,
            branched_from,
            exit,
            waiting,
            reopenings,
            is_paused: self.has(ROW_PAUSED),
            labels,
        };
        row.has_higher_pid_than_parent().then_some(row)
    }

    fn end(&mut self) -> Option<EndEntry> {
        Some(EndEntry {
            first_commit: self.number()?,
            at: self.location()?,
            last: FactNumber(self.number()?),
            exit: match self.has(EXIT) {
                true => Some(codec::decode(self.framed()?).ok()?),
                false => None,
            },
        })
    }
}

#[cfg(test)]
mod tests;
