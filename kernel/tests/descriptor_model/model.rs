//! A slow and obvious model of a content, texts and selections to try, and calls.

use dormouse_content::Content;
use dormouse_kernel::syscall::{Call, Outcome, Syscall};
use dormouse_kernel::table::Table;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::record::Entry;
use proptest::prelude::*;
use roxmltree::{Document, Node};
use serde_json::{Value, json};

/// The rules of pages, lines and characters, written down once more.
pub(crate) struct Model {
    chars: Vec<char>,
    page_chars: usize,
}

impl Model {
    pub(crate) fn new(text: &str, page_chars: u32) -> Self {
        Self {
            chars: text.chars().collect(),
            page_chars: page_chars as usize,
        }
    }

    /// Greedily: so many characters, cut after the last LF if there is one and more text follows.
    pub(crate) fn pages(&self) -> Vec<String> {
        let (mut pages, mut left) = (Vec::new(), &self.chars[..]);
        while left.len() > self.page_chars {
            let feed = left[..self.page_chars].iter().rposition(|c| *c == '\n');
            let (page, rest) = left.split_at(feed.map_or(self.page_chars, |at| at + 1));
            pages.push(page.iter().collect());
            left = rest;
        }
        pages.push(left.iter().collect());
        pages
    }

    /// Only LF ends a line; a final LF opens no further one; empty text is one line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines: Vec<String> = self
            .chars
            .split_inclusive(|c| *c == '\n')
            .map(|line| line.iter().collect())
            .collect();
        if lines.is_empty() {
            vec![String::new()]
        } else {
            lines
        }
    }

    pub(crate) fn chars(&self) -> Vec<String> {
        self.chars.iter().map(char::to_string).collect()
    }

    /// What a selection gives; none if it is out of range.
    pub(crate) fn select(&self, selection: Selection) -> Option<String> {
        let counted = |units: Vec<String>, first: usize, count: usize| {
            let after = first.saturating_add(count).min(units.len());
            (first < units.len() && count > 0).then(|| units[first..after].concat())
        };
        match selection {
            Selection::Nothing => counted(self.pages(), 0, 1),
            Selection::All => Some(self.chars.iter().collect()),
            Selection::Page(page) => counted(self.pages(), page.checked_sub(1)?, 1),
            Selection::Pages(start, count) => counted(self.pages(), start.checked_sub(1)?, count),
            Selection::Lines(start, count) => counted(self.lines(), start.checked_sub(1)?, count),
            Selection::LineRange(first, last) => counted(
                self.lines(),
                first.checked_sub(1)?,
                (last + 1).checked_sub(first)?,
            ),
            Selection::LinesFrom(first) => counted(self.lines(), first.checked_sub(1)?, usize::MAX),
            Selection::LinesTo(last) => counted(self.lines(), 0, last),
            Selection::Chars(0, 1..) if self.chars.is_empty() => Some(String::new()),
            Selection::Chars(start, count) => counted(self.chars(), start, count),
        }
    }
}

/// The forms that `read_fd` and `fd_to_file` share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection {
    Nothing,
    All,
    Page(usize),
    Pages(usize, usize),
    Lines(usize, usize),
    LineRange(usize, usize),
    LinesFrom(usize),
    LinesTo(usize),
    Chars(usize, usize),
}

impl Selection {
    /// The arguments, with `fd` among them. `unit_key` names the unit of `start` and `count`.
    pub(crate) fn args(self, unit_key: &str) -> Value {
        let counted =
            |unit: &str, start, count| json!({unit_key: unit, "start": start, "count": count});
        let mut args = match self {
            Self::Nothing => json!({}),
            Self::All => json!({"read_all": true}),
            Self::Page(page) => json!({"page": page}),
            Self::Pages(start, count) => counted("page", start, count),
            Self::Lines(start, count) => counted("line", start, count),
            Self::LineRange(first, last) => json!({"start_line": first, "end_line": last}),
            Self::LinesFrom(first) => json!({"start_line": first}),
            Self::LinesTo(last) => json!({"end_line": last}),
            Self::Chars(start, count) => counted("char", start, count),
        };
        args["fd"] = "fd:1".into();
        args
    }
}

/// Every form, in and out of the range of small texts.
pub(crate) fn any_selection() -> impl Strategy<Value = Selection> {
    let number = || prop_oneof![4 => 0..6_usize, 1 => 0..70_usize];
    prop_oneof![
        Just(Selection::Nothing),
        Just(Selection::All),
        number().prop_map(Selection::Page),
        (number(), number()).prop_map(|(start, count)| Selection::Pages(start, count)),
        (number(), number()).prop_map(|(start, count)| Selection::Lines(start, count)),
        (number(), number()).prop_map(|(first, last)| Selection::LineRange(first, last)),
        number().prop_map(Selection::LinesFrom),
        number().prop_map(Selection::LinesTo),
        (0..70_usize, number()).prop_map(|(start, count)| Selection::Chars(start, count)),
    ]
}

/// Texts with CRLF, without a final LF, with characters of several bytes, empty ones, and single
/// long lines.
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-c]{1,9}",
        3 => Just("\n".to_owned()),
        1 => Just("\r\n".to_owned()),
        1 => Just("é一😀".to_owned()),
        1 => Just("<&]]>\u{2028}".to_owned()),
    ];
    prop_oneof![
        8 => prop::collection::vec(piece, 0..25).prop_map(|pieces| pieces.concat()),
        1 => Just(String::new()),
        1 => "[ab😀]{60,300}",
    ]
}

/// The text of an element, with the line ends that the element states.
pub(crate) fn text_of(node: Node<'_, '_>) -> String {
    let text: String = node.children().filter_map(|child| child.text()).collect();
    match node.attribute("line_ending") {
        Some("crlf") => text.replace('\n', "\r\n"),
        _ => text,
    }
}

/// A table with this text as `fd:1`.
pub(crate) fn table(text: &str, page_chars: u32) -> Table {
    let entry = Entry::new(Content::new(text.to_owned()), page_chars, "tool:t", 0);
    let mut table = Table::new();
    table.insert(table.next_id(), entry);
    table
}

/// Calls a tool that may show so many characters.
pub(crate) fn call(tool: Syscall, table: &Table, args: &Value, max_read_chars: u64) -> Outcome {
    let settings = DescriptorSettings {
        max_read_chars,
        ..DescriptorSettings::default()
    };
    tool(&Call::unlimited(table, &args.to_string(), &settings, 0))
}

/// The XML of what is no more than an answer.
pub(crate) fn answer(outcome: Outcome) -> String {
    match outcome {
        Outcome::Answer(answer) => answer.text.to_string(),
        other => panic!("it only answers: {other:?}"),
    }
}

/// The type of an error; none of any other answer.
pub(crate) fn error_type(xml: &str) -> Option<String> {
    let document = Document::parse(xml).expect("XML-1");
    let root = document.root_element();
    root.has_tag_name("fd_error")
        .then(|| root.attribute("type").expect("a type").to_owned())
}
