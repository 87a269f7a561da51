//! Writes to standard output and standard error, and makes text from outside safe to show there.
//!
//! This program shows text that it did not write: errors of model servers, output of tools, names
//! and paths in stores and exports, programs of strangers. Such text can hold control sequences,
//! which a terminal obeys, and characters that reorder or hide text, which deceive a reader.
//! [`printable`] replaces both by visible signs.
//!
//! * Text on standard error is always made visible.
//! * Text on standard output is made visible if that is a terminal. In a pipe or a file it is
//!   exact, byte for byte.
//! * Text within a line of a listing or a message is made one line ([`one_line`]), so that it
//!   cannot imitate another line.
//! * JSON always has such characters as `\u` escapes ([`escaped_json`]), so that a parser gives
//!   back the same text.
//!
//! The lint `disallowed_methods` (clippy.toml) forbids the functions of the standard library in the
//! rest of this crate. Two callers bypass this module: progress bars, which get visible text only,
//! and the protocol of `dormouse mcp`.

use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
use std::io::{self, IsTerminal, Stderr, Stdout, Write};

use serde_json::Value;

/// Standard output: exact unless it is a terminal.
#[expect(clippy::disallowed_methods, reason = "this module is the one caller")]
pub(crate) fn stdout() -> VisibleWriter<Stdout> {
    let out = io::stdout();
    let encoding = if out.is_terminal() {
        Encoding::Visible
    } else {
        Encoding::Exact
    };
    VisibleWriter {
        out,
        encoding,
        pending: Vec::new(),
        previous_char: None,
    }
}

/// Standard error.
#[expect(clippy::disallowed_methods, reason = "this module is the one caller")]
pub(crate) fn stderr() -> VisibleWriter<Stderr> {
    VisibleWriter {
        out: io::stderr(),
        encoding: Encoding::Visible,
        pending: Vec::new(),
        previous_char: None,
    }
}

/// Standard error for text that was made visible and then coloured.
#[expect(
    clippy::disallowed_methods,
    reason = "the caller made it visible, then coloured it"
)]
pub(crate) fn coloured_stderr() -> Stderr {
    io::stderr()
}

/// Prints a line on standard error. If standard error is closed, the text is dropped and the
/// command continues.
pub(crate) fn print_stderr(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}

/// Shows on standard error what the user is to type, in a line that is not ended.
pub(crate) fn print_prompt(text: &str) {
    let mut out = stderr();
    let _ = write!(out, "{text}");
    let _ = out.flush();
}

/// A stream that writes text as it is, or makes it visible first.
pub(crate) struct VisibleWriter<W> {
    out: W,
    encoding: Encoding,
    /// The last bytes that were written, if the next bytes decide how they are shown: an incomplete
    /// character, or a carriage return.
    pending: Vec<u8>,
    /// The last character that was written. It decides whether a joiner is harmless.
    previous_char: Option<char>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Exact,
    Visible,
}

/// The form of the output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// For programs: one JSON object a line, on standard output.
    Json,
    /// For people: tables and sentences.
    Text,
}

impl OutputFormat {
    /// The format that the flag `--json` selects.
    pub(crate) fn from_json_flag(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

impl<W: Write> Write for VisibleWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.encoding == Encoding::Exact {
            return self.out.write(bytes);
        }
        let mut text = std::mem::take(&mut self.pending);
        text.extend_from_slice(bytes);
        self.pending = text.split_off(text.len() - undecided_bytes(&text));
        self.write_visible(&text)?;
        Ok(bytes.len())
    }

    /// Writes the formatted text in one call, so that the output of other threads does not split
    /// it.
    fn write_fmt(&mut self, text: Arguments<'_>) -> io::Result<()> {
        self.write_all(text.to_string().as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.write_visible(&pending)?;
        self.out.flush()
    }
}

impl<W: Write> VisibleWriter<W> {
    fn write_visible(&mut self, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes);
        let previous_char = self.previous_char;
        self.previous_char = text.chars().next_back().or(previous_char);
        self.out
            .write_all(printable_after(&text, previous_char).as_bytes())
    }
}

/// How many bytes at the end cannot be shown before the next bytes are known: an incomplete
/// character, or a carriage return, which is harmless before a line feed.
fn undecided_bytes(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return 1;
    }
    let invalid = bytes
        .utf8_chunks()
        .last()
        .map_or(&[][..], |chunk| chunk.invalid());
    let begins_a_character =
        str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
    if begins_a_character { invalid.len() } else { 0 }
}

/// Replaces characters that a terminal obeys or that deceive a reader. A control character becomes
/// its picture (`␛`), as models see it; any other becomes its number (`\u{202e}`). Line feeds,
/// tabs, and carriage returns before a line feed stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    printable_after(text, None)
}

/// [`printable`] for text that follows the character `previous_char`.
fn printable_after(text: &str, mut previous_char: Option<char>) -> Cow<'_, str> {
    if text.is_ascii()
        && !text
            .bytes()
            .any(|byte| byte.is_ascii_control() && byte != b'\n' && byte != b'\t')
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_line_end = c == '\r' && chars.peek() == Some(&'\n');
        if is_line_end || is_harmless(c, previous_char) {
            shown.push(c);
        } else {
            shown.extend(visible_sign(c));
        }
        previous_char = Some(c);
    }
    Cow::Owned(shown)
}

