//! Finds imitations of the kernel in a text: a tag of one of its elements, or the marker of a message.
//!
//! The kernel writes a tag as `<`, optionally `/`, and a name, and a marker as `[msg:3]`. A form that a reader could take for one
//! counts as well: capitals, full-width characters, and invisible characters between the letters. Whitespace between `<` and a name
//! counts only in front of the whole name of an `fd_` element, since `n < fd_max` is code.
//!
//! This module only finds imitations; [`text`](super::text) and [`ShownText`](crate::shown::ShownText) decide how they are shown.

/// Prefixes that cover the names of all of the kernel's elements. Inside an element of the kernel, text must not have one of them
/// directly after `<` or `</`.
pub const ELEMENT_PREFIXES: [&str; 24] = [
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

/// Prefixes that no other language uses: any name with one of them is an imitation, also outside the kernel's elements.
const UNIQUE_PREFIXES: [&str; 2] = ["fd_", "file_descriptor_"];

/// The whole names of the kernel's elements, and `ref`, which models write. Text outside the kernel's elements imitates the kernel
/// if it has one of these as a tag; `<reference>` and `<MessageList>` are ordinary. `section`, `summary` and `details` are left
/// out, since HTML has them and the kernel writes them only inside its elements.
const ELEMENT_NAMES: [&str; 50] = [
    "fd_attachment",
    "fd_attachments",
    "fd_content",
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
    "checkpoint",
    "checkpoint_error",
    "checkpoint_list",
    "budget_warning",
    "preview",
    "omitted",
    "match",
    "descriptor",
    "unit",
    "stats",
    "ref",
];

/// Where an imitation could be taken for text of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deceives {
    Anywhere,
    /// Only inside an element of the kernel.
    InsideElements,
}

/// Whether a text outside the kernel's elements could be taken for text of the kernel. Runs at memory bandwidth if `<` and `[` are
/// rare.
#[must_use]
pub fn imitates(text: &str) -> bool {
    imitations(text).any(|imitation| imitation.deceives == Deceives::Anywhere)
}

/// Where to split a text so that no part holds a whole imitation: behind the `<` of a tag, and behind the `m` of a marker.
pub(super) fn cuts(text: &str) -> impl Iterator<Item = usize> {
    imitations(text).map(|imitation| imitation.cut)
}

/// The ranges of the characters that open an imitation, except `<`: `[`, and characters that look like `<` or `[`. An attribute
/// writes each as a character reference; it escapes every `<` anyway.
pub(super) fn openers(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    imitations(text).map(|imitation| imitation.opener).filter(|opener| &text[opener.clone()] != "<")
}

struct Imitation {
    /// The range of its first character.
    opener: std::ops::Range<usize>,
    /// Where it is split.
    cut: usize,
    deceives: Deceives,
}

fn imitations(text: &str) -> impl Iterator<Item = Imitation> {
    // The full-width forms of `<` and `[`, and the small form of `<`, all begin with the byte EF.
    memchr::memchr3_iter(b'<', b'[', 0xef, text.as_bytes()).filter_map(|at| imitation_at(text, at))
}

fn imitation_at(text: &str, at: usize) -> Option<Imitation> {
    let opener = text[at..].chars().next()?;
    let after = at + opener.len_utf8();
    let (cut, deceives) = match opener {
        '<' | '＜' | '﹤' => (after, tag(&text[after..])?),
        '[' | '［' => (after + marker(&text[after..])?, Deceives::Anywhere),
        _ => return None,
    };
    Some(Imitation { opener: at..after, cut, deceives })
}

