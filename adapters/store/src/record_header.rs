//! The envelope that every record stands in.
//!
//! All numbers are little-endian. A record is a header of 168 bytes and its payload, with no gap to
//! the next record.
//!
//! | bytes | field | meaning |
//! |---|---|---|
//! | 0-3 | magic | `DMLG` |
//! | 4 | version | 1 |
//! | 5 | kind | 1 opened, 2 content, 3 born, 4 facts, 5 snapshot, 6 ended, 7 temp file, 8 checkpoint, 9 checkpoint dropped, 10 swept, 11 shortened, 12 forgotten, 13 content lost, 14 snapshot dropped, 15 numbers of processes, 16 numbers of checkpoints, 17 loss noted |
//! | 6 | flags | bit 0: the last record of its commit |
//! | 7 | zero | |
//! | 8-15 | commit | the number of the commit, from 1, rising by one |
//! | 16-23 | since | the commit that it was first written in; earlier than `commit` in a record that was moved |
//! | 24-31 | synced | the latest commit that was known to be on the disk when this one was written |
//! | 32-39 | time | when it was first written: milliseconds since the epoch, UTC |
//! | 40-47 | length | of the payload, in bytes |
//! | 48-55 | subject | the pid; numbers: the first; temp file: the root's of its tree; `opened` and `swept`: the segment's number; checkpoints: theirs; content: 0 |
//! | 56-63 | first | facts: the first's number; snapshot and its drop: the last's in it; shortened: the first that can be asked for; swept: bytes that the segment had; temp file: the change's; content: bytes of its index; otherwise 0 |
//! | 64-71 | count | facts and numbers: how many; content: bytes of the content itself; otherwise 0 |
//! | 72-103 | payload hash | BLAKE3 of the payload; of a content, and of the note that it is lost, its name, the BLAKE3 of the content itself; of `swept` the hash of the segment's last record |
//! | 104-135 | previous | the hash of the record before this one; of the first, zeros |
//! | 136-167 | hash | BLAKE3 of bytes 0-135, the segment's number (4) and the record's offset (8), keyed with the store's key, or with one that is made of it and the secret (`secret`) |
//!
//! Payloads:
//!
//! * opened: the store's key (32). Each segment starts with it, so that a log can be checked even
//!   when HEAD is lost.
//! * content: for more than 64 KiB, the chaining values (32 each) of its 64 KiB chunks; then, where
//!   there is one, the BLAKE3 of its index (32) and the index; then the content. Compressed or
//!   encrypted it is packed, as the module `packed` says.
//! * born: length of the row (4), the row by `dormouse_proto::record::codec`, the image.
//! * facts: for each fact its length (4) and its bytes. snapshot: the image. ended: the exit, by
//!   the same codec.
//! * temp file: the change, as the port gave it. checkpoint: a
//!   `dormouse_proto::checkpoint::Checkpoint`, by the codec.
//! * loss noted: what was found lost, as `crate::Issue`s, by the same codec.
//! * shortened: the row, by the same codec. checkpoint dropped, swept, forgotten, content lost,
//!   snapshot dropped, numbers: nothing.
//!
//! Where the store is encrypted, every payload that is not empty is sealed (`secret`), but that of
//! `opened`. A payload is bound to kind, flags (without bit 0), since, time, subject, first and
//! count of its header, and a content to its name as well: to what a record keeps when it is moved.
//! So it opens in no other record, and in this one wherever it stands.
//!
//! Because the hash is keyed and covers the place, only this store could have written a valid
//! header, and only there: records of another store, older copies, and contents that look like
//! records are never taken for the log. Because the header's hash covers the payload's, the chain
//! runs over headers, and a damaged payload leaves the rest readable.
//!
//! A header with the right hash that has an unknown version, kind or flag was written by a later
//! version: that is an error by name and never damage, and nothing is cut there.
//!
//! This module knows bytes only; it never reads a file.

use std::fmt;

use crate::log_position::{Hash, Location, MAX_NUMBER};

/// What a record starts with.
pub(crate) const MAGIC: [u8; 4] = *b"DMLG";
/// The length of a header.
pub(crate) const HEADER_BYTES: usize = 168;
const VERSION: u8 = 1;
const ENDS_COMMIT: u8 = 1;
const COMPRESSED: u8 = 2;
const ENCRYPTED: u8 = 4;
const AUTHENTICATED_BYTES: usize = 136;

