//! Reads base64 as providers and tool servers write it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::{self, Alphabet};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const fn engine(alphabet: &Alphabet) -> GeneralPurpose {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(alphabet, config)
}

const STANDARD: GeneralPurpose = engine(&alphabet::STANDARD);
const URL_SAFE: GeneralPurpose = engine(&alphabet::URL_SAFE);

/// The bytes of a text in base64; `None` if it is none. Accepted are both alphabets, text with and
/// without padding, line breaks, and a `data:` URL. O(n).
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let digits = match text.split_once(',') {
        Some((head, rest)) if is_data_url_head(head) => rest,
        _ => text,
    };
    let digits = match digits.contains(|digit: char| digit.is_ascii_whitespace()) {
        true => Cow::Owned(digits.split_ascii_whitespace().collect()),
        false => Cow::Borrowed(digits),
    };
    let standard = STANDARD.decode(&*digits).ok();
    standard.or_else(|| URL_SAFE.decode(&*digits).ok())
}

/// Whether `head` is the part before the comma of a `data:` URL in base64.
fn is_data_url_head(head: &str) -> bool {
    let head = head.to_ascii_lowercase();
    head.starts_with("data:") && head.ends_with(";base64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_in_the_forms_that_servers_write() {
        for (text, expected) in [
            ("iVBORw==", Some("\u{fffd}PNG")),
            ("iVBORw", Some("\u{fffd}PNG")),
            ("iVBO\r\nRw==\n", Some("\u{fffd}PNG")),
            (" iVBO Rw\t", Some("\u{fffd}PNG")),
            ("data:image/png;base64,iVBORw==", Some("\u{fffd}PNG")),
            (
                "DATA:image/png;charset=x;BASE64,\niVBO\nRw\n",
                Some("\u{fffd}PNG"),
            ),
            ("Pz8-", Some("??>")),
            ("Pz8_", Some("???")),
            ("Pz8/", Some("???")),
            ("_w", Some("\u{fffd}")),
            ("", Some("")),
            ("data:image/png,iVBORw==", None),
            ("image,iVBORw==", None),
            ("?", None),
            ("iVBORw=!", None),
        ] {
            let bytes = decode(text);
            assert_eq!(
                bytes.as_deref().map(String::from_utf8_lossy).as_deref(),
                expected,
                "{text:?}"
            );
        }
    }
}
