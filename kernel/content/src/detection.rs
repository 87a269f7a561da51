//! Recognises the encoding of bytes by a byte order mark or by their content.
//!
//! The result depends on the bytes alone, so that a content is shown in the same way whenever it is
//! read. Bytes are text if nearly all of them are: a few bad bytes in a log do not hide the log.

use dormouse_proto::descriptor::view::SourceEncoding;

/// At most one of this many bytes may be invalid UTF-8.
const MAX_INVALID_SHARE: usize = 16;

/// At most one of this many bytes may be a control character that texts do not contain.
const MAX_CONTROL_SHARE: usize = 64;

/// At most one of this many units of UTF-16 may be an unpaired surrogate. Of random bytes, one in
/// 16 is.
const MAX_UNPAIRED_SHARE: usize = 100;

/// At most one of this many bytes of a Windows-1252 text is not ASCII: texts in other scripts have
/// more.
const MAX_HIGH_SHARE: usize = 3;

/// Bytes that are inspected for UTF-16 without a byte order mark.
pub(super) const SAMPLE_BYTES: usize = 1024;

/// A text of fewer bytes than this is not recognised as UTF-16.
const MIN_UTF16_BYTES: usize = 8;

/// The encoding of bytes that are not UTF-8, or that [`is_utf16_by_content`]. `None` if they are
/// not text. Two passes over text; one over most binary data.
pub(super) fn detect(bytes: &[u8]) -> Option<SourceEncoding> {
    if let Some(encoding) = utf16(bytes) {
        return Some(encoding);
    }
    let controls = bytes.iter().filter(|byte| is_control(**byte)).count();
    if controls * MAX_CONTROL_SHARE > bytes.len() {
        return None;
    }
    let counts = Utf8Counts::new(bytes);
    let is_utf8 = counts.invalid_bytes * MAX_INVALID_SHARE <= bytes.len();
    if is_utf8 && (counts.valid_sequences >= counts.invalid_sequences || counts.is_cut) {
        return Some(SourceEncoding::Utf8);
    }
    if is_windows_1252(bytes) {
        return Some(SourceEncoding::Windows1252);
    }
    is_utf8.then_some(SourceEncoding::Utf8)
}

/// Whether bytes are UTF-16 although they have no byte order mark. Bytes of ASCII characters are
/// then valid UTF-8 with a NUL after each character. Inspects [`SAMPLE_BYTES`].
pub(super) fn is_utf16_by_content(bytes: &[u8]) -> bool {
    utf16_by_content(bytes).is_some()
}

fn utf16(bytes: &[u8]) -> Option<SourceEncoding> {
    let marked = match bytes {
        [0xff, 0xfe, 0, 0, ..] => None,
        [0xff, 0xfe, _, _, ..] => Some(SourceEncoding::Utf16Le),
        [0xfe, 0xff, _, _, ..] => Some(SourceEncoding::Utf16Be),
        _ => None,
    };
    marked
        .or_else(|| utf16_by_content(bytes))
        .filter(|encoding| is_readable_utf16(bytes, *encoding))
}

/// Most characters of a text in a Latin script are ASCII: the upper half of their units is zero.
fn utf16_by_content(bytes: &[u8]) -> Option<SourceEncoding> {
    let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    if bytes.len() < MIN_UTF16_BYTES || memchr::memchr(0, sample).is_none() {
        return None;
    }
    let units = sample.len() / 2;
    let is_mostly_ascii = |encoding: &SourceEncoding| {
        let ascii = utf16_units(sample, *encoding).filter(|unit| (0x09..0x7f).contains(unit));
        ascii.count() * 10 >= units * 7 && is_readable_utf16(sample, *encoding)
    };
    [SourceEncoding::Utf16Le, SourceEncoding::Utf16Be]
        .into_iter()
        .find(is_mostly_ascii)
}

fn is_readable_utf16(bytes: &[u8], encoding: SourceEncoding) -> bool {
    let units = utf16_units(bytes, encoding);
    let (mut unpaired, mut controls) = (0, 0);
    for decoded in char::decode_utf16(units) {
        match decoded {
            Ok(c) if c.is_ascii() => controls += usize::from(is_control(c as u8)),
            Ok(_) => {}
            Err(_) => unpaired += 1,
        }
    }
    let total = bytes.len() / 2;
    unpaired * MAX_UNPAIRED_SHARE <= total && controls * MAX_CONTROL_SHARE <= total
}

/// The units of UTF-16. A last odd byte is left out.
pub(super) fn utf16_units(
    bytes: &[u8],
    encoding: SourceEncoding,
) -> impl Iterator<Item = u16> + '_ {
    let unit_of = if encoding == SourceEncoding::Utf16Be {
        u16::from_be_bytes
    } else {
        u16::from_le_bytes
    };
    bytes
        .chunks_exact(2)
        .map(move |unit| unit_of([unit[0], unit[1]]))
}

/// A control character other than the ones of texts and terminals: tab, line ends, page breaks,
/// backspace and escape.
fn is_control(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, 0x08..=0x0d | 0x1b)
}

/// How much of some bytes is UTF-8.
struct Utf8Counts {
    /// Characters of more than one byte.
    valid_sequences: usize,
    invalid_sequences: usize,
    invalid_bytes: usize,
    /// Whether the bytes are UTF-8 except for a character that is cut at the beginning or the end.
    is_cut: bool,
}

