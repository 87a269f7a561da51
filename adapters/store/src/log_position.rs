//! Positions in the log: [`Location`] is where a record starts, `LogPosition` the end of a commit.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A BLAKE3 hash.
pub(crate) type Hash = [u8; 32];

/// The highest number that a record or HEAD may contain: the sum of two of them does not overflow.
pub(crate) const MAX_NUMBER: u64 = 1 << 62;

/// Where a record starts. The order of locations is the order of records in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// The number of the segment, from 1.
    pub segment: u32,
    /// Bytes from the segment's start.
    pub offset: u64,
}

impl Location {
    /// The start of the log.
    pub(crate) const START: Self = Self {
        segment: 1,
        offset: 0,
    };
    /// The length of [`Location::to_bytes`].
    pub(crate) const BYTES: usize = 12;

    /// The start of a segment.
    pub(crate) const fn start_of(segment: u32) -> Self {
        Self { segment, offset: 0 }
    }

    /// Little-endian bytes: segment (4), offset (8).
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.segment.to_le_bytes());
        bytes[4..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// The reverse of [`Location::to_bytes`]; `None` if the length is wrong, or the offset is
    /// impossible.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (segment, offset) = bytes.split_first_chunk::<4>()?;
        let offset = u64::from_le_bytes(offset.try_into().ok()?);
        (offset <= MAX_NUMBER).then_some(Self {
            segment: u32::from_le_bytes(*segment),
            offset,
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of segment {:08}", self.offset, self.segment)
    }
}

/// The end of a commit: the log is undamaged up to here. The hash identifies the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    /// The first byte after the commit.
    pub(crate) end: Location,
    /// Where the commit's last record starts, in the same segment.
    pub(crate) last: u64,
    /// The hash of that record.
    pub(crate) chain: Hash,
    /// The commit's number, from 1.
    pub(crate) commit: u64,
}

impl LogPosition {
    /// The position of an empty log.
    pub(crate) const EMPTY: Self = Self {
        end: Location::START,
        last: 0,
        chain: [0; 32],
        commit: 0,
    };
    /// The length of [`LogPosition::to_bytes`].
    pub(crate) const BYTES: usize = 60;

    /// Whether there is no commit before it.
    pub(crate) fn is_empty(&self) -> bool {
        self.commit == 0
    }

    /// Where the commit's last record starts.
    pub(crate) fn last_record(&self) -> Location {
        Location {
            segment: self.end.segment,
            offset: self.last,
        }
    }

    /// Little-endian bytes: end (12), last (8), commit (8), chain (32).
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..12].copy_from_slice(&self.end.to_bytes());
        bytes[12..20].copy_from_slice(&self.last.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.commit.to_le_bytes());
        bytes[28..].copy_from_slice(&self.chain);
        bytes
    }

    /// The reverse of [`LogPosition::to_bytes`]; `None` if the length is wrong, or a number is
    /// impossible.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (end, rest) = bytes.split_first_chunk::<{ Location::BYTES }>()?;
        let (last, rest) = rest.split_first_chunk::<8>()?;
        let (commit, chain) = rest.split_first_chunk::<8>()?;
        let last = u64::from_le_bytes(*last);
        let commit = u64::from_le_bytes(*commit);
        let position = Self {
            end: Location::from_bytes(end)?,
            last,
            commit,
            chain: chain.try_into().ok()?,
        };
        (last <= MAX_NUMBER && commit <= MAX_NUMBER).then_some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_decodes_from_its_bytes_and_from_no_other_length() {
        let position = LogPosition {
            end: Location {
                segment: 3,
                offset: 1 << 40,
            },
            last: 77,
            chain: [9; 32],
            commit: 12,
        };
        let bytes = position.to_bytes();
        assert_eq!(LogPosition::from_bytes(&bytes), Some(position));
        for length in 0..bytes.len() {
            assert_eq!(LogPosition::from_bytes(&bytes[..length]), None);
        }
        assert_eq!(LogPosition::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }
}
