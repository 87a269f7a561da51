//! Attachments: output of tools that is not text, such as images. Each attachment becomes a
//! descriptor of any size, and is shown to models whose wire format supports its type.
//!
//! A provider that cannot read an image rejects the whole request, and every later one with the
//! same history. Therefore an attachment is shown only if its bytes match its media type and if
//! every supported provider accepts its size.

use std::sync::Arc;

use dormouse_proto::descriptor::view::{self, Attached};
use dormouse_proto::id::FdId;
use dormouse_proto::message::Media;
use dormouse_proto::record::Entry;
use dormouse_proto::text::truncate;
use dormouse_proto::tool::Attachment;
use dormouse_proto::xml::Element;
use imagesize::ImageType;

use super::placement::{CappedContent, Placer};
use dormouse_content::{Content, Unreadable};

/// Maximum number of attachments of one output that become descriptors.
pub const MAX_ATTACHMENTS: usize = 64;
/// Limit for the media of one conversation. Encoded as base64, they stay below the 20 MB that every
/// provider accepts in a request.
const MAX_SHOWN_TOTAL_BYTES: u64 = 14_000_000;
/// Limit for one attachment. Encoded as base64, it has 5 MB.
const MAX_SHOWN_BYTES: u64 = 3_750_000;
/// Limit for the longer side of an image.
const MAX_SIDE_PX: u32 = 8_000;
/// A conversation with at most this many images may have images with sides up to [`MAX_SIDE_PX`];
/// if it has more images, the limit of each is [`SMALL_SIDE_PX`].
const FEW_IMAGES: usize = 20;
const SMALL_SIDE_PX: u32 = 2_000;
/// Maximum number of images of one conversation.
const MAX_IMAGES: usize = 100;

const MAX_NAME_CHARS: usize = 200;
const MAX_TYPE_CHARS: usize = 100;

/// The source of the descriptor of an attachment: the tool, and the name of the attachment.
#[must_use]
pub fn attachment_source(source: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{source}/{}", truncate(name, MAX_NAME_CHARS)),
        None => source.to_owned(),
    }
}

/// An attachment that is about to become a descriptor. It has no id yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttachment {
    /// Entry for the descriptor table.
    pub entry: Entry<Content>,
    source: Arc<str>,
    name: Option<String>,
    media_type: String,
    total_bytes: u64,
    /// The longer side of an image, 0 for a document. `None` if the attachment cannot be shown.
    side_px: Option<u32>,
}

impl Placer<'_> {
    /// Makes a descriptor of an attachment, even if descriptors are off; in that case the model can
    /// see the attachment but not read the descriptor. O(n) in its bytes, at memory bandwidth.
    /// Bytes past `max_content_bytes` are dropped, and a truncated attachment is not shown.
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is used up.
    pub fn attachment(
        &self,
        Attachment {
            name,
            media_type,
            bytes,
        }: &Attachment,
        source: &str,
    ) -> Result<NewAttachment, Unreadable> {
        let settings = self.settings.copied().unwrap_or_default();
        // Names come from servers and can have any length.
        let entry_source = attachment_source(source, name.as_deref());
        let name = name.as_deref().map(|name| truncate(name, MAX_NAME_CHARS));
        let media_type = truncate(media_type, MAX_TYPE_CHARS);
        let total_bytes = bytes.len() as u64;
        let CappedContent { content, cut_bytes } =
            self.cap_content(bytes.clone(), 0, Some(&settings))?;
        let is_showable = cut_bytes == 0 && total_bytes <= MAX_SHOWN_BYTES;
        let side_px = Some(bytes)
            .filter(|_| is_showable)
            .and_then(|bytes| shown_side_px(bytes, &normalize_type(&media_type)));
        let entry = Entry {
            cut_bytes,
            ..Entry::new(
                content,
                settings.page_chars.max(1),
                entry_source,
                self.now_ms,
            )
        };
        entry
            .content
            .reader(self.quota)
            .prepare_page_table(entry.page_chars);
        Ok(NewAttachment {
            entry,
            source: source.into(),
            name,
            media_type,
            total_bytes,
            side_px,
        })
    }
}

