//! Compares a content with a slow reference implementation, and tests what extracted parts share.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use proptest::prelude::*;

/// The reference implementation. A range of characters is (text, first line, last line, continued,
/// truncated).
struct Model(Vec<char>);

impl Model {
    fn line_of(&self, char: usize) -> u64 {
        1 + self.0[..char].iter().filter(|c| **c == '\n').count() as u64
    }

    fn lines(&self) -> u64 {
        let feeds = self.0.iter().filter(|c| **c == '\n').count() as u64;
        feeds + u64::from(self.0.last() != Some(&'\n'))
    }

    fn range(&self, start: usize, end: usize) -> (String, u64, u64, bool, bool) {
        let last = if end > start { end - 1 } else { start };
        let continued = start > 0 && self.0[start - 1] != '\n';
        let truncated = end < self.0.len() && self.0[last] != '\n';
        (
            self.0[start..end].iter().collect(),
            self.line_of(start),
            self.line_of(last),
            continued,
            truncated,
        )
    }

    fn page_starts(&self, size: usize) -> Vec<usize> {
        let mut starts = vec![0];
        while starts[starts.len() - 1] + size < self.0.len() {
            let start = starts[starts.len() - 1];
            let window = &self.0[start..start + size];
            starts.push(
                start
                    + window
                        .iter()
                        .rposition(|c| *c == '\n')
                        .map_or(size, |at| at + 1),
            );
        }
        starts
    }

    fn line_start(&self, line: u64) -> usize {
        (0..self.0.len())
            .find(|at| self.line_of(*at) == line)
            .unwrap_or(self.0.len())
    }
}

fn as_tuple(slice: Option<Slice>) -> Option<(String, u64, u64, bool, bool)> {
    slice.map(|s| {
        (
            s.text.to_string(),
            s.first_line,
            s.last_line,
            s.continued,
            s.truncated,
        )
    })
}

fn check(text: &str, page_chars: u32) {
    let content = Content::new(text.to_owned());
    let model = Model(text.chars().collect());
    let len = model.0.len();
    assert_eq!(
        content.unlimited_reader().total_chars().unwrap(),
        len as u64
    );
    assert_eq!(
        content.unlimited_reader().total_lines().unwrap(),
        model.lines()
    );
    let starts = model.page_starts(page_chars as usize);
    assert_eq!(
        content.unlimited_reader().total_pages(page_chars).unwrap(),
        starts.len() as u64
    );
    let mut joined = String::new();
    for (number, start) in starts.iter().enumerate() {
        let end = starts.get(number + 1).copied().unwrap_or(len);
        let page = content
            .unlimited_reader()
            .page(page_chars, number as u64 + 1)
            .unwrap()
            .expect("it is within the number of pages");
        joined += &page.text;
        let chars = page.text.chars().count();
        assert!(chars <= page_chars as usize, "PAGE-2");
        assert!(!page.truncated || chars == page_chars as usize, "PAGE-3");
        assert_eq!(
            content
                .unlimited_reader()
                .page_at(page_chars, page.start_byte)
                .unwrap(),
            number as u64 + 1
        );
        assert_eq!(as_tuple(Some(page)), Some(model.range(*start, end)));
    }
    assert_eq!(joined, text, "PAGE-1");
    assert_eq!(
        content.unlimited_reader().page(page_chars, 0).unwrap(),
        None
    );
    assert_eq!(
        content
            .unlimited_reader()
            .page(page_chars, starts.len() as u64 + 1)
            .unwrap(),
        None
    );
}

fn check_ranges(text: &str, first: u64, count: u64) {
    let content = Content::new(text.to_owned());
    let model = Model(text.chars().collect());
    let len = model.0.len();
    let lines = (first >= 1 && first <= model.lines() && count > 0).then(|| {
        model.range(
            model.line_start(first),
            model.line_start(first.saturating_add(count)),
        )
    });
    assert_eq!(
        as_tuple(content.unlimited_reader().lines(first, count).unwrap()),
        lines,
        "lines {first} {count} of {text:?}"
    );
    let in_range = first < len as u64 || (first == 0 && len == 0);
    let end = first.saturating_add(count).min(len as u64) as usize;
    let chars = (in_range && count > 0).then(|| model.range(first as usize, end));
    assert_eq!(
        as_tuple(content.unlimited_reader().chars(first, count).unwrap()),
        chars,
        "chars {first} {count} of {text:?}"
    );
    for (char, (byte, _)) in text.char_indices().enumerate() {
        assert_eq!(
            content.unlimited_reader().char_at(byte).unwrap(),
            char as u64
        );
        assert_eq!(
            content.unlimited_reader().byte_at(char as u64).unwrap(),
            byte
        );
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-c]{1,9}",
        3 => Just("\n".to_owned()),
        1 => Just("\r\n".to_owned()),
        1 => Just("é一😀".to_owned()),
        1 => Just("\u{2028}\u{85}\u{b}".to_owned()),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_greedy(text in any_text(), page_chars in 1_u32..30) {
        check(&text, page_chars);
    }

    #[test]
    fn lines_and_chars_are_those_of_the_model(text in any_text(), first in 0_u64..90, count in 0_u64..90) {
        check_ranges(&text, first, count);
    }

    #[test]
    fn an_extracted_part_equals_a_content_of_its_text(text in any_text(), first in 0_u64..90, count in 1_u64..90) {
        let content = Content::new(text);
        if let Some(slice) = content.unlimited_reader().chars(first, count).unwrap() {
            let part = content.unlimited_reader().extract(slice.bytes()).unwrap();
            prop_assert_eq!(part.unlimited_reader().text().unwrap(), &slice.text);
            prop_assert_eq!(part, Content::new(slice.text.to_string()));
        }
    }
}

