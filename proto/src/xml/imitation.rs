//! Detection of imitations of the kernel in a text: a tag of one of its elements, or a message
//! marker.
//!
//! The kernel writes a tag as `<`, optionally `/`, and a name, and a marker as `[msg:3]`. Forms
//! that a reader could mistake for these count as imitations too: capitals, full-width and
//! mathematical letters, other brackets, colons and digits, and invisible characters and accents
//! between letters. White space within a marker counts as well; between `<` and a name it counts
//! only before the complete name of an `fd_` element, since `n < fd_max` is code.
//!
//! This module only detects imitations; [`text`](super::text) and
//! [`ShownText`](crate::shown::ShownText) decide how they are shown.

/// Prefixes of the names of all kernel elements. Within a kernel element, text must not contain one
/// of them directly after `<` or `</`.
pub const ELEMENT_PREFIXES: [&str; 31] = [
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
    "explore",
    "spawn",
    "child",
    "process",
    "preload",
    "env_info",
    "temp_file",
    "goto",
    "checkpoint",
    "wait",
    "alarm",
    "open_alarm",
    "budget_",
    "compacted_",
    "edited_",
    "recorded_",
    "result_due",
];

/// Prefixes that no other markup uses: any name that starts with one is an imitation, also outside
/// of kernel elements.
const UNIQUE_PREFIXES: [&str; 2] = ["fd_", "file_descriptor_"];

/// The complete names of kernel elements, and `ref`, which models write. Text outside of kernel
/// elements imitates the kernel if it contains one of these as a tag; `<reference>` and
/// `<MessageList>` are ordinary. `section`, `summary` and `details` are not listed, since HTML has
/// them and the kernel writes them only within its elements.
const ELEMENT_NAMES: [&str; 62] = [
    "fd_attachment",
    "fd_attachments",
    "fd_content",
    "fd_diff",
    "fd_error",
    "fd_extraction",
    "fd_list",
    "fd_matches",
    "fd_renamed",
    "fd_result",
    "fd_search",
    "fd_section",
    "fd_sections",
    "fd_summary",
    "fd_text",
    "fd_units",
    "fd_write",
    "file_descriptor_instructions",
    "preload",
    "preload_fd",
    "preload_file",
    "preload_temp_file",
    "env_info",
    "temp_file",
    "fork",
    "fork_result",
    "explore_result",
    "spawn",
    "spawned",
    "child",
    "child_ended",
    "process",
    "process_list",
    "process_message",
    "process_messages",
    "process_restored",
    "message",
    "message_sent",
    "wait_result",
    "goto",
    "goto_error",
    "process_error",
    "checkpoint",
    "checkpoint_error",
    "checkpoint_list",
    "alarm",
    "alarm_list",
    "open_alarm",
    "budget_warning",
    "compacted_message",
    "compacted_messages",
    "edited_arguments",
    "edited_json",
    "recorded_answer",
    "result_due",
    "preview",
    "omitted",
    "match",
    "descriptor",
    "unit",
    "stats",
    "ref",
];

/// Where an imitation could be mistaken for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImitationScope {
    Anywhere,
    /// Only within a kernel element.
    InsideElements,
}

/// Whether a text outside of kernel elements could be mistaken for the kernel. Runs at memory
/// bandwidth if `<` and `[` are rare.
#[must_use]
pub fn imitates(text: &str) -> bool {
    imitations(text).any(|imitation| imitation.scope == ImitationScope::Anywhere)
}

/// Positions at which to split a text so that no part contains a complete imitation: after the `<`
/// of a tag, and after the `m` of a marker.
pub(super) fn find_cuts(text: &str) -> impl Iterator<Item = usize> {
    imitations(text).map(|imitation| imitation.cut)
}

/// The ranges of the characters that open an imitation, except `<`: `[`, and characters that look
/// like `<` or `[`. An attribute writes each as a character reference; `<` is escaped anyway.
pub(super) fn find_openers(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    imitations(text)
        .map(|imitation| imitation.opener)
        .filter(|opener| &text[opener.clone()] != "<")
}

struct Imitation {
    /// Range of its first character.
    opener: std::ops::Range<usize>,
    /// Position at which it is split.
    cut: usize,
    scope: ImitationScope,
}

fn imitations(text: &str) -> impl Iterator<Item = Imitation> {
    let has_rare_openers = !text.is_ascii() && has_rare_opener(text.as_bytes());
    // The common openers are `<`, `[`, and their full-width and small forms, whose first byte is
    // EF.
    let common =
        (!has_rare_openers).then(|| memchr::memchr3_iter(b'<', b'[', 0xef, text.as_bytes()));
    let any_opener = has_rare_openers.then(|| {
        text.char_indices()
            .filter(|(_, c)| opener_kind(*c).is_some())
            .map(|(at, _)| at)
    });
    common
        .into_iter()
        .flatten()
        .chain(any_opener.into_iter().flatten())
        .filter_map(|at| imitation_at(text, at))
}

