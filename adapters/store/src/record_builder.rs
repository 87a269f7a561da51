//! Builds records from the operations of a commit: encodes, compresses and encrypts payloads.
//!
//! This module reads and writes no file. The writer assigns the location of a record, and fills in
//! the header fields that depend on it.

use std::collections::BTreeSet;

use bytes::Bytes;
use dormouse_actors::ports::{StoreError, WriteOp};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ProcessRow};

use crate::issue::Issue;
use crate::log_position::Hash;
use crate::packed::{UnpackedContent, cannot_pack};
use crate::payload::{encode, encode_created, encode_parts};
use crate::record_header::{
    Encoding, HEADER_BYTES, PayloadPart, PlaceInCommit, RecordHeader, RecordKind,
};
use dormouse_records::Compression;
use dormouse_records::chunks::Chunks;
use dormouse_records::compression::split;
use dormouse_records::secret::{Keys, StoreKey};

/// A record whose location is not known yet.
#[derive(Debug)]
pub(crate) struct RecordBuilder {
    kind: RecordKind,
    subject: u64,
    first: u64,
    count: u64,
    body: Body,
    /// For a record that is moved: the commit and the time of its first write.
    first_written: Option<(u64, u64)>,
}

/// What the payload will be encoded from.
#[derive(Debug)]
enum Body {
    /// Plain bytes, which are encrypted as one if the store is encrypted.
    Whole(Bytes),
    /// A content, which is compressed if that saves space, and encrypted if the store is encrypted.
    Content(UnpackedContent),
    /// A payload in its final form: of a moved record, or of a kind that is never encrypted.
    Encoded(EncodedPayload),
}

/// An encoded payload.
#[derive(Debug)]
pub(crate) struct EncodedPayload {
    encoding: Encoding,
    hash: Hash,
    parts: Vec<Bytes>,
}

/// How payloads are encoded.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    /// The keys that payloads are encrypted with.
    pub(crate) keys: Keys,
    /// How contents are compressed.
    pub(crate) compression: Compression,
}

impl RecordBuilder {
    /// Builds the first record of a segment.
    pub(crate) fn segment_opened(segment: u32, key: &StoreKey) -> Self {
        let payload = EncodedPayload {
            encoding: Encoding::PLAIN,
            hash: *blake3::hash(&key.0).as_bytes(),
            parts: vec![Bytes::copy_from_slice(&key.0)],
        };
        Self::new(
            RecordKind::SegmentOpened,
            segment.into(),
            Body::Encoded(payload),
        )
    }

    /// Builds the record of a content, which shares `bytes`. The index of a content of one chunk is
    /// dropped, because such a content is always read whole.
    pub(crate) fn content(
        hash: ContentHash,
        bytes: &Bytes,
        index: &Bytes,
        chunks: &Chunks,
    ) -> Self {
        let list = Bytes::from(chunks.list_bytes());
        let index = if list.is_empty() {
            Bytes::new()
        } else {
            index.clone()
        };
        let first = index.len() as u64;
        let count = bytes.len() as u64;
        let bytes = bytes.clone();
        let body = Body::Content(UnpackedContent {
            hash,
            list,
            index,
            bytes,
        });
        Self {
            first,
            count,
            ..Self::new(RecordKind::Content, 0, body)
        }
    }

    /// Builds the copy of a record that compaction moves, with its payload unchanged.
    pub(crate) fn moved(header: &RecordHeader, payload: Bytes) -> Self {
        let RecordHeader {
            kind,
            subject,
            first,
            count,
            encoding,
            payload_hash: hash,
            first_commit,
            at_ms,
            ..
        } = *header;
        let body = Body::Encoded(EncodedPayload {
            encoding,
            hash,
            parts: vec![payload],
        });
        Self {
            first,
            count,
            first_written: Some((first_commit, at_ms)),
            ..Self::new(kind, subject, body)
        }
    }

    /// Builds the record that declares a content lost, by the log's name of the content.
    pub(crate) fn content_lost(name: Hash) -> Self {
        let payload = EncodedPayload {
            encoding: Encoding::PLAIN,
            hash: name,
            parts: Vec::new(),
        };
        Self::new(RecordKind::ContentLost, 0, Body::Encoded(payload))
    }

    /// Builds the record that drops the damaged image after fact `at`.
    pub(crate) fn snapshot_dropped(pid: Pid, at: FactNumber) -> Self {
        Self {
            first: at.0,
            ..Self::with_payload(RecordKind::SnapshotDropped, pid.0, Vec::new())
        }
    }

    /// Builds the record that acknowledges losses.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if they cannot be encoded.
    pub(crate) fn losses_acknowledged(losses: &[Issue]) -> Result<Self, StoreError> {
        Ok(Self::with_payload(
            RecordKind::LossAcknowledged,
            0,
            encode(&losses)?,
        ))
    }