/// The secret that tells this store's records from all others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreKey(pub(crate) Hash);

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreKey(hidden)")
    }
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A segment begins.
    SegmentOpened = 1,
    /// A content.
    Content = 2,
    /// A process begins.
    ProcessCreated = 3,
    /// Facts of a process.
    Facts = 4,
    /// An image of a process.
    Snapshot = 5,
    /// A process ended.
    ProcessEnded = 6,
    /// The temporary files of a tree of processes changed.
    TempFile = 7,
    /// A point to go back to.
    Checkpoint = 8,
    /// A checkpoint is given up.
    CheckpointDropped = 9,
    /// Stands alone in place of a segment that was swept: the chain goes on behind it as behind the
    /// segment's last record, of whose commit it bears the number.
    SegmentCompacted = 10,
    /// The history of a process before a snapshot is given up.
    HistoryTruncated = 11,
    /// A process is given up.
    ProcessDeleted = 12,
    /// A content was found damaged for good.
    ContentLost = 13,
    /// An image of a process was found damaged for good.
    SnapshotDropped = 14,
    /// A stretch of processes were given up, as many records said that a sweep has moved.
    DeletedPids = 15,
    /// The same of checkpoints.
    DroppedCheckpoints = 16,
    /// Something was found lost, and that was acknowledged.
    LossAcknowledged = 17,
}

impl RecordKind {
    const ALL: [Self; 17] = [
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
    ];

    /// Whether the payload's hash in the header says something else, and there is no payload.
    pub(crate) fn has_no_payload(self) -> bool {
        matches!(self, Self::SegmentCompacted | Self::ContentLost)
    }

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Where a record stands among its commit's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceInCommit {
    /// More records of the commit follow.
    More,
    /// The commit is complete with this one.
    Last,
}

/// How a payload stands in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encoding(u8);

impl Encoding {
    /// As it is.
    pub(crate) const PLAIN: Self = Self(0);
    /// Compressed, chunk by chunk.
    pub(crate) const COMPRESSED: Self = Self(COMPRESSED);
    /// Sealed.
    pub(crate) const ENCRYPTED: Self = Self(ENCRYPTED);

    /// Both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the payload is compressed.
    pub(crate) fn is_compressed(self) -> bool {
        self.0 & COMPRESSED != 0
    }

    /// Whether the payload is sealed.
    pub(crate) fn is_encrypted(self) -> bool {
        self.0 & ENCRYPTED != 0
    }
}

/// Something in a genuine header that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownFormat {
    /// The version of the envelope.
    Version(u8),
    /// The kind of the record.
    RecordKind(u8),
    /// The flags, and byte 7.
    Flags(u8, u8),
}

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "format version {version}"),
            Self::RecordKind(kind) => write!(f, "a record of kind {kind}"),
            Self::Flags(flags, spare) => {
                write!(f, "a record with the flags {flags:#010b} and {spare:#010b}")
            }
        }
    }
}

/// A record without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) place: PlaceInCommit,
    pub(crate) encoding: Encoding,
    pub(crate) commit: u64,
    pub(crate) since: u64,
    pub(crate) synced: u64,
    pub(crate) at_ms: u64,
    pub(crate) length: u64,
    pub(crate) subject: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) payload: Hash,
    pub(crate) previous: Hash,
}

impl RecordHeader {
    /// Whether its numbers can be those of a record: whoever has the store's key can seal any. A
    /// subject is a name, which nothing is added to.
    fn is_plausible(&self) -> bool {
        let Self {
            commit,
            since,
            synced,
            at_ms,
            length,
            first,
            count,
            ..
        } = *self;
        let is_counted = [commit, since, synced, at_ms, length, first, count]
            .iter()
            .all(|number| *number <= MAX_NUMBER);
        // Each fact takes the 4 bytes of its length.
        is_counted && (self.kind != RecordKind::Facts || count <= length / 4)
    }

    /// Whether it stood elsewhere before.
    pub(crate) fn is_moved(&self) -> bool {
        self.since < self.commit
    }
}

