//! A reader that ends with an error where a line has no end: whoever sends that is told, and waits
//! for no answer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Reads what `inner` reads, as long as no line of it is longer than `max_bytes`.
pub(crate) struct Lines<R> {
    inner: R,
    max_bytes: usize,
    /// Of the line that is being read.
    bytes: usize,
}

impl<R> Lines<R> {
    pub(crate) fn new(inner: R, max_bytes: usize) -> Self {
        Self {
            inner,
            max_bytes,
            bytes: 0,
        }
    }

    /// Counts what was read: the longest that any line of it has become.
    fn count(&mut self, read: &[u8]) -> usize {
        let mut longest = 0;
        for (at, part) in read.split(|byte| *byte == b'\n').enumerate() {
            self.bytes = if at == 0 {
                self.bytes + part.len()
            } else {
                part.len()
            };
            longest = longest.max(self.bytes);
        }
        longest
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let longest = self.count(&buf.filled()[before..]);
        if longest > self.max_bytes {
            let why = format!(
                "the client sent a line of more than {} bytes",
                self.max_bytes
            );
            tracing::error!("{why}: the session ends");
            // A reader that fails has read nothing.
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn reads(text: &[u8]) -> io::Result<usize> {
        let mut all = Vec::new();
        Lines::new(text, 4).read_to_end(&mut all).await
    }

    #[tokio::test]
    async fn lines_of_any_number_pass_and_one_that_is_too_long_ends_all() {
        assert_eq!(reads(b"abcd\nabcd\n\nab").await.unwrap(), 13);
        for long in [&b"abcde"[..], b"a\nabcde\n", b"abcd\nabcdefgh"] {
            assert_eq!(
                reads(long).await.unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
    }
}
