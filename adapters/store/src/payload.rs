//! Encodes and decodes the payloads of records, as the table in `record_header` describes them.
//!
//! The caller has checked and decrypted the payloads that are decoded here.

use bytes::BufMut as _;
use dormouse_actors::ports::StoreError;
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::process::{Exit, ProcessRow, Waiting};
use dormouse_proto::record::codec::{self, CodecError};
use serde::Serialize;

use crate::error::{damaged, refused};
use crate::issue::Issue;
use crate::record_header::RecordHeader;

/// Decodes the payload of a checkpoint.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn decode_checkpoint(payload: &[u8]) -> Result<Checkpoint, StoreError> {
    decode(payload)
}

/// Decodes the payload of a `LossAcknowledged` record.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn decode_losses(payload: &[u8]) -> Result<Vec<Issue>, StoreError> {
    decode(payload)
}

/// Decodes the row and the image in the payload of a `ProcessCreated` record.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn decode_created(payload: &[u8]) -> Result<(ProcessRow, &[u8]), StoreError> {
    let (row, image) = split_frame(payload).ok_or_else(|| malformed("process created"))?;
    Ok((decode_row(row)?, image))
}

/// Decodes the row in the payload of a `HistoryTruncated` record.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn decode_truncated(payload: &[u8]) -> Result<ProcessRow, StoreError> {
    decode_row(payload)
}

/// Decodes a row, and refuses one whose parent is not older: a walk from child to parent must
/// terminate.
fn decode_row(bytes: &[u8]) -> Result<ProcessRow, StoreError> {
    let row: ProcessRow = decode(bytes)?;
    if !row.has_higher_pid_than_parent() {
        return Err(damaged(format!(
            "process {} claims to be older than its parent",
            row.pid
        )));
    }
    Ok(row)
}

/// The numbers that a `DeletedPids` or `DroppedCheckpoints` record lists.
pub(crate) fn number_range(header: &RecordHeader) -> std::ops::Range<u64> {
    header.subject..header.subject.saturating_add(header.count)
}

/// Decodes the payload of a `ProcessEnded` record.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn decode_exit(payload: &[u8]) -> Result<Exit, StoreError> {
    decode(payload)
}

/// Decodes the payload of a `Waiting` record: what the process waits for, and whether it is paused.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn decode_waiting(payload: &[u8]) -> Result<(Waiting, bool), StoreError> {
    decode(payload)
}

/// Decodes the payload of a `Facts` record.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn decode_facts(mut payload: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut facts = Vec::new();
    while !payload.is_empty() {
        let (fact, rest) = split_frame(payload).ok_or_else(|| malformed("facts"))?;
        facts.push(fact.to_vec());
        payload = rest;
    }
    Ok(facts)
}

/// Encodes the payload of a `ProcessCreated` record.
///
/// # Errors
/// [`StoreError::Refused`].
pub(crate) fn encode_created(row: &ProcessRow, image: &[u8]) -> Result<Vec<u8>, StoreError> {
    let mut payload = encode_parts(&[encode(row)?]);
    payload.extend_from_slice(image);
    Ok(payload)
}

/// Prefixes each part with its length. The commit validator limits a part to `MAX_PAYLOAD_BYTES`,
/// so 4 bytes hold the length.
pub(crate) fn encode_parts(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
    for part in parts {
        bytes.put_u32_le(part.len() as u32);
        bytes.put_slice(part);
    }
    bytes
}

/// Splits off the first part, which is prefixed with its length.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Encodes a value by the codec.
///
/// # Errors
/// [`StoreError::Refused`].
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    codec::encode(value).map_err(|error| refused(error.to_string()))
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    codec::decode(bytes).map_err(|error| match error {
        CodecError::Newer(version) => StoreError::Newer {
            what: format!("a record of version {version}"),
        },
        _ => damaged(format!(
            "a record with the right hash cannot be decoded: {error}"
        )),
    })
}

fn malformed(kind: &str) -> StoreError {
    damaged(format!(
        "a record of kind {kind} with the right hash has parts whose lengths do not add up"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_decode_to_the_facts_that_were_encoded() {
        let cases: [&[&[u8]]; 4] = [
            &[],
            &[b""],
            &[b"one"],
            &[b"", b"two", b"\x00\x01\x02\x03\x04"],
        ];
        for case in cases {
            let facts: Vec<_> = case.iter().map(|fact| fact.to_vec()).collect();
            assert_eq!(decode_facts(&encode_parts(&facts)).unwrap(), facts);
        }
    }

    #[test]
    fn a_part_that_is_shorter_than_its_length_is_damage() {
        for bytes in [&b"\x01"[..], b"\x02\0\0\0a", b"\xff\xff\xff\xffa"] {
            assert!(decode_facts(bytes).is_err(), "{bytes:?}");
            assert!(decode_created(bytes).is_err(), "{bytes:?}");
        }
    }
}