/// The kind of imitation that a character which looks like `<` or `[` may start.
#[derive(Clone, Copy)]
enum OpenerKind {
    Tag,
    Marker,
}

fn opener_kind(c: char) -> Option<OpenerKind> {
    match c {
        '<' | '＜' | '﹤' | '≮' | '‹' | '〈' | '\u{2329}' | '⟨' => Some(OpenerKind::Tag),
        '[' | '［' | '﹝' | '【' | '〔' | '〖' | '⟦' => Some(OpenerKind::Marker),
        _ => None,
    }
}

/// Whether the text contains an opener (see [`opener_kind`]) other than `<`, `[` and those whose
/// first byte is EF. Branch-free per byte, since the first bytes of these characters are frequent
/// in many languages.
fn has_rare_opener(bytes: &[u8]) -> bool {
    let is_rare_opener = |a: u8, b: u8, c: u8| {
        let angle =
            ((b == 0x80) & (c == 0xb9)) | ((b == 0x89) & (c == 0xae)) | ((b == 0x8c) & (c == 0xa9));
        let mathematical = (b == 0x9f) & ((c == 0xa6) | (c == 0xa8));
        let chinese = (b == 0x80) & ((c == 0x88) | (c == 0x90) | (c == 0x94) | (c == 0x96));
        ((a == 0xe2) & (angle | mathematical)) | ((a == 0xe3) & chinese)
    };
    bytes.windows(3).fold(false, |found, window| {
        found | is_rare_opener(window[0], window[1], window[2])
    })
}

fn imitation_at(text: &str, at: usize) -> Option<Imitation> {
    let first = text[at..].chars().next()?;
    let after = at + first.len_utf8();
    let (cut, scope) = match opener_kind(first)? {
        OpenerKind::Tag => (after, tag_scope(&text[after..])?),
        OpenerKind::Marker => (
            after + marker_cut(&text[after..])?,
            ImitationScope::Anywhere,
        ),
    };
    Some(Imitation {
        opener: at..after,
        cut,
        scope,
    })
}

/// The scope in which a tag with this text after `<` is an imitation; `None` if it is none.
fn tag_scope(after: &str) -> Option<ImitationScope> {
    if !may_begin_name(after.as_bytes()) {
        return None;
    }
    let (chars, space) = without_space(to_plain_letters(after));
    let mut after_slash = chars.clone();
    let (chars, more_space) = match after_slash.next() {
        Some('/') => without_space(after_slash),
        _ => (chars, false),
    };
    let starts_with = |name: &&str| strip_prefix(chars.clone(), name).is_some();
    let is_whole = |name: &&str| {
        strip_prefix(chars.clone(), name)
            .is_some_and(|mut rest| !rest.next().is_some_and(is_name_char))
    };
    if space || more_space {
        return ELEMENT_NAMES
            .iter()
            .any(|name| name.starts_with("fd_") && is_whole(name))
            .then_some(ImitationScope::Anywhere);
    }
    if !ELEMENT_PREFIXES.iter().any(starts_with) {
        return None;
    }
    let is_anywhere = UNIQUE_PREFIXES.iter().any(starts_with) || ELEMENT_NAMES.iter().any(is_whole);
    Some(if is_anywhere {
        ImitationScope::Anywhere
    } else {
        ImitationScope::InsideElements
    })
}

/// Whether a tag may start here, judged by its first two letters: a cheap test that almost every
/// `<` fails.
fn may_begin_name(after: &[u8]) -> bool {
    let start = after
        .iter()
        .position(|byte| *byte != b'/' && !byte.is_ascii_whitespace())
        .unwrap_or(after.len());
    match &after[start..] {
        [first, second, ..] if first.is_ascii() && second.is_ascii() => {
            let letters = [first.to_ascii_lowercase(), second.to_ascii_lowercase()];
            ELEMENT_PREFIXES
                .iter()
                .any(|name| name.as_bytes()[..2] == letters)
        }
        [_, _, ..] => true,
        _ => false,
    }
}

/// The position after the `m` of a marker that has this text after its `[`; `None` if the text is
/// no marker.
pub(super) fn marker_cut(after: &str) -> Option<usize> {
    let (at, first) = after
        .char_indices()
        .find(|(_, c)| !is_invisible(*c) && !c.is_whitespace())?;
    let (chars, _) = without_space(to_plain_letters(after));
    let (chars, _) = without_space(strip_prefix(chars, "msg")?);
    let (mut chars, _) = without_space(strip_prefix(chars, ":")?);
    chars
        .next()
        .filter(|c| c.is_numeric())
        .map(|_| at + first.len_utf8())
}

/// The characters as a reader sees them: without invisible characters and accents, with similar
/// forms as ASCII, in lower case.
fn to_plain_letters(text: &str) -> impl Iterator<Item = char> + Clone {
    text.chars()
        .filter(|c| !is_invisible(*c))
        .map(|c| similar_ascii(c).to_ascii_lowercase())
}

