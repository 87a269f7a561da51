//! Previews: the first page of a new descriptor, or its first and last lines.
//!
//! A page ends with a line, so a long line can leave a first page of a few characters. The preview
//! then shows the first and the last characters instead.

use dormouse_proto::descriptor::Preview;
use dormouse_proto::descriptor::view::{Omitted, Previewed, Tail};

use super::View;
use dormouse_content::{Slice, Unreadable};

/// The parts of a preview. They share the bytes of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreviewParts {
    head: Slice,
    /// The last lines, and the extent of the omitted part before them.
    tail: Option<(Omitted, Slice)>,
}

impl PreviewParts {
    /// Converts the preview for an answer, with the summary of the descriptor.
    pub(crate) fn to_previewed<'a>(&'a self, summary: Option<&'a str>) -> Previewed<'a> {
        let tail = self.tail.as_ref().map(|(omitted, slice)| Tail {
            omitted: *omitted,
            part: slice.part(),
        });
        Previewed {
            head: self.head.part(),
            tail,
            summary,
        }
    }
}

/// Makes the preview of a descriptor. Content that fits one page is always shown in full.
pub(crate) fn build_preview(view: &View<'_>, preview: Preview) -> Result<PreviewParts, Unreadable> {
    let View { content, .. } = view;
    let page = content
        .page(view.page_chars(), 1)?
        .expect("every content has a first page");
    let is_short = page.text.chars().count() < view.page_chars() as usize / 2;
    let head_and_tail = if preview == Preview::HeadTail || is_short {
        head_and_tail(view)?
    } else {
        None
    };
    let Some((head, tail)) = head_and_tail else {
        return Ok(PreviewParts {
            head: page,
            tail: None,
        });
    };
    let omitted_start = head.bytes().end;
    let omitted_end = tail.start_byte;
    let lines = (
        content.line_at(omitted_start)?,
        content.line_at(omitted_end.saturating_sub(1).max(omitted_start))?,
    );
    let omitted = Omitted {
        lines,
        chars: content.char_at(omitted_end)? - content.char_at(omitted_start)?,
    };
    Ok(PreviewParts {
        head,
        tail: Some((omitted, tail)),
    })
}

/// Returns the first half page up to its last line end, and the last half page from its first line
/// start. A half that would keep less than half of its characters is cut within the line. `None` if
/// the content fits one page, or half a page is 0 characters.
fn head_and_tail(view: &View<'_>) -> Result<Option<(Slice, Slice)>, Unreadable> {
    let content = &view.content;
    let page_chars = u64::from(view.page_chars());
    let total = content.total_chars()?;
    let half = page_chars / 2;
    if total <= page_chars || half == 0 {
        return Ok(None);
    }
    let head = content.slice(0..content.byte_at(half)?)?;
    let tail = content.byte_at(total - half)?..content.shown_bytes()?;
    let head = match head.text.rfind('\n') {
        Some(feed) if (feed + 1) * 2 >= head.text.len() => content.slice(0..feed + 1)?,
        _ => head,
    };
    let tail = content.slice(tail)?;
    let skipped_bytes = if tail.continued {
        partial_line_bytes(&tail.text)
    } else {
        0
    };
    let tail = content.slice(tail.start_byte + skipped_bytes..tail.bytes().end)?;
    Ok(Some((head, tail)))
}