/// A header that was checked: its hash is right for this store and this place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedHeader {
    pub(crate) header: RecordHeader,
    pub(crate) hash: Hash,
}

impl RecordHeader {
    /// The bytes of the header for a record that will stand at `at`, and its hash.
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
            since,
            synced,
            at_ms,
            length,
            subject,
            first,
            count,
            ..
        } = *self;
        let numbers = [commit, since, synced, at_ms, length, subject, first, count];
        for (field, number) in bytes[8..72].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        bytes[72..104].copy_from_slice(&self.payload);
        bytes[104..136].copy_from_slice(&self.previous);
        let hash = authentication_tag(&bytes, key, at);
        bytes[136..].copy_from_slice(&hash);
        (bytes, hash)
    }

    /// Reads back what [`RecordHeader::seal`] wrote for this place; none for anything else.
    ///
    /// # Errors
    /// [`UnknownFormat`] where a later version wrote it for this place.
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
        let kind = RecordKind::of(bytes[5]).ok_or(UnknownFormat::RecordKind(bytes[5]))?;
        let known = ENDS_COMMIT
            | ENCRYPTED
            | if kind == RecordKind::Content {
                COMPRESSED
            } else {
                0
            };
        if bytes[6] & !known != 0 || bytes[7] != 0 {
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
            since: number_at(bytes, 16),
            synced: number_at(bytes, 24),
            at_ms: number_at(bytes, 32),
            length: number_at(bytes, 40),
            subject: number_at(bytes, 48),
            first: number_at(bytes, 56),
            count: number_at(bytes, 64),
            payload: hash_at(bytes, 72),
            previous: hash_at(bytes, 104),
        };
        Ok(header
            .is_plausible()
            .then_some(CheckedHeader { header, hash }))
    }

    /// What part `number` of the payload is bound to where it is sealed: all that the record keeps
    /// when it is moved.
    pub(crate) fn associated_data(&self, part: PayloadPart, number: u64) -> Vec<u8> {
        let mut associated_data = vec![self.kind as u8, self.encoding.0, part as u8];
        let Self {
            since,
            at_ms,
            subject,
            first,
            count,
            ..
        } = *self;
        for value in [since, at_ms, subject, first, count, number] {
            associated_data.extend(value.to_le_bytes());
        }
        if self.kind == RecordKind::Content {
            associated_data.extend(self.payload);
        }
        associated_data
    }
}

/// A part of a payload that is sealed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadPart {
    /// All of it.
    Whole = 0,
    /// What a content's chunks are.
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
mod tests {
    use super::*;

    const KEY: StoreKey = StoreKey([7; 32]);
    const AT: Location = Location {
        segment: 2,
        offset: 500,
    };

    #[test]
    fn the_secret_of_a_store_is_never_printed() {
        assert_eq!(format!("{KEY:?}"), "StoreKey(hidden)");
    }

