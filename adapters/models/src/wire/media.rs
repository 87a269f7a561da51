//! Encodes images and documents for requests, in base64.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Media};
use dormouse_proto::model::{ModelError, ModelErrorKind};

/// The kinds of media that all formats support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Image,
    Pdf,
}

/// The kind of a media type; none if models are not shown such media.
pub(crate) fn kind(media_type: &str) -> Option<Kind> {
    match media_type {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Some(Kind::Image),
        "application/pdf" => Some(Kind::Pdf),
        _ => None,
    }
}

/// Bytes as base64. O(n).
pub(crate) fn base64(bytes: &Bytes) -> String {
    STANDARD.encode(bytes)
}

/// Bytes as a `data:` URL.
pub(crate) fn data_url(media_type: &str, bytes: &Bytes) -> String {
    format!("data:{media_type};base64,{}", base64(bytes))
}

/// A file name for a PDF, which some formats require.
pub(crate) fn file_name(media: &Media) -> String {
    media.fd.to_string().replace(':', "-") + ".pdf"
}

/// The media in `blocks` that belong to this tool result (none: to no result), with their bytes if
/// the request has them.
pub(crate) fn of<'a>(
    blocks: &'a [Block],
    media: &'a BTreeMap<FdId, Bytes>,
    answer: Option<&'a str>,
) -> impl Iterator<Item = (&'a Media, &'a Bytes)> {
    blocks.iter().filter_map(move |block| match block {
        Block::Media {
            answers,
            media: found,
        } if answers.as_deref() == answer => Some((found, media.get(&found.fd)?)),
        _ => None,
    })
}

/// Checks that the bytes of all media are present.
///
/// # Errors
/// [`ModelErrorKind::Unavailable`] for the first that cannot be read: without it, the message would
/// differ from the one that was sent before.
pub(crate) fn check(blocks: &[Block], media: &BTreeMap<FdId, Bytes>) -> Result<(), ModelError> {
    let named = blocks.iter().filter_map(|block| match block {
        Block::Media { media, .. } => Some(&media.fd),
        _ => None,
    });
    match named.into_iter().find(|fd| !media.contains_key(fd)) {
        Some(fd) => Err(ModelError::new(
            ModelErrorKind::Unavailable,
            format!("{fd}, which was shown, cannot be read"),
        )),
        None => Ok(()),
    }
}
