//! Pages, lines and characters of any bytes, against a slow model of the rules.

#![no_main]

use arbitrary::Arbitrary;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_content::{Content, Reader, Slice, Unreadable};
use dormouse_proto::descriptor::view::Encoding;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    page_chars: u16,
    first: u16,
    count: u16,
    bytes: &'a [u8],
}

/// What is read of a content in memory.
fn held<T>(read: Result<T, Unreadable>) -> T {
    read.expect("it is in memory")
}

fuzz_target!(|input: Input<'_>| {
    let content = Content::new(input.bytes.to_vec()).unlimited_reader();
    shown_text_stands_for_the_bytes(&content, input.bytes);
    let text = held(content.text());
    let chars: Vec<char> = text.chars().collect();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    assert_eq!(held(content.total_chars()), chars.len() as u64);
    assert_eq!(held(content.total_lines()), lines.len().max(1) as u64);
    // Zero would be refused by the compiler of programs; a content takes it for one.
    pages(&content, &chars, usize::from(input.page_chars).max(1));
    ranges(
        &content,
        &chars,
        &lines,
        input.first.into(),
        input.count.into(),
    );
});

fn shown_text_stands_for_the_bytes(content: &Reader<'_>, bytes: &[u8]) {
    assert_eq!(held(content.bytes()), bytes);
    let text = held(content.text());
    match held(content.encoding()) {
        Encoding::Text => assert_eq!(text.as_bytes(), bytes),
        Encoding::Base64 => assert_eq!(STANDARD.decode(&*text).expect("base64"), bytes),
        Encoding::Decoded { .. } => {
            let middle = text.floor_char_boundary(text.len() / 2);
            let halves = [0..middle, middle..text.len()];
            let original = halves.map(|half| held(content.original_bytes(half)));
            assert_eq!(original.concat(), bytes, "parts are exported exactly");
        }
    }
}

fn pages(content: &Reader<'_>, chars: &[char], size: usize) {
    let page_chars = u32::try_from(size).expect("16 bits");
    let total = held(content.total_pages(page_chars));
    let (mut at, mut line) = (0, 1);
    for number in 1..=total {
        let page =
            held(content.page(page_chars, number)).expect("it is within the number of pages");
        let end = page_end(chars, at, size);
        assert!(end - at <= size, "PAGE-2");
        assert!(
            page.text.chars().eq(chars[at..end].iter().copied()),
            "PAGE-1 and greedy, page {number}"
        );
        assert!(!page.truncated || end - at == size, "PAGE-3");
        line = stands_at(&page, chars, at, end, line);
        assert_eq!(held(content.page_at(page_chars, page.start_byte)), number);
        at = end;
    }
    assert_eq!(at, chars.len(), "PAGE-1");
    assert_eq!(
        (
            held(content.page(page_chars, 0)),
            held(content.page(page_chars, total + 1))
        ),
        (None, None)
    );
}

/// A window that does not reach the end is cut after its last LF, if it has one.
fn page_end(chars: &[char], at: usize, size: usize) -> usize {
    match chars.get(at..at + size) {
        Some(window) if at + size < chars.len() => window
            .iter()
            .rposition(|c| *c == '\n')
            .map_or(at + size, |feed| at + feed + 1),
        _ => chars.len(),
    }
}

/// The slice is `chars[at..end]` and begins on line `line`; the line that follows it.
fn stands_at(slice: &Slice, chars: &[char], at: usize, end: usize, line: u64) -> u64 {
    let feeds = |range: &[char]| range.iter().filter(|c| **c == '\n').count() as u64;
    assert_eq!(slice.first_line, line);
    assert_eq!(
        slice.last_line,
        line + feeds(&chars[at..end.saturating_sub(1).max(at)])
    );
    assert_eq!(slice.continued, at > 0 && chars[at - 1] != '\n');
    assert_eq!(
        slice.truncated,
        end < chars.len() && (end == at || chars[end - 1] != '\n')
    );
    line + feeds(&chars[at..end])
}

fn ranges(content: &Reader<'_>, chars: &[char], lines: &[&str], first: usize, count: usize) {
    let served = held(content.lines(first as u64, count as u64));
    let in_range = first >= 1 && first <= lines.len().max(1) && count > 0;
    let expected = in_range.then(|| {
        lines
            .iter()
            .skip(first - 1)
            .take(count)
            .copied()
            .collect::<String>()
    });
    assert_eq!(
        served.as_ref().map(|slice| slice.text.to_string()),
        expected,
        "lines {first} {count}"
    );
    let served = served
        .into_iter()
        .chain(held(content.chars(first as u64, count as u64)))
        .inspect(|slice| {
            let at = held(content.text())[..slice.start_byte].chars().count();
            let line = 1 + chars[..at].iter().filter(|c| **c == '\n').count() as u64;
            stands_at(slice, chars, at, at + slice.text.chars().count(), line);
        });
    served.for_each(|slice| extracts(content, &slice));
    let in_range = (first < chars.len() || (first == 0 && chars.is_empty())) && count > 0;
    let expected = in_range.then(|| chars.iter().skip(first).take(count).collect::<String>());
    let served = held(content.chars(first as u64, count as u64));
    assert_eq!(
        served.map(|slice| slice.text.to_string()),
        expected,
        "chars {first} {count}"
    );
}

fn extracts(content: &Reader<'_>, slice: &Slice) {
    let part = held(content.extract(slice.bytes()));
    assert_eq!(held(part.unlimited_reader().text()), slice.text);
    assert!(
        part == Content::new(slice.text.to_string())
            || held(part.unlimited_reader().bytes()) == held(content.bytes())
    );
}
