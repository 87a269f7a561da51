//! Limits the memory that decoded records may take, in proportion to their encoded length.

use super::CodecError;

/// Memory allowed for each byte of a record, whatever its length.
const BYTES_PER_BYTE: u64 = 8;
/// Extra memory for each byte of a record, up to [`MAX_EXTRA_BYTES`]: the smallest parts of a
/// record, such as an empty text, are one byte in the record and some dozen in memory.
const EXTRA_BYTES_PER_BYTE: u64 = 64;
/// The most extra memory.
const MAX_EXTRA_BYTES: u64 = 64 << 20;
/// Memory allowed for a record of any length.
const BASE_BYTES: u64 = 4 << 10;

/// A limit for the memory of decoded records.
///
/// Records of `n` bytes may take `8 n + min(64 n, 64 MiB) + 4 KiB` bytes of memory. Lists, maps,
/// texts and boxed values are charged by the memory that they take. A list that grows while it is
/// read is charged twice, since it has capacity for up to twice its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Total encoded length of the records.
    bytes: u64,
    /// The memory charged so far.
    charged: u64,
}

impl Allowance {
    /// The allowance for records of this total length.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, charged: 0 }
    }

    /// Raises the limit for this many further bytes of records.
    pub fn extend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Limit in bytes of memory.
    #[must_use]
    pub fn total(&self) -> u64 {
        let extra = MAX_EXTRA_BYTES.min(self.bytes.saturating_mul(EXTRA_BYTES_PER_BYTE));
        self.bytes
            .saturating_mul(BYTES_PER_BYTE)
            .saturating_add(extra)
            .saturating_add(BASE_BYTES)
    }

    /// Bytes of memory charged so far.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Charges this many bytes of memory.
    ///
    /// # Errors
    /// [`CodecError::Expands`] if less is left; nothing is charged then.
    pub fn charge(&mut self, bytes: u64) -> Result<(), CodecError> {
        let charged = self.charged.saturating_add(bytes);
        let allowed = self.total();
        if charged > allowed {
            return Err(CodecError::Expands { allowed });
        }
        self.charged = charged;
        Ok(())
    }

    /// Reverts all charges since `before`, whose memory was freed.
    pub fn refund_since(&mut self, before: &Self) {
        self.charged = before.charged;
    }
}
