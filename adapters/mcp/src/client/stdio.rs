//! The transport to a server that is a program: each line of its standard streams is a message.
//!
//! The length of a line is bounded. A longer line is discarded, and the request that it answers
//! gets an error instead; if that request cannot be determined, the connection is closed. Lines
//! that are not messages are skipped. If a server writes too many of them, the connection is
//! closed.

use std::io;
use std::sync::Arc;

use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, NumberOrString};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, watch};

use super::unsolicited::CloseReason;

/// How much of the beginning and of the end of a long line is kept, to find the request that the
/// line answers.
const LINE_END_BYTES: usize = 4 << 10;
/// A line this many times longer than allowed counts as endless.
const ENDLESS_FACTOR: usize = 64;
/// The most lines in a row that are not messages.
const MAX_JUNK_LINES: usize = 10_000;
/// The most bytes in a row that are not messages.
const MAX_JUNK_BYTES: usize = 64 << 20;

type SharedWriter = Arc<Mutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>>;

/// The transport over the standard streams of a server.
pub(super) struct StdioTransport {
    output: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    line: CurrentLine,
    input: SharedWriter,
    /// Dropped when the transport is closed. That cancels writes to a server that does not read.
    open: Option<watch::Sender<()>>,
    close_reason: CloseReason,
    junk_lines: usize,
    junk_bytes: usize,
}

impl StdioTransport {
    pub(super) fn new(
        output: Box<dyn AsyncRead + Send + Unpin>,
        input: Box<dyn AsyncWrite + Send + Unpin>,
        max_bytes: usize,
        close_reason: CloseReason,
    ) -> Self {
        Self {
            output: BufReader::new(output),
            line: CurrentLine::new(max_bytes),
            input: Arc::new(Mutex::new(Some(input))),
            open: Some(watch::Sender::new(())),
            close_reason,
            junk_lines: 0,
            junk_bytes: 0,
        }
    }

    /// The message of the complete line, or an error for the request that the line answers. None if
    /// the line is not a message.
    fn take_message(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = match &self.line.overlong {
            Some(ends) => {
                let why = format!(
                    "its answer is longer than {} bytes, and was not kept",
                    self.line.max_bytes
                );
                ends.find_request_id().map(|id| error_response(id, why))
            }
            None => parse_message(&self.line.buffer),
        };
        let bytes = self.line.bytes;
        self.line.clear();
        match message {
            Some(_) => (self.junk_lines, self.junk_bytes) = (0, 0),
            None => {
                self.junk_lines += 1;
                self.junk_bytes = self.junk_bytes.saturating_add(bytes);
            }
        }
        message
    }
}

/// Parses a line. An invalid answer becomes an error for the request that it answers.
fn parse_message(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Some(message);
    }
    let value: Value = serde_json::from_slice(line).ok()?;
    let request_id = value
        .get("result")
        .or_else(|| value.get("error"))
        .and(value.get("id"))
        .and_then(Value::as_i64);
    request_id.map(|id| {
        error_response(
            id,
            "its answer does not have the form of an MCP answer".to_owned(),
        )
    })
}

