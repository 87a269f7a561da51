//! The header of every record of the log: its bytes, its authentication and its plausibility.
//!
//! All numbers are little-endian. A record is a header of 168 bytes and its payload, with no gap to
//! the next record.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0-3 | magic | `DMLG` |
//! | 4 | version | 1 |
//! | 5 | kind | 1 segment opened, 2 content, 3 process created, 4 facts, 5 snapshot, 6 process ended, 7 temp file, 8 checkpoint, 9 checkpoint dropped, 10 segment compacted, 11 history truncated, 12 process deleted, 13 content lost, 14 snapshot dropped, 15 deleted pids, 16 dropped checkpoints, 17 loss acknowledged, 18 waiting, 19 process reopened, 20 label |
//! | 6 | flags | bit 0: the last record of its commit; bit 1: compressed; bit 2: encrypted |
//! | 7 | zero | |
//! | 8-15 | commit | the number of the commit, from 1, rising by one |
//! | 16-23 | first_commit | the commit in which the record was first written; earlier than `commit` if the record was moved |
//! | 24-31 | synced | the latest commit known to be on the disk when this record was written |
//! | 32-39 | time | of the first write: milliseconds since the epoch, UTC |
//! | 40-47 | length | of the payload, in bytes |
//! | 48-55 | subject | the pid; ranges of numbers: the first; temp file: the pid of the tree's root; segments: the segment's number; checkpoints and labels: its number; content: 0 |
//! | 56-63 | first | facts: the number of the first; snapshot and its drop, process ended: the last fact in it; history truncated: the first fact that can be queried; segment compacted: the bytes that the segment had; temp file: the number of the change; content: the bytes of its index; otherwise 0 |
//! | 64-71 | count | facts and ranges of numbers: how many; content: its bytes; process reopened: how often the process was opened again, this time included; otherwise 0 |
//! | 72-103 | payload hash | BLAKE3 of the payload; of a content, and of the record that declares it lost, the log's name of the content; of a compacted segment the hash of its last record |
//! | 104-135 | previous | the hash of the preceding record; of the first record, zeros |
//! | 136-167 | hash | BLAKE3 of bytes 0-135, the segment's number (4) and the record's offset (8), keyed with the store's key, or with one derived from it and the secret (`secret`) |
//!
//! Payloads:
//!
//! * segment opened: the store's key (32). Every segment starts with it, so that a log can be
//!   checked even if HEAD is lost.
//! * content: if it is longer than 64 KiB, the chaining values (32 each) of its 64 KiB chunks;
//!   then, if it has an index, the BLAKE3 of the index (32) and the index; then the content. A
//!   compressed or encrypted content is packed, as the module `packed` describes.
//! * process created: the length of the row (4), the row by `dormouse_proto::record::codec`, the
//!   image.
//! * facts: for each fact its length (4) and its bytes. snapshot: the image. process ended: the
//!   exit, by the same codec.
//! * temp file: the change, as the port received it. checkpoint: a
//!   `dormouse_proto::checkpoint::Checkpoint`, by the codec.
//! * label: the record, as the port received it.
//! * loss acknowledged: a list of `crate::Issue`, by the same codec.
//! * history truncated: the row, by the same codec.
//! * waiting: what the process waits for, and whether it is paused at a limit, by the same codec.
//! * All other kinds have no payload.
//!
//! In an encrypted store, every payload that is not empty is encrypted (`secret`), except that of
//! `segment opened`. The associated data are kind, flags (without bit 0), first_commit, time,
//! subject, first and count of the header, and for a content its name as well: the fields that do
//! not change when a record is moved. Therefore a payload can be decrypted only with the header of
//! its own record, at any location.
//!
//! The hash is keyed and covers the location, so only this store can have written a valid header,
//! and only at this location: records of another store, older copies, and contents that look like
//! records are never taken for part of the log. The header's hash covers the payload's, so the
//! chain runs over headers only, and a damaged payload leaves the rest readable.
//!
//! A header with the right hash but an unknown version, kind or flag was written by a later
//! version. That is an error by name and never damage, and nothing is cut there.
//!
//! This module handles bytes only; it never reads a file.

use std::fmt;

use dormouse_records::secret::StoreKey;

use crate::log_position::{Hash, Location, MAX_NUMBER};

