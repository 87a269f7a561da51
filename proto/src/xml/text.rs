//! Texts inside of elements: what XML cannot carry, what goes into CDATA, and where CDATA is split.

use std::borrow::Cow;

/// What names of the kernel's own elements begin with. Inside of CDATA none of them may follow a `<` or `</` directly.
pub const KERNEL_NAMES: [&str; 24] = [
    "fd_",
    "preview",
    "omitted",
    "ref",
    "message",
    "match",
    "descriptor",
    "section",
    "unit",
    "stats",
    "summary",
    "details",
    "file_descriptor_",
    "fork",
    "spawn",
    "child",
    "process",
    "preload",
    "env_info",
    "temp_file",
    "goto",
    "checkpoint",
    "wait",
    "budget_",
];

/// Whether XML 1.0 can carry every character of `text`. At memory bandwidth.
#[must_use]
pub fn is_carried(text: &str) -> bool {
    let bytes = text.as_bytes();
    // Control characters are single bytes; U+FFFE and U+FFFF are the bytes EF BF BE and EF BF BF.
    let control = |byte: u8| (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r');
    let controls = bytes.iter().fold(false, |found, byte| found | control(*byte));
    !controls && memchr::memchr(0xef, bytes).is_none_or(|at| !holds_noncharacter(&bytes[at..]))
}

/// Without a branch for each byte, since East Asian punctuation begins with the byte EF as well.
fn holds_noncharacter(bytes: &[u8]) -> bool {
    let is_it = |seen: &[u8]| (seen[0] == 0xef) & (seen[1] == 0xbf) & (seen[2] >= 0xbe);
    bytes.windows(3).fold(false, |found, seen| found | is_it(seen))
}

/// The text as it is shown: a control character as its picture (U+2400 onwards), U+FFFE and U+FFFF as U+FFFD. Tab, LF and
/// CR stay.
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if is_carried(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for run in text.split_inclusive(|c| pictured(c).is_some()) {
        let mut chars = run.chars();
        match chars.next_back().and_then(pictured) {
            Some(picture) => shown.extend([chars.as_str(), picture.encode_utf8(&mut [0; 4])]),
            None => shown.push_str(run),
        }
    }
    Cow::Owned(shown)
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
/// between CRs, a run that needs CDATA gets it. Any other run is free of what XML would have escaped, and stands as it is.
pub(super) fn write(xml: &mut String, text: &str) {
    xml.reserve(text.len() + text.len() / 8);
    let text = sanitize(text);
    let mut from = 0;
    for cr in memchr::memchr_iter(b'\r', text.as_bytes()) {
        write_run(xml, &text[from..cr]);
        xml.push_str("&#13;");
        from = cr + 1;
    }
    write_run(xml, &text[from..]);
}

fn write_run(xml: &mut String, run: &str) {
    if needs_cdata(run) { cdata(xml, run) } else { xml.push_str(run) }
}

fn needs_cdata(run: &str) -> bool {
    let bytes = run.as_bytes();
    memchr::memchr3_iter(b'<', b'&', b'>', bytes).any(|at| bytes[at] != b'>' || bytes[..at].ends_with(b"]]"))
}

fn cdata(xml: &mut String, run: &str) {
    let mut from = 0;
    for at in splits(run).chain([run.len()]) {
        xml.extend(["<![CDATA[", &run[from..at], "]]>"]);
        from = at;
    }
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
    let Some(first) = name.first().map(u8::to_ascii_lowercase) else { return false };
    let begins = |known: &[u8]| name.get(..known.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(known));
    KERNEL_NAMES.iter().map(|known| known.as_bytes()).any(|known| known[0] == first && begins(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_carry_is_found_wherever_it_stands() {
        for filler in ["", "plain ", "，（ﾟｰ），\u{fffd}\u{feff}"] {
            for (bad, picture) in [("\u{0}", "␀"), ("\u{1f}", "␟"), ("\u{fffe}", "\u{fffd}"), ("\u{ffff}", "\u{fffd}")]
            {
                for (before, after) in [(0, 0), (0, 9), (9, 0), (1, 1), (40, 40)] {
                    let around = |inside: &str| filler.repeat(before) + inside + &filler.repeat(after);
                    assert!(!is_carried(&around(bad)), "{:?}", around(bad));
                    assert_eq!(sanitize(&around(bad)), around(picture));
                    assert!(is_carried(&around(picture)), "{:?}", around(picture));
                }
            }
        }
    }
}
