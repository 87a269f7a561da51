//! Record payloads as bytes: the only place that knows bincode.
//!
//! bincode is no longer maintained and trusts its input, so it is given nothing before the caller has checked size and
//! hash, and it works under a limit. Records hold no zero-sized elements and no recursive types.

use bincode::config;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest payload that is written or decoded. Contents are not payloads: they stand beside them, raw.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 20;

/// A payload could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value does not fit a record.
    #[error("a record of more than {MAX_PAYLOAD_BYTES} bytes cannot be written")]
    TooLarge,
    /// The value cannot be encoded.
    #[error("the record cannot be encoded: {0}")]
    Encode(String),
    /// The bytes are not such a record.
    #[error("the record cannot be decoded: {0}")]
    Decode(String),
    /// The record ends before its bytes do.
    #[error("the record holds {0} bytes too many")]
    Trailing(usize),
}

fn limits() -> impl config::Config {
    config::standard().with_limit::<MAX_PAYLOAD_BYTES>()
}

/// Encodes a record. Costs one pass over the value.
///
/// # Errors
/// [`CodecError::TooLarge`] and [`CodecError::Encode`].
pub fn encode(value: &impl Serialize) -> Result<Vec<u8>, CodecError> {
    let bytes =
        bincode::serde::encode_to_vec(value, limits()).map_err(|error| CodecError::Encode(error.to_string()))?;
    if bytes.len() > MAX_PAYLOAD_BYTES { Err(CodecError::TooLarge) } else { Ok(bytes) }
}

/// Decodes a record whose hash has been checked. Costs one pass over the bytes.
///
/// # Errors
/// [`CodecError::Decode`] for anything that is not exactly one record, [`CodecError::Trailing`] for one that is followed
/// by something.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > MAX_PAYLOAD_BYTES {
        return Err(CodecError::TooLarge);
    }
    let (value, read) =
        bincode::serde::decode_from_slice(bytes, limits()).map_err(|error| CodecError::Decode(error.to_string()))?;
    if read == bytes.len() { Ok(value) } else { Err(CodecError::Trailing(bytes.len() - read)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FactNumber;

    #[test]
    fn a_record_survives_and_anything_else_is_refused() {
        let bytes = encode(&(FactNumber(7), "seven")).unwrap();
        assert_eq!(decode::<(FactNumber, String)>(&bytes).unwrap(), (FactNumber(7), "seven".to_owned()));
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(decode::<(FactNumber, String)>(&longer), Err(CodecError::Trailing(1))));
        assert!(decode::<(FactNumber, String)>(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_length_beyond_all_memory_is_refused_without_allocating() {
        let seventy_terabytes = [253, 0, 0, 0, 0, 0, 64, 0, 0];
        assert!(decode::<Vec<u8>>(&seventy_terabytes).is_err());
    }
}