    /// Builds the record that deletes the history of a process before `below`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the row cannot be encoded.
    pub(crate) fn history_truncated(
        row: &ProcessRow,
        below: FactNumber,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            first: below.0,
            ..Self::with_payload(RecordKind::HistoryTruncated, row.pid.0, encode(row)?)
        })
    }

    /// Builds the records that list deleted numbers, one for each range of consecutive numbers.
    /// `kind` is `DeletedPids` or `DroppedCheckpoints`.
    pub(crate) fn deleted_numbers(kind: RecordKind, numbers: &BTreeSet<u64>) -> Vec<Self> {
        let mut builders: Vec<Self> = Vec::new();
        for number in numbers {
            match builders.last_mut() {
                Some(builder) if builder.subject + builder.count == *number => builder.count += 1,
                _ => builders.push(Self {
                    count: 1,
                    ..Self::with_payload(kind, *number, Vec::new())
                }),
            }
        }
        builders
    }

    /// Builds the record of a checkpoint.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if it cannot be encoded.
    pub(crate) fn checkpoint(checkpoint: &Checkpoint) -> Result<Self, StoreError> {
        Ok(Self::with_payload(
            RecordKind::Checkpoint,
            checkpoint.id.0,
            encode(checkpoint)?,
        ))
    }

    /// Builds the record of an operation. Returns `None` for a reference to a content and an empty
    /// list of facts, which need no record, and for contents, checkpoints, ends and truncations,
    /// which have constructors of their own.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a value cannot be encoded.
    pub(crate) fn for_op(op: &WriteOp) -> Result<Option<Self>, StoreError> {
        Ok(match op {
            WriteOp::Content { .. }
            | WriteOp::ContentReferenced { .. }
            | WriteOp::Checkpoint { .. }
            | WriteOp::HistoryTruncated { .. }
            | WriteOp::ProcessEnded { .. } => None,
            WriteOp::ProcessCreated { row, image } => Some(Self::with_payload(
                RecordKind::ProcessCreated,
                row.pid.0,
                encode_created(row, image)?,
            )),
            WriteOp::Facts { facts, .. } if facts.is_empty() => None,
            WriteOp::Facts { pid, first, facts } => Some(Self {
                first: first.0,
                count: facts.len() as u64,
                ..Self::with_payload(RecordKind::Facts, pid.0, encode_parts(facts))
            }),
            WriteOp::Snapshot { pid, at, image } => Some(Self {
                first: at.0,
                ..Self::with_payload(RecordKind::Snapshot, pid.0, image.clone())
            }),
            WriteOp::Waiting {
                pid,
                waiting,
                is_paused,
            } => Some(Self::with_payload(
                RecordKind::Waiting,
                pid.0,
                encode(&(waiting, is_paused))?,
            )),
            WriteOp::ProcessReopened { pid, reopenings } => Some(Self {
                count: u64::from(*reopenings),
                ..Self::with_payload(RecordKind::ProcessReopened, pid.0, Vec::new())
            }),
            WriteOp::TempFile {
                root,
                number,
                record,
            } => Some(Self {
                first: *number,
                ..Self::with_payload(RecordKind::TempFile, root.0, record.clone())
            }),
            WriteOp::CheckpointDropped { id } => Some(Self::with_payload(
                RecordKind::CheckpointDropped,
                id.0,
                Vec::new(),
            )),
            WriteOp::Label { number, record } => Some(Self::with_payload(
                RecordKind::Label,
                *number,
                record.clone(),
            )),
            WriteOp::ProcessDeleted { pid } => Some(Self::with_payload(
                RecordKind::ProcessDeleted,
                pid.0,
                Vec::new(),
            )),
        })
    }

    /// Builds the record of the end of a process. It names the last fact, so that missing facts are
    /// detected.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the exit cannot be encoded.
    pub(crate) fn process_ended(
        pid: Pid,
        exit: &Exit,
        last: FactNumber,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            first: last.0,
            ..Self::with_payload(RecordKind::ProcessEnded, pid.0, encode(exit)?)
        })
    }

    fn with_payload(kind: RecordKind, subject: u64, payload: Vec<u8>) -> Self {
        Self::new(kind, subject, Body::Whole(payload.into()))
    }

    fn new(kind: RecordKind, subject: u64, body: Body) -> Self {
        Self {
            kind,
            subject,
            first: 0,
            count: 0,
            body,
            first_written: None,
        }
    }

    /// Encodes the payload, and all header fields except those that depend on the location. Costs
    /// the compression of contents and the encryption.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the operating system provides no randomness.
    pub(crate) fn encode(
        self,
        encoder: &Encoder,
        commit_header: CommitHeader,
    ) -> Result<EncodedRecord, StoreError> {
        let Self {
            kind,
            subject,
            first,
            count,
            body,
            first_written,
        } = self;
        let commit = commit_header.commit;
        let (first_commit, at_ms) = first_written.unwrap_or((commit, commit_header.at_ms));
        let place = PlaceInCommit::More;
        let synced = 0;
        let length = 0;
        let none = [0; 32];
        let encoding = Encoding::PLAIN;
        let payload = none;
        let previous = none;
        let header = RecordHeader {
            kind,
            place,
            encoding,
            commit,
            first_commit,
            synced,
            at_ms,
            length,
            subject,
            first,
            count,
            payload_hash: payload,
            previous,
        };
        let EncodedPayload {
            encoding,
            hash,
            parts,
        } = body.encode(encoder, &header).map_err(cannot_pack)?;
        let length = parts.iter().map(|part| part.len() as u64).sum();
        Ok(EncodedRecord {
            header: RecordHeader {
                encoding,
                length,
                payload_hash: hash,
                ..header
            },
            payload: parts,
        })
    }
}

