//! Where a text looks as if the kernel spoke in it: a tag of one of its elements, or the marker behind a message.
//!
//! The kernel writes a tag as `<`, perhaps `/`, and a name, and a marker as `[msg:3]`. What a reader could take for that counts
//! as well: capitals, full-width forms, and invisible characters between the letters. Whitespace in front of a name counts
//! only before the whole name of an element that begins with `fd_`, since `n < fd_max` is code.
//!
//! This module only finds; [`text`](super::text) and [`ShownText`](crate::shown::ShownText) say what becomes of it.

/// What names of the kernel's own elements begin with. Inside of an element of the kernel, none of them may follow a `<` or `</`
/// of a text directly.
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

/// The names of elements that no other language has: whatever begins so is an imitation wherever it stands.
const FAMILIES: [&str; 2] = ["fd_", "file_descriptor_"];

/// The elements of the kernel by their whole names, and `ref`, which is the model's own. A text that stands by itself imitates
/// the kernel if it holds one of these; `<reference>` and `<MessageList>` are no elements of the kernel, and stay as they are.
/// `section`, `summary` and `details` are left out, since HTML has them: the kernel writes them only inside of its elements.
pub const ELEMENTS: [&str; 50] = [
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

/// How much a place imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It could be taken for the kernel's word wherever it stands.
    Anywhere,
    /// Only inside of an element of the kernel.
    Inside,
}

/// Whether a text that stands in no element of the kernel could be taken for the kernel's word. At memory bandwidth where
/// `<` and `[` are rare.
#[must_use]
pub fn imitates(text: &str) -> bool {
    places(text).any(|place| place.reach == Reach::Anywhere)
}

/// Where a text has to be cut, so that no imitation stands in one piece: behind the `<` of a tag, and behind the `m` of a marker.
pub(super) fn cuts(text: &str) -> impl Iterator<Item = usize> {
    places(text).map(|place| place.cut)
}

/// The opening brackets of markers, and whatever looks like `<` and opens a tag: the ranges of these characters. An attribute
/// writes each as a character reference; `<` itself is always escaped there.
pub(super) fn openers(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    places(text).map(|place| place.opener).filter(|opener| &text[opener.clone()] != "<")
}

struct Place {
    opener: std::ops::Range<usize>,
    cut: usize,
    reach: Reach,
}

fn places(text: &str) -> impl Iterator<Item = Place> {
    // The full-width forms of `<` and `[`, and the small form of `<`, all begin with the byte EF.
    memchr::memchr3_iter(b'<', b'[', 0xef, text.as_bytes()).filter_map(|at| place(text, at))
}

fn place(text: &str, at: usize) -> Option<Place> {
    let opener = text[at..].chars().next()?;
    let after = at + opener.len_utf8();
    let (cut, reach) = match opener {
        '<' | '＜' | '﹤' => (after, tag(&text[after..])?),
        '[' | '［' => (after + marker(&text[after..])?, Reach::Anywhere),
        _ => return None,
    };
    Some(Place { opener: at..after, cut, reach })
}

/// What stands behind a `<`, if a tag of the kernel could begin there.
fn tag(after: &str) -> Option<Reach> {
    if !may_begin_a_name(after.as_bytes()) {
        return None;
    }
    let (chars, space) = without_space(letters(after));
    let mut behind_slash = chars.clone();
    let (chars, more_space) = match behind_slash.next() {
        Some('/') => without_space(behind_slash),
        _ => (chars, false),
    };
    let begins = |name: &&str| behind(chars.clone(), name).is_some();
    let is_whole = |name: &&str| behind(chars.clone(), name).is_some_and(|mut rest| !rest.next().is_some_and(in_name));
    if space || more_space {
        return ELEMENTS.iter().any(|name| name.starts_with("fd_") && is_whole(name)).then_some(Reach::Anywhere);
    }
    if !KERNEL_NAMES.iter().any(begins) {
        return None;
    }
    let is_anywhere = FAMILIES.iter().any(begins) || ELEMENTS.iter().any(is_whole);
    Some(if is_anywhere { Reach::Anywhere } else { Reach::Inside })
}

/// Whether the first two letters are those of a name, or need a closer look. It is asked of each `<` of a page, and nearly always
/// says no.
fn may_begin_a_name(after: &[u8]) -> bool {
    let start = after.iter().position(|byte| *byte != b'/' && !byte.is_ascii_whitespace()).unwrap_or(after.len());
    match &after[start..] {
        [first, second, ..] if first.is_ascii() && second.is_ascii() => {
            let letters = [first.to_ascii_lowercase(), second.to_ascii_lowercase()];
            KERNEL_NAMES.iter().any(|name| name.as_bytes()[..2] == letters)
        }
        [_, _, ..] => true,
        _ => false,
    }
}

/// How far behind a `[` the `m` of a marker ends, if one begins there.
fn marker(after: &str) -> Option<usize> {
    let (at, first) = after.char_indices().find(|(_, c)| !is_invisible(*c))?;
    let number = behind(letters(after), "msg:")?.next();
    number.filter(char::is_ascii_digit).map(|_| at + first.len_utf8())
}

/// The characters as a reader sees them: invisible ones left out, full-width forms as ASCII, all letters small.
fn letters(text: &str) -> impl Iterator<Item = char> + Clone {
    let plain = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        _ => c,
    };
    text.chars().filter(|c| !is_invisible(*c)).map(move |c| plain(c).to_ascii_lowercase())
}

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

/// What follows `name`, if the text begins with it.
fn behind<I: Iterator<Item = char>>(mut chars: I, name: &str) -> Option<I> {
    name.chars().all(|letter| chars.next() == Some(letter)).then_some(chars)
}

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
}

/// Characters that take no room on a screen: joiners, soft hyphens, selectors of variants, tags.
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