    fn header() -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Facts,
            place: PlaceInCommit::Last,
            encoding: Encoding::PLAIN,
            commit: 3,
            since: 2,
            synced: 1,
            at_ms: 1_700_000_000_000,
            length: 24,
            subject: 4,
            first: 5,
            count: 6,
            payload: [1; 32],
            previous: [2; 32],
        }
    }

    #[test]
    fn a_header_opens_only_where_it_was_sealed() {
        let (bytes, hash) = header().sign(&KEY, AT);
        assert_eq!(
            RecordHeader::verify(&bytes, &KEY, AT),
            Ok(Some(CheckedHeader {
                header: header(),
                hash
            }))
        );
        let elsewhere = [
            Location { segment: 3, ..AT },
            Location { offset: 501, ..AT },
        ];
        for place in elsewhere {
            assert_eq!(RecordHeader::verify(&bytes, &KEY, place), Ok(None));
        }
        assert_eq!(
            RecordHeader::verify(&bytes, &StoreKey([8; 32]), AT),
            Ok(None)
        );
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let (bytes, _) = header().sign(&KEY, AT);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                RecordHeader::verify(&flipped, &KEY, AT),
                Ok(None),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn what_a_later_version_wrote_is_named_and_never_ignored() {
        let cases = [
            (4, 2, UnknownFormat::Version(2)),
            (5, 200, UnknownFormat::RecordKind(200)),
            (6, 1 | 8, UnknownFormat::Flags(9, 0)),
            (6, 1 | COMPRESSED, UnknownFormat::Flags(3, 0)),
            (7, 1, UnknownFormat::Flags(1, 1)),
        ];
        for (at, byte, unknown) in cases {
            let (mut bytes, _) = header().sign(&KEY, AT);
            bytes[at] = byte;
            let hash = authentication_tag(&bytes, &KEY, AT);
            bytes[AUTHENTICATED_BYTES..].copy_from_slice(&hash);
            assert_eq!(
                RecordHeader::verify(&bytes, &KEY, AT),
                Err(unknown),
                "byte {at}"
            );
        }
    }

    #[test]
    fn a_header_whose_numbers_cannot_be_is_nobodys() {
        let most = RecordHeader {
            at_ms: MAX_NUMBER,
            ..header()
        };
        let cases = [
            (most.clone(), true),
            (
                RecordHeader {
                    at_ms: MAX_NUMBER + 1,
                    ..header()
                },
                false,
            ),
            (
                RecordHeader {
                    length: u64::MAX,
                    ..header()
                },
                false,
            ),
            (
                RecordHeader {
                    subject: u64::MAX,
                    ..header()
                },
                true,
            ),
            (
                RecordHeader {
                    first: u64::MAX,
                    ..header()
                },
                false,
            ),
            (
                RecordHeader {
                    kind: RecordKind::Content,
                    count: u64::MAX,
                    ..header()
                },
                false,
            ),
            (
                RecordHeader {
                    count: 7,
                    ..header()
                },
                false,
            ),
            (
                RecordHeader {
                    kind: RecordKind::Content,
                    count: 7,
                    ..header()
                },
                true,
            ),
        ];
        for (header, is_plausible) in cases {
            let (bytes, hash) = header.sign(&KEY, AT);
            let opened = is_plausible.then(|| CheckedHeader {
                header: header.clone(),
                hash,
            });
            assert_eq!(
                RecordHeader::verify(&bytes, &KEY, AT),
                Ok(opened),
                "{header:?}"
            );
        }
    }

    #[test]
    fn a_payload_is_bound_to_what_a_move_keeps_and_to_nothing_else() {
        let associated_data = |header: RecordHeader| header.associated_data(PayloadPart::Whole, 0);
        let moved = RecordHeader {
            place: PlaceInCommit::More,
            commit: 9,
            synced: 8,
            previous: [7; 32],
            ..header()
        };
        assert_eq!(associated_data(moved), associated_data(header()));
        let others = [
            RecordHeader {
                kind: RecordKind::Snapshot,
                ..header()
            },
            RecordHeader {
                encoding: Encoding::ENCRYPTED,
                ..header()
            },
            RecordHeader {
                since: 1,
                ..header()
            },
            RecordHeader {
                at_ms: 1,
                ..header()
            },
            RecordHeader {
                subject: 1,
                ..header()
            },
            RecordHeader {
                first: 1,
                ..header()
            },
            RecordHeader {
                count: 1,
                ..header()
            },
        ];
        for other in others {
            assert_ne!(
                associated_data(other.clone()),
                associated_data(header()),
                "{other:?}"
            );
        }
        assert_ne!(
            header().associated_data(PayloadPart::Chunk, 0),
            header().associated_data(PayloadPart::Whole, 0)
        );
        assert_ne!(
            header().associated_data(PayloadPart::Chunk, 0),
            header().associated_data(PayloadPart::Chunk, 1)
        );
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let (bytes, hash) = header().sign(&KEY, AT);
        let mut expected = Vec::from(*b"DMLG\x01\x04\x01\x00");
        for number in [3_u64, 2, 1, 1_700_000_000_000, 24, 4, 5, 6] {
            expected.extend(number.to_le_bytes());
        }
        expected.extend([1; 32]);
        expected.extend([2; 32]);
        let place = [&expected[..], &2_u32.to_le_bytes(), &500_u64.to_le_bytes()].concat();
        assert_eq!(hash, *blake3::keyed_hash(&KEY.0, &place).as_bytes());
        expected.extend(hash);
        assert_eq!(bytes[..], expected[..]);
    }
}