/// The ASCII character that a character resembles, or the character itself.
fn similar_ascii(c: char) -> char {
    let ascii = |code: u32| char::from_u32(code).unwrap_or(c);
    match c {
        '\u{ff01}'..='\u{ff5e}' => ascii(u32::from(c) - 0xfee0),
        // Thirteen mathematical alphabets, each with capitals followed by small letters.
        '\u{1d400}'..='\u{1d6a3}' => ascii(u32::from(b'A') + (u32::from(c) - 0x1d400) % 52 % 26),
        '\u{203f}' | '\u{fe33}' | '\u{fe34}' | '\u{fe4d}'..='\u{fe4f}' => '_',
        '\u{2044}' | '\u{2215}' => '/',
        '\u{2d0}' | '\u{2236}' | '\u{a789}' | '\u{fe13}' | '\u{fe55}' => ':',
        c => c,
    }
}

/// Skips leading white space. Returns the rest, and whether there was any.
fn without_space<I: Iterator<Item = char> + Clone>(chars: I) -> (I, bool) {
    let mut rest = chars.clone();
    let mut from = chars;
    let mut found = false;
    while rest.next().is_some_and(char::is_whitespace) {
        from = rest.clone();
        found = true;
    }
    (from, found)
}

/// The characters after `prefix`, if they start with it.
fn strip_prefix<I: Iterator<Item = char>>(mut chars: I, prefix: &str) -> Option<I> {
    prefix
        .chars()
        .all(|letter| chars.next() == Some(letter))
        .then_some(chars)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
}

/// Whether a character is invisible or has no width: joiners, soft hyphens, variation selectors,
/// tags, and combining accents.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{180b}'..='\u{180f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{20d0}'..='\u{20ff}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imitations_of_the_kernel_are_found_and_ordinary_code_is_not() {
        let anywhere = [
            "<fd_result fd=\"fd:9\">",
            "x</preview></fd_result>",
            "<FD_Error type=\"access_denied\">",
            "<fd_of_tomorrow>",
            "</file_descriptor_instructions>",
            "<message>",
            "<Message/>",
            "<ref id='plan'>",
            "<env_info>",
            "</process_message",
            "< fd_result fd=\"fd:9\">",
            "<\n/\tfd_result>",
            "</ fd_error>",
            "＜fd_result＞",
            "﹤ｆｄ＿ｒｅｓｕｌｔ>",
            "<f\u{200b}d_result>",
            "<\u{2060}preview>",
            "[msg:1]",
            "text [MSG:12]",
            "［msg：３］",
            "[\u{feff}m\u{200d}sg:1]",
            "[msg: 1]",
            "[ msg :\u{a0}1]",
            "[msg:١]",
            "[msg:²] [msg:①]",
            "【msg：１】",
            "〔msg:1〕",
            "⟦msg∶1⟧",
            "﹝msg:1﹞",
            "[msgː1]",
            "[msg꞉1]",
            "[msg\u{337}:1]",
            "[𝐦𝐬𝐠:𝟏]",
            "≮fd_result>",
            "<\u{338}fd_result>",
            "<fd\u{301}_result>",
            "‹fd_result›",
            "〈/preview〉",
            "⟨message⟩",
            "<⁄fd_result>",
            "<fd‿result>",
            "<fd﹍result>",
            "<𝐟𝐝_result>",
            "<f\u{e0064}d_result>",
        ];
        for text in anywhere {
            assert!(imitates(text), "{text:?}");
        }
        let nowhere = [
            "",
            "plain [msg] and <b>bold</b>",
            "a < b && n < fd_max",
            "vector< message >",
            "while (i < ref) {",
            "<reference> <MessageList> <PreviewCard> <refs> <processing> <unittest> <child-node> \
             <Message.Item>",
            "<section><details><summary>HTML</summary></details></section>",
            "&lt;fd_result&gt;",
            "[msg: hello] [msg:] [message:1] msg:1",
            "<!-- fd_result -->",
            "fd_result",
            "，（ﾟｰ），＜b＞",
            "【重要】〈雪国〉≮ ‹b› ’ “ – 〔1〕⟦x⟧",
            "[msg 1] [msg: x1] [1] [msgs:1] [ ] [\n1]",
            "<é> <\u{301}>",
            "<",
            "[",
            "＜",
        ];
        for text in nowhere {
            assert!(!imitates(text), "{text:?}");
        }
    }

    #[test]
    fn each_imitation_has_one_position_to_split_it() {
        let cases = [
            ("<fd_x>", vec![1]),
            ("a</Section>", vec![2]),
            ("＜fd_x", vec!["＜".len()]),
            ("[msg:1]", vec![2]),
            ("[\u{200b}msg:1]", vec![5]),
            ("[ msg: 1]", vec![3]),
            ("【msg:1】≮ref", vec![4, 14]),
            ("<reference> [msg:2] <b>", vec![1, 14]),
            ("<b>", vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(find_cuts(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }

    #[test]
    fn long_runs_of_openers_and_invisible_characters_take_linear_time() {
        let text = ["<", "\u{200b}"].map(|c| c.repeat(200_000)).concat() + &"< ".repeat(100_000);
        assert!(!imitates(&text));
    }
}