impl Utf8Counts {
    fn new(bytes: &[u8]) -> Self {
        let mut counts = Self {
            valid_sequences: 0,
            invalid_sequences: 0,
            invalid_bytes: 0,
            is_cut: false,
        };
        let mut position = 0;
        let mut cut_sequences = 0;
        for chunk in bytes.utf8_chunks() {
            let non_ascii = chunk.valid().bytes().filter(|byte| *byte >= 0xc0).count();
            counts.valid_sequences += non_ascii;
            let invalid = chunk.invalid();
            position += chunk.valid().len() + invalid.len();
            if invalid.is_empty() {
                continue;
            }
            counts.invalid_sequences += 1;
            counts.invalid_bytes += invalid.len();
            let continues_cut_character = position <= 3 && (0x80..0xc0).contains(&invalid[0]);
            let is_cut_character = position == bytes.len() && invalid.len() > 1;
            cut_sequences += usize::from(continues_cut_character || is_cut_character);
        }
        counts.is_cut = cut_sequences == counts.invalid_sequences;
        counts
    }
}

/// Whether most bytes that are not ASCII make sense as Windows-1252: letters next to letters,
/// and punctuation.
fn is_windows_1252(bytes: &[u8]) -> bool {
    let (mut high, mut plausible) = (0, 0);
    for (at, byte) in bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| !byte.is_ascii())
    {
        high += 1;
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        let after = bytes.get(at + 1).copied().unwrap_or(b' ');
        plausible += usize::from(is_plausible(*byte, before, after));
    }
    high * MAX_HIGH_SHARE <= bytes.len() && plausible * 4 >= high * 3
}

/// Whether a byte makes sense as Windows-1252 between these two.
fn is_plausible(byte: u8, before: u8, after: u8) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || is_high_letter(byte);
    match byte {
        // Nearly no text contains it, and many binary formats and broken files do.
        0xff => false,
        // A capital letter does not follow a small one.
        0xc0..=0xde if byte != 0xd7 => !before.is_ascii_lowercase() && is_letter(after),
        _ if is_high_letter(byte) => is_letter(before) || is_letter(after),
        0x80 => before.is_ascii_digit() || before == b' ',
        // Quotation marks and dashes, then signs such as a no-break space or a degree sign.
        0x82 | 0x84 | 0x85 | 0x8b | 0x91..=0x97 | 0x99 | 0x9b => true,
        0xa0 | 0xa1 | 0xa3 | 0xa7 | 0xa9..=0xac | 0xae..=0xbf | 0xd7 | 0xf7 => true,
        _ => false,
    }
}

fn is_high_letter(byte: u8) -> bool {
    matches!(
        byte,
        0x8a | 0x8c | 0x8e | 0x9a | 0x9c | 0x9e | 0x9f | 0xc0..=0xfe
    ) && !matches!(byte, 0xd7 | 0xf7)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(to_bytes).collect()
    }

    #[test]
    fn text_is_recognised_by_its_mark_or_content() {
        use SourceEncoding::{Utf8, Utf16Be, Utf16Le, Windows1252};
        let text = "Straße und Café, 12 °C\r\n";
        let log = b"12:00:01 INFO started\n12:00:02 ERROR failed\n".to_vec();
        let with = |byte: u8| [&log[..], &[byte], &log].concat();
        let cases: Vec<(Vec<u8>, Option<SourceEncoding>)> = vec![
            (with(0xff), Some(Utf8)),
            (with(0x80), Some(Utf8)),
            (with(0xc3), Some(Utf8)),
            ([&log[..], &"é".as_bytes()[..1]].concat(), Some(Utf8)),
            ([&"é".as_bytes()[1..], &log].concat(), Some(Utf8)),
            (["Größe ".as_bytes(), &[0xe9], &log].concat(), Some(Utf8)),
            (
                b"Stra\xdfe und Caf\xe9, 12 \xb0C\r\n".to_vec(),
                Some(Windows1252),
            ),
            (b"don\x92t say \x93never\x94".to_vec(), Some(Windows1252)),
            (b"caf\xe9\n".to_vec(), Some(Windows1252)),
            (
                b"<b>\xdf</b> Stra\xdfe \xfcber Gr\xf6\xdfe\n".to_vec(),
                Some(Windows1252),
            ),
            (
                [&[0xff, 0xfe][..], &utf16(text, u16::to_le_bytes)].concat(),
                Some(Utf16Le),
            ),
            (
                [&[0xfe, 0xff][..], &utf16(text, u16::to_be_bytes)].concat(),
                Some(Utf16Be),
            ),
            (
                [&[0xff, 0xfe][..], &utf16("一二三", u16::to_le_bytes)].concat(),
                Some(Utf16Le),
            ),
            (utf16(text, u16::to_le_bytes), Some(Utf16Le)),
            (utf16("only ASCII", u16::to_be_bytes), Some(Utf16Be)),
            (vec![0xff, 0xfe], None),
            (vec![0xff; 40], None),
            ([0, 0xff].repeat(40), None),
            (
                b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\0\0\0\x02\0\x08\x06\0\0\0".to_vec(),
                None,
            ),
            ((0..=255).collect(), None),
            ([1, 0, 2, 0, 3, 0, 0xff, 0].repeat(10), None),
            // Cyrillic in Windows-1251 is not Latin text.
            (
                vec![0xcf, 0xf0, 0xe8, 0xe2, 0xe5, 0xf2, b' ', 0xec, 0xe8, 0xf0],
                None,
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(detect(&bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn random_bytes_are_no_text_whatever_their_mark() {
        let mut state = 7_u32;
        let mut random = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        for mark in [&b""[..], &[0xff, 0xfe], &[0xfe, 0xff], &[0xef, 0xbb, 0xbf]] {
            let bytes: Vec<_> = mark
                .iter()
                .copied()
                .chain(random.by_ref().take(5_000))
                .collect();
            assert_eq!(detect(&bytes), None, "{mark:?}");
        }
    }
}
