//! Calls in the styles in which recorded models write arguments.
//!
//! A wish, such as reading lines 10 to 20, is written in the tool's own form and in each style. The
//! answer to a style is the answer to the tool's own form (the call was taken as meant), or an
//! error that names the fix, or neither, which must not happen. The styles are cases of this test;
//! the wishes are those of recorded runs, where they are present, and some of its own.

mod recorded;
mod styles;

use std::collections::BTreeMap;

use dormouse_content::Content;
use dormouse_kernel::syscall::{Call, Outcome, tool};
use dormouse_kernel::table::Table;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::id::FdId;
use dormouse_proto::record::{Annotation, Entry, Section};
use dormouse_proto::tool::Answer;
use regex::Regex;
use serde_json::Value;

use crate::skip::skip;

/// More lines than any recorded call asks for.
const LINES: usize = 9_000;

/// The path that `fd:1` came from.
const PATH: &str = "src/sample.py";

/// What a model wants of a tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Intent {
    ReadLines { first: u64, last: u64 },
    ReadFrom { first: u64 },
    ReadPage { page: u64 },
    ReadPages { first: u64, last: u64 },
    ReadAll,
    Search { query: String },
    SearchSome { query: String, most: u64 },
    Export { path: String },
    ExportLines { first: u64, last: u64 },
    Mark { first: u64, last: u64 },
    Section,
    Rename { name: String },
    Compare,
    Keep { text: String },
}

/// The styles that are answered with a hint, since they could mean something else. All others are
/// taken.
const HINTED: [&str; 20] = [
    "a path for a file without one",
    "append as a flag",
    "defaults for what is left out",
    "end_line -1",
    "everything at once",
    "fd and part in one text",
    "fd as a number",
    "fd as digits",
    "fd in a list",
    "fds as numbers",
    "flags as numbers",
    "insert_line",
    "lines after",
    "mode of read_fd",
    "offset of a search",
    "page all as in answers",
    "page as in answers",
    "pattern of grep as query",
    "regex holds the text",
    "start and end",
];

/// A call that writes an intent in one style.
struct StyledCall {
    style: &'static str,
    tool: &'static str,
    arguments: Value,
    /// What an error has to say to be the right hint.
    fix: &'static str,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answered {
    Taken,
    Hinted,
    Neither,
}

/// Wishes of this test, so that each kind occurs without recordings.
fn own_intents() -> Vec<Intent> {
    vec![
        Intent::ReadLines {
            first: 10,
            last: 20,
        },
        Intent::ReadLines { first: 1, last: 1 },
        Intent::ReadFrom { first: 8_990 },
        Intent::ReadPage { page: 2 },
        Intent::ReadPages { first: 2, last: 4 },
        Intent::ReadAll,
        Intent::Search {
            query: "needle".to_owned(),
        },
        Intent::SearchSome {
            query: "needle".to_owned(),
            most: 3,
        },
        Intent::Export {
            path: "out.txt".to_owned(),
        },
        Intent::ExportLines { first: 3, last: 5 },
        Intent::Mark { first: 3, last: 5 },
        Intent::Section,
        Intent::Rename {
            name: "log".to_owned(),
        },
        Intent::Compare,
        Intent::Keep {
            text: "kept".to_owned(),
        },
    ]
}

