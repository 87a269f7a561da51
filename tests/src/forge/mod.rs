//! Exports and stores as somebody makes them up who knows the formats: the insides as they like,
//! and all hashes right.
//!
//! Nothing here uses the code that reads: formats are those of `docs/format.md`. The fuzz targets
//! are built of it as well.

pub mod export;
pub mod store;

/// The lengths that are claimed.
pub const CLAIMS: [u64; 5] = [1 << 16, 1 << 31, 1 << 32, 1 << 60, u64::MAX];

/// A payload with another number at `at`: what stands there as a number of the codec is replaced;
/// none where nothing stands there.
#[must_use]
pub fn claiming(payload: &[u8], at: usize, claim: u64) -> Option<Vec<u8>> {
    let stood = match payload.get(at)? {
        251 => 3,
        252 => 5,
        253 => 9,
        _ => 1,
    };
    let rest = payload.get(at + stood..)?;
    Some([&payload[..at], &number(claim), rest].concat())
}

/// A number as the codec writes it.
#[must_use]
pub fn number(number: u64) -> Vec<u8> {
    let bytes = number.to_le_bytes();
    match number {
        0..=250 => vec![bytes[0]],
        251..=0xffff => [&[251], &bytes[..2]].concat(),
        0x1_0000..=0xffff_ffff => [&[252], &bytes[..4]].concat(),
        _ => [&[253], &bytes[..]].concat(),
    }
}
