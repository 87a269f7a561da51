//! The styles: how models write what a tool of ours takes in its own form.
//!
//! Where a style comes from: view ranges, `offset` with `limit`, `line_number` and `file_text` from
//! recorded runs of coding agents and the tools that models are trained on; explicit nulls for all
//! optional parameters, and numbers as strings, from recorded traffic with providers.

mod marking;
mod reading;
mod searching;

use serde_json::{Value, json};

use super::{Intent, PATH, StyledCall};

/// The calls of an intent: the first is in the tool's own form.
pub(super) fn calls(intent: &Intent) -> Vec<StyledCall> {
    match intent {
        Intent::ReadLines { first, last } => reading::read_lines(*first, *last),
        Intent::ReadFrom { first } => reading::read_from(*first),
        Intent::ReadPage { page } => reading::read_page(*page),
        Intent::ReadPages { first, last } => reading::read_pages(*first, *last),
        Intent::ReadAll => reading::read_all(),
        Intent::Search { query } => searching::search(query),
        Intent::SearchSome { query, most } => searching::search_some(query, *most),
        Intent::Export { path } => searching::export(path),
        Intent::ExportLines { first, last } => searching::export_lines(*first, *last),
        Intent::Mark { first, last } => marking::mark(*first, *last),
        Intent::Section => marking::section(),
        Intent::Rename { name } => marking::rename(name),
        Intent::Compare => marking::compare(),
        Intent::Keep { text } => marking::keep(text),
    }
}

/// A style, the hint that would name its fix, and the arguments.
type Written = (&'static str, &'static str, Value);

fn of_tool(tool: &'static str, written: impl IntoIterator<Item = Written>) -> Vec<StyledCall> {
    written
        .into_iter()
        .map(|(style, fix, arguments)| StyledCall {
            style,
            tool,
            arguments,
            fix,
        })
        .collect()
}

/// Each way to name the descriptor, for one set of other arguments.
fn descriptor_spellings(others: &Value) -> Vec<Written> {
    let with = |key: &str, fd: Value| {
        let mut arguments = others.clone();
        arguments[key] = fd;
        arguments
    };
    let mut written: Vec<Written> = ["fd_1", "fd1", "FD:1", " fd:1 ", "fd 1", "fd: 1", "[fd:1]"]
        .map(|fd| ("fd in another spelling", "\"fd:1\"", with("fd", json!(fd))))
        .into();
    written.extend([
        ("fd as a number", "Did you mean fd:1?", with("fd", json!(1))),
        ("fd as digits", "Did you mean fd:1?", with("fd", json!("1"))),
        (
            "fd in a list",
            "'fd' must be a string",
            with("fd", json!(["fd:1"])),
        ),
        ("fd by its path", "fd:1", with("fd", json!(PATH))),
        ("path in place of fd", "'fd'", with("path", json!(PATH))),
        (
            "file_path holds the fd",
            "'fd'",
            with("file_path", json!("fd:1")),
        ),
    ]);
    let names = ["fd_id", "file_descriptor", "descriptor", "id", "fdId"];
    written.extend(names.map(|key| ("fd under another name", "'fd'", with(key, json!("fd:1")))));
    written
}

/// The fields of two objects.
fn merged(mut base: Value, more: Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    base
}
