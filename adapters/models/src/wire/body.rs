//! The body of an answer: its pieces, and what its first byte says about its form.
//!
//! The form is told from the bytes, since servers and gateways send streams without their content
//! type, and pages in place of replies.

use std::pin::Pin;

use bytes::Bytes;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Response;

use super::excerpt::malformed;
use super::failure;

/// The pieces of a body.
pub(super) type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Server-sent events.
    Events,
    /// JSON, or a text that is refused as such.
    Whole,
    /// A page of HTML or XML.
    Page,
    /// Nothing but white space.
    Empty,
}

/// Why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(transparent)]
    Cut(#[from] reqwest::Error),
    #[error("the reply is longer than {0} bytes")]
    TooLong(u64),
}

impl BodyError {
    pub(super) fn before_the_end(self) -> ModelError {
        match self {
            Self::Cut(error) => ModelError {
                kind: ModelErrorKind::CutStream,
                ..failure::in_transport(error)
            },
            Self::TooLong(_) => malformed(self.to_string()),
        }
    }
}

/// The body in pieces, refused beyond `cap_bytes`.
pub(super) fn capped(response: Response, cap_bytes: u64) -> Pieces {
    let mut left = cap_bytes;
    let pieces = response.bytes_stream().map(move |piece| {
        let piece = piece?;
        left = left
            .checked_sub(piece.len() as u64)
            .ok_or(BodyError::TooLong(cap_bytes))?;
        Ok(piece)
    });
    Box::pin(pieces)
}

/// The form of a body, and the whole body: what was read to tell its form comes first.
///
/// # Errors
/// The body ends before its first byte that is no white space.
pub(super) async fn form_of(mut pieces: Pieces) -> Result<(Form, Pieces), BodyError> {
    let mut read = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        let begin = piece
            .iter()
            .copied()
            // A byte order mark is no part of the text.
            .find(|byte| !byte.is_ascii_whitespace() && !b"\xef\xbb\xbf".contains(byte));
        read.push(Ok(piece));
        if let Some(begin) = begin {
            return Ok((form_by(begin), Box::pin(stream::iter(read).chain(pieces))));
        }
    }
    Ok((Form::Empty, Box::pin(stream::iter(read))))
}

fn form_by(begin: u8) -> Form {
    match begin {
        b'<' => Form::Page,
        // A comment, or one of the fields `data`, `event`, `id` and `retry`.
        b':' | b'd' | b'e' | b'i' | b'r' => Form::Events,
        _ => Form::Whole,
    }
}

/// Reads a body to its end.
///
/// # Errors
/// It is cut, too long or no text.
pub(super) async fn whole(mut pieces: Pieces) -> Result<String, ModelError> {
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece.map_err(BodyError::before_the_end)?);
    }
    String::from_utf8(body).map_err(|error| malformed(format!("the reply is no text: {error}")))
}
