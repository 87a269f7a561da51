//! The bytes of a record: a payload, and a checksum that binds it to its stream and number.
//!
//! The checksum is 16 bytes of BLAKE3 over kind, id and number of the record and its payload. It
//! detects records that the log lost, swapped or changed when they are read.

use bytes::Bytes;
use dormouse_actors::ports::StoreError;
use dormouse_proto::record::codec::{self, CodecError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{damaged, refused};
use crate::log::{Record, RecordOp, Stream, StreamKind};

const CHECKSUM_BYTES: usize = 16;

/// The operation that writes a payload.
pub(crate) fn put(stream: Stream, number: u64, payload: &[u8]) -> RecordOp {
    let mut bytes = Vec::with_capacity(payload.len() + CHECKSUM_BYTES);
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(&checksum(stream, number, payload));
    RecordOp::Put {
        stream,
        number,
        bytes: bytes.into(),
    }
}

/// The operation that writes an encoded value.
///
/// # Errors
/// [`StoreError::Refused`] if the value cannot be encoded.
pub(crate) fn put_value(
    stream: Stream,
    number: u64,
    value: &impl Serialize,
) -> Result<RecordOp, StoreError> {
    let payload = codec::encode(value).map_err(|error| refused(error.to_string()))?;
    Ok(put(stream, number, &payload))
}

/// The payload of a record, checked.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn payload(stream: Stream, record: &Record) -> Result<Bytes, StoreError> {
    let length = record.bytes.len().checked_sub(CHECKSUM_BYTES);
    let payload = length.map(|length| record.bytes.slice(..length));
    payload
        .filter(|payload| record.bytes[payload.len()..] == checksum(stream, record.number, payload))
        .ok_or_else(|| {
            damaged(format!(
                "{} does not match its checksum. Everything else can still be read",
                name(stream, record.number)
            ))
        })
}

/// The decoded value of a record.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Newer`].
pub(crate) fn value<T: DeserializeOwned>(stream: Stream, record: &Record) -> Result<T, StoreError> {
    let name = name(stream, record.number);
    codec::decode(&payload(stream, record)?).map_err(|error| match error {
        CodecError::Newer(version) => StoreError::Newer {
            what: format!("{name} in version {version}"),
        },
        _ => damaged(format!("{name}: {error}")),
    })
}

/// The name of a record in errors.
pub(crate) fn name(stream: Stream, number: u64) -> String {
    let id = stream.id;
    match stream.kind {
        StreamKind::Process => format!("the row of process {id}"),
        StreamKind::Snapshot => format!("the image of process {id} at fact {number}"),
        StreamKind::Fact => format!("fact {number} of process {id}"),
        StreamKind::TempFile => {
            format!("change {number} of the temporary files of process {id}")
        }
        StreamKind::Checkpoint => format!("checkpoint cp:{id}"),
        StreamKind::LastCheckpoint => "the number of the last checkpoint".to_owned(),
    }
}

fn checksum(stream: Stream, number: u64, payload: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = blake3::Hasher::new()
        .update(&[stream.kind as u8])
        .update(&stream.id.to_le_bytes())
        .update(&number.to_le_bytes())
        .update(payload)
        .finalize();
    *hash
        .as_bytes()
        .first_chunk()
        .expect("a hash is longer than a checksum")
}
