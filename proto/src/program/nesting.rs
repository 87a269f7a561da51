//! Checks the nesting of a text before it is parsed, so that a hostile text cannot overflow the
//! stack of a recursive parser.

use super::{Diagnostic, MAX_NESTING};

/// The diagnostic for a text that nests more than [`MAX_NESTING`] brackets. Costs one pass; the
/// text need not be TOML.
pub(super) fn check_nesting(text: &str) -> Option<Diagnostic> {
    let at = find_excess_bracket(text.as_bytes())?;
    let message = format!("arrays and inline tables are nested more than {MAX_NESTING} deep");
    Some(
        Diagnostic::error(at..at + 1, message, "one too many")
            .help("no key of a program needs more than a few levels"),
    )
}

/// The position of the first bracket that nests deeper than [`MAX_NESTING`].
fn find_excess_bracket(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    while at < text.len() {
        match text[at] {
            b'#' => at += comment_length(&text[at..]),
            quote @ (b'"' | b'\'') => at += string_length(&text[at..], quote),
            byte => {
                depth = match byte {
                    b'[' | b'{' => depth + 1,
                    b']' | b'}' => depth.saturating_sub(1),
                    _ => depth,
                };
                if depth > MAX_NESTING {
                    return Some(at);
                }
                at += 1;
            }
        }
    }
    None
}

/// The length of a comment, without its line feed.
fn comment_length(text: &[u8]) -> usize {
    text.iter()
        .position(|&byte| byte == b'\n')
        .unwrap_or(text.len())
}

/// The length of a string of either kind, quotes included. An unclosed string ends with its line,
/// or with the text if it may span several lines.
fn string_length(text: &[u8], quote: u8) -> usize {
    let triple_quote = [quote; 3];
    let is_multiline = text.starts_with(&triple_quote);
    let mut at = if is_multiline { 3 } else { 1 };
    while at < text.len() {
        let ends_line = !is_multiline && text.get(at + 1) == Some(&b'\n');
        match text[at] {
            b'\\' if quote == b'"' && !ends_line => at += 2,
            b'\n' if !is_multiline => return at,
            byte if byte == quote && !is_multiline => return at + 1,
            _ if is_multiline && text[at..].starts_with(&triple_quote) => return at + 3,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_brackets_count() {
        let deep = "[".repeat(MAX_NESTING + 1);
        let cases = [
            (format!("a = {}", "[".repeat(MAX_NESTING)), None),
            (format!("a = {deep}"), Some(4 + MAX_NESTING)),
            (
                format!("a = {}", "{b=".repeat(MAX_NESTING + 1)),
                Some(4 + 3 * MAX_NESTING),
            ),
            ("[a]\n[b]\n".repeat(1000), None),
            (format!("# {deep}\n"), None),
            (format!("a = \"{deep}\""), None),
            (format!("a = '{deep}'"), None),
            (format!("a = '''\n{deep}'\n'''"), None),
            (format!("a = \"\"\"\n\\\"\"\"{deep}\"\"\""), None),
            (format!("a = \"\\\"{deep}\""), None),
            (format!("a = 'never closed\n{deep}"), Some(18 + MAX_NESTING)),
            (
                format!("a = \"never closed\\\n{deep}"),
                Some(19 + MAX_NESTING),
            ),
            ("]".repeat(100), None),
        ];
        for (text, expected) in cases {
            assert_eq!(find_excess_bracket(text.as_bytes()), expected, "{text}");
        }
    }
}
