//! Encodes images and documents for requests, in base64.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Media};
use dormouse_proto::model::{ModelError, ModelErrorKind};

/// A kind of media that all formats support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaKind {
    Image,
    Pdf,
}

/// The kind of a media type; none if media of this type are not sent to models.
pub(crate) fn kind(media_type: &str) -> Option<MediaKind> {
    match media_type {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Some(MediaKind::Image),
        "application/pdf" => Some(MediaKind::Pdf),
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

/// The media in `blocks` that belong to the tool result with this id, or to no tool result if the
/// id is none. Media whose bytes the request does not have are left out.
pub(crate) fn of_result<'a>(
    blocks: &'a [Block],
    media: &'a BTreeMap<FdId, Bytes>,
    result_id: Option<&'a str>,
) -> impl Iterator<Item = (&'a Media, &'a Bytes)> {
    blocks.iter().filter_map(move |block| match block {
        Block::Media {
            answers,
            media: attached,
        } if answers.as_deref() == result_id => Some((attached, media.get(&attached.fd)?)),
        _ => None,
    })
}

/// Checks that the bytes of all media are present.
///
/// # Errors
/// [`ModelErrorKind::Unavailable`] for the first media without bytes: a request without them would
/// not begin with the bytes of the earlier one (HIST-1).
pub(crate) fn check_present(
    blocks: &[Block],
    media: &BTreeMap<FdId, Bytes>,
) -> Result<(), ModelError> {
    let mut descriptors = blocks.iter().filter_map(|block| match block {
        Block::Media { media, .. } => Some(&media.fd),
        _ => None,
    });
    match descriptors.find(|fd| !media.contains_key(fd)) {
        Some(fd) => Err(ModelError::new(
            ModelErrorKind::Unavailable,
            format!(
                "the image or document {fd} in an earlier message cannot be read from the store"
            ),
        )),
        None => Ok(()),
    }
}