/// Where the tag would deceive whose text after `<` this is; nothing if it is no imitation.
fn tag(after: &str) -> Option<Deceives> {
    if !may_begin_a_name(after.as_bytes()) {
        return None;
    }
    let (chars, space) = without_space(letters(after));
    let mut after_slash = chars.clone();
    let (chars, more_space) = match after_slash.next() {
        Some('/') => without_space(after_slash),
        _ => (chars, false),
    };
    let begins = |name: &&str| strip_prefix(chars.clone(), name).is_some();
    let is_whole =
        |name: &&str| strip_prefix(chars.clone(), name).is_some_and(|mut rest| !rest.next().is_some_and(in_name));
    if space || more_space {
        return ELEMENT_NAMES
            .iter()
            .any(|name| name.starts_with("fd_") && is_whole(name))
            .then_some(Deceives::Anywhere);
    }
    if !ELEMENT_PREFIXES.iter().any(begins) {
        return None;
    }
    let is_anywhere = UNIQUE_PREFIXES.iter().any(begins) || ELEMENT_NAMES.iter().any(is_whole);
    Some(if is_anywhere { Deceives::Anywhere } else { Deceives::InsideElements })
}

/// Whether a tag may begin here, judged by its first two letters: a cheap test for each `<` of a page, which nearly all fail.
fn may_begin_a_name(after: &[u8]) -> bool {
    let start = after.iter().position(|byte| *byte != b'/' && !byte.is_ascii_whitespace()).unwrap_or(after.len());
    match &after[start..] {
        [first, second, ..] if first.is_ascii() && second.is_ascii() => {
            let letters = [first.to_ascii_lowercase(), second.to_ascii_lowercase()];
            ELEMENT_PREFIXES.iter().any(|name| name.as_bytes()[..2] == letters)
        }
        [_, _, ..] => true,
        _ => false,
    }
}

/// Where the `m` of a marker ends whose text after `[` this is; nothing if it is no marker.
fn marker(after: &str) -> Option<usize> {
    let (at, first) = after.char_indices().find(|(_, c)| !is_invisible(*c))?;
    let number = strip_prefix(letters(after), "msg:")?.next();
    number.filter(char::is_ascii_digit).map(|_| at + first.len_utf8())
}

/// The characters as a reader sees them: without invisible ones, full-width forms as ASCII, in lower case.
fn letters(text: &str) -> impl Iterator<Item = char> + Clone {
    let plain = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        _ => c,
    };
    text.chars().filter(|c| !is_invisible(*c)).map(move |c| plain(c).to_ascii_lowercase())
}

/// The characters after leading whitespace, and whether there was any.
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

/// The characters after `prefix`, if they begin with it.
fn strip_prefix<I: Iterator<Item = char>>(mut chars: I, prefix: &str) -> Option<I> {
    prefix.chars().all(|letter| chars.next() == Some(letter)).then_some(chars)
}

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
}

/// Whether a character takes no room on a screen: joiners, soft hyphens, variation selectors, tags.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_takes_for_the_kernel_is_found_and_code_is_left_alone() {
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
            "<reference> <MessageList> <PreviewCard> <refs> <processing> <unittest> <child-node> <Message.Item>",
            "<section><details><summary>HTML</summary></details></section>",
            "&lt;fd_result&gt;",
            "[msg: hello] [msg:] [message:1] msg:1",
            "<!-- fd_result -->",
            "fd_result",
            "，（ﾟｰ），＜b＞",
            "<",
            "[",
            "＜",
        ];
        for text in nowhere {
            assert!(!imitates(text), "{text:?}");
        }
    }

    #[test]
    fn each_imitation_is_cut_in_two() {
        let cases = [
            ("<fd_x>", vec![1]),
            ("a</Section>", vec![2]),
            ("＜fd_x", vec!["＜".len()]),
            ("[msg:1]", vec![2]),
            ("[\u{200b}msg:1]", vec![5]),
            ("<reference> [msg:2] <b>", vec![1, 14]),
            ("<b>", vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(cuts(text).collect::<Vec<_>>(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_row_of_nothing_costs_no_more_than_its_length() {
        let text = ["<", "\u{200b}"].map(|c| c.repeat(200_000)).concat() + &"< ".repeat(100_000);
        assert!(!imitates(&text));
    }
}
