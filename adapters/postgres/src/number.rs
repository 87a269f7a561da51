//! Numbers of the port as numbers of the database, which has no unsigned ones.

use dormouse_actors::ports::StoreError;

use crate::error::other_error;

/// Maps an unsigned number of any size to a signed one, in the same order.
pub(crate) fn to_ordered(number: u64) -> i64 {
    (number ^ (1 << 63)) as i64
}

/// The inverse of [`to_ordered`].
pub(crate) fn from_ordered(number: i64) -> u64 {
    number as u64 ^ (1 << 63)
}

/// A number by which a write or a claim is recognised; never 0, which stands for none.
pub(crate) fn nonce() -> Result<i64, StoreError> {
    loop {
        let mut bytes = [0; 8];
        getrandom::getrandom(&mut bytes)
            .map_err(|error| other_error("draw a random number", error.to_string()))?;
        match i64::from_ne_bytes(bytes) {
            0 => {}
            nonce => return Ok(nonce),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_kept() {
        let numbers = [0, 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX];
        assert!(numbers.is_sorted_by_key(|number| to_ordered(*number)));
        assert!(
            numbers
                .iter()
                .all(|number| from_ordered(to_ordered(*number)) == *number)
        );
    }
}