fn error_response(id: i64, why: String) -> RxJsonRpcMessage<RoleClient> {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, why, None);
    JsonRpcMessage::Error(JsonRpcError::new(Some(NumberOrString::Number(id)), error))
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let input = self.input.clone();
        let open = self.open.as_ref().map(watch::Sender::subscribe);
        async move {
            let closed = || io::Error::from(io::ErrorKind::NotConnected);
            let mut open = open.ok_or_else(closed)?;
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let written = async {
                // The lock is held while the line is written, so that messages are not interleaved.
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
            if self.junk_lines > MAX_JUNK_LINES || self.junk_bytes > MAX_JUNK_BYTES {
                self.close_reason
                    .set("wrote too many lines that are not messages");
                tracing::warn!(
                    "a tool server writes too much that is not a message: its connection is closed"
                );
                return None;
            }
            let available = match self.output.fill_buf().await {
                Ok(available) if !available.is_empty() => available,
                // A last line without a line feed is incomplete, and not a message.
                Ok(_) | Err(_) => return None,
            };
            let end = memchr::memchr(b'\n', available);
            let consumed = end.map_or(available.len(), |end| end + 1);
            self.line.push(&available[..consumed]);
            self.output.consume(consumed);
            if end.is_none() {
                if self.line.bytes > self.line.max_bytes.saturating_mul(ENDLESS_FACTOR) {
                    self.close_reason.set("wrote a line without end");
                    tracing::warn!(
                        "a tool server writes an endless line: its connection is closed"
                    );
                    return None;
                }
                continue;
            }
            let is_overlong = self.line.overlong.is_some();
            match self.take_message() {
                Some(message) => return Some(message),
                None if is_overlong => {
                    self.close_reason
                        .set("wrote a line that is too long, and answers no call");
                    return None;
                }
                None => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // Pending writes are cancelled. Closing the input of the server asks the server to end.
        drop(self.open.take());
        drop(self.input.lock().await.take());
        Ok(())
    }
}

/// The line that is being read.
struct CurrentLine {
    buffer: Vec<u8>,
    bytes: usize,
    max_bytes: usize,
    /// The beginning and the end of a line that is too long.
    overlong: Option<LineEnds>,
}

impl CurrentLine {
    fn new(max_bytes: usize) -> Self {
        Self {
            buffer: Vec::new(),
            bytes: 0,
            max_bytes,
            overlong: None,
        }
    }

    fn push(&mut self, part: &[u8]) {
        self.bytes = self.bytes.saturating_add(part.len());
        match &mut self.overlong {
            Some(ends) => ends.push(part),
            None if self.bytes <= self.max_bytes => self.buffer.extend_from_slice(part),
            None => {
                let mut ends = LineEnds::default();
                ends.push(&std::mem::take(&mut self.buffer));
                ends.push(part);
                self.overlong = Some(ends);
            }
        }
    }

    fn clear(&mut self) {
        // A new buffer, so that the memory of a long line is freed.
        self.buffer = Vec::new();
        (self.bytes, self.overlong) = (0, None);
    }
}

/// The beginning and the end of a line.
#[derive(Default)]
struct LineEnds {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl LineEnds {
    fn push(&mut self, part: &[u8]) {
        let room = LINE_END_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail
            .extend_from_slice(&part[part.len().saturating_sub(LINE_END_BYTES)..]);
        self.tail
            .drain(..self.tail.len().saturating_sub(LINE_END_BYTES));
    }

    /// Finds the id of the request that the line answers. The id comes before or after the result,
    /// which may itself contain the text `"id"`.
    fn find_request_id(&self) -> Option<i64> {
        let head = String::from_utf8_lossy(&self.head);
        let before = head.find("\"result\"").or_else(|| head.find("\"error\""))?;
        if let Some((_, after_id)) = head[..before].rsplit_once("\"id\"") {
            return parse_number(after_id.trim_start().strip_prefix(':')?);
        }
        let tail = String::from_utf8_lossy(&self.tail);
        let (before_id, after_id) = tail.trim_end().strip_suffix('}')?.rsplit_once("\"id\"")?;
        let text = after_id.trim_start().strip_prefix(':')?.trim();
        let (digits, rest) = text.split_at(
            text.find(|character: char| !character.is_ascii_digit())
                .unwrap_or(text.len()),
        );
        let rest: String = rest
            .chars()
            .filter(|character| !character.is_whitespace())
            .collect();
        let is_outermost = before_id.trim_end().ends_with([',', '{'])
            && matches!(&*rest, "" | ",\"jsonrpc\":\"2.0\"");
        digits.parse().ok().filter(|_| is_outermost)
    }
}

/// Parses the decimal digits at the beginning of a text.
fn parse_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    text[..text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len())]
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_id_of_a_long_line_is_found_at_its_beginning_or_end() {
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
            let mut ends = LineEnds::default();
            line.as_bytes()
                .chunks(1_000)
                .for_each(|part| ends.push(part));
            assert_eq!(ends.find_request_id(), expected, "{}…", &line[..60]);
        }
    }

    fn transport(written: &'static [u8], max_bytes: usize) -> StdioTransport {
        StdioTransport::new(
            Box::new(written),
            Box::new(tokio::io::sink()),
            max_bytes,
            CloseReason::default(),
        )
    }

    #[tokio::test]
    async fn other_lines_are_skipped_and_a_long_answer_is_an_error_for_its_request() {
        let written = b"Listening\n\n{\"a\":\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"a\":\"0123456789012345678901234567890123456789\"}}\n{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":7}\nno \
             end";
        let mut lines = transport(written, 60);
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
            "a result of any type is accepted"
        );
        assert!(lines.receive().await.is_none());
    }

    #[tokio::test]
    async fn a_long_line_that_answers_no_request_closes_the_connection() {
        let written = b"01234567890123456789\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        assert!(transport(written, 10).receive().await.is_none());
    }

    #[tokio::test]
    async fn too_many_lines_that_are_not_messages_close_the_connection() {
        let written: &'static [u8] = "junk\n".repeat(MAX_JUNK_LINES + 2).leak().as_bytes();
        assert!(transport(written, 100).receive().await.is_none());
    }
}