/// The first bytes of a record.
pub(crate) const MAGIC: [u8; 4] = *b"DMLG";
/// The length of a header.
pub(crate) const HEADER_BYTES: usize = 168;
const VERSION: u8 = 1;
const ENDS_COMMIT: u8 = 1;
const COMPRESSED: u8 = 2;
const ENCRYPTED: u8 = 4;
const AUTHENTICATED_BYTES: usize = 136;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Starts a segment.
    SegmentOpened = 1,
    /// A content.
    Content = 2,
    /// Creates a process.
    ProcessCreated = 3,
    /// Facts of a process.
    Facts = 4,
    /// An image of a process.
    Snapshot = 5,
    /// Ends a process.
    ProcessEnded = 6,
    /// Changes the temporary files of a process tree.
    TempFile = 7,
    /// A checkpoint.
    Checkpoint = 8,
    /// Drops a checkpoint.
    CheckpointDropped = 9,
    /// The stub that replaces a compacted segment. The chain continues from it as from the
    /// segment's last record, and it has the commit number of that record.
    SegmentCompacted = 10,
    /// Deletes the history of a process before a snapshot.
    HistoryTruncated = 11,
    /// Deletes a process.
    ProcessDeleted = 12,
    /// Declares that a content is damaged and lost.
    ContentLost = 13,
    /// Drops a damaged image of a process.
    SnapshotDropped = 14,
    /// A range of deleted pids, merged by a compaction.
    DeletedPids = 15,
    /// A range of dropped checkpoints, merged by a compaction.
    DroppedCheckpoints = 16,
    /// Acknowledges losses.
    LossAcknowledged = 17,
    /// Says what a process waits for (an alarm, a person), and whether it is paused at a limit.
    Waiting = 18,
    /// Opens an ended process again.
    ProcessReopened = 19,
    /// Replaces the record of a label.
    Label = 20,
}

impl RecordKind {
    const ALL: [Self; 20] = [
        Self::SegmentOpened,
        Self::Content,
        Self::ProcessCreated,
        Self::Facts,
        Self::Snapshot,
        Self::ProcessEnded,
        Self::TempFile,
        Self::Checkpoint,
        Self::CheckpointDropped,
        Self::SegmentCompacted,
        Self::HistoryTruncated,
        Self::ProcessDeleted,
        Self::ContentLost,
        Self::SnapshotDropped,
        Self::DeletedPids,
        Self::DroppedCheckpoints,
        Self::LossAcknowledged,
        Self::Waiting,
        Self::ProcessReopened,
        Self::Label,
    ];

    /// Whether the record has no payload, and its payload hash field contains something else.
    pub(crate) fn has_no_payload(self) -> bool {
        matches!(self, Self::SegmentCompacted | Self::ContentLost)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Whether a record completes its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceInCommit {
    /// More records of the commit follow.
    More,
    /// The last record of its commit.
    Last,
}

/// How a payload is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encoding(u8);

impl Encoding {
    /// Neither compressed nor encrypted.
    pub(crate) const PLAIN: Self = Self(0);
    /// Compressed, chunk by chunk.
    pub(crate) const COMPRESSED: Self = Self(COMPRESSED);
    /// Encrypted.
    pub(crate) const ENCRYPTED: Self = Self(ENCRYPTED);

    /// Combines two encodings.
    pub(crate) fn combine(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the payload is compressed.
    pub(crate) fn is_compressed(self) -> bool {
        self.0 & COMPRESSED != 0
    }

    /// Whether the payload is encrypted.
    pub(crate) fn is_encrypted(self) -> bool {
        self.0 & ENCRYPTED != 0
    }
}

/// Part of a genuine header that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownFormat {
    /// The version of the header format.
    Version(u8),
    /// The kind of the record.
    Kind(u8),
    /// The flags, and byte 7.
    Flags(u8, u8),
}

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "format version {version}"),
            Self::Kind(kind) => write!(f, "a record of kind {kind}"),
            Self::Flags(flags, spare) => {
                write!(f, "a record with the flags {flags:#010b} and {spare:#010b}")
            }
        }
    }
}

/// The header of a record. The table at the top of this file says what `subject`, `first` and
/// `count` mean for each kind of record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) place: PlaceInCommit,
    pub(crate) encoding: Encoding,
    pub(crate) commit: u64,
    pub(crate) first_commit: u64,
    pub(crate) synced: u64,
    pub(crate) at_ms: u64,
    pub(crate) length: u64,
    pub(crate) subject: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) payload_hash: Hash,
    pub(crate) previous: Hash,
}

impl RecordHeader {
    /// Whether the numbers are within bounds: anyone with the store's key can forge a header with
    /// any numbers. `subject` is an identifier, which is never added to.
    fn is_plausible(&self) -> bool {
        let Self {
            commit,
            first_commit,
            synced,
            at_ms,
            length,
            first,
            count,
            ..
        } = *self;
        let is_in_bounds = [commit, first_commit, synced, at_ms, length, first, count]
            .iter()
            .all(|number| *number <= MAX_NUMBER);
        // Each fact takes at least the 4 bytes of its length.
        is_in_bounds && (self.kind != RecordKind::Facts || count <= length / 4)
    }

