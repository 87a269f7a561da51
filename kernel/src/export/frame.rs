//! The records of an export as bytes, one behind the other.
//!
//! Each record's header proves itself and all before it, so that neither a length nor a kind is
//! believed that was not written; behind its payload stands a hash that proves that as well. The
//! last is the name of the export.

use blake3::{Hash, Hasher};
use dormouse_proto::export::Record;
use dormouse_proto::id::ContentHash;
use dormouse_proto::process::ExportId;
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::masked::{Mask, Masked};
use serde::Serialize;

/// What a file begins with: a name and a version.
pub(super) const MAGIC: &[u8; 8] = b"DORMOUSE";
pub(super) const VERSION: u32 = 1;
pub(super) const BEGIN_BYTES: usize = 16;

/// Kind (1), zeros (7), length of the payload (8), hash (32).
pub(super) const HEADER_BYTES: usize = 48;
pub(super) const HASH_BYTES: usize = 32;
/// How many records stand before it (8), and how many bytes (8).
pub(super) const END_BYTES: u64 = 16;

/// What a record is, by the number that stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Head = 1,
    Member = 2,
    Facts = 3,
    TempFile = 4,
    Content = 5,
    End = 6,
}

impl Kind {
    pub(super) fn of(number: u8) -> Option<Self> {
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

pub(super) fn begin() -> [u8; BEGIN_BYTES] {
    let mut bytes = [0; BEGIN_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

pub(super) fn chained(before: &Hash, next: &[u8]) -> Hash {
    Hasher::new()
        .update(before.as_bytes())
        .update(next)
        .finalize()
}

/// Makes the bytes of an export, in their order.
pub struct Framer {
    chain: Hash,
    pub(super) records: u64,
    bytes: u64,
    content: Hasher,
}

impl Framer {
    /// An export, and what it begins with.
    #[must_use]
    pub fn begin() -> (Self, Vec<u8>) {
        let bytes = begin();
        let framer = Self {
            chain: blake3::hash(&bytes),
            records: 0,
            bytes: bytes.len() as u64,
            content: Hasher::new(),
        };
        (framer, bytes.to_vec())
    }

    /// A record, its texts masked where there is a mask. Costs one pass over it.
    ///
    /// # Errors
    /// [`CodecError::TooLarge`].
    pub fn record(
        &mut self,
        record: &Record,
        mask: Option<&Mask<'_>>,
    ) -> Result<Vec<u8>, CodecError> {
        let (kind, payload) = match record {
            Record::Head(head) => (Kind::Head, encoded(head, None)?),
            Record::Member(member) => (Kind::Member, encoded(&**member, mask)?),
            // Facts are bytes in here, masked by whoever read them.
            Record::Facts(facts) => (Kind::Facts, encoded(facts, mask)?),
            Record::TempFile(change) => (Kind::TempFile, encoded(change, mask)?),
        };
        Ok(self.whole(kind, &payload))
    }

    /// What a content of `len` bytes begins with. Its bytes follow, each told to
    /// [`part`](Self::part), and then what [`close`](Self::close) gives.
    pub fn content(&mut self, len: u64) -> Vec<u8> {
        self.content = Hasher::new();
        self.bytes += len;
        self.header(Kind::Content, len)
    }

    /// Bytes of the content follow. Costs one pass over them.
    pub fn part(&mut self, bytes: &[u8]) {
        self.content.update(bytes);
    }

    /// What a content ends with, and its name.
    pub fn close(&mut self) -> (ContentHash, Vec<u8>) {
        let hash = self.content.finalize();
        (ContentHash(*hash.as_bytes()), self.footer(&hash))
    }

    /// What the export ends with, and its name.
    #[must_use]
    pub fn end(mut self) -> (ExportId, Vec<u8>) {
        let payload = [self.records.to_le_bytes(), self.bytes.to_le_bytes()].concat();
        let bytes = self.whole(Kind::End, &payload);
        (ExportId(*self.chain.as_bytes()), bytes)
    }

    pub(super) fn whole(&mut self, kind: Kind, payload: &[u8]) -> Vec<u8> {
        let header = self.header(kind, payload.len() as u64);
        self.bytes += payload.len() as u64;
        let footer = self.footer(&blake3::hash(payload));
        [&header, payload, &footer].concat()
    }

    pub(super) fn header(&mut self, kind: Kind, len: u64) -> Vec<u8> {
        let mut header = vec![kind as u8, 0, 0, 0, 0, 0, 0, 0];
        header.extend(len.to_le_bytes());
        self.chain = chained(&self.chain, &header);
        header.extend(self.chain.as_bytes());
        self.records += 1;
        self.bytes += header.len() as u64;
        header
    }

    fn footer(&mut self, payload: &Hash) -> Vec<u8> {
        self.chain = chained(&self.chain, payload.as_bytes());
        self.bytes += HASH_BYTES as u64;
        self.chain.as_bytes().to_vec()
    }
}

/// The name of a content that comes in parts.
#[derive(Default)]
pub struct Naming(Hasher);

impl Naming {
    /// Bytes of it follow. Costs one pass over them.
    pub fn part(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> ContentHash {
        ContentHash(*self.0.finalize().as_bytes())
    }
}

fn encoded(value: &impl Serialize, mask: Option<&Mask<'_>>) -> Result<Vec<u8>, CodecError> {
    match mask {
        Some(mask) => codec::encode(&Masked::new(value, mask)),
        None => codec::encode(value),
    }
}