#[test]
fn long_texts_are_indexed_across_blocks() {
    for line in ["short\n", "é😀 and more\n", "no line feed at all, é "] {
        let text = line.repeat(2500);
        let content = Content::new(text.clone());
        let chars: Vec<_> = text.char_indices().collect();
        for char in [0, 1, 4095, 4096, 4097, 8191, 12_000, chars.len() - 1] {
            let slice = content
                .unlimited_reader()
                .chars(char as u64, 3)
                .unwrap()
                .expect("it is within the text");
            assert_eq!(
                slice.text,
                chars[char..]
                    .iter()
                    .take(3)
                    .map(|(_, c)| c)
                    .collect::<String>()
            );
            assert_eq!(
                content.unlimited_reader().char_at(chars[char].0).unwrap(),
                char as u64
            );
        }
        for number in [1, 2, 700, 2499, 2500]
            .into_iter()
            .filter(|_| line.ends_with('\n'))
        {
            assert_eq!(
                content
                    .unlimited_reader()
                    .lines(number, 1)
                    .unwrap()
                    .expect("there are 2,500")
                    .text,
                line
            );
        }
        for page_chars in [1, 63, 64, 65, 4000, 1_000_000] {
            let pages: String = (1..=content.unlimited_reader().total_pages(page_chars).unwrap())
                .filter_map(|n| content.unlimited_reader().page(page_chars, n).unwrap())
                .map(|s| s.text.to_string())
                .collect();
            assert!(pages == text, "PAGE-1");
        }
    }
}

#[test]
fn bytes_are_kept_and_binary_is_shown_as_base64() {
    let bytes = [0x00, 0xff].repeat(40);
    let content = Content::new(bytes.clone());
    assert!(content.unlimited_reader().is_binary().unwrap());
    assert_eq!(content.unlimited_reader().bytes().unwrap(), &bytes);
    assert_eq!(
        content.unlimited_reader().text().unwrap(),
        STANDARD.encode(&bytes)
    );
    assert_eq!(
        (
            content.unlimited_reader().total_chars().unwrap(),
            content.unlimited_reader().total_lines().unwrap()
        ),
        (108, 1)
    );
    assert!(
        content
            .unlimited_reader()
            .extract(content.unlimited_reader().all().unwrap().bytes())
            .unwrap()
            .unlimited_reader()
            .is_binary()
            .unwrap(),
        "extracting the whole range returns the binary content"
    );
    let part = content
        .unlimited_reader()
        .page(8, 2)
        .unwrap()
        .expect("108 characters are more than 8");
    assert_eq!(
        content
            .unlimited_reader()
            .extract(part.bytes())
            .unwrap()
            .unlimited_reader()
            .bytes()
            .unwrap(),
        part.text.as_bytes()
    );
}

#[test]
fn an_extracted_part_shares_the_bytes() {
    let content = Content::new("0123456789".repeat(1000));
    let slice = content
        .unlimited_reader()
        .chars(5000, 10)
        .unwrap()
        .expect("there are 10,000");
    assert!(std::ptr::eq(
        content
            .unlimited_reader()
            .extract(slice.bytes())
            .unwrap()
            .unlimited_reader()
            .text()
            .unwrap()
            .as_ptr(),
        slice.text.as_ptr()
    ));
}

#[test]
fn the_debug_form_shows_no_content() {
    let content = Content::new("secret");
    assert_eq!(format!("{content:?}"), "Content { len: 6 }");
    let _ = content.hash();
    assert!(format!("{content:?}").starts_with("Content { len: 6, hash: "));
}

#[test]
fn the_index_takes_less_than_a_byte_a_line_and_16_bytes_a_page() {
    for character in ["a", "é", "一", "😀"] {
        let line = character.repeat(79) + "\n";
        let content = Content::new(line.repeat(10_000_000 / line.len()));
        let lines = content.unlimited_reader().total_lines().unwrap() as usize;
        assert!(
            content.index_bytes() < lines,
            "{} bytes for {lines} lines of {character}",
            content.index_bytes()
        );
        for page_chars in [4000, 8000] {
            let before = content.index_bytes();
            let pages = content.unlimited_reader().total_pages(page_chars).unwrap() as usize;
            let table = content.index_bytes() - before;
            assert!(
                (8 * pages..=16 * pages).contains(&table),
                "{table} bytes for {pages} pages of {character}"
            );
        }
    }
    let binary = Content::new(vec![0xff; 10_000]);
    assert_eq!(
        (
            binary.unlimited_reader().total_pages(10).unwrap(),
            binary.index_bytes()
        ),
        (1334, 0),
        "the pages of base64 are computed, without an index"
    );
}

#[test]
fn a_page_of_base64_tells_whether_pages_precede_or_follow_it() {
    let content = Content::new(vec![0xff; 30]);
    let sides = |page| {
        content
            .unlimited_reader()
            .page(16, page)
            .unwrap()
            .map(|slice| (slice.text.len(), slice.continued, slice.truncated))
    };
    let expected = [
        Some((16, false, true)),
        Some((16, true, true)),
        Some((8, true, false)),
        None,
    ];
    assert_eq!([1, 2, 3, 4].map(sides), expected);
}