    /// The length of a content's index in the payload, in bytes; 0 if it has none.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.first
    }

    /// The length of a content, in bytes.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.count
    }

    /// Whether compaction has moved the record.
    pub(crate) fn is_moved(&self) -> bool {
        self.first_commit < self.commit
    }
}

/// A header whose hash is valid for this store and this location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedHeader {
    pub(crate) header: RecordHeader,
    pub(crate) hash: Hash,
}

impl RecordHeader {
    /// The bytes of the header for a record at `at`, and its keyed hash.
    pub(crate) fn sign(&self, key: &StoreKey, at: Location) -> ([u8; HEADER_BYTES], Hash) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind as u8;
        bytes[6] = self.encoding.0
            | if self.place == PlaceInCommit::Last {
                ENDS_COMMIT
            } else {
                0
            };
        let Self {
            commit,
            first_commit,
            synced,
            at_ms,
            length,
            subject,
            first,
            count,
            ..
        } = *self;
        let numbers = [
            commit,
            first_commit,
            synced,
            at_ms,
            length,
            subject,
            first,
            count,
        ];
        for (field, number) in bytes[8..72].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        bytes[72..104].copy_from_slice(&self.payload_hash);
        bytes[104..136].copy_from_slice(&self.previous);
        let hash = authentication_tag(&bytes, key, at);
        bytes[136..].copy_from_slice(&hash);
        (bytes, hash)
    }

    /// Decodes a header that [`RecordHeader::sign`] wrote for this store and location; `None` for
    /// any other bytes.
    ///
    /// # Errors
    /// [`UnknownFormat`] if a later version wrote it for this location.
    pub(crate) fn verify(
        bytes: &[u8; HEADER_BYTES],
        key: &StoreKey,
        at: Location,
    ) -> Result<Option<CheckedHeader>, UnknownFormat> {
        let hash = hash_at(bytes, AUTHENTICATED_BYTES);
        if bytes[..4] != MAGIC || authentication_tag(bytes, key, at) != hash {
            return Ok(None);
        }
        if bytes[4] != VERSION {
            return Err(UnknownFormat::Version(bytes[4]));
        }
        let kind = RecordKind::from_byte(bytes[5]).ok_or(UnknownFormat::Kind(bytes[5]))?;
        let known_flags = ENDS_COMMIT
            | ENCRYPTED
            | if kind == RecordKind::Content {
                COMPRESSED
            } else {
                0
            };
        if bytes[6] & !known_flags != 0 || bytes[7] != 0 {
            return Err(UnknownFormat::Flags(bytes[6], bytes[7]));
        }
        let header = Self {
            kind,
            place: if bytes[6] & ENDS_COMMIT == 0 {
                PlaceInCommit::More
            } else {
                PlaceInCommit::Last
            },
            encoding: Encoding(bytes[6] & !ENDS_COMMIT),
            commit: number_at(bytes, 8),
            first_commit: number_at(bytes, 16),
            synced: number_at(bytes, 24),
            at_ms: number_at(bytes, 32),
            length: number_at(bytes, 40),
            subject: number_at(bytes, 48),
            first: number_at(bytes, 56),
            count: number_at(bytes, 64),
            payload_hash: hash_at(bytes, 72),
            previous: hash_at(bytes, 104),
        };
        Ok(header
            .is_plausible()
            .then_some(CheckedHeader { header, hash }))
    }

    /// The associated data of part `number` of an encrypted payload: the fields that do not change
    /// when the record is moved.
    pub(crate) fn associated_data(&self, part: PayloadPart, number: u64) -> Vec<u8> {
        let mut associated_data = vec![self.kind as u8, self.encoding.0, part as u8];
        let Self {
            first_commit,
            at_ms,
            subject,
            first,
            count,
            ..
        } = *self;
        for value in [first_commit, at_ms, subject, first, count, number] {
            associated_data.extend(value.to_le_bytes());
        }
        if self.kind == RecordKind::Content {
            associated_data.extend(self.payload_hash);
        }
        associated_data
    }
}

/// A part of a payload that is encrypted on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadPart {
    /// The whole payload.
    Whole = 0,
    /// The directory of a content's chunks.
    Directory = 1,
    /// A content's index.
    Index = 2,
    /// One chunk of a content.
    Chunk = 3,
}

fn number_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(
        *bytes[at..]
            .first_chunk()
            .expect("a header holds whole numbers from 8 to 71"),
    )
}

fn hash_at(bytes: &[u8; HEADER_BYTES], at: usize) -> Hash {
    *bytes[at..]
        .first_chunk()
        .expect("a header holds a whole hash at 72, 104 and 136")
}

fn authentication_tag(bytes: &[u8; HEADER_BYTES], key: &StoreKey, at: Location) -> Hash {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    hasher
        .update(&bytes[..AUTHENTICATED_BYTES])
        .update(&at.to_bytes());
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests;
