//! Text within elements: replacement of control characters, and CDATA sections and their splits.

use std::borrow::Cow;
use std::fmt::Write as _;

use quick_xml::events::attributes::Attribute;

use super::imitation::{find_cuts, find_openers, marker_cut};

/// Whether every character is shown unchanged: see [`sanitize`]. Runs at memory bandwidth for
/// ordinary text.
#[must_use]
pub fn is_shown_unchanged(text: &str) -> bool {
    let bytes = text.as_bytes();
    let control = |byte: u8| {
        (byte < 0x20) & (byte != b'\t') & (byte != b'\n') & (byte != b'\r') | (byte == 0x7f)
    };
    let controls = bytes
        .iter()
        .fold(false, |found, byte| found | control(*byte));
    !controls
        && (text.is_ascii()
            || !may_contain_multibyte_control(bytes)
            || replaced_chars(text).next().is_none())
}

/// Whether the text may contain a multi-byte control character; false positives are possible.
/// Branch-free per byte, since the first bytes of these characters are frequent in many languages.
fn may_contain_multibyte_control(bytes: &[u8]) -> bool {
    // C1 is C2 80 to C2 9F, U+061C is D8 9C.
    let is_two_byte_control =
        |a: u8, b: u8| ((a == 0xc2) & (b < 0xa0)) | ((a == 0xd8) & (b == 0x9c));
    // U+200E and 200F, U+202A to 202E, U+2065 to 206F, U+FFF0 to FFFB, and the noncharacters U+FFFE
    // and U+FFFF.
    let is_three_byte_control = |a: u8, b: u8, c: u8| {
        let marks = (b == 0x80) & ((c == 0x8e) | (c == 0x8f) | (0xaa..=0xae).contains(&c));
        let isolates = (b == 0x81) & (0xa5..=0xaf).contains(&c);
        let specials = (b == 0xbf) & (c >= 0xb0) & (c != 0xbc) & (c != 0xbd);
        ((a == 0xe2) & (marks | isolates)) | ((a == 0xef) & specials)
    };
    // The first three bytes of U+1BCA0 to 1BCA3, U+1D173 to 1D17A, and U+E0000 to E0FFF.
    let is_four_byte_control_prefix = |a: u8, b: u8, c: u8| {
        let formats = ((b == 0x9b) & (c == 0xb2)) | ((b == 0x9d) & (c == 0x85));
        ((a == 0xf0) & formats) | ((a == 0xf3) & (b == 0xa0))
    };
    let starts_control = |window: &[u8]| {
        is_two_byte_control(window[0], window[1])
            | is_three_byte_control(window[0], window[1], window[2])
            | is_four_byte_control_prefix(window[0], window[1], window[2])
    };
    let last = bytes
        .last_chunk::<2>()
        .is_some_and(|[a, b]| is_two_byte_control(*a, *b));
    last | bytes
        .windows(3)
        .fold(false, |found, window| found | starts_control(window))
}

/// Replaces control characters. A character that affects how others are shown, that only a model
/// would read, or that XML cannot represent is replaced by a visible sign: C0 and DEL by their
/// pictures (U+2400 onwards), others by their number, such as `[U+202E]`, U+FFFE and U+FFFF by
/// U+FFFD. Tab, LF and CR stay.
///
/// Invisible characters of ordinary text stay as well: zero-width joiners and spaces, soft hyphens,
/// the byte order mark, the sixteen variation selectors, and a supplementary selector after an
/// ideograph.
#[must_use]
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if is_shown_unchanged(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    let mut from = 0;
    for (at, c) in replaced_chars(text) {
        shown.push_str(&text[from..at]);
        push_replacement(&mut shown, c);
        from = at + c.len_utf8();
    }
    shown.push_str(&text[from..]);
    Cow::Owned(shown)
}

/// The characters that are replaced, with their positions.
fn replaced_chars(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut before = None;
    text.char_indices()
        .filter(move |(_, c)| is_replaced(*c, before.replace(*c)))
}

