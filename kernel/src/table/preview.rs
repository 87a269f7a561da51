//! What of a new descriptor is shown at once: its first page, or its first and last lines.

use dormouse_proto::descriptor::Preview;
use dormouse_proto::descriptor::view::{Omitted, Previewed, Tail};
use dormouse_proto::record::Entry;

use crate::content::{Content, Slice};

/// What is shown of a descriptor. Content that fits one page is shown whole, whichever way is wanted.
pub(super) fn previewed(entry: &Entry<Content>, preview: Preview) -> Previewed<'_> {
    let summary = entry.notes.summary.as_deref();
    match ends(entry).filter(|_| preview == Preview::HeadTail) {
        None => {
            let page = entry.content.page(entry.page_chars, 1).expect("every content has a first page");
            Previewed { head: page.part(), tail: None, summary }
        }
        Some((head, tail)) => {
            let between = entry.content.slice(head.bytes().end..tail.start_byte);
            let chars = entry.content.char_at(between.bytes().end) - entry.content.char_at(between.start_byte);
            let omitted = Omitted { lines: (between.first_line, between.last_line), chars };
            Previewed { head: head.part(), tail: Some(Tail { omitted, part: tail.part() }), summary }
        }
    }
}

/// The first half page up to its last line end, and the last half page from its first line on; inside of a line where half
/// a page has no other. None where the content fits one page, or half a page is nothing.
fn ends(entry: &Entry<Content>) -> Option<(Slice<'_>, Slice<'_>)> {
    let content = &entry.content;
    let (page_chars, total) = (u64::from(entry.page_chars), content.total_chars());
    let half = page_chars / 2;
    if total <= page_chars || half == 0 {
        return None;
    }
    let text = content.text();
    let (head, tail) = (content.byte_at(half), content.byte_at(total - half));
    let head = text[..head].rfind('\n').map_or(head, |feed| feed + 1);
    Some((content.slice(0..head), content.slice(line_from(text, tail)..text.len())))
}

/// Where the first line begins at or after a byte, or that byte if none begins before the text ends.
fn line_from(text: &str, at: usize) -> usize {
    if text[..at].ends_with('\n') {
        return at;
    }
    let next = text[at..].find('\n').map_or(at, |feed| at + feed + 1);
    if next < text.len() { next } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(text: &str, page_chars: u32) -> Entry<Content> {
        Entry::new(Content::new(text.to_owned()), page_chars, "tool:t", 0)
    }

    /// Head, omitted lines and characters, tail and its first line.
    fn seen(text: &str, page_chars: u32) -> (String, Option<(String, u64, String)>) {
        let entry = entry(text, page_chars);
        let Previewed { head, tail, .. } = previewed(&entry, Preview::HeadTail);
        let tail = tail.map(|Tail { omitted, part }| {
            let (first, last) = omitted.lines;
            (format!("{first}-{last}"), omitted.chars, part.text.to_owned())
        });
        (head.text.to_owned(), tail)
    }

    #[test]
    fn lines_stay_whole_where_half_a_page_holds_one() {
        let cases = [
            ("", 4, "", None),
            ("1\n2\n3\n4\n", 8, "1\n2\n3\n4\n", None),
            ("1\n2\n3\n4\n", 4, "1\n", Some(("2-3", 4, "4\n"))),
            ("1\n2\n3\n4\n", 7, "1\n", Some(("2-3", 4, "4\n"))),
            ("1\n2\n3\n45", 6, "1\n", Some(("2-3", 4, "45"))),
            ("1\r\n2\r\n3\r\n4\r\n", 8, "1\r\n", Some(("2-3", 6, "4\r\n"))),
            ("abcdefghij", 6, "abc", Some(("1-1", 4, "hij"))),
            ("abcdefghij\n", 6, "abc", Some(("1-1", 5, "ij\n"))),
            ("é😀é😀é😀é", 5, "é😀", Some(("1-1", 3, "😀é"))),
            ("a\nbcdefgh\nij", 8, "a\n", Some(("2-2", 8, "ij"))),
            ("abcdef", 1, "a", None),
            ("\n\n\n\n", 2, "\n", Some(("2-3", 2, "\n"))),
        ];
        for (text, page_chars, head, tail) in cases {
            let tail = tail.map(|(lines, chars, text)| (lines.to_owned(), chars, text.to_owned()));
            assert_eq!(seen(text, page_chars), (head.to_owned(), tail), "{text:?} in pages of {page_chars}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn head_and_tail_are_the_ends_of_the_content_and_add_up(
            text in "([a-c]{0,6}|\n|\r\n|é😀){0,40}",
            page_chars in 1_u32..60,
        ) {
            let entry = entry(&text, page_chars);
            let Previewed { head, tail, .. } = previewed(&entry, Preview::HeadTail);
            prop_assert!(text.starts_with(head.text));
            let Some(Tail { omitted, part }) = tail else {
                prop_assert_eq!(Some(head), entry.content.page(page_chars, 1).map(|page| page.part()));
                return Ok(());
            };
            let chars = |text: &str| text.chars().count() as u64;
            prop_assert!(text.ends_with(part.text) && !head.text.is_empty() && !part.text.is_empty());
            prop_assert!(chars(head.text) + chars(part.text) <= u64::from(page_chars));
            prop_assert!(omitted.chars > 0);
            prop_assert_eq!(chars(head.text) + omitted.chars + chars(part.text), chars(&text));
            prop_assert_eq!(omitted.lines.0, head.last_line + u64::from(!head.truncated));
            prop_assert_eq!(omitted.lines.1, part.first_line - u64::from(!part.continued));
            prop_assert_eq!(part.last_line, entry.content.total_lines());
        }
    }
}
