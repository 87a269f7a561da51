//! Encoding of record payloads. The only module that uses bincode.
//!
//! A payload begins with the version of its encoding. Every version of this program decodes
//! payloads of earlier versions, and refuses payloads of later versions with
//! [`CodecError::Newer`].
//!
//! A stored struct grows at its end: the new field has `#[serde(default)]`, and a row of
//! `ADDED_FIELDS` says from which version on a payload has it. For any other change of a stored
//! type, keep the old type and choose the type by the version of the payload.
//!
//! bincode is no longer maintained and trusts its input, so it decodes only numbers.
//! `RecordDeserializer` decodes the rest: it refuses lengths that exceed the remaining bytes, and
//! charges the memory of decoded values to an `Allowance`. Records contain no zero-sized elements
//! and no recursive types.

mod allowance;
mod deserializer;

use bincode::config::{self, Configuration, Limit, LittleEndian, Varint};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::allowance::Allowance;
use self::deserializer::RecordDeserializer;

/// Maximum size of a payload. Contents are not payloads; they are stored raw.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 20;

/// The version of the encoding that [`encode`] writes.
pub const VERSION: u8 = 2;

/// Fields that a version added at the end of a stored struct.
struct AddedFields {
    /// Name of the struct. No two stored structs have the same name.
    of: &'static str,
    /// The first version of the encoding that has the fields.
    since: u8,
    /// Number of fields of the struct before that version.
    fields_before: usize,
}

/// All fields that versions added, oldest version first.
const ADDED_FIELDS: &[AddedFields] = &[
    AddedFields {
        of: "Image",
        since: 2,
        fields_before: 26,
    },
    AddedFields {
        of: "PendingCall",
        since: 2,
        fields_before: 7,
    },
    AddedFields {
        of: "Exit",
        since: 2,
        fields_before: 3,
    },
    AddedFields {
        of: "Ledger",
        since: 2,
        fields_before: 7,
    },
    AddedFields {
        of: "ProcessRow",
        since: 2,
        fields_before: 7,
    },
    AddedFields {
        of: "Answer",
        since: 2,
        fields_before: 3,
    },
    AddedFields {
        of: "ExternalTool",
        since: 2,
        fields_before: 4,
    },
];

/// The number of fields that a struct has in a payload of `version`; `fields` today.
fn fields_in_version(added: &[AddedFields], version: u8, of: &str, fields: usize) -> usize {
    added
        .iter()
        .find(|added| added.of == of && version < added.since)
        .map_or(fields, |added| added.fields_before)
}

/// A payload could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The record is larger than any that is written.
    #[error("the record has more than {MAX_PAYLOAD_BYTES} bytes, the maximum")]
    TooLarge,
    /// The value cannot be encoded.
    #[error("the record cannot be encoded: {0}")]
    Encode(String),
    /// The bytes are not a record of this type.
    #[error("the record cannot be decoded: {0}")]
    Decode(String),
    /// The record states (claims) a length that exceeds the rest of it.
    #[error(
        "the record cannot be decoded: it claims {claimed} bytes or elements where {left} bytes \
         are left"
    )]
    Claim {
        /// Claimed number of bytes or elements.
        claimed: u64,
        /// Remaining bytes.
        left: u64,
    },
    /// The decoded record would exceed its memory allowance.
    #[error(
        "the record cannot be decoded: its values take more than the {allowed} bytes of memory \
         that its length allows"
    )]
    Expands {
        /// Allowed bytes of memory.
        allowed: u64,
    },
    /// A later version of this program encoded the record.
    #[error(
        "the record has version {0}, and this program reads versions up to {VERSION}: use a later \
         version of it"
    )]
    Newer(u8),
    /// Excess bytes follow the record.
    #[error("the record has {0} excess bytes")]
    Trailing(usize),
}

type BincodeConfig = Configuration<LittleEndian, Varint, Limit<MAX_PAYLOAD_BYTES>>;

fn bincode_config() -> BincodeConfig {
    config::standard().with_limit::<MAX_PAYLOAD_BYTES>()
}

/// Encodes a record. One pass over the value.
///
/// # Errors
/// [`CodecError::TooLarge`] and [`CodecError::Encode`].
pub fn encode(value: &impl Serialize) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode_config())
        .map_err(|error| CodecError::Encode(error.to_string()))?;
    if bytes.len() > MAX_PAYLOAD_BYTES {
        Err(CodecError::TooLarge)
    } else {
        Ok(bytes)
    }
}

/// Decodes a record whose hash was verified. One pass over the bytes, and at most the memory that
/// [`Allowance::of`] grants for its length.
///
/// # Errors
/// [`CodecError::TooLarge`]; [`CodecError::Decode`] for bytes of another type,
/// [`CodecError::Trailing`] for excess bytes,
/// [`CodecError::Claim`] and [`CodecError::Expands`] for a forged record, [`CodecError::Newer`] for
/// a record of a later version.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    decode_within(bytes, &mut Allowance::of(bytes.len() as u64))
}

/// Decodes one of several records that are in memory together, and charges its memory to their
/// `allowance`.
///
/// # Errors
/// As [`decode`]. What was charged before the error stays charged.
pub fn decode_within<T: DeserializeOwned>(
    bytes: &[u8],
    allowance: &mut Allowance,
) -> Result<T, CodecError> {
    if bytes.len() > MAX_PAYLOAD_BYTES {
        return Err(CodecError::TooLarge);
    }
    let (version, encoded) = match bytes.split_first() {
        Some((0, _)) => return Err(CodecError::Decode("it has version 0".to_owned())),
        Some((version @ 1..=VERSION, encoded)) => (*version, encoded),
        Some((version, _)) => return Err(CodecError::Newer(*version)),
        None => return Err(CodecError::Decode("it is empty".to_owned())),
    };
    let mut deserializer = RecordDeserializer::new(version, encoded, allowance, size_of::<T>());
    let value = T::deserialize(&mut deserializer)?;
    match deserializer.bytes_left() {
        0 => Ok(value),
        left => Err(CodecError::Trailing(left)),
    }
}

#[cfg(test)]
mod tests;