/// Length of the partial line at the start of a text; 0 if less than half of the text would be left
/// behind it.
fn partial_line_bytes(text: &str) -> usize {
    text.find('\n')
        .map(|feed| feed + 1)
        .filter(|next| next * 2 <= text.len())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_content::{Content, ReadQuota};
    use dormouse_proto::record::Entry;
    use proptest::prelude::*;
    use std::borrow::Cow;

    fn entry(text: &str, page_chars: u32) -> Entry<Content> {
        Entry::new(Content::new(text.to_owned()), page_chars, "tool:t", 0)
    }

    fn view(entry: &Entry<Content>) -> View<'_> {
        View::plain(Cow::Borrowed(entry), ReadQuota::unlimited())
    }

    /// Head, omitted lines and characters, tail and its first line.
    fn preview_of(text: &str, page_chars: u32) -> (String, Option<(String, u64, String)>) {
        let entry = entry(text, page_chars);
        let shown = build_preview(&view(&entry), Preview::HeadTail).unwrap();
        let Previewed { head, tail, .. } = shown.to_previewed(None);
        let tail = tail.map(|Tail { omitted, part }| {
            let (first, last) = omitted.lines;
            (
                format!("{first}-{last}"),
                omitted.chars,
                part.text.to_owned(),
            )
        });
        (head.text.to_owned(), tail)
    }

    #[test]
    fn lines_are_not_cut_if_half_a_page_contains_a_line_end() {
        let cases = [
            ("", 4, "", None),
            ("1\n2\n3\n4\n", 8, "1\n2\n3\n4\n", None),
            ("1\n2\n3\n4\n", 4, "1\n", Some(("2-3", 4, "4\n"))),
            ("1\n2\n3\n4\n", 7, "1\n", Some(("2-3", 4, "4\n"))),
            ("1\n2\n3\n45", 6, "1\n", Some(("2-3", 4, "45"))),
            (
                "1\r\n2\r\n3\r\n4\r\n",
                8,
                "1\r\n",
                Some(("2-3", 6, "4\r\n")),
            ),
            ("abcdefghij", 6, "abc", Some(("1-1", 4, "hij"))),
            ("abcdefghij\n", 6, "abc", Some(("1-1", 5, "ij\n"))),
            ("é😀é😀é😀é", 5, "é😀", Some(("1-1", 3, "😀é"))),
            ("a\nbcdefgh\nij", 8, "a\n", Some(("2-2", 8, "ij"))),
            ("abcdef", 1, "a", None),
            ("\n\n\n\n", 2, "\n", Some(("2-3", 2, "\n"))),
        ];
        for (text, page_chars, head, tail) in cases {
            let tail = tail.map(|(lines, chars, text)| (lines.to_owned(), chars, text.to_owned()));
            assert_eq!(
                preview_of(text, page_chars),
                (head.to_owned(), tail),
                "{text:?} in pages of {page_chars}"
            );
        }
    }

    #[test]
    fn a_long_line_does_not_hide_the_rest() {
        let line = "x".repeat(600_000);
        for (text, head, tail) in [
            (format!("[ {{\n{line}\n}} ]\n"), "[ {\nxxx", "xxx\n} ]\n"),
            (format!("{line}\nlast\n"), "xxx", "xxx\nlast\n"),
            (format!("first\n{line}"), "first\nxxx", "xxx"),
        ] {
            let entry = entry(&text, 4000);
            for preview in [Preview::Head, Preview::HeadTail] {
                let shown = build_preview(&view(&entry), preview).unwrap();
                let Previewed {
                    head: first,
                    tail: last,
                    ..
                } = shown.to_previewed(None);
                assert!(first.text.starts_with(head) && first.text.len() >= 2000);
                let whole_page = preview == Preview::Head && first.text.len() == 4000;
                let last = last.map_or("", |tail| tail.part.text);
                assert!(whole_page || last.ends_with(tail) && last.len() == 2000);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn head_omitted_part_and_tail_make_up_the_content(
            text in "([a-c]{0,6}|\n|\r\n|é😀){0,40}",
            page_chars in 1_u32..60,
        ) {
            let entry = entry(&text, page_chars);
            let shown = build_preview(&view(&entry), Preview::HeadTail).unwrap();
            let Previewed { head, tail, .. } = shown.to_previewed(None);
            prop_assert!(text.starts_with(head.text));
            let Some(Tail { omitted, part }) = tail else {
                let page = entry.content.unlimited_reader().page(page_chars, 1).unwrap().unwrap();
                prop_assert_eq!(head, page.part());
                return Ok(());
            };
            let chars = |text: &str| text.chars().count() as u64;
            prop_assert!(text.ends_with(part.text) && !head.text.is_empty() && !part.text.is_empty());
            prop_assert!(chars(head.text) + chars(part.text) <= u64::from(page_chars));
            prop_assert!(omitted.chars > 0);
            prop_assert_eq!(chars(head.text) + omitted.chars + chars(part.text), chars(&text));
            prop_assert_eq!(omitted.lines.0, head.last_line + u64::from(!head.truncated));
            prop_assert_eq!(omitted.lines.1, part.first_line - u64::from(!part.continued));
            prop_assert_eq!(part.last_line, entry.content.unlimited_reader().total_lines().unwrap());
        }
    }
}