impl NewAttachment {
    /// The element that describes the attachment, once it is opened as `id`.
    #[must_use]
    pub fn element(&self, id: &FdId) -> Element {
        let Self {
            entry,
            source,
            name,
            media_type,
            total_bytes,
            ..
        } = self;
        let attached = Attached {
            source,
            name: name.as_deref(),
            media_type,
            bytes: *total_bytes,
            kept_bytes: (entry.cut_bytes > 0).then(|| total_bytes - entry.cut_bytes),
        };
        view::attachment(id, attached)
    }

    /// The media block that shows the attachment, once it is opened as `id`; `None` if it cannot be
    /// shown.
    #[must_use]
    pub fn media(&self, id: &FdId) -> Option<Media> {
        let media_type = normalize_type(&self.media_type);
        self.side_px.map(|side_px| Media {
            fd: id.clone(),
            media_type: media_type.into(),
            side_px,
        })
    }
}

/// The media type in lower case and without parameters, such as `image/png`.
fn normalize_type(media_type: &str) -> String {
    media_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// The longer side in pixels if the bytes can be shown as `media_type`; 0 for a document.
fn shown_side_px(bytes: &[u8], media_type: &str) -> Option<u32> {
    if shown_type(bytes) != Some(media_type) {
        return None;
    }
    if media_type == PDF {
        return Some(0);
    }
    let size = imagesize::blob_size(bytes).ok()?;
    u32::try_from(size.width.max(size.height))
        .ok()
        .filter(|side| (1..=MAX_SIDE_PX).contains(side))
}

const PDF: &str = "application/pdf";

/// The showable media type that the first bytes indicate.
#[must_use]
pub fn shown_type(bytes: &[u8]) -> Option<&'static str> {
    match imagesize::image_type(bytes) {
        Ok(ImageType::Png) => Some("image/png"),
        Ok(ImageType::Jpeg) => Some("image/jpeg"),
        Ok(ImageType::Gif) => Some("image/gif"),
        Ok(ImageType::Webp) => Some("image/webp"),
        _ => bytes.starts_with(b"%PDF-").then_some(PDF),
    }
}

/// Totals of the media in a conversation, all of which are sent with each request.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediaBudget {
    bytes: u64,
    images: usize,
    largest_px: u32,
}

impl MediaBudget {
    /// Adds an item to the totals.
    #[must_use]
    pub fn with(self, media: &Media, bytes: u64) -> Self {
        Self {
            bytes: self.bytes.saturating_add(bytes),
            images: self.images + usize::from(media.side_px > 0),
            largest_px: self.largest_px.max(media.side_px),
        }
    }

