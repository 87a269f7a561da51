//! How much memory a record may take once it is decoded.

use super::CodecError;

/// However long a record is, what comes of it may take so many times its bytes,
const TIMES: u64 = 8;
/// and beyond that so much,
const BEYOND_BYTES: u64 = 64 << 20;
/// but of a short record no more than so many times its bytes:
const BEYOND_TIMES: u64 = 64;
/// the smallest parts of a record, such as an empty text, take one byte of it and some dozen of memory.
const LEAST_BYTES: u64 = 4 << 10;

/// Bytes of memory that decoded records may still take.
///
/// What comes of `n` bytes may take `8 n` bytes, and beyond that the lesser of `64 n` bytes and 64 MiB, and 4 KiB. Lists, maps, texts
/// and boxed values count by the room that they take, a list whose length is not reserved at once by twice that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    bytes: u64,
    taken: u64,
}

impl Allowance {
    /// What records of so many bytes may take together.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, taken: 0 }
    }

    /// So many bytes of records more are there.
    pub fn extend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// How much may be taken, what is taken included.
    #[must_use]
    pub fn total(&self) -> u64 {
        let beyond = BEYOND_BYTES.min(self.bytes.saturating_mul(BEYOND_TIMES));
        self.bytes.saturating_mul(TIMES).saturating_add(beyond).saturating_add(LEAST_BYTES)
    }

    /// How much is taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Something that is held takes so much.
    ///
    /// # Errors
    /// [`CodecError::Expands`] where that is more than is left.
    pub fn take(&mut self, bytes: u64) -> Result<(), CodecError> {
        let (taken, allowed) = (self.taken.saturating_add(bytes), self.total());
        if taken > allowed {
            return Err(CodecError::Expands { allowed });
        }
        self.taken = taken;
        Ok(())
    }

    /// What was taken since `before` is held no more.
    pub fn give_back(&mut self, before: &Self) {
        self.taken = before.taken;
    }
}
