//! Texts inside of elements: what XML cannot carry, what goes into CDATA, and where CDATA is split.

use std::borrow::Cow;

use memchr::memmem;
use quick_xml::Writer;
use quick_xml::escape::minimal_escape;
use quick_xml::events::{BytesCData, BytesText, Event};

use super::IN_MEMORY;

/// What names of the kernel's own elements begin with. Inside of CDATA none of them may follow a `<` or `</` directly.
const KERNEL_NAMES: [&str; 15] = [
    "fd_",
    "preview",
    "ref",
    "message",
    "match",
    "unit",
    "stats",
    "details",
    "file_descriptor_",
    "fork",
    "spawn",
    "child",
    "process",
    "preload",
    "env_info",
];

/// Whether XML 1.0 can carry every character of `text`. One pass.
#[must_use]
pub fn is_carried(text: &str) -> bool {
    // Control characters are single bytes; U+FFFE and U+FFFF are the bytes EF BF BE and EF BF BF.
    let control = |byte: u8| (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r');
    let suspect = text.bytes().fold(false, |found, byte| found | control(byte) | (byte == 0xef));
    !suspect || text.chars().all(|c| pictured(c).is_none())
}

/// The text as it is shown: a control character as its picture (U+2400 onwards), U+FFFE and U+FFFF as U+FFFD. Tab, LF and
/// CR stay.
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if is_carried(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| pictured(c).unwrap_or(c)).collect())
}

fn pictured(c: char) -> Option<char> {
    match c {
        '\t' | '\n' | '\r' => None,
        '\u{0}'..'\u{20}' => char::from_u32(0x2400 + u32::from(c)),
        '\u{fffe}' | '\u{ffff}' => Some('\u{fffd}'),
        _ => None,
    }
}

/// Writes a text as the body of an element. A CR is always a character reference, since a parser would turn it into a LF;
/// between CRs, a run that needs CDATA gets it.
pub(super) fn write(writer: &mut Writer<Vec<u8>>, text: &str) {
    let text = sanitize(text);
    if !needs_cdata(&text) {
        return plain(writer, &text);
    }
    for run in text.split_inclusive('\r') {
        let (run, cr) = run.strip_suffix('\r').map_or((run, ""), |run| (run, "\r"));
        if needs_cdata(run) {
            cdata(writer, run)
        } else {
            plain(writer, run)
        }
        plain(writer, cr);
    }
}

fn needs_cdata(text: &str) -> bool {
    memchr::memchr2(b'<', b'&', text.as_bytes()).is_some() || memmem::find(text.as_bytes(), b"]]>").is_some()
}

fn plain(writer: &mut Writer<Vec<u8>>, text: &str) {
    writer.write_event(Event::Text(BytesText::from_escaped(minimal_escape(text)))).expect(IN_MEMORY);
}

fn cdata(writer: &mut Writer<Vec<u8>>, run: &str) {
    let mut from = 0;
    for at in splits(run) {
        writer.write_event(Event::CData(BytesCData::new(&run[from..at]))).expect(IN_MEMORY);
        from = at;
    }
    writer.write_event(Event::CData(BytesCData::new(&run[from..]))).expect(IN_MEMORY);
}

/// Where a CDATA section has to end and another to begin: inside of each `]]>`, and after the `<` of each kernel tag.
fn splits(run: &str) -> impl Iterator<Item = usize> {
    let bytes = run.as_bytes();
    memchr::memchr2_iter(b'<', b'>', bytes).filter_map(move |at| match bytes[at] {
        b'>' => bytes[..at].ends_with(b"]]").then_some(at),
        _ => is_kernel_tag(&bytes[at + 1..]).then_some(at + 1),
    })
}

fn is_kernel_tag(after: &[u8]) -> bool {
    let name = after.strip_prefix(b"/").unwrap_or(after);
    KERNEL_NAMES.iter().any(|known| name.get(..known.len()).is_some_and(|n| n.eq_ignore_ascii_case(known.as_bytes())))
}