impl Body {
    fn encode(
        self,
        Encoder { keys, compression }: &Encoder,
        header: &RecordHeader,
    ) -> std::io::Result<EncodedPayload> {
        match self {
            Self::Encoded(payload) => Ok(payload),
            Self::Whole(bytes) if bytes.is_empty() || !keys.is_encrypting() => Ok(EncodedPayload {
                encoding: Encoding::PLAIN,
                hash: *blake3::hash(&bytes).as_bytes(),
                parts: vec![bytes],
            }),
            Self::Whole(bytes) => {
                let header = RecordHeader {
                    encoding: Encoding::ENCRYPTED,
                    ..header.clone()
                };
                let encrypted = Bytes::from(
                    keys.encrypt(&bytes, &header.associated_data(PayloadPart::Whole, 0))?,
                );
                Ok(EncodedPayload {
                    encoding: header.encoding,
                    hash: *blake3::hash(&encrypted).as_bytes(),
                    parts: vec![encrypted],
                })
            }
            Self::Content(content) => {
                let compressed = compression.chunks(&content.bytes)?;
                let compression = compressed
                    .as_ref()
                    .map_or(Encoding::PLAIN, |_| Encoding::COMPRESSED);
                let encryption = if keys.is_encrypting() {
                    Encoding::ENCRYPTED
                } else {
                    Encoding::PLAIN
                };
                let encoding = compression.combine(encryption);
                let hash = keys.content_name(content.hash);
                if encoding == Encoding::PLAIN {
                    return Ok(EncodedPayload {
                        encoding,
                        hash,
                        parts: content.plain_payload(),
                    });
                }
                let header = RecordHeader {
                    encoding,
                    payload_hash: hash,
                    ..header.clone()
                };
                let chunks = compressed.unwrap_or_else(|| split(&content.bytes).collect());
                Ok(EncodedPayload {
                    encoding,
                    hash,
                    parts: content.pack(&chunks, &header, keys)?,
                })
            }
        }
    }
}

/// An encoded record whose location is not known yet.
#[derive(Debug)]
pub(crate) struct EncodedRecord {
    header: RecordHeader,
    payload: Vec<Bytes>,
}

impl EncodedRecord {
    /// The bytes that the record takes in the log.
    pub(crate) fn length(&self) -> u64 {
        HEADER_BYTES as u64 + self.header.length
    }

    /// Completes the header: `previous` is the hash of the preceding record, `synced` the latest
    /// commit known to be on the disk. Returns the payload as well.
    pub(crate) fn link(
        self,
        place: PlaceInCommit,
        previous: Hash,
        synced: u64,
    ) -> (RecordHeader, Vec<Bytes>) {
        (
            RecordHeader {
                place,
                previous,
                synced,
                ..self.header
            },
            self.payload,
        )
    }
}

/// The header fields that all records of a commit share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitHeader {
    /// The number of the commit.
    pub(crate) commit: u64,
    /// Milliseconds since the epoch, UTC.
    pub(crate) at_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_are_listed_as_ranges() {
        for (numbers, expected) in [
            (vec![], vec![]),
            (vec![4], vec![(4, 1)]),
            (vec![1, 2, 3, 7, 9, 10], vec![(1, 3), (7, 1), (9, 2)]),
        ] {
            let builders = RecordBuilder::deleted_numbers(
                RecordKind::DeletedPids,
                &numbers.into_iter().collect(),
            );
            let ranges: Vec<_> = builders
                .iter()
                .map(|builder| (builder.subject, builder.count))
                .collect();
            assert_eq!(ranges, expected);
        }
    }
}
