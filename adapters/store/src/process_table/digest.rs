//! A digest that shows whether a copy of the process table is complete.

use dormouse_records::secret::StoreKey;

/// A sum of keyed hashes: equal sets of values have equal digests, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) [u64; 4]);

impl Digest {
    /// The digest of one value.
    fn of_value(key: &StoreKey, index_key: &[u8; 9], value: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        let hash = hasher.update(index_key).update(value).finalize();
        let mut sum = [0; 4];
        for (word, bytes) in sum.iter_mut().zip(hash.as_bytes().as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self(sum)
    }

    /// Adds or subtracts the digest of a value, as `step` does for each word.
    fn combine(&mut self, other: Self, step: fn(u64, u64) -> u64) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word = step(*word, other);
        }
    }

    /// Replaces the value of a key; `old` is `None` if there was none, `new` if it is removed.
    pub(super) fn replace(
        &mut self,
        key: &StoreKey,
        index_key: &[u8; 9],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) {
        if let Some(old) = old {
            self.combine(Self::of_value(key, index_key, old), u64::wrapping_sub);
        }
        if let Some(new) = new {
            self.combine(Self::of_value(key, index_key, new), u64::wrapping_add);
        }
    }
}
