//! Messages as lines: what a server that is a program writes, and what is written to it.
//!
//! A line is bounded. One that is longer is not kept, and the call that it answers gets an error in
//! its place; where nobody can tell which that is, the connection ends. Lines that are no message
//! are passed over, and a server that writes nothing else is left.

use std::io;
use std::sync::Arc;

use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, NumberOrString};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, watch};

use super::inbound::Left;

/// So much of the beginning and of the end of a long line is looked at.
const ENDS_BYTES: usize = 4 << 10;
/// A line that is so many times as long as one may be has no end: nobody waits for it.
const ENDLESS: usize = 64;
/// A server that writes so many lines in a row that are no message is left.
const MOST_JUNK_LINES: usize = 10_000;
/// The same in bytes.
const MOST_JUNK_BYTES: usize = 64 << 20;

type Writing = Arc<Mutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>>;

/// A server's output and input as a transport.
pub(super) struct Lines {
    output: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    line: Line,
    input: Writing,
    /// Gone once the transport is closed: nobody goes on to write to a server that does not read.
    open: Option<watch::Sender<()>>,
    left: Left,
    junk_lines: usize,
    junk_bytes: usize,
}

impl Lines {
    pub(super) fn new(
        output: Box<dyn AsyncRead + Send + Unpin>,
        input: Box<dyn AsyncWrite + Send + Unpin>,
        most_bytes: usize,
        left: Left,
    ) -> Self {
        Self {
            output: BufReader::new(output),
            line: Line::new(most_bytes),
            input: Arc::new(Mutex::new(Some(input))),
            open: Some(watch::Sender::new(())),
            left,
            junk_lines: 0,
            junk_bytes: 0,
        }
    }

    /// The message of the line that is complete. Errors are for the call that the line answers;
    /// none: it is no message.
    fn message(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = match &self.line.dropped {
            Some(ends) => {
                let why = format!(
                    "its answer is longer than {} bytes, and was not kept",
                    self.line.most_bytes
                );
                ends.answers().map(|id| failed(id, why))
            }
            None => read(&self.line.kept),
        };
        let bytes = self.line.bytes;
        self.line.clear();
        match message {
            Some(_) => (self.junk_lines, self.junk_bytes) = (0, 0),
            None => {
                (self.junk_lines, self.junk_bytes) =
                    (self.junk_lines + 1, self.junk_bytes.saturating_add(bytes))
            }
        }
        message
    }
}

/// The message that a line is. One that answers a call, and not as calls are answered, is an error
/// of that call.
fn read(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Some(message);
    }
    let value: Value = serde_json::from_slice(line).ok()?;
    let answers = value
        .get("result")
        .or_else(|| value.get("error"))
        .and(value.get("id"))
        .and_then(Value::as_i64);
    answers.map(|id| failed(id, "its answer is none that the protocol knows".to_owned()))
}

