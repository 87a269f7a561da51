//! Writes the records of an export as bytes.
//!
//! The hash in each record header covers that header and all bytes before it, so that a reader can
//! verify the length and the kind before it uses them. The hash after the payload also covers the
//! payload. The last hash is the id of the export.

use blake3::{Hash, Hasher};
use dormouse_proto::export::Record;
use dormouse_proto::id::ContentHash;
use dormouse_proto::process::ExportId;
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::masked::{Mask, Masked};
use serde::Serialize;

/// The file header: this magic number, the version (4 bytes, little-endian), and zeros.
pub(super) const MAGIC: &[u8; 8] = b"DORMOUSE";
pub(super) const VERSION: u32 = 1;
pub(super) const FILE_HEADER_BYTES: usize = 16;

/// Bytes of a record header: kind (1), zeros (7), length of the payload (8), hash (32).
pub(super) const RECORD_HEADER_BYTES: usize = 48;
pub(super) const HASH_BYTES: usize = 32;
/// Bytes of the end record: number of preceding records (8), number of preceding bytes (8).
pub(super) const END_BYTES: u64 = 16;

/// The type of a record, by the number that identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    Head = 1,
    Member = 2,
    Facts = 3,
    TempFile = 4,
    Content = 5,
    End = 6,
}

impl RecordKind {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [
            Self::Head,
            Self::Member,
            Self::Facts,
            Self::TempFile,
            Self::Content,
            Self::End,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }
}

/// The header of the file: the first bytes of every export.
pub(super) fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut bytes = [0; FILE_HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Chains hashes: the hash of `before`, the hash of all earlier bytes, followed by `next`.
pub(super) fn chain_hash(before: &Hash, next: &[u8]) -> Hash {
    Hasher::new()
        .update(before.as_bytes())
        .update(next)
        .finalize()
}

/// Encodes an export record by record.
pub struct ExportEncoder {
    /// Hash of all bytes so far.
    chain: Hash,
    pub(super) records: u64,
    bytes: u64,
    content_hasher: Hasher,
}

impl ExportEncoder {
    /// Starts an export. Returns its first bytes.
    #[must_use]
    pub fn begin() -> (Self, Vec<u8>) {
        let bytes = file_header();
        let encoder = Self {
            chain: blake3::hash(&bytes),
            records: 0,
            bytes: bytes.len() as u64,
            content_hasher: Hasher::new(),
        };
        (encoder, bytes.to_vec())
    }

    /// Encodes a record, with its texts masked if a mask is given. O(n).
    ///
    /// # Errors
    /// [`CodecError::TooLarge`].
    pub fn record(
        &mut self,
        record: &Record,
        mask: Option<&Mask<'_>>,
    ) -> Result<Vec<u8>, CodecError> {
        let (kind, payload) = match record {
            Record::Head(head) => (RecordKind::Head, encode(head, None)?),
            Record::Member(member) => (RecordKind::Member, encode(&**member, mask)?),
            // The facts are bytes that the caller masked: the mask does not change them.
            Record::Facts(facts) => (RecordKind::Facts, encode(facts, mask)?),
            Record::TempFile(change) => (RecordKind::TempFile, encode(change, mask)?),
        };
        Ok(self.record_bytes(kind, &payload))
    }

    /// Starts a content of `len` bytes. The caller writes its bytes and passes each part to
    /// [`part`](Self::part), then writes the result of [`close`](Self::close).
    pub fn content(&mut self, len: u64) -> Vec<u8> {
        self.content_hasher = Hasher::new();
        self.bytes += len;
        self.header(RecordKind::Content, len)
    }

    /// Hashes bytes of the current content. O(n).
    pub fn part(&mut self, bytes: &[u8]) {
        self.content_hasher.update(bytes);
    }

    /// Ends the current content. Returns its hash and its last bytes.
    pub fn close(&mut self) -> (ContentHash, Vec<u8>) {
        let hash = self.content_hasher.finalize();
        (ContentHash(*hash.as_bytes()), self.footer(&hash))
    }

    /// Ends the export. Returns its id and its last bytes.
    #[must_use]
    pub fn end(mut self) -> (ExportId, Vec<u8>) {
        let payload = [self.records.to_le_bytes(), self.bytes.to_le_bytes()].concat();
        let bytes = self.record_bytes(RecordKind::End, &payload);
        (ExportId(*self.chain.as_bytes()), bytes)
    }

    pub(super) fn record_bytes(&mut self, kind: RecordKind, payload: &[u8]) -> Vec<u8> {
        let header = self.header(kind, payload.len() as u64);
        self.bytes += payload.len() as u64;
        let footer = self.footer(&blake3::hash(payload));
        [&header, payload, &footer].concat()
    }

    pub(super) fn header(&mut self, kind: RecordKind, len: u64) -> Vec<u8> {
        let mut header = vec![kind as u8, 0, 0, 0, 0, 0, 0, 0];
        header.extend(len.to_le_bytes());
        self.chain = chain_hash(&self.chain, &header);
        header.extend(self.chain.as_bytes());
        self.records += 1;
        self.bytes += header.len() as u64;
        header
    }

    fn footer(&mut self, payload: &Hash) -> Vec<u8> {
        self.chain = chain_hash(&self.chain, payload.as_bytes());
        self.bytes += HASH_BYTES as u64;
        self.chain.as_bytes().to_vec()
    }
}

/// Hashes a content that arrives in parts.
#[derive(Default)]
pub struct ContentHasher(Hasher);

impl ContentHasher {
    /// Hashes the next bytes. O(n).
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of the content.
    #[must_use]
    pub fn hash(&self) -> ContentHash {
        ContentHash(*self.0.finalize().as_bytes())
    }
}

fn encode(value: &impl Serialize, mask: Option<&Mask<'_>>) -> Result<Vec<u8>, CodecError> {
    match mask {
        Some(mask) => codec::encode(&Masked::new(value, mask)),
        None => codec::encode(value),
    }
}
