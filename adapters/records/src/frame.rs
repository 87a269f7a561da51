//! The bytes of a record: a payload with a checksum or an authentication tag, which also covers the
//! stream and number of the record.
//!
//! | bytes | meaning |
//! |---|---|
//! | byte 0 | the encoding, as flags: 0x02 compressed, 0x04 encrypted; others are refused |
//! | byte 1 and on | the payload: as it is, or one zstd frame; encrypted if the log is |
//! | the last 16 | only in a log that is not encrypted: the checksum |
//!
//! The *binding* of a record is its kind (1), and its id and number (8 each, little-endian). The
//! checksum is 16 bytes of BLAKE3 over the encoding, the binding and the payload as stored.
//! Encryption has the encoding and the binding as its associated data. Therefore a record that the
//! log changed, shortened or exchanged for another is detected when it is read. If the log returns
//! an earlier version of a record with the same stream and number, that cannot be detected.
//!
//! A log is encrypted as a whole: an unencrypted record in an encrypted log is damaged, and so is
//! an encrypted record in an unencrypted log.

use std::io;

use bytes::Bytes;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::codec::{self, CodecError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::compression::{self, Compression, unpack_record};
use crate::error::{damaged, refused};
use crate::log::{Record, RecordOp, Stream, StreamKind};
use crate::secret::Keys;

const COMPRESSED: u8 = 0x02;
const ENCRYPTED: u8 = 0x04;
const CHECKSUM_BYTES: usize = 16;

/// What follows from a lost header of the log, and what to do.
pub(crate) const LOST_HEADER: &str = "It holds the salt of the keys if the log is encrypted, so \
that nothing can be read without it. Restore the log from a backup; nothing is written until then";

/// How the records and contents of a log are encoded as bytes. It wraps what [`codec`] makes of a
/// value: the payload.
#[derive(Clone, Debug)]
pub(crate) struct Codec {
    /// The keys that records and contents are encrypted with.
    pub(crate) keys: Keys,
    /// How records and contents are compressed when they are written.
    pub(crate) compression: Compression,
}

impl Codec {
    /// The log's name of a content.
    pub(crate) fn content_name(&self, hash: ContentHash) -> ContentHash {
        ContentHash(self.keys.content_name(hash))
    }

    /// Encodes a payload, as the operation that writes it.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the operating system provides no randomness.
    pub(crate) fn put_op(
        &self,
        stream: Stream,
        number: u64,
        payload: &[u8],
    ) -> Result<RecordOp, StoreError> {
        let bytes = self.encode(payload, &binding(stream, number));
        Ok(RecordOp::Put {
            stream,
            number,
            bytes: bytes.map_err(cannot_encode)?.into(),
        })
    }

    /// Encodes a value, as the operation that writes it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the value cannot be encoded, and those of [`Codec::put_op`].
    pub(crate) fn put_value_op(
        &self,
        stream: Stream,
        number: u64,
        value: &impl Serialize,
    ) -> Result<RecordOp, StoreError> {
        let payload = codec::encode(value).map_err(|error| refused(error.to_string()))?;
        self.put_op(stream, number, &payload)
    }

    /// Checks and decodes the payload of a record.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], and [`StoreError::Io`] for a compressed record that this program
    /// was not built to read.
    pub(crate) fn payload(&self, stream: Stream, record: &Record) -> Result<Bytes, StoreError> {
        self.decode(&record.bytes, &binding(stream, record.number))
            .ok_or_else(|| {
                if !compression::IS_BUILT_IN && is_compressed(&record.bytes) {
                    return compression::not_built_in(&describe_record(stream, record.number));
                }
                let rest = match stream.kind {
                    StreamKind::LogHeader => LOST_HEADER,
                    _ => "Everything else can still be read",
                };
                let name = describe_record(stream, record.number);
                damaged(format!("{name} is not what was written. {rest}"))
            })
    }

    /// The decoded value of a record.
    ///
    /// # Errors
    /// Those of [`Codec::payload`], and [`StoreError::Newer`].
    pub(crate) fn value<T: DeserializeOwned>(
        &self,
        stream: Stream,
        record: &Record,
    ) -> Result<T, StoreError> {
        let name = describe_record(stream, record.number);
        codec::decode(&self.payload(stream, record)?).map_err(|error| match error {
            CodecError::Newer(version) => StoreError::Newer {
                what: format!("{name} in version {version}"),
            },
            _ => damaged(format!("{name}: {error}")),
        })
    }

    /// Encodes a payload, compressed if that saves an eighth.
    ///
    /// # Errors
    /// If the operating system provides no randomness, and those of zstd.
    pub(crate) fn encode(&self, payload: &[u8], binding: &[u8]) -> io::Result<Vec<u8>> {
        match self.compression.record(payload)? {
            Some(packed) => self.encrypt_or_add_checksum(COMPRESSED, &packed, binding),
            None => self.encode_verbatim(payload, binding),
        }
    }

    /// Encodes a payload without compressing it.
    ///
    /// # Errors
    /// If the operating system provides no randomness.
    pub(crate) fn encode_verbatim(&self, payload: &[u8], binding: &[u8]) -> io::Result<Vec<u8>> {
        self.encrypt_or_add_checksum(0, payload, binding)
    }

    fn encrypt_or_add_checksum(
        &self,
        encoding: u8,
        payload: &[u8],
        binding: &[u8],
    ) -> io::Result<Vec<u8>> {
        if self.keys.is_encrypting() {
            let encoding = encoding | ENCRYPTED;
            let encrypted = self
                .keys
                .encrypt(payload, &with_encoding(encoding, binding))?;
            return Ok([&[encoding], &encrypted[..]].concat());
        }
        let checksum = checksum(encoding, binding, payload);
        Ok([&[encoding], payload, &checksum].concat())
    }

    /// The reverse of [`Codec::encode`] for the same binding; `None` for any other bytes. Shares
    /// the bytes of a payload that is neither compressed nor encrypted.
    pub(crate) fn decode(&self, bytes: &Bytes, binding: &[u8]) -> Option<Bytes> {
        let (encoding, stored) = bytes.split_first()?;
        if *encoding & !(COMPRESSED | ENCRYPTED) != 0
            || (*encoding & ENCRYPTED != 0) != self.keys.is_encrypting()
        {
            return None;
        }
        let packed = if self.keys.is_encrypting() {
            Bytes::from(
                self.keys
                    .decrypt(stored, &with_encoding(*encoding, binding))?,
            )
        } else {
            let (packed, stored_checksum) = stored.split_last_chunk()?;
            let is_whole = checksum(*encoding, binding, packed) == *stored_checksum;
            is_whole.then(|| bytes.slice(1..=packed.len()))?
        };
        if *encoding & COMPRESSED == 0 {
            return Some(packed);
        }
        unpack_record(&packed).map(Bytes::from)
    }
}

fn is_compressed(bytes: &[u8]) -> bool {
    bytes
        .first()
        .is_some_and(|encoding| encoding & COMPRESSED != 0)
}

/// Describes a record for an error message.
pub(crate) fn describe_record(stream: Stream, number: u64) -> String {
    let id = stream.id;
    match stream.kind {
        StreamKind::Process => format!("the row of process {id}"),
        StreamKind::Snapshot => format!("the image of process {id} at fact {number}"),
        StreamKind::Fact => format!("fact {number} of process {id}"),
        StreamKind::TempFile => {
            format!("change {number} of the temporary files of process {id}")
        }
        StreamKind::Checkpoint => format!("checkpoint cp:{id}"),
        StreamKind::Label => format!("the record of label {id}"),
        StreamKind::LastCheckpoint => "the number of the last checkpoint".to_owned(),
        StreamKind::LogHeader => "the header of the log".to_owned(),
    }
}

/// The error of bytes that cannot be compressed or encrypted.
pub(crate) fn cannot_encode(source: io::Error) -> StoreError {
    StoreError::Io {
        doing: "compress or encrypt a commit".to_owned(),
        source,
    }
}

/// The bytes that a record is authenticated with: the stream and the number.
fn binding(stream: Stream, number: u64) -> [u8; 17] {
    let mut binding = [stream.kind as u8; 17];
    binding[1..9].copy_from_slice(&stream.id.to_le_bytes());
    binding[9..].copy_from_slice(&number.to_le_bytes());
    binding
}

fn with_encoding(encoding: u8, binding: &[u8]) -> Vec<u8> {
    [&[encoding], binding].concat()
}

fn checksum(encoding: u8, binding: &[u8], payload: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = blake3::Hasher::new()
        .update(&[encoding])
        .update(binding)
        .update(payload)
        .finalize();
    *hash
        .as_bytes()
        .first_chunk()
        .expect("a hash is longer than a checksum")
}
