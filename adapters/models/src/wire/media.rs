//! What is no text, as formats take it: in base64.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Media};
use dormouse_proto::model::{ModelError, ModelErrorKind};

/// What something is, for formats that ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of a type that all formats take.
    Image,
    Pdf,
    Text,
    Audio,
    Video,
    Other,
}

/// What a media type is, its parameters aside.
pub(crate) fn kind(media_type: &str) -> Kind {
    let essence = essence(media_type);
    match essence.as_str() {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Kind::Image,
        "application/pdf" => Kind::Pdf,
        _ if essence.starts_with("text/") => Kind::Text,
        _ if essence.starts_with("audio/") => Kind::Audio,
        _ if essence.starts_with("video/") => Kind::Video,
        _ => Kind::Other,
    }
}

/// The media type without its parameters.
pub(crate) fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Bytes as base64. O(n).
pub(crate) fn base64(bytes: &Bytes) -> String {
    STANDARD.encode(bytes)
}

/// Bytes as an address that holds them.
pub(crate) fn data_url(media_type: &str, bytes: &Bytes) -> String {
    format!("data:{};base64,{}", essence(media_type), base64(bytes))
}

/// A name for a document that has none.
pub(crate) fn file_name(media: &Media) -> String {
    let name = media.fd.to_string().replace(':', "-");
    match kind(&media.media_type) {
        Kind::Pdf => format!("{name}.pdf"),
        _ => name,
    }
}

/// The media in `blocks` that belong to an answer, or to none; with their bytes, where the request brings them.
pub(crate) fn of<'a>(
    blocks: &'a [Block],
    media: &'a BTreeMap<FdId, Bytes>,
    answer: Option<&'a str>,
) -> impl Iterator<Item = (&'a Media, &'a Bytes)> {
    blocks.iter().filter_map(move |block| match block {
        Block::Media { answers, media: found } if answers.as_deref() == answer => Some((found, media.get(&found.fd)?)),
        _ => None,
    })
}

/// Whether the bytes of all that is named are there.
///
/// # Errors
/// [`ModelErrorKind::Unavailable`] for the first that cannot be read: without it the message would not be what was sent before.
pub(crate) fn check(blocks: &[Block], media: &BTreeMap<FdId, Bytes>) -> Result<(), ModelError> {
    let named = blocks.iter().filter_map(|block| match block {
        Block::Media { media, .. } => Some(&media.fd),
        _ => None,
    });
    match named.into_iter().find(|fd| !media.contains_key(fd)) {
        Some(fd) => Err(ModelError::new(ModelErrorKind::Unavailable, format!("{fd}, which was shown, cannot be read"))),
        None => Ok(()),
    }
}
