//! The header of a log: it says whether the log is encrypted, and contains the salt of its keys.
//!
//! The first commit writes the header as a record, which is never changed. Its payload is the
//! version of the encoding (1), the salt (32) and the check value of the secret (32); both are
//! zeros in a log that is not encrypted. The header itself is never encrypted. Without the header
//! an encrypted log cannot be read, because every key is derived from the salt (`secret.rs`). The
//! check value tells whether a secret is the right one.

use std::io;

use dormouse_actors::ports::{KeyFault, StoreError};

use crate::compression::Compression;
use crate::error::damaged;
use crate::frame::{self, Codec};
use crate::log::{Record, RecordOp, Stream, StreamKind};
use crate::secret::{Keys, NO_CHECK, StoreKey, StoreSecret, random_bytes, secret_check};

/// The version of the encoding that this program writes, and the only one that it reads.
const VERSION: u8 = 1;

/// The stream of the header.
pub(crate) const LOG_HEADER: Stream = Stream {
    kind: StreamKind::LogHeader,
    id: 0,
};

/// The header of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogHeader {
    salt: StoreKey,
    check: [u8; 32],
}

impl LogHeader {
    /// The header of a new log.
    ///
    /// # Errors
    /// If the operating system provides no randomness.
    pub(crate) fn new(secret: Option<&StoreSecret>) -> io::Result<Self> {
        let Some(secret) = secret else {
            return Ok(Self {
                salt: StoreKey([0; 32]),
                check: NO_CHECK,
            });
        };
        let salt = StoreKey(random_bytes()?);
        let check = secret_check(secret, salt);
        Ok(Self { salt, check })
    }

    /// Decodes the header.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], and [`StoreError::Newer`] for another version. A header is never
    /// compressed.
    pub(crate) fn read(record: &Record) -> Result<Self, StoreError> {
        let payload = unencrypted().payload(LOG_HEADER, record)?;
        let (version, rest) = payload.split_first().unwrap_or((&VERSION, &[]));
        if *version != VERSION {
            return Err(StoreError::Newer {
                what: format!("a log header of version {version}"),
            });
        }
        match rest.as_chunks() {
            ([salt, check], []) => Ok(Self {
                salt: StoreKey(*salt),
                check: *check,
            }),
            _ => Err(damaged(format!(
                "{} has {} bytes",
                frame::describe_record(LOG_HEADER, 0),
                payload.len()
            ))),
        }
    }

    /// The operation that writes the header.
    ///
    /// # Errors
    /// None in practice: nothing is encrypted.
    pub(crate) fn to_op(self) -> Result<RecordOp, StoreError> {
        let payload = [&[VERSION], &self.salt.0[..], &self.check].concat();
        unencrypted().put_op(LOG_HEADER, 0, &payload)
    }

    /// The keys of the log.
    ///
    /// # Errors
    /// [`KeyFault`] if the secret is not the one that the log was created with.
    pub(crate) fn keys(&self, secret: Option<&StoreSecret>) -> Result<Keys, KeyFault> {
        Keys::derive(self.salt, &self.check, secret)
    }
}

fn unencrypted() -> Codec {
    Codec {
        keys: Keys::plain(StoreKey([0; 32])),
        compression: Compression::None,
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::CommitNumber;

    use super::*;

    fn record(op: RecordOp) -> Record {
        let RecordOp::Put { number, bytes, .. } = op else {
            panic!("a header is written, and not deleted");
        };
        Record {
            number,
            commit: CommitNumber(1),
            at_ms: 0,
            bytes,
        }
    }

    #[test]
    fn a_header_decodes_from_the_record_that_stores_it() {
        for secret in [None, Some(StoreSecret::new([1; 32]))] {
            let header = LogHeader::new(secret.as_ref()).unwrap();
            let read = LogHeader::read(&record(header.to_op().unwrap())).unwrap();
            assert_eq!((read.salt, read.check), (header.salt, header.check));
            assert!(read.keys(secret.as_ref()).is_ok());
        }
    }

    #[test]
    fn a_later_version_is_an_error_of_its_own_and_a_wrong_length_is_damage() {
        let read = |payload: &[u8]| {
            let op = unencrypted().put_op(LOG_HEADER, 0, payload).unwrap();
            LogHeader::read(&record(op)).unwrap_err()
        };
        for payload in [&[2][..], &[2; 65], &[0; 65]] {
            let error = read(payload);
            assert!(matches!(error, StoreError::Newer { .. }), "{error}");
        }
        for payload in [&[][..], &[1; 64], &[1; 66]] {
            let error = read(payload);
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn a_damaged_header_says_that_nothing_can_be_read_without_it() {
        let header = LogHeader::new(None).unwrap();
        let mut damaged = record(header.to_op().unwrap());
        damaged.bytes = damaged.bytes.slice(1..);
        let error = LogHeader::read(&damaged).unwrap_err().to_string();
        assert!(error.contains("Restore the log from a backup"), "{error}");
        assert!(!error.contains("can still be read"), "{error}");
    }
}
