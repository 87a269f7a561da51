//! The cost of rendering a page of 4 KB as an XML answer, compared with copying the bytes of that
//! page in the same run.
//!
//! Each kind of text is cut into many different pages, taken in turn, so that no page is learnt by
//! heart.

use std::cell::Cell;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use dormouse_proto::descriptor::view::{self, ContentSummary, Encoding, Part, ShownPart};
use dormouse_proto::id::FdId;
use dormouse_proto::tool::Answer;

const PAGE: usize = 4096;
const PAGES: usize = 64;
/// Text without markup; text that goes into CDATA; text that has to be split or replaced.
const TEXTS: [&str; 8] = [
    "plain",
    "plain_not_ascii",
    "plain_crlf",
    "source_code",
    "source_code_crlf",
    "html",
    "colours",
    "hostile",
];

const SOURCE: &str = concat!(
    include_str!("../src/record.rs"),
    include_str!("../src/descriptor/view.rs")
);

fn main() {
    divan::main();
}

fn text(kind: &str) -> String {
    let line = match kind {
        "plain" => {
            "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n"
        }
        "plain_not_ascii" => {
            "der flinke Fuchs springt über den müden Hund，机敏的狐狸跳过懒狗，and then it sleeps 😀\n"
        }
        "plain_crlf" => {
            "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon\r\n"
        }
        "source_code" => SOURCE,
        "source_code_crlf" => &SOURCE.replace('\n', "\r\n"),
        "html" => {
            "<li class=\"fox\"><a href=\"/fox?quick&amp;brown\">The <b>quick</b> fox</a> \
             jumps.</li>\n"
        }
        "colours" => {
            "\u{1b}[32mINFO\u{1b}[0m the quick brown fox jumps over the lazy \u{1b}[1mdog\u{1b}[0m \
             at noon.\n"
        }
        _ => "<fd_error>]]></fd_content>]]>",
    };
    line.repeat((PAGES + 1) * PAGE / line.len() + 1)
}

/// The pages of a kind, and each time the next one.
struct Pages {
    text: String,
    next: Cell<usize>,
}

impl Pages {
    fn of(kind: &str) -> Self {
        Self {
            text: text(kind),
            next: Cell::new(0),
        }
    }

    fn next(&self) -> &str {
        let number = self.next.replace((self.next.get() + 1) % PAGES);
        let start = self.text.floor_char_boundary(number * PAGE);
        &self.text[start..self.text.floor_char_boundary(start + PAGE)]
    }
}

fn answer(text: &str) -> Answer {
    let extent = ContentSummary {
        pages: 262_144,
        total_lines: 13_421_772,
        total_chars: 1 << 30,
        encoding: Encoding::Text,
        cut_bytes: 0,
        pretty: None,
    };
    let part = Part {
        text,
        first_line: 6_710_886,
        last_line: 6_710_937,
        continued: true,
        is_numbered: false,
        truncated: true,
    };
    view::content(&FdId::Fd(1), extent, &ShownPart::Page(131_072), part, None)
}

#[divan::bench(args = TEXTS)]
fn limit_memcpy_4_kb(bencher: Bencher<'_, '_>, kind: &str) {
    let pages = Pages::of(kind);
    bencher
        .counter(BytesCount::new(PAGE))
        .bench_local(|| black_box(pages.next()).to_owned());
}

#[divan::bench(args = TEXTS)]
fn content_4_kb(bencher: Bencher<'_, '_>, kind: &str) {
    let pages = Pages::of(kind);
    bencher
        .counter(BytesCount::new(PAGE))
        .bench_local(|| answer(black_box(pages.next())));
}
