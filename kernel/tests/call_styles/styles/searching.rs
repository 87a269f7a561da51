//! Searching, and writing to a file.

use serde_json::{Value, json};

use super::super::{PATH, StyledCall};
use super::{descriptor_spellings, merged, of_tool};

pub(super) fn search(query: &str) -> Vec<StyledCall> {
    let of = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    let mut written = vec![
        ("own form", "", of(json!({ "query": query }))),
        (
            "nulls for what is left out",
            "'context'",
            of(json!({
                "query": query, "case_sensitive": null, "regex": null, "context": null,
                "start": null, "max_matches": null, "distinct": null, "pretty": null,
            })),
        ),
        (
            "pattern",
            "'query'",
            of(json!({ "pattern": regex::escape(query) })),
        ),
        (
            "case_sensitive as a string",
            "'case_sensitive'",
            of(json!({
                "query": query, "case_sensitive": "True",
            })),
        ),
        (
            "pattern of grep as query",
            "regex=true",
            of(json!({ "query": format!("{}|no such text", regex::escape(query)) })),
        ),
        (
            "ignore_case",
            "'case_sensitive'",
            of(json!({ "query": query, "ignore_case": false })),
        ),
        (
            "offset of a search",
            "'start'",
            of(json!({ "query": query, "offset": 0 })),
        ),
        (
            "regex holds the text",
            "'regex' must be true or false",
            of(json!({ "regex": query })),
        ),
        (
            "grep's options",
            "'case_sensitive'",
            of(json!({ "query": query, "-i": false })),
        ),
        (
            "line_numbers",
            "leave it out",
            of(json!({ "query": query, "line_numbers": true })),
        ),
    ];
    let names = [
        "text",
        "search",
        "keyword",
        "search_term",
        "searchText",
        "q",
    ];
    written.extend(names.map(|key| {
        (
            "query under another name",
            "'query'",
            of(json!({ key: query })),
        )
    }));
    written.extend(descriptor_spellings(&json!({ "query": query })));
    of_tool("search_fd", written)
}

pub(super) fn search_some(query: &str, most: u64) -> Vec<StyledCall> {
    let of = |more: Value| merged(json!({ "fd": "fd:1", "query": query }), more);
    let mut written = vec![
        ("own form", "", of(json!({ "max_matches": most }))),
        (
            "numbers as strings",
            "'max_matches'",
            of(json!({ "max_matches": most.to_string() })),
        ),
        (
            "pattern, path and head_limit",
            "'query'",
            json!({ "pattern": regex::escape(query), "path": PATH, "head_limit": most }),
        ),
        (
            "context_lines",
            "'context'",
            of(json!({ "max_matches": most, "context_lines": 0 })),
        ),
        (
            "context of grep",
            "'context'",
            of(json!({ "max_matches": most, "-C": 0 })),
        ),
        (
            "lines after",
            "'context'",
            of(json!({ "max_matches": most, "-A": 0 })),
        ),
    ];
    let names = ["max_results", "limit", "max", "maxResults"];
    written.extend(names.map(|key| {
        (
            "limit of a search",
            "'max_matches'",
            of(json!({ key: most })),
        )
    }));
    of_tool("search_fd", written)
}

pub(super) fn export(path: &str) -> Vec<StyledCall> {
    let of = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    let mut written = vec![
        ("own form", "", of(json!({ "file_path": path }))),
        (
            "nulls for what is left out",
            "'page'",
            of(json!({
                "file_path": path, "mode": "write", "insert_at_line": null, "create": true,
                "exist_ok": true, "page": null, "start_line": null, "end_line": null,
                "select": null, "start": null, "count": null, "unit": null, "index": null,
                "name": null, "read_all": null, "pretty": null,
            })),
        ),
        (
            "mode of open",
            "write, append, insert",
            of(json!({ "file_path": path, "mode": "w" })),
        ),
        (
            "overwrite",
            "'exist_ok'",
            of(json!({ "file_path": path, "overwrite": true })),
        ),
        (
            "append as a flag",
            "'mode'",
            of(json!({ "file_path": path, "append": false })),
        ),
    ];
    let names = [
        "path",
        "file",
        "filename",
        "filePath",
        "output_path",
        "destination",
    ];
    written.extend(names.map(|key| {
        (
            "file_path under another name",
            "'file_path'",
            of(json!({ key: path })),
        )
    }));
    of_tool("fd_to_file", written)
}

pub(super) fn export_lines(first: u64, last: u64) -> Vec<StyledCall> {
    let count = last - first + 1;
    let of = |more: Value| merged(json!({ "fd": "fd:1", "file_path": "out.txt" }), more);
    of_tool(
        "fd_to_file",
        [
            (
                "own form",
                "",
                of(json!({ "start_line": first, "end_line": last })),
            ),
            (
                "offset and limit",
                "'start_line'",
                of(json!({ "offset": first, "limit": count })),
            ),
            (
                "start_line and count",
                "'end_line'",
                of(json!({ "start_line": first, "count": count })),
            ),
            (
                "lines as in answers",
                "'start_line'",
                of(json!({ "lines": format!("{first}-{last}") })),
            ),
            (
                "mode of read_fd",
                "'select'",
                of(json!({ "mode": "line", "start": first, "count": count })),
            ),
            (
                "mode beside select",
                "'select'",
                of(json!({ "mode": "write", "select": "lines", "start": first, "count": count })),
            ),
            (
                "insert_line",
                "'insert_at_line'",
                of(json!({ "start_line": first, "end_line": last, "insert_line": 1 })),
            ),
        ],
    )
}