    /// Whether every supported provider accepts the totals.
    #[must_use]
    pub fn fits(self) -> bool {
        let has_allowed_sides = self.images <= FEW_IMAGES || self.largest_px <= SMALL_SIDE_PX;
        self.bytes <= MAX_SHOWN_TOTAL_BYTES && self.images <= MAX_IMAGES && has_allowed_sides
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dormouse_proto::descriptor::DescriptorSettings;

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x20\0\0\0\x10 the rest";

    fn png(side_px: u32) -> Vec<u8> {
        [&PNG[..16], &side_px.to_be_bytes(), &PNG[20..]].concat()
    }

    const ID: FdId = FdId::Fd(3);

    fn placed(
        media_type: &str,
        bytes: &[u8],
        settings: Option<&DescriptorSettings>,
    ) -> NewAttachment {
        let bytes = Bytes::copy_from_slice(bytes);
        let attachment = Attachment {
            name: Some("a<b.png".into()),
            media_type: media_type.into(),
            bytes,
        };
        Placer::unlimited(settings, 7)
            .attachment(&attachment, "tool:plot")
            .unwrap()
    }

    #[test]
    fn an_attachment_is_shown_if_its_bytes_match_its_type_and_always_opened() {
        let long = [PNG, &[0; MAX_SHOWN_BYTES as usize]].concat();
        let cases: [(&str, &[u8], bool); 13] = [
            ("image/png", PNG, true),
            ("Image/PNG; charset=binary", PNG, true),
            ("image/jpeg", PNG, false),
            (
                "image/jpeg",
                b"\xff\xd8\xff\xc0\0\x11\x08\0\x10\0\x20\x03\x01\x11\0\x02\x11\x01\x03\x11\x01",
                true,
            ),
            ("image/jpeg", b"\xff\xd8\xff\xe0", false),
            ("image/gif", b"GIF89a\x20\0\x10\0\0\0\0", true),
            (
                "image/webp",
                b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x1f\0\0\x0f\0\0",
                true,
            ),
            ("image/png", &png(MAX_SIDE_PX), true),
            ("image/png", &png(MAX_SIDE_PX + 1), false),
            ("application/pdf", b"%PDF-1.7", true),
            ("image/png", b"", false),
            ("image/svg+xml", b"<svg/>", false),
            ("image/png", &long, false),
        ];
        for (media_type, bytes, is_shown) in cases {
            let new = placed(media_type, bytes, None);
            assert_eq!(new.media(&ID).is_some(), is_shown, "{media_type}");
            assert_eq!(new.entry.content.unlimited_reader().bytes().unwrap(), bytes);
            let bytes = format!("bytes=\"{}\"", bytes.len());
            let xml = new.element(&ID).to_xml();
            assert!(
                xml.starts_with("<fd_attachment fd=\"fd:3\" ") && xml.contains(&bytes),
                "{xml}"
            );
        }
        let shown = placed("IMAGE/png", PNG, None).media(&ID).unwrap();
        assert_eq!(
            (shown.fd, &*shown.media_type, shown.side_px),
            (ID, "image/png", 32)
        );
    }

    #[test]
    fn few_images_may_be_wide_and_many_must_be_small() {
        let with = |images: usize, side_px: u32| {
            let media = Media {
                fd: FdId::Fd(1),
                media_type: "image/png".into(),
                side_px,
            };
            (0..images).fold(MediaBudget::default(), |budget, _| {
                budget.with(&media, 1_000)
            })
        };
        assert!(with(FEW_IMAGES, MAX_SIDE_PX).fits());
        assert!(!with(FEW_IMAGES + 1, SMALL_SIDE_PX + 1).fits());
        assert!(with(MAX_IMAGES, SMALL_SIDE_PX).fits());
        assert!(!with(MAX_IMAGES + 1, 1).fits());
        assert!(with(5 * MAX_IMAGES, 0).fits(), "documents are no images");
        let document = Media {
            fd: FdId::Fd(1),
            media_type: PDF.into(),
            side_px: 0,
        };
        assert!(!with(1, 1).with(&document, MAX_SHOWN_TOTAL_BYTES).fits());
    }

    #[test]
    fn long_names_and_types_are_truncated() {
        let (name, media_type) = (Some("n".repeat(1 << 20).into()), "t".repeat(1 << 20).into());
        let attachment = Attachment {
            name,
            media_type,
            bytes: Bytes::new(),
        };
        let new = Placer::unlimited(None, 0)
            .attachment(&attachment, "tool:t")
            .unwrap();
        assert!(new.element(&ID).to_xml().len() < 1_000 && new.entry.source.len() < 1_000);
    }

    #[test]
    fn a_truncated_attachment_is_reported_and_not_shown() {
        let settings = DescriptorSettings {
            max_content_bytes: 10,
            ..DescriptorSettings::default()
        };
        let new = placed("image/png", PNG, Some(&settings));
        let kept = (new.entry.cut_bytes, new.entry.content.len_bytes());
        assert_eq!((new.media(&ID), kept), (None, (PNG.len() as u64 - 10, 10)));
        assert!(new.element(&ID).to_xml().contains("kept_bytes=\"10\""));
    }
}
