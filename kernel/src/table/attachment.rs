//! Attachments: what a tool produced that is no text. Each becomes a descriptor, however small it is, and a model whose format
//! takes it is shown the thing itself.
//!
//! A provider that cannot read an image refuses the whole request, and each one after it. So only what looks like what it
//! is said to be is shown, and nothing that is longer than every provider takes.

use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::descriptor::view::{self, Attached};
use dormouse_proto::id::FdId;
use dormouse_proto::message::Media;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::Attachment;
use dormouse_proto::xml::Element;

use crate::content::{Collected, Content};

/// The most attachments of one output that become descriptors.
pub const MOST_ATTACHED: usize = 64;
/// The most bytes that the model of one process is shown: their base64 stays below the 20 MB that every provider takes in a request.
pub const MOST_SHOWN_BYTES: u64 = 14_000_000;
/// The longest that is shown: its base64 has 5 MB.
const LONGEST_SHOWN_BYTES: u64 = 3_750_000;

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
    let is_shown = cut_bytes == 0
        && total_bytes <= LONGEST_SHOWN_BYTES
        && shown_type(&bytes) == Some(essence(media_type).as_str());
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
    let media = is_shown.then(|| Media { fd: id, media_type: essence(media_type).into() });
    Admitted { entry, element, media }
}

/// The type without parameters, in small letters: `image/png`.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The type of image or document that bytes begin as, of those that can be shown.
#[must_use]
pub fn shown_type(bytes: &[u8]) -> Option<&'static str> {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    match () {
        () if starts(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        () if starts(b"\xff\xd8\xff") => Some("image/jpeg"),
        () if starts(b"GIF87a") || starts(b"GIF89a") => Some("image/gif"),
        () if starts(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") => Some("image/webp"),
        () if starts(b"%PDF-") => Some("application/pdf"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n the rest";

    fn admitted(media_type: &str, bytes: &[u8], settings: Option<&DescriptorSettings>) -> Admitted {
        let bytes = Bytes::copy_from_slice(bytes);
        let attachment = Attachment { name: Some("a<b.png".into()), media_type: media_type.into(), bytes };
        admit_attachment(FdId::Fd(3), &attachment, "tool:plot", settings, 7)
    }

    #[test]
    fn what_is_what_it_says_is_shown_and_anything_is_a_descriptor() {
        let long = [PNG, &[0; LONGEST_SHOWN_BYTES as usize]].concat();
        let cases: [(&str, &[u8], bool); 9] = [
            ("image/png", PNG, true),
            ("Image/PNG; charset=binary", PNG, true),
            ("image/jpeg", PNG, false),
            ("image/jpeg", b"\xff\xd8\xff\xe0", true),
            ("image/webp", b"RIFF\0\0\0\0WEBPVP8 ", true),
            ("application/pdf", b"%PDF-1.7", true),
            ("image/png", b"", false),
            ("image/svg+xml", b"<svg/>", false),
            ("image/png", &long, false),
        ];
        for (media_type, bytes, is_shown) in cases {
            let Admitted { entry, element, media } = admitted(media_type, bytes, None);
            assert_eq!(media.is_some(), is_shown, "{media_type}");
            assert_eq!(entry.content.bytes().unwrap(), bytes);
            let bytes = format!("bytes=\"{}\"", bytes.len());
            let xml = element.to_xml();
            assert!(xml.starts_with("<fd_attachment fd=\"fd:3\" ") && xml.contains(&bytes), "{xml}");
        }
        let shown = admitted("IMAGE/png", PNG, None).media.unwrap();
        assert_eq!((shown.fd, &*shown.media_type), (FdId::Fd(3), "image/png"));
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