#[test]
fn a_call_in_a_recorded_style_is_taken_or_answered_with_the_fix() {
    let mut intents = own_intents();
    match recorded::intents() {
        Some(recorded) => intents.extend(recorded),
        None => skip(
            "recordings",
            "there are no recordings; own wishes are used alone",
        ),
    }
    let table = table(&intents);
    let mut counts: BTreeMap<Answered, usize> = BTreeMap::new();
    let mut by_style: BTreeMap<&str, BTreeMap<Answered, usize>> = BTreeMap::new();
    let mut examples = BTreeMap::new();
    for intent in &intents {
        let mut calls = styles::calls(intent);
        let own_form = calls.remove(0);
        let expected = outcome(&table, &own_form);
        assert!(
            !expected.answer().is_some_and(|answer| answer.is_error),
            "{}: {expected:?}",
            own_form.arguments
        );
        for call in calls {
            let found = outcome(&table, &call);
            let answered = answered(&expected, &found, call.fix);
            *counts.entry(answered).or_default() += 1;
            *by_style
                .entry(call.style)
                .or_default()
                .entry(answered)
                .or_default() += 1;
            if answered == Answered::Neither {
                examples.entry(call.style).or_insert_with(|| {
                    format!("{} {}\n    {}", call.tool, call.arguments, shown(&found))
                });
            }
        }
    }
    eprintln!("{} wishes: {counts:?}", intents.len());
    for (style, counts) in &by_style {
        eprintln!("  {style}: {counts:?}");
    }
    let hinted = by_style
        .iter()
        .filter(|(_, counts)| counts.contains_key(&Answered::Hinted));
    assert_eq!(hinted.map(|(style, _)| *style).collect::<Vec<_>>(), HINTED);
    assert!(
        examples.is_empty(),
        "neither taken nor hinted: {}",
        examples
            .iter()
            .map(|(style, example)| format!("\n{style}: {example}"))
            .collect::<String>()
    );
}

/// A table with what the intents search for, on lines of their own.
fn table(intents: &[Intent]) -> Table {
    let queries: Vec<_> = intents
        .iter()
        .filter_map(|intent| match intent {
            Intent::Search { query } | Intent::SearchSome { query, .. } => Some(query.as_str()),
            _ => None,
        })
        .collect();
    let lines = (0..LINES).map(|line| format!("{line} {}\n", queries[line % queries.len()]));
    let mut table = Table::new();
    for (text, source) in [
        (lines.collect::<String>(), format!("file:{PATH}")),
        ("another\n".to_owned(), "tool:grep".to_owned()),
    ] {
        let entry = Entry::new(Content::new(text), 4_000, source, 0);
        table.insert(table.next_id(), entry);
    }
    let section = Section {
        start_line: 7,
        end_line: 9,
    };
    table.annotate(
        &FdId::Fd(1),
        &Annotation::Marked {
            ref_id: "bug".into(),
            section,
        },
    );
    table
}

fn outcome(table: &Table, call: &StyledCall) -> Outcome {
    let arguments = call.arguments.to_string();
    let settings = DescriptorSettings::default();
    tool(call.tool)
        .unwrap()
        .call(&Call::unlimited(table, &arguments, &settings, 0))
        .unwrap()
}

fn answered(expected: &Outcome, found: &Outcome, fix: &str) -> Answered {
    if has_same_effect(expected, found) {
        Answered::Taken
    } else if found.answer().is_some_and(|answer| gives_hint(answer, fix)) {
        Answered::Hinted
    } else {
        Answered::Neither
    }
}

/// Whether an answer names the fix: in an error, or in the opening tag of an answer.
fn gives_hint(answer: &Answer, fix: &str) -> bool {
    let opening = answer.text.split('>').next().unwrap_or_default();
    opening.contains(fix) || answer.is_error && answer.text.contains(fix)
}

/// Whether two calls have the same effect, however they name the descriptor and write the query.
fn has_same_effect(a: &Outcome, b: &Outcome) -> bool {
    match (a, b) {
        (Outcome::Write(a), Outcome::Write(b)) => (&a.write, &a.fd) == (&b.write, &b.fd),
        (Outcome::TempFile(a), Outcome::TempFile(b)) => a.op == b.op,
        (Outcome::Answer(a), Outcome::Answer(b)) => {
            a.is_error == b.is_error && without_query(&a.text) == without_query(&b.text)
        }
        _ => a == b,
    }
}

fn without_query(answer: &str) -> String {
    let query = Regex::new(r#" query="[^"]*""#).unwrap();
    query.replace(answer, "").into_owned()
}

fn shown(outcome: &Outcome) -> String {
    let text = match outcome.answer() {
        Some(answer) => answer.text.to_string(),
        None => format!("{outcome:?}"),
    };
    text.chars().take(400).collect()
}