/// The [`printable`] text, in one line.
pub(crate) fn one_line(text: &str) -> String {
    printable(text)
        .replace('\n', "␊")
        .replace(['\t', '\r'], " ")
}

/// A value as JSON in one line that is safe to show anywhere.
pub(crate) fn escaped_json(value: &Value) -> String {
    let text = value.to_string();
    if text.is_ascii() && !text.contains('\u{7f}') {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmless(c, None) {
            shown.push(c);
            continue;
        }
        // Only strings can hold such characters, so an escape is valid there.
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(shown, "\\u{unit:04x}").expect("a string takes all text");
        }
    }
    shown
}

/// Whether a terminal shows the character as it is and does nothing else, if it follows
/// `previous_char`.
fn is_harmless(c: char, previous_char: Option<char>) -> bool {
    let joins = || {
        previous_char
            .is_some_and(|previous_char| !previous_char.is_ascii() && !is_hidden(previous_char))
    };
    match c {
        '\n' | '\t' => true,
        // Scripts and emoji use joiners after a letter or sign of their own.
        '\u{200c}' | '\u{200d}' => joins(),
        // Variation selectors choose text or emoji style, also of digits.
        '\u{fe0e}' | '\u{fe0f}' => {
            joins() || previous_char.is_some_and(|previous_char| previous_char.is_ascii_graphic())
        }
        // Variation selectors of the supplement choose a form of an ideograph.
        '\u{e0100}'..='\u{e01ef}' => previous_char.is_some_and(is_ideograph),
        c => !is_hidden(c),
    }
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Whether a character controls a terminal, reorders text, or takes no room.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The visible replacement of a character.
fn visible_sign(c: char) -> impl Iterator<Item = char> {
    let picture = match c {
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)),
        '\u{7f}' => Some('␡'),
        _ => None,
    };
    let number = picture.is_none().then(|| c.escape_unicode());
    picture.into_iter().chain(number.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;b\u{7}\u{9b}31m\u{85}\u{7f}\0\r\u{202e}\u{2066}\u{200e}\u{61c}\u{200b}\u{feff}\u{e0041}é";

    #[test]
    fn control_and_hidden_characters_are_made_visible() {
        let cases = [
            ("plain\ttext\n", "plain\ttext\n"),
            ("naïve 日本 🦔 e\u{301}", "naïve 日本 🦔 e\u{301}"),
            ("\u{1b}[2J", "␛[2J"),
            ("a\r\nb\rc", "a\r\nb␍c"),
            ("\u{9b}1m\u{7f}", "\\u{9b}1m␡"),
            ("x\u{202e}txt.exe", "x\\u{202e}txt.exe"),
            ("pay\u{200b}pal\u{200d}", "pay\\u{200b}pal\\u{200d}"),
            (
                "می\u{200c}خواهم 👩\u{200d}💻 1\u{fe0f}\u{20e3}",
                "می\u{200c}خواهم 👩\u{200d}💻 1\u{fe0f}\u{20e3}",
            ),
            ("é\u{200d}\u{200d}", "é\u{200d}\\u{200d}"),
            ("\u{2028}\u{e0041}", "\\u{2028}\\u{e0041}"),
            (
                "葛\u{e0100}\u{e0100}a\u{e0100}",
                "葛\u{e0100}\\u{e0100}a\\u{e0100}",
            ),
        ];
        for (text, shown) in cases {
            assert_eq!(printable(text), shown, "{text:?}");
        }
        assert!(!printable(HOSTILE).chars().any(is_hidden));
        assert_eq!(one_line("a\nb\t\u{1b}"), "a␊b ␛");
    }

    #[test]
    fn escaped_json_parses_back_and_shows_hidden_characters() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, 1, "\u{200c}\u{10ffff}"] });
        let text = escaped_json(&value);
        assert!(!text.chars().any(is_hidden), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn characters_split_across_writes_are_printed_whole() {
        let text = format!(
            "{HOSTILE}\r\n日本🦔\u{202e}\r👩\u{200d}💻1\u{fe0f}\u{20e3}a\u{200d}葛\u{e0100}می\u{200c}خ"
        );
        for size in [1, 2, 3, 4, 5, 7, 64] {
            let mut shown = VisibleWriter {
                out: Vec::new(),
                encoding: Encoding::Visible,
                pending: Vec::new(),
                previous_char: None,
            };
            text.as_bytes()
                .chunks(size)
                .for_each(|part| shown.write_all(part).unwrap());
            shown.flush().unwrap();
            assert_eq!(
                String::from_utf8(shown.out).unwrap(),
                printable(&text),
                "{size}"
            );
        }
        let mut broken = VisibleWriter {
            out: Vec::new(),
            encoding: Encoding::Visible,
            pending: Vec::new(),
            previous_char: None,
        };
        broken.write_all(b"a\xff\xe2\x80").unwrap();
        broken.flush().unwrap();
        assert_eq!(String::from_utf8(broken.out).unwrap(), "a\u{fffd}\u{fffd}");
        let mut exact = VisibleWriter {
            out: Vec::new(),
            encoding: Encoding::Exact,
            pending: Vec::new(),
            previous_char: None,
        };
        exact.write_all(b"a\xff\x1b").unwrap();
        assert_eq!(exact.out, b"a\xff\x1b");
    }
}
