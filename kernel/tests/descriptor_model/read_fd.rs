//! Every form of `read_fd`, from JSON arguments to XML answers, against a slow and obvious model.

use super::model::{
    Model, Selection, answer, any_selection, any_text, call, error_type, table, text_of,
};
use dormouse_kernel::syscall::{Outcome, read_fd};
use dormouse_kernel::table::Table;
use proptest::prelude::*;
use roxmltree::Document;
use serde_json::{Value, json};

const UNBOUNDED: u64 = 100_000;

/// What an answer shows, and the arguments that it says to go on with.
fn read(xml: &str) -> (String, Option<Value>) {
    let document = Document::parse(xml).expect("XML-1");
    let root = document.root_element();
    assert!(root.has_tag_name("fd_content"), "{xml}");
    let number = |key| {
        root.attribute(key)
            .and_then(|value| value.parse::<u64>().ok())
            .expect("a number")
    };
    let next = root
        .attribute("next_mode")
        .map(|mode| json!({"fd": "fd:1", "mode": mode, "start": number("next_start"), "count": number("next_count")}));
    assert_eq!(
        root.attribute("complete"),
        next.is_some().then_some("false"),
        "{xml}"
    );
    (text_of(root), next)
}

/// Reads and goes on as the answers say. No answer shows more than it may, nor less: what it leaves
/// would not have fit.
fn follow(table: &Table, model: &Model, mut args: Value, max_read_chars: u64) -> String {
    let mut joined = String::new();
    loop {
        let (text, next) = read(&answer(call(
            read_fd::read_fd,
            table,
            &args,
            max_read_chars,
        )));
        let chars = text.chars().count();
        let bound = max_read_chars.max(1) as usize;
        assert!(chars <= bound, "{chars} of {bound}: {args}");
        joined += &text;
        let Some(next) = next else { return joined };
        assert!(
            chars > 0 && chars + next_unit(model, &next).chars().count() > bound,
            "{chars} of {bound}: {args}"
        );
        args = next;
    }
}

fn next_unit(model: &Model, next: &Value) -> String {
    let start = next["start"].as_u64().expect("a number") as usize;
    match next["mode"].as_str() {
        Some("page") => model.pages()[start - 1].clone(),
        Some("line") => model.lines()[start - 1].clone(),
        _ => model.chars()[start].clone(),
    }
}

/// The kind of error that a form answers with when it is out of range.
fn refusal(selection: Selection, model: &Model) -> &'static str {
    match selection {
        Selection::Page(_) => "invalid_page",
        Selection::Pages(start, _) if model.select(Selection::Page(start)).is_none() => {
            "invalid_page"
        }
        _ => "invalid_range",
    }
}

/// Lines, and whether the part begins or ends inside of one, as the model sees where `part` stands
/// in the text.
fn stands_where_it_says(xml: &str, text: &str, at: usize, part: &str) {
    let document = Document::parse(xml).expect("XML-1");
    let end = at + part.len();
    let line_of = |byte: usize| 1 + text[..byte].matches('\n').count();
    let last = part.char_indices().last().map_or(at, |(last, _)| at + last);
    let attribute = |key| document.root_element().attribute(key).map(str::to_owned);
    assert_eq!(
        attribute("lines"),
        Some(format!("{}-{}", line_of(at), line_of(last))),
        "{xml}"
    );
    let continued = at > 0 && !text[..at].ends_with('\n');
    let truncated = end < text.len() && !text[..end].ends_with('\n');
    assert_eq!(
        attribute("continued").as_deref() == Some("true"),
        continued,
        "{xml}"
    );
    assert_eq!(
        attribute("truncated").as_deref() == Some("true"),
        truncated,
        "{xml}"
    );
}

fn start_of(selection: Selection, model: &Model) -> usize {
    let before = |units: Vec<String>, count: usize| units[..count].concat().len();
    match selection {
        Selection::Nothing | Selection::All | Selection::LinesTo(_) => 0,
        Selection::Page(start) | Selection::Pages(start, _) => before(model.pages(), start - 1),
        Selection::Lines(start, _)
        | Selection::LineRange(start, _)
        | Selection::LinesFrom(start) => before(model.lines(), start - 1),
        Selection::Chars(start, _) => before(model.chars(), start),
    }
}

fn check(text: &str, page_chars: u32, selection: Selection) {
    let (table, model) = (table(text, page_chars), Model::new(text, page_chars));
    let args = selection.args("mode");
    let xml = answer(call(read_fd::read_fd, &table, &args, UNBOUNDED));
    let Some(expected) = model.select(selection) else {
        return assert_eq!(
            error_type(&xml).as_deref(),
            Some(refusal(selection, &model)),
            "{args}: {xml}"
        );
    };
    assert_eq!(read(&xml), (expected.clone(), None), "{args}");
    stands_where_it_says(&xml, text, start_of(selection, &model), &expected);
    let totals = [
        ("pages", model.pages().len()),
        ("total_lines", model.lines().len()),
    ];
    let document = Document::parse(&xml).expect("XML-1");
    for (key, total) in totals {
        assert_eq!(
            document.root_element().attribute(key),
            Some(&*total.to_string()),
            "{xml}"
        );
    }
}

fn check_extraction(text: &str, page_chars: u32, selection: Selection) {
    let (table, model) = (table(text, page_chars), Model::new(text, page_chars));
    let mut args = selection.args("mode");
    args["extract_to_new_fd"] = true.into();
    let outcome = call(read_fd::read_fd, &table, &args, 1);
    match (outcome, model.select(selection)) {
        (Outcome::Opened(extracted), Some(expected)) => {
            let (entry, answer) = (&extracted.entry, extracted.answer(&table.next_id()));
            assert_eq!(entry.page_chars, page_chars);
            assert_eq!(
                *entry
                    .content
                    .unlimited_reader()
                    .text()
                    .expect("it is in memory"),
                *expected,
                "{args}"
            );
            assert!(error_type(&answer.text).is_none());
        }
        (outcome, expected) => {
            assert_eq!(expected, None, "{args}");
            assert_eq!(
                error_type(&answer(outcome)).as_deref(),
                Some(refusal(selection, &model)),
                "{args}"
            );
        }
    }
}

fn check_bounded(text: &str, page_chars: u32, selection: Selection, max_read_chars: u64) {
    let (table, model) = (table(text, page_chars), Model::new(text, page_chars));
    if let Some(expected) = model.select(selection) {
        let read = follow(&table, &model, selection.args("mode"), max_read_chars);
        assert_eq!(read, expected, "{selection:?} {max_read_chars}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn each_form_shows_what_the_model_selects(
        text in any_text(), page_chars in 1_u32..30, selection in any_selection(),
    ) {
        check(&text, page_chars, selection);
    }

    #[test]
    fn an_extraction_holds_what_reading_shows(
        text in any_text(), page_chars in 1_u32..30, selection in any_selection(),
    ) {
        check_extraction(&text, page_chars, selection);
    }

    #[test]
    fn following_bounded_answers_shows_exactly_what_was_asked_for(
        text in any_text(), page_chars in 1_u32..30, selection in any_selection(), max_read_chars in 0_u64..60,
    ) {
        check_bounded(&text, page_chars, selection, max_read_chars);
    }
}
