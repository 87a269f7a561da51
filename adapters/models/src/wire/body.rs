//! Reads the body of a response, and detects from its beginning what it contains: events, JSON or
//! a page.
//!
//! The header `Content-Type` is not enough: some servers and gateways send streams without it, or
//! pages in place of replies.

use std::pin::Pin;

use bytes::Bytes;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Response;

use super::excerpt::malformed;
use super::failure;

/// How the lines of server-sent events begin. The first one is a comment.
const EVENT_FIELDS: [&str; 5] = [":", "data:", "event:", "id:", "retry:"];
/// The length of the longest of them.
const MAX_FIELD_BYTES: usize = 6;
/// A text may begin with it; it does not belong to the text.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The body of a response, in chunks.
pub(crate) type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// What a body contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// Server-sent events.
    Events,
    /// JSON, or another text, which fails to parse.
    Json,
    /// A page of HTML or XML.
    Page,
    /// Nothing but white space.
    Empty,
}

/// Why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Cut(#[from] reqwest::Error),
    #[error("the reply is longer than {0} bytes")]
    TooLong(u64),
}

impl BodyError {
    /// The failure of the call whose body could not be read.
    pub(crate) fn into_model_error(self) -> ModelError {
        match self {
            Self::Cut(error) => ModelError {
                kind: ModelErrorKind::CutStream,
                ..failure::from_transport(error)
            },
            Self::TooLong(_) => malformed(self.to_string()),
        }
    }
}

/// The body in chunks. It ends with an error once it exceeds `cap_bytes`.
pub(super) fn limit_size(response: Response, cap_bytes: u64) -> BodyStream {
    let mut bytes_left = cap_bytes;
    let body_stream = response.bytes_stream().map(move |chunk| {
        let chunk = chunk?;
        bytes_left = bytes_left
            .checked_sub(chunk.len() as u64)
            .ok_or(BodyError::TooLong(cap_bytes))?;
        Ok(chunk)
    });
    Box::pin(body_stream)
}

/// Detects what a body contains, and returns it together with the whole body: the chunks that were
/// read for the detection are put back in front.
///
/// # Errors
/// The body is cut before its beginning says what it contains.
pub(super) async fn detect_kind(
    mut body_stream: BodyStream,
) -> Result<(BodyKind, BodyStream), BodyError> {
    let (mut chunks, mut beginning) = (Vec::new(), Vec::new());
    while beginning.len() < MAX_FIELD_BYTES {
        let Some(chunk) = body_stream.next().await else {
            break;
        };
        let chunk = chunk?;
        beginning.extend_from_slice(&chunk);
        let text = beginning
            .strip_prefix(BYTE_ORDER_MARK)
            .unwrap_or(&beginning);
        beginning = text.trim_ascii_start().to_owned();
        chunks.push(Ok(chunk));
    }
    let kind = kind_of(&beginning);
    Ok((kind, Box::pin(stream::iter(chunks).chain(body_stream))))
}

fn kind_of(beginning: &[u8]) -> BodyKind {
    let is_event = EVENT_FIELDS
        .iter()
        .any(|field| beginning.starts_with(field.as_bytes()));
    match beginning.first() {
        None => BodyKind::Empty,
        Some(b'<') => BodyKind::Page,
        Some(_) if is_event => BodyKind::Events,
        Some(_) => BodyKind::Json,
    }
}

/// Reads a body to its end, without its byte order mark.
///
/// # Errors
/// The body is cut, too long or not UTF-8.
pub(super) async fn read_to_end(mut body_stream: BodyStream) -> Result<String, ModelError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body_stream.next().await {
        bytes.extend_from_slice(&chunk.map_err(BodyError::into_model_error)?);
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| malformed(format!("the reply is no text: {error}")))
}
