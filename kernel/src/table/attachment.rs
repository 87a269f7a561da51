//! Attachments: what a tool produced that is no text. Each becomes a descriptor, however small it is, and a model whose format
//! takes it is shown the thing itself.
//!
//! A provider that cannot read an image refuses the whole request, and each one after it. So only what looks like what it
//! is said to be is shown, and nothing that is longer, wider or one more than every provider takes.

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::{self, Attached};
use dormouse_proto::id::FdId;
use dormouse_proto::message::Media;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Attachment;
use dormouse_proto::xml::Element;
use imagesize::ImageType;

use crate::content::{Collected, Content};

/// The most attachments of one output that become descriptors.
pub const MOST_ATTACHED: usize = 64;
/// The most bytes that the model of one process is shown: their base64 stays below the 20 MB that every provider takes in a request.
const MOST_SHOWN_BYTES: u64 = 14_000_000;
/// The longest that is shown: its base64 has 5 MB.
const LONGEST_SHOWN_BYTES: u64 = 3_750_000;
/// The longest side of an image that is shown.
const LONGEST_SIDE_PX: u32 = 8_000;
/// So many images may have such sides; where there are more, each must be small.
const FEW_IMAGES: usize = 20;
const SMALL_SIDE_PX: u32 = 2_000;
/// The most images of one conversation.
const MOST_IMAGES: usize = 100;

const LONGEST_NAME_CHARS: usize = 200;
const LONGEST_TYPE_CHARS: usize = 100;

/// The beginning of a text that may be long.
fn begun(text: &str, chars: usize) -> String {
    let begun: String = text.chars().take(chars).collect();
    if begun.len() < text.len() { begun + "…" } else { begun }
}

/// An attachment that became a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What the descriptor holds.
    pub entry: Entry<Content>,
    /// What the model reads.
    pub element: Element,
    /// What the model is shown, if it can be.
    pub media: Option<Media>,
}

/// Admits an attachment as descriptor `id`. Where descriptors are off (`settings` are none) it is one all the same, that only
/// the model's own eyes read. O(n) in its bytes, at memory bandwidth; what is beyond `max_content_bytes` is cut off, and then
/// it is not shown.
#[must_use]
pub fn admit_attachment(
    id: FdId,
    attachment: &Attachment,
    source: &str,
    settings: Option<&DescriptorSettings>,
    now_ms: u64,
) -> Admitted {
    let Attachment { name, media_type, bytes } = attachment;
    // A server names them, at any length.
    let name = name.as_deref().map(|name| begun(name, LONGEST_NAME_CHARS));
    let media_type = &begun(media_type, LONGEST_TYPE_CHARS);
    let settings = settings.copied().unwrap_or_default();
    let total_bytes = bytes.len() as u64;
    let Collected { bytes, cut_bytes } = Collected::capped(bytes.clone(), settings.max_content_bytes);
    let is_fit = cut_bytes == 0 && total_bytes <= LONGEST_SHOWN_BYTES;
    let seen = Some(&bytes).filter(|_| is_fit).and_then(|bytes| seen(bytes, &essence(media_type)));
    let attached = Attached {
        source,
        name: name.as_deref(),
        media_type,
        bytes: total_bytes,
        kept_bytes: (cut_bytes > 0).then_some(total_bytes - cut_bytes),
    };
    let element = view::attachment(&id, attached);
    let from = name.as_ref().map_or_else(|| source.to_owned(), |name| format!("{source}/{name}"));
    let entry = Entry { cut_bytes, ..Entry::new(Content::new(bytes), settings.page_chars.max(1), from, now_ms) };
    let media = seen.map(|side_px| Media { fd: id, media_type: essence(media_type).into(), side_px });
    Admitted { entry, element, media }
}

/// The type without parameters, in small letters: `image/png`.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The longer side of what can be shown as `media_type`, in pixels; 0 for a document.
fn seen(bytes: &[u8], media_type: &str) -> Option<u32> {
    if shown_type(bytes) != Some(media_type) {
        return None;
    }
    if media_type == PDF {
        return Some(0);
    }
    let size = imagesize::blob_size(bytes).ok()?;
    u32::try_from(size.width.max(size.height)).ok().filter(|side| (1..=LONGEST_SIDE_PX).contains(side))
}

const PDF: &str = "application/pdf";

/// The type of image or document that bytes begin as, of those that can be shown.
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

/// What a conversation shows its model, all of it with each request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gallery {
    bytes: u64,
    images: usize,
    largest_px: u32,
}

impl Gallery {
    /// With this beside the rest.
    #[must_use]
    pub fn with(self, media: &Media, bytes: u64) -> Self {
        Self {
            bytes: self.bytes.saturating_add(bytes),
            images: self.images + usize::from(media.side_px > 0),
            largest_px: self.largest_px.max(media.side_px),
        }
    }