fn failed(id: i64, why: String) -> RxJsonRpcMessage<RoleClient> {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
    JsonRpcMessage::Error(JsonRpcError::new(Some(NumberOrString::Number(id)), error))
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (input, open) = (
            self.input.clone(),
            self.open.as_ref().map(watch::Sender::subscribe),
        );
        async move {
            let closed = || io::Error::from(io::ErrorKind::NotConnected);
            let mut open = open.ok_or_else(closed)?;
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let written = async {
                // Held while it is written, since messages may not run into each other.
                let mut input = input.lock().await;
                let input = input.as_mut().ok_or_else(closed)?;
                input.write_all(&line).await?;
                input.flush().await
            };
            tokio::select! {
                written = written => written,
                _ = open.changed() => Err(closed()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if self.junk_lines > MOST_JUNK_LINES || self.junk_bytes > MOST_JUNK_BYTES {
                self.left.because("wrote much that is no message");
                tracing::warn!("a tool server writes much that is no message: it is left");
                return None;
            }
            let available = match self.output.fill_buf().await {
                Ok(available) if !available.is_empty() => available,
                // What stands in the last line has no end: it is no message.
                Ok(_) | Err(_) => return None,
            };
            let end = memchr::memchr(b'\n', available);
            let taken = end.map_or(available.len(), |end| end + 1);
            self.line.push(&available[..taken]);
            self.output.consume(taken);
            if end.is_none() {
                if self.line.bytes > self.line.most_bytes.saturating_mul(ENDLESS) {
                    self.left.because("wrote a line without end");
                    tracing::warn!("a tool server writes a line without end: it is left");
                    return None;
                }
                continue;
            }
            let is_dropped = self.line.dropped.is_some();
            match self.message() {
                Some(message) => return Some(message),
                None if is_dropped => {
                    self.left
                        .because("wrote a line that is too long, and answers no call");
                    return None;
                }
                None => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // What is being written is given up; its input ends: that asks a server to end.
        drop(self.open.take());
        drop(self.input.lock().await.take());
        Ok(())
    }
}

/// The line that is being read.
struct Line {
    kept: Vec<u8>,
    bytes: usize,
    most_bytes: usize,
    /// Of a line that is too long: how it begins and how it ends.
    dropped: Option<Ends>,
}

impl Line {
    fn new(most_bytes: usize) -> Self {
        Self {
            kept: Vec::new(),
            bytes: 0,
            most_bytes,
            dropped: None,
        }
    }

    fn push(&mut self, part: &[u8]) {
        self.bytes = self.bytes.saturating_add(part.len());
        match &mut self.dropped {
            Some(ends) => ends.push(part),
            None if self.bytes <= self.most_bytes => self.kept.extend_from_slice(part),
            None => {
                let mut ends = Ends::default();
                ends.push(&std::mem::take(&mut self.kept));
                ends.push(part);
                self.dropped = Some(ends);
            }
        }
    }

    fn clear(&mut self) {
        // The room of a large line is given back.
        self.kept = Vec::new();
        (self.bytes, self.dropped) = (0, None);
    }
}

/// The beginning and the end of a line.
#[derive(Default)]
struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    fn push(&mut self, part: &[u8]) {
        let room = ENDS_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail
            .extend_from_slice(&part[part.len().saturating_sub(ENDS_BYTES)..]);
        self.tail
            .drain(..self.tail.len().saturating_sub(ENDS_BYTES));
    }

    /// The call that the message answers: a message names it before or behind its result.
    fn answers(&self) -> Option<i64> {
        let head = String::from_utf8_lossy(&self.head);
        let before = head.find("\"result\"").or_else(|| head.find("\"error\""))?;
        if let Some((_, behind)) = head[..before].rsplit_once("\"id\"") {
            return number(behind.trim_start().strip_prefix(':')?);
        }
        let tail = String::from_utf8_lossy(&self.tail);
        let (inner, behind) = tail.trim_end().strip_suffix('}')?.rsplit_once("\"id\"")?;
        let text = behind.trim_start().strip_prefix(':')?.trim();
        let (digits, rest) = text.split_at(
            text.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len()),
        );
        let rest: String = rest.chars().filter(|c| !c.is_whitespace()).collect();
        let is_outermost =
            inner.trim_end().ends_with([',', '{']) && matches!(&*rest, "" | ",\"jsonrpc\":\"2.0\"");
        digits.parse().ok().filter(|_| is_outermost)
    }
}

fn number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    text[..text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len())]
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_that_a_long_line_answers_is_found_at_its_ends() {
        let long = "x\\\"id\\\":9}".repeat(2_000);
        let cases = [
            (
                format!(r#"{{"jsonrpc":"2.0","id":3,"result":{{"content":"{long}"}}}}"#),
                Some(3),
            ),
            (
                format!(r#"{{ "id" : 4, "jsonrpc": "2.0", "result": {{"content":"{long}"}}}}"#),
                Some(4),
            ),
            (
                format!(r#"{{"result":{{"content":"{long}"}},"jsonrpc":"2.0","id":5}}"#),
                Some(5),
            ),
            (
                format!(r#"{{"result":{{"content":"{long}"}},"id":6,"jsonrpc":"2.0"}} "#),
                Some(6),
            ),
            (
                format!(r#"{{"result":{{"content":"{long}","id":7}}}}"#),
                None,
            ),
            (
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/message","params":"{long}"}}"#
                ),
                None,
            ),
            (long.clone(), None),
        ];
        for (line, expected) in cases {
            let mut ends = Ends::default();
            line.as_bytes()
                .chunks(1_000)
                .for_each(|part| ends.push(part));
            assert_eq!(ends.answers(), expected, "{}…", &line[..60]);
        }
    }

    fn lines(written: &'static [u8], most_bytes: usize) -> Lines {
        Lines::new(
            Box::new(written),
            Box::new(tokio::io::sink()),
            most_bytes,
            Left::default(),
        )
    }

    #[tokio::test]
    async fn what_is_no_message_is_passed_over_and_what_is_too_long_answers_its_call() {
        let written = b"Listening\n\n{\"a\":\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"a\":\"0123456789012345678901234567890123456789\"}}\n{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":7}\nno \
             end";
        let mut lines = lines(written, 60);
        assert!(matches!(
            lines.receive().await,
            Some(JsonRpcMessage::Response(_))
        ));
        for expected in ["longer than 60 bytes"] {
            let Some(JsonRpcMessage::Error(error)) = lines.receive().await else {
                panic!()
            };
            assert!(error.error.message.contains(expected), "{error:?}");
            assert_eq!(error.id, Some(NumberOrString::Number(2)));
        }
        assert!(
            lines.receive().await.is_some(),
            "a result of any kind is one"
        );
        assert!(lines.receive().await.is_none());
    }

    #[tokio::test]
    async fn a_long_line_that_answers_nobody_ends_the_connection() {
        let written = b"01234567890123456789\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        assert!(lines(written, 10).receive().await.is_none());
    }

    #[tokio::test]
    async fn a_flood_of_junk_ends_the_connection() {
        let written: &'static [u8] = "junk\n".repeat(MOST_JUNK_LINES + 2).leak().as_bytes();
        assert!(lines(written, 100).receive().await.is_none());
    }
}