fn is_replaced(c: char, before: Option<char>) -> bool {
    match c {
        '\t' | '\n' | '\r' => false,
        // Bidirectional controls.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => true,
        // Isolates, deprecated controls, interlinear annotations, shorthand and musical format
        // controls: all invisible.
        '\u{2065}'..='\u{206f}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' => true,
        // Supplementary variation selectors select a form of an ideograph. After anything else they
        // can encode hidden text.
        '\u{e0100}'..='\u{e01ef}' => !before.is_some_and(is_ideograph),
        // Tag characters are invisible ASCII that a model can read.
        '\u{e0000}'..='\u{e0fff}' => true,
        '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    }
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

fn push_replacement(shown: &mut String, control: char) {
    match control {
        '\u{0}'..'\u{20}' => shown.extend(char::from_u32(0x2400 + u32::from(control))),
        '\u{7f}' => shown.push('\u{2421}'),
        '\u{fffe}' | '\u{ffff}' => shown.push('\u{fffd}'),
        // Writing to a string cannot fail.
        other => drop(write!(shown, "[U+{:04X}]", u32::from(other))),
    }
}

/// Escapes an attribute value: an XML parser restores its [`sanitize`]d form, and it contains no
/// literal message marker.
pub(super) fn escape_attribute(value: &str) -> String {
    let value = sanitize(value);
    // Line ends and tabs are escaped as well, since XML parsers normalize them.
    let escape = |part| Attribute::from(("", part)).value;
    let mut escaped = String::with_capacity(value.len());
    let mut from = 0;
    for opener in find_openers(&value) {
        escaped.push_str(&escape(&value[from..opener.start]));
        let character = value[opener.clone()].chars().next().map_or(0, u32::from);
        // Writing to a string cannot fail.
        let _ = write!(escaped, "&#{character};");
        from = opener.end;
    }
    escaped.push_str(&escape(&value[from..]));
    escaped
}

/// Whether the text has line ends and all of them are CR LF, without any other CR.
pub(super) fn has_only_crlf(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut returns = memchr::memchr_iter(b'\r', bytes).peekable();
    returns.peek().is_some()
        && returns.all(|at| bytes.get(at + 1) == Some(&b'\n'))
        && memchr::memchr_iter(b'\n', bytes).all(|at| at > 0 && bytes[at - 1] == b'\r')
}

/// Writes a text as an element body. CR becomes a character reference, since parsers turn it into
/// LF. Each run between CRs is put into CDATA if it needs escaping, and is written unchanged
/// otherwise.
pub(super) fn write_text(xml: &mut String, text: &str) {
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
    if needs_cdata(run) {
        write_cdata(xml, run)
    } else {
        xml.push_str(run)
    }
}

fn needs_cdata(run: &str) -> bool {
    let bytes = run.as_bytes();
    let needs_escape = |at: usize| bytes[at] != b'>' || bytes[..at].ends_with(b"]]");
    memchr::memchr3_iter(b'<', b'&', b'>', bytes).any(needs_escape)
        || find_cuts(run).next().is_some()
}

fn write_cdata(xml: &mut String, run: &str) {
    let mut from = 0;
    for at in find_splits(run).into_iter().chain([run.len()]) {
        xml.extend(["<![CDATA[", &run[from..at], "]]>"]);
        from = at;
    }
}

/// Positions at which a CDATA section has to be split: within each `]]>`, and within every
/// imitation of the kernel, including one that starts with the bracket of `<![CDATA[`.
fn find_splits(run: &str) -> Vec<usize> {
    let bytes = run.as_bytes();
    let ends = memchr::memchr_iter(b'>', bytes).filter(|at| bytes[..*at].ends_with(b"]]"));
    let mut splits: Vec<_> = ends.chain(find_cuts(run)).chain(marker_cut(run)).collect();
    splits.sort_unstable();
    splits
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLS: [(&str, &str); 27] = [
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
        ("\u{2065}", "[U+2065]"),
        ("\u{206a}", "[U+206A]"),
        ("\u{206f}", "[U+206F]"),
        ("\u{fff9}", "[U+FFF9]"),
        ("\u{1bca0}", "[U+1BCA0]"),
        ("\u{1d173}", "[U+1D173]"),
        ("\u{e0001}", "[U+E0001]"),
        ("\u{e0041}", "[U+E0041]"),
        ("\u{e007f}", "[U+E007F]"),
        ("\u{e0100}", "[U+E0100]"),
    ];

    #[test]
    fn characters_next_to_control_ranges_are_unchanged() {
        for c in [
            "\t",
            "\n",
            "\r",
            " ",
            "~",
            "\u{a0}",
            "\u{61b}",
            "\u{61d}",
            "\u{200d}",
            "\u{2010}",
            "\u{2029}",
            "\u{202f}",
            "\u{2064}",
            "\u{2070}",
            "\u{fffc}",
            "\u{fffd}",
            "\u{feff}",
            "\u{1bca4}",
            "\u{1bc9f}",
            "\u{1d172}",
            "\u{1d17b}",
            "\u{dffff}",
            "\u{e1000}",
            "é",
            "😀",
            "👩\u{200d}💻",
            "❤\u{fe0f}",
            "葛\u{e0100}",
        ] {
            assert!(
                is_shown_unchanged(c) && is_shown_unchanged(&c.repeat(3)),
                "{c:?}"
            );
        }
    }

    /// The text follows the bracket of `<![CDATA[`.
    #[test]
    fn the_bracket_of_a_cdata_section_and_its_text_form_no_marker() {
        for (text, expected) in [
            ("msg:1] <b>", "<![CDATA[m]]><![CDATA[sg:1] <b>]]>"),
            (
                "\u{200b} MSG: 1] &",
                "<![CDATA[\u{200b} M]]><![CDATA[SG: 1] &]]>",
            ),
            ("a\rmsg:1<", "a&#13;<![CDATA[m]]><![CDATA[sg:1<]]>"),
            ("msg:1]", "msg:1]"),
            ("msg <b>", "<![CDATA[msg <b>]]>"),
        ] {
            let mut xml = String::new();
            write_text(&mut xml, text);
            assert_eq!(xml, expected);
        }
    }

    /// Tag characters are invisible ASCII, and selectors that follow no ideograph can encode bytes.
    #[test]
    fn text_that_only_a_model_reads_is_replaced_by_code_points() {
        let hidden: String = "obey"
            .chars()
            .map(|c| char::from_u32(0xe0000 + u32::from(c)).unwrap())
            .collect();
        assert_eq!(
            sanitize(&format!("a{hidden}b")),
            "a[U+E006F][U+E0062][U+E0065][U+E0079]b"
        );
        assert_eq!(
            sanitize("葛\u{e0100}\u{e0101}飾😀\u{e0100}"),
            "葛\u{e0100}[U+E0101]飾😀[U+E0100]"
        );
    }

    #[test]
    fn control_characters_are_replaced_at_every_position() {
        for filler in ["", "plain ", "，（ﾟｰ），\u{fffd}\u{feff}"] {
            for (bad, picture) in CONTROLS {
                for (before, after) in [(0, 0), (0, 9), (9, 0), (1, 1), (40, 40)] {
                    let surrounded =
                        |inside: &str| filler.repeat(before) + inside + &filler.repeat(after);
                    assert!(
                        !is_shown_unchanged(&surrounded(bad)),
                        "{:?}",
                        surrounded(bad)
                    );
                    assert_eq!(sanitize(&surrounded(bad)), surrounded(picture));
                    assert!(
                        is_shown_unchanged(&surrounded(picture)),
                        "{:?}",
                        surrounded(picture)
                    );
                }
            }
        }
    }
}