    /// Whether every provider takes all of it.
    #[must_use]
    pub fn is_taken(self) -> bool {
        let are_small = self.images <= FEW_IMAGES || self.largest_px <= SMALL_SIDE_PX;
        self.bytes <= MOST_SHOWN_BYTES && self.images <= MOST_IMAGES && are_small
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x20\0\0\0\x10 the rest";

    fn png(side_px: u32) -> Vec<u8> {
        [&PNG[..16], &side_px.to_be_bytes(), &PNG[20..]].concat()
    }

    fn admitted(media_type: &str, bytes: &[u8], settings: Option<&DescriptorSettings>) -> Admitted {
        let bytes = Bytes::copy_from_slice(bytes);
        let attachment = Attachment { name: Some("a<b.png".into()), media_type: media_type.into(), bytes };
        admit_attachment(FdId::Fd(3), &attachment, "tool:plot", settings, 7)
    }

    #[test]
    fn what_is_what_it_says_is_shown_and_anything_is_a_descriptor() {
        let long = [PNG, &[0; LONGEST_SHOWN_BYTES as usize]].concat();
        let cases: [(&str, &[u8], bool); 13] = [
            ("image/png", PNG, true),
            ("Image/PNG; charset=binary", PNG, true),
            ("image/jpeg", PNG, false),
            ("image/jpeg", b"\xff\xd8\xff\xc0\0\x11\x08\0\x10\0\x20\x03\x01\x11\0\x02\x11\x01\x03\x11\x01", true),
            ("image/jpeg", b"\xff\xd8\xff\xe0", false),
            ("image/gif", b"GIF89a\x20\0\x10\0\0\0\0", true),
            ("image/webp", b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x1f\0\0\x0f\0\0", true),
            ("image/png", &png(LONGEST_SIDE_PX), true),
            ("image/png", &png(LONGEST_SIDE_PX + 1), false),
            ("application/pdf", b"%PDF-1.7", true),
            ("image/png", b"", false),
            ("image/svg+xml", b"<svg/>", false),
            ("image/png", &long, false),
        ];
        for (media_type, bytes, is_shown) in cases {
            let Admitted { entry, element, media } = admitted(media_type, bytes, None);
            assert_eq!(media.is_some(), is_shown, "{media_type}");
            assert_eq!(entry.content.unbounded().bytes().unwrap(), bytes);
            let bytes = format!("bytes=\"{}\"", bytes.len());
            let xml = element.to_xml();
            assert!(xml.starts_with("<fd_attachment fd=\"fd:3\" ") && xml.contains(&bytes), "{xml}");
        }
        let shown = admitted("IMAGE/png", PNG, None).media.unwrap();
        assert_eq!((shown.fd, &*shown.media_type, shown.side_px), (FdId::Fd(3), "image/png", 32));
    }

    #[test]
    fn few_images_may_be_wide_and_many_must_be_small() {
        let with = |images: usize, side_px: u32| {
            let media = Media { fd: FdId::Fd(1), media_type: "image/png".into(), side_px };
            (0..images).fold(Gallery::default(), |gallery, _| gallery.with(&media, 1_000))
        };
        assert!(with(FEW_IMAGES, LONGEST_SIDE_PX).is_taken());
        assert!(!with(FEW_IMAGES + 1, SMALL_SIDE_PX + 1).is_taken());
        assert!(with(MOST_IMAGES, SMALL_SIDE_PX).is_taken());
        assert!(!with(MOST_IMAGES + 1, 1).is_taken());
        assert!(with(5 * MOST_IMAGES, 0).is_taken(), "documents are no images");
        let document = Media { fd: FdId::Fd(1), media_type: PDF.into(), side_px: 0 };
        assert!(!with(1, 1).with(&document, MOST_SHOWN_BYTES).is_taken());
    }

    #[test]
    fn a_name_without_end_is_cut() {
        let (name, media_type) = (Some("n".repeat(1 << 20).into()), "t".repeat(1 << 20).into());
        let attachment = Attachment { name, media_type, bytes: Bytes::new() };
        let Admitted { entry, element, .. } = admit_attachment(FdId::Fd(1), &attachment, "tool:t", None, 0);
        assert!(element.to_xml().len() < 1_000 && entry.source.len() < 1_000);
    }

    #[test]
    fn what_is_cut_off_is_said_and_not_shown() {
        let settings = DescriptorSettings { max_content_bytes: 10, ..DescriptorSettings::default() };
        let Admitted { entry, element, media } = admitted("image/png", PNG, Some(&settings));
        assert_eq!((media, entry.cut_bytes, entry.content.len_bytes()), (None, PNG.len() as u64 - 10, 10));
        assert!(element.to_xml().contains("kept_bytes=\"10\""));
    }
}
