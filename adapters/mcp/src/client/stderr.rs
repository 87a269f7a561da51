//! What a server writes to its standard error: traced line by line under the target `dormouse_mcp::stderr`, and nowhere else. A
//! long line is cut.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::manners::shortened;

/// So much of a line is kept, in bytes.
const LINE_BYTES: usize = 2 << 10;

/// Traces all that is written, to its end.
pub(super) async fn follow(server: Arc<str>, mut errors: impl AsyncRead + Unpin) {
    let (mut chunk, mut line) = (vec![0; 8 << 10], Vec::new());
    // What cannot be read any more is at its end.
    while let Ok(read @ 1..) = errors.read(&mut chunk).await {
        for part in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                say(&server, &mut line);
            }
        }
    }
    say(&server, &mut line);
}

fn say(server: &str, line: &mut Vec<u8>) {
    let said = shortened(String::from_utf8_lossy(line).trim_end());
    if !said.is_empty() {
        tracing::info!(target: "dormouse_mcp::stderr", server, "{said}");
    }
    line.clear();
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Traced(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Traced {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_are_traced_by_server_and_cut() {
        let traced = Traced::default();
        let writer = traced.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let written = format!("one\n\n\x1b[31mtwo\n{}\nlast", "long".repeat(10_000));
        {
            let _here = tracing::subscriber::set_default(subscriber);
            follow("s".into(), written.as_bytes()).await;
        }
        let traced = String::from_utf8(traced.0.lock().expect("nobody panicked").clone()).expect("it is text");
        let lines: Vec<&str> = traced.lines().collect();
        assert_eq!(lines.len(), 4, "{traced}");
        assert!(lines[0].contains("INFO dormouse_mcp::stderr: one server=\"s\""), "{traced}");
        assert!(lines[1].contains(" [31mtwo") && lines[3].contains("last"), "{traced}");
        assert!(lines[2].len() < 700, "{}", lines[2].len());
    }
}
