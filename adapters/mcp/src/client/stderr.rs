//! Logs the standard error of a server, line by line, under the target `dormouse_mcp::stderr`. It
//! is shown nowhere else.
//!
//! Long lines are truncated, and [`LogLimit`] bounds the number of lines. If a server does not
//! start, its last lines are logged as an error, since they usually say why. The very last one
//! alone may not: Node ends with its version, npm with the name of a log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::log_limit::LogLimit;
use super::protocol_handler::truncate_text;

/// The longest part of a line that is kept, in bytes.
const MAX_LINE_BYTES: usize = 2 << 10;

/// The number of lines that are kept in case that the server does not start: a stack trace of Node,
/// whose first lines say what is wrong.
const LAST_LINES: usize = 20;

/// How long to wait for the end of the output of a server that did not start.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Logs every line until the stream ends, and returns the last ones that are not empty.
pub(super) async fn log_lines(
    server: Arc<str>,
    mut errors: impl AsyncRead + Unpin,
) -> VecDeque<String> {
    let mut chunk = vec![0; 8 << 10];
    let mut line = Vec::new();
    let mut last = VecDeque::new();
    let mut log_limit = LogLimit::default();
    // A read error counts as the end of the stream.
    while let Ok(read @ 1..) = errors.read(&mut chunk).await {
        for part in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                log_line(&server, &mut line, &mut last, &mut log_limit);
            }
        }
    }
    log_line(&server, &mut line, &mut last, &mut log_limit);
    last
}

/// Logs a line and keeps it among the last ones, unless it is empty. Clears the buffer for the next
/// line.
fn log_line(
    server: &str,
    line: &mut Vec<u8>,
    last: &mut VecDeque<String>,
    log_limit: &mut LogLimit,
) {
    let text = truncate_text(String::from_utf8_lossy(line).trim_end());
    line.clear();
    if text.is_empty() {
        return;
    }
    if log_limit.admits(server) {
        tracing::info!(target: "dormouse_mcp::stderr", server, "{text}");
    }
    if last.len() == LAST_LINES {
        last.pop_front();
    }
    last.push_back(text);
}

/// Logs the last lines of a server that did not start as an error.
pub(super) async fn log_last_lines(server: &str, stderr_task: JoinHandle<VecDeque<String>>) {
    let last = timeout(END_TIMEOUT, stderr_task).await;
    if let Ok(Ok(last)) = last
        && !last.is_empty()
    {
        let lines: String = last.iter().map(|line| format!("\n  {line}")).collect();
        tracing::error!("the tool server `{server}` did not start; the last that it wrote:{lines}");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_are_logged_with_their_server_and_truncated() {
        let (traced, last) = log_of(&format!(
            "one\n\n\x1b[31mtwo\n{}\nlast",
            "long".repeat(10_000)
        ))
        .await;
        assert_eq!((last[0].as_str(), last.len()), ("one", 4));
        assert_eq!(last[3], "last");
        let lines: Vec<&str> = traced.lines().collect();
        assert_eq!(lines.len(), 4, "{traced}");
        assert!(
            lines[0].contains("INFO dormouse_mcp::stderr: one server=\"s\""),
            "{traced}"
        );
        assert!(
            lines[1].contains(" [31mtwo") && lines[3].contains("last"),
            "{traced}"
        );
        assert!(lines[2].len() < 700, "{}", lines[2].len());
    }

    #[tokio::test]
    async fn the_log_lines_of_a_server_are_limited() {
        let (traced, last) = log_of(&("noise\n".repeat(5_000) + "last")).await;
        let expected: Vec<_> = std::iter::repeat_n("noise", 19).chain(["last"]).collect();
        assert_eq!(last, expected);
        let lines: Vec<&str> = traced.lines().collect();
        assert_eq!(
            lines.len(),
            201,
            "200 lines of the server, and a notice that more are left out"
        );
        assert!(
            lines[200].contains("further lines of this server are left out"),
            "{}",
            lines[200]
        );
    }

    /// The log of a server that writes `written`, and the last lines.
    async fn log_of(written: &str) -> (String, VecDeque<String>) {
        let traced = LogBuffer::default();
        let writer = traced.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let last = {
            let _here = tracing::subscriber::set_default(subscriber);
            log_lines("s".into(), written.as_bytes()).await
        };
        (
            String::from_utf8(traced.0.lock().expect("nobody panicked").clone())
                .expect("it is text"),
            last,
        )
    }
}
