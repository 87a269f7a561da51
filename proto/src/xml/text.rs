//! Texts inside of elements: what is shown as something else, what goes into CDATA, and where CDATA is split.

use std::borrow::Cow;
use std::fmt::Write as _;

use quick_xml::events::attributes::Attribute;

use super::imitation::{cuts, openers};

/// Whether every character of `text` is shown as it is: see [`sanitize`]. At memory bandwidth.
#[must_use]
pub fn is_carried(text: &str) -> bool {
    let bytes = text.as_bytes();
    let control = |byte: u8| (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0x7f);
    let controls = bytes.iter().fold(false, |found, byte| found | control(*byte));
    !controls && (text.is_ascii() || !holds_control(bytes))
}

/// Whether a control character of more than one byte is in there. Without a branch for each byte, since the bytes that these
/// characters begin with are frequent in many languages.
fn holds_control(bytes: &[u8]) -> bool {
    // C1 is C2 80 to C2 9F, U+061C is D8 9C.
    let of_two = |a: u8, b: u8| ((a == 0xc2) & (b < 0xa0)) | ((a == 0xd8) & (b == 0x9c));
    // U+200E and 200F, U+202A to 202E, U+2066 to 2069, and the noncharacters U+FFFE and U+FFFF.
    let of_three = |a: u8, b: u8, c: u8| {
        let marks = (b == 0x80) & ((c == 0x8e) | (c == 0x8f) | (0xaa..=0xae).contains(&c));
        let isolates = (b == 0x81) & (0xa6..=0xa9).contains(&c);
        ((a == 0xe2) & (marks | isolates)) | ((a == 0xef) & (b == 0xbf) & (c >= 0xbe))
    };
    let is_it = |seen: &[u8]| of_two(seen[0], seen[1]) | of_three(seen[0], seen[1], seen[2]);
    let last = bytes.last_chunk::<2>().is_some_and(|[a, b]| of_two(*a, *b));
    last | bytes.windows(3).fold(false, |found, seen| found | is_it(seen))
}

/// The text as it is shown. A character that controls how others are shown, or that XML cannot carry, is shown as what it is: of
/// C0 and DEL its picture (U+2400 onwards), of C1 and of those that turn the direction of a text its number, as `[U+202E]`;
/// U+FFFE and U+FFFF as U+FFFD. Tab, LF and CR stay.
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if is_carried(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    for run in text.split_inclusive(is_control) {
        let mut chars = run.chars();
        match chars.next_back().filter(|c| is_control(*c)) {
            Some(control) => {
                shown.push_str(chars.as_str());
                push_picture(&mut shown, control);
            }
            None => shown.push_str(run),
        }
    }
    Cow::Owned(shown)
}

fn is_control(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    }
}

fn push_picture(shown: &mut String, control: char) {
    match control {
        '\u{0}'..'\u{20}' => shown.extend(char::from_u32(0x2400 + u32::from(control))),
        '\u{7f}' => shown.push('\u{2421}'),
        '\u{fffe}' | '\u{ffff}' => shown.push('\u{fffd}'),
        // To a string that cannot fail.
        other => drop(write!(shown, "[U+{:04X}]", u32::from(other))),
    }
}

/// The value of an attribute, escaped: an XML parser gives back [`sanitize`] of it, and no marker of a message stands in it.
pub(super) fn attribute(value: &str) -> String {
    let value = sanitize(value);
    // Line ends and tabs as well, which a reader would normalize.
    let escape = |part| Attribute::from(("", part)).value;
    let (mut escaped, mut from) = (String::with_capacity(value.len()), 0);
    for opener in openers(&value) {
        escaped.push_str(&escape(&value[from..opener.start]));
        let character = value[opener.clone()].chars().next().map_or(0, u32::from);
        // To a string that cannot fail.
        let _ = write!(escaped, "&#{character};");
        from = opener.end;
    }
    escaped.push_str(&escape(&value[from..]));
    escaped
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
    let escaped = |at: usize| bytes[at] != b'>' || bytes[..at].ends_with(b"]]");
    memchr::memchr3_iter(b'<', b'&', b'>', bytes).any(escaped) || cuts(run).next().is_some()
}

fn cdata(xml: &mut String, run: &str) {
    let mut from = 0;
    for at in splits(run).into_iter().chain([run.len()]) {
        xml.extend(["<![CDATA[", &run[from..at], "]]>"]);
        from = at;
    }
}

/// Where a CDATA section has to end and another to begin: inside of each `]]>`, and inside of whatever imitates the kernel.
fn splits(run: &str) -> Vec<usize> {
    let bytes = run.as_bytes();
    let ends = memchr::memchr_iter(b'>', bytes).filter(|at| bytes[..*at].ends_with(b"]]"));
    let mut splits: Vec<_> = ends.chain(cuts(run)).collect();
    splits.sort_unstable();
    splits
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLS: [(&str, &str); 17] = [
        ("\u{0}", "␀"),
        ("\u{1b}", "␛"),
        ("\u{1f}", "␟"),
        ("\u{7f}", "␡"),
        ("\u{80}", "[U+0080]"),
        ("\u{9b}", "[U+009B]"),
        ("\u{9f}", "[U+009F]"),
        ("\u{61c}", "[U+061C]"),
        ("\u{200e}", "[U+200E]"),
        ("\u{200f}", "[U+200F]"),
        ("\u{202a}", "[U+202A]"),
        ("\u{202e}", "[U+202E]"),
        ("\u{2066}", "[U+2066]"),
        ("\u{2069}", "[U+2069]"),
        ("\u{fffe}", "\u{fffd}"),
        ("\u{ffff}", "\u{fffd}"),
        ("\u{202d}", "[U+202D]"),
    ];

    #[test]
    fn the_neighbours_of_controls_are_shown_as_they_are() {
        for c in [
            "\t", "\n", "\r", " ", "~", "\u{a0}", "\u{61b}", "\u{61d}", "\u{200d}", "\u{2010}", "\u{2029}", "\u{202f}",
            "\u{2065}", "\u{206a}", "\u{fffd}", "\u{feff}", "é", "😀",
        ] {
            assert!(is_carried(c) && is_carried(&c.repeat(3)), "{c:?}");
        }
    }

    #[test]
    fn what_xml_cannot_carry_is_found_wherever_it_stands() {
        for filler in ["", "plain ", "，（ﾟｰ），\u{fffd}\u{feff}"] {
            for (bad, picture) in CONTROLS {
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
