//! A reader that fails on a line that is too long. The session then ends, so that the client does
//! not wait for an answer that never arrives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Reads from `inner`, and fails once a line is longer than `max_bytes`.
pub(crate) struct BoundedLines<R> {
    inner: R,
    max_bytes: usize,
    /// The length of the current line so far.
    line_bytes: usize,
}

impl<R> BoundedLines<R> {
    pub(crate) fn new(inner: R, max_bytes: usize) -> Self {
        Self {
            inner,
            max_bytes,
            line_bytes: 0,
        }
    }

    /// Counts the bytes that were read, and returns the length of the longest line in them.
    fn longest_line(&mut self, read: &[u8]) -> usize {
        let mut longest = 0;
        for (at, part) in read.split(|byte| *byte == b'\n').enumerate() {
            self.line_bytes = if at == 0 {
                self.line_bytes + part.len()
            } else {
                part.len()
            };
            longest = longest.max(self.line_bytes);
        }
        longest
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let longest = self.longest_line(&buf.filled()[before..]);
        if longest > self.max_bytes {
            let why = format!(
                "the client sent a line of more than {} bytes",
                self.max_bytes
            );
            tracing::error!("{why}: the session ends");
            // A reader that fails must not report bytes as read.
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

    async fn read_all(text: &[u8]) -> io::Result<usize> {
        let mut bytes = Vec::new();
        BoundedLines::new(text, 4).read_to_end(&mut bytes).await
    }

    #[tokio::test]
    async fn any_number_of_lines_can_be_read_until_one_is_too_long() {
        assert_eq!(read_all(b"abcd\nabcd\n\nab").await.unwrap(), 13);
        for long in [&b"abcde"[..], b"a\nabcde\n", b"abcd\nabcdefgh"] {
            assert_eq!(
                read_all(long).await.unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
    }
}
