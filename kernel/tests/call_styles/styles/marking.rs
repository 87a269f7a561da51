//! Marks, names, differences and temporary files.

use serde_json::{Value, json};

use super::super::StyledCall;
use super::{descriptor_spellings, merged, of_tool};

pub(super) fn mark(first: u64, last: u64) -> Vec<StyledCall> {
    let of = |more: Value| {
        merged(
            json!({ "fd": "fd:1", "start_line": first, "end_line": last }),
            more,
        )
    };
    let by = |more: Value| merged(json!({ "fd": "fd:1", "ref_id": "here" }), more);
    let mut written = vec![
        ("own form", "", of(json!({ "ref_id": "here" }))),
        (
            "numbers as strings",
            "'start_line'",
            by(json!({
                "start_line": first.to_string(), "end_line": last.to_string(),
            })),
        ),
        (
            "view_range",
            "'start_line'",
            by(json!({ "view_range": [first, last] })),
        ),
        (
            "lines as in answers",
            "'start_line'",
            by(json!({ "lines": format!("{first}-{last}") })),
        ),
        (
            "start_line and count",
            "'end_line'",
            by(json!({ "start_line": first, "count": last - first + 1 })),
        ),
    ];
    let names = ["name", "id", "section", "section_id", "label", "refId"];
    written.extend(names.map(|key| {
        (
            "ref_id under another name",
            "'ref_id'",
            of(json!({ key: "here" })),
        )
    }));
    of_tool("mark_fd_section", written)
}

pub(super) fn section() -> Vec<StyledCall> {
    let of = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    let names = ["name", "id", "section", "section_id", "ref", "refId"];
    let mut written = vec![("own form", "", of(json!({ "ref_id": "bug" })))];
    written.extend(names.map(|key| {
        (
            "ref_id under another name",
            "'ref_id'",
            of(json!({ key: "bug" })),
        )
    }));
    of_tool("get_fd_section", written)
}

pub(super) fn rename(name: &str) -> Vec<StyledCall> {
    let mut written = vec![
        ("own form", "", json!({ "fd": "fd:1", "name": name })),
        (
            "new_name",
            "'name'",
            json!({ "fd": "fd:1", "new_name": name }),
        ),
    ];
    written.extend(descriptor_spellings(&json!({ "name": name })));
    of_tool("rename_fd", written)
}

pub(super) fn compare() -> Vec<StyledCall> {
    let names = [
        ("fd1", "fd2"),
        ("fd_a", "fd_b"),
        ("old", "new"),
        ("left", "right"),
        ("from", "to"),
    ];
    let mut written = vec![
        ("own form", "", json!({ "a": "fd:1", "b": "fd:2" })),
        (
            "fds as numbers",
            "Did you mean fd:1?",
            json!({ "a": 1, "b": 2 }),
        ),
    ];
    written.extend(names.map(|(a, b)| {
        (
            "a and b under other names",
            "'a'",
            json!({ a: "fd:1", b: "fd:2" }),
        )
    }));
    of_tool("diff_fd", written)
}

pub(super) fn keep(text: &str) -> Vec<StyledCall> {
    let names = ["text", "file_text", "contents", "data", "body"];
    let mut written = vec![
        ("own form", "", json!({ "content": text })),
        (
            "nulls for what is left out",
            "'fd'",
            json!({ "content": text, "fd": null }),
        ),
    ];
    written.extend(names.map(|key| {
        (
            "content under another name",
            "'content'",
            json!({ key: text }),
        )
    }));
    let mut calls = of_tool("create_temp_file", written);
    calls.push(StyledCall {
        style: "a path for a file without one",
        tool: "create_temp_file",
        arguments: json!({ "content": text, "path": "notes.md" }),
        fix: "accepts: content, fd.",
    });
    calls
}
