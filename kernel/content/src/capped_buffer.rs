//! Collects the output of a tool or stream chunk by chunk, up to a cap.
//!
//! Bytes past the cap are dropped and counted, so that the loss can be reported. The cut never
//! splits a character.

use bytes::{Bytes, BytesMut};

/// Collects chunks up to a cap. Copies each kept byte once; never allocates more than the cap.
#[derive(Debug)]
pub struct CappedBuffer {
    collected: BytesMut,
    cap_bytes: usize,
    cut_bytes: u64,
}

/// Bytes that were limited by a cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CappedBytes {
    /// The kept prefix; complete if nothing was cut.
    pub bytes: Bytes,
    /// Number of dropped bytes.
    pub cut_bytes: u64,
}

impl CappedBuffer {
    /// A builder that keeps at most `cap_bytes`.
    #[must_use]
    pub fn with_cap(cap_bytes: u64) -> Self {
        let cap_bytes = usize::try_from(cap_bytes).unwrap_or(usize::MAX);
        Self {
            collected: BytesMut::new(),
            cap_bytes,
            cut_bytes: 0,
        }
    }

    /// Keeps the part of the chunk that fits and counts the rest.
    pub fn push(&mut self, chunk: &[u8]) {
        let fitting_bytes = chunk.len().min(self.cap_bytes - self.collected.len());
        self.collected.extend_from_slice(&chunk[..fitting_bytes]);
        self.cut_bytes += (chunk.len() - fitting_bytes) as u64;
    }

    /// Returns the collected bytes. Copies nothing.
    #[must_use]
    pub fn finish(self) -> CappedBytes {
        let Self {
            collected,
            cut_bytes,
            ..
        } = self;
        match cut_bytes {
            0 => CappedBytes {
                bytes: collected.freeze(),
                cut_bytes,
            },
            _ => drop_incomplete_character(collected.freeze(), cut_bytes),
        }
    }
}

impl CappedBytes {
    /// The first `cap_bytes` of `bytes`. Copies nothing.
    #[must_use]
    pub fn capped(bytes: Bytes, cap_bytes: u64) -> Self {
        match usize::try_from(cap_bytes) {
            Ok(cap) if cap < bytes.len() => {
                drop_incomplete_character(bytes.slice(..cap), (bytes.len() - cap) as u64)
            }
            _ => Self {
                bytes,
                cut_bytes: 0,
            },
        }
    }
}

/// Drops the incomplete character at the end, if the cut split one. A character has at most four
/// bytes.
fn drop_incomplete_character(bytes: Bytes, cut_bytes: u64) -> CappedBytes {
    let trailing_continuation_bytes = bytes
        .iter()
        .rev()
        .take(3)
        .position(|byte| byte & 0xc0 != 0x80);
    let start = trailing_continuation_bytes.map_or(bytes.len(), |continuation_bytes| {
        bytes.len() - 1 - continuation_bytes
    });
    let is_incomplete =
        std::str::from_utf8(&bytes[start..]).is_err_and(|error| error.error_len().is_none());
    let end = if is_incomplete { start } else { bytes.len() };
    CappedBytes {
        cut_bytes: cut_bytes + (bytes.len() - end) as u64,
        bytes: bytes.slice(..end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, cap_bytes: u64) -> CappedBytes {
        let mut builder = CappedBuffer::with_cap(cap_bytes);
        chunks.into_iter().for_each(|chunk| builder.push(chunk));
        builder.finish()
    }

    #[test]
    fn bytes_up_to_the_cap_are_kept_and_the_rest_is_counted() {
        let faces = "😀😀".as_bytes();
        let cases: [(&[u8], u64, &[u8], u64); 9] = [
            (b"", 0, b"", 0),
            (b"abc", 3, b"abc", 0),
            (b"abcdef", 3, b"abc", 3),
            (b"abc", 0, b"", 3),
            (faces, 8, faces, 0),
            (faces, 7, &faces[..4], 4),
            (faces, 4, &faces[..4], 4),
            ("a😀".as_bytes(), 2, b"a", 4),
            (
                &[0xff, 0x80, 0x80, 0x80, 0x80],
                4,
                &[0xff, 0x80, 0x80, 0x80],
                1,
            ),
        ];
        for (input, cap, collected, cut_bytes) in cases {
            let expected = CappedBytes {
                bytes: Bytes::copy_from_slice(collected),
                cut_bytes,
            };
            for size in 1..4 {
                assert_eq!(
                    collect(input.chunks(size), cap),
                    expected,
                    "{input:?} by {size}, {cap}"
                );
            }
            assert_eq!(
                CappedBytes::capped(Bytes::copy_from_slice(input), cap),
                expected,
                "{input:?} {cap}"
            );
        }
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let text = "aé一😀\n".repeat(5);
        for cap in 0..=text.len() as u64 + 1 {
            let CappedBytes { bytes, cut_bytes } = collect([text.as_bytes()], cap);
            let collected = std::str::from_utf8(&bytes).unwrap();
            assert!(text.starts_with(collected) && bytes.len() as u64 <= cap);
            assert_eq!(collected.len() as u64 + cut_bytes, text.len() as u64);
        }
    }
}
