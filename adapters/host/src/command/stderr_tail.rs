//! Keeps the end of the standard error of a program, for the message of a failure.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is kept, in bytes.
const TAIL_BYTES: usize = 16 << 10;

/// The last bytes of a stream, however long it is.
#[derive(Debug, Default)]
pub(super) struct StderrTail {
    bytes: Vec<u8>,
    is_truncated: bool,
}

impl StderrTail {
    /// Reads a stream to its end. If the future is dropped, the bytes that were read are kept.
    pub(super) async fn follow(&mut self, mut stream: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut chunk = [0; 4096];
        loop {
            match stream.read(&mut chunk).await? {
                0 => return Ok(()),
                read => self.push(&chunk[..read]),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 2 * TAIL_BYTES {
            self.drop_older_bytes();
        }
    }

    fn drop_older_bytes(&mut self) {
        let excess = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.is_truncated |= excess > 0;
        self.bytes.drain(..excess);
    }

    /// The kept bytes as text, with `…` in front if earlier bytes were dropped.
    pub(super) fn text(mut self) -> String {
        self.drop_older_bytes();
        if !self.is_truncated {
            return String::from_utf8_lossy(&self.bytes).trim_end().to_owned();
        }
        let inside_char = self
            .bytes
            .iter()
            .take_while(|byte| **byte & 0xc0 == 0x80)
            .count()
            .min(3);
        format!(
            "…{}",
            String::from_utf8_lossy(&self.bytes[inside_char..]).trim_end()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_end_is_kept_and_marked_as_truncated() {
        let short = "a\nb\n".to_owned();
        let long = "é".repeat(TAIL_BYTES * 5) + "x";
        for (stream, expected) in [
            (short, "a\nb".to_owned()),
            (long, format!("…{}x", "é".repeat(TAIL_BYTES / 2 - 1))),
        ] {
            let mut tail = StderrTail::default();
            tail.follow(stream.as_bytes()).await.unwrap();
            assert!(tail.bytes.len() <= 2 * TAIL_BYTES);
            assert_eq!(tail.text(), expected);
        }
    }

    #[test]
    fn the_kept_bytes_are_bounded() {
        let mut tail = StderrTail::default();
        for _ in 0..100 {
            tail.push(&[b'x'; 1_000]);
            assert!(tail.bytes.len() <= 2 * TAIL_BYTES);
        }
    }
}
