//! Reading a part.

use serde_json::{Value, json};

use super::super::StyledCall;
use super::{descriptor_spellings, merged, of_tool};

pub(super) fn read_lines(first: u64, last: u64) -> Vec<StyledCall> {
    let count = last - first + 1;
    let lines = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    let mut written = vec![
        (
            "own form",
            "",
            lines(json!({ "start_line": first, "end_line": last })),
        ),
        (
            "nulls for what is left out",
            "'page'",
            lines(json!({
                "page": null, "start_line": first, "end_line": last, "mode": null, "start": null,
                "count": null, "unit": null, "index": null, "name": null, "read_all": null,
                "extract_to_new_fd": false, "pretty": null,
            })),
        ),
        (
            "defaults for what is left out",
            "'page' and 'start_line' cannot be combined",
            lines(json!({ "page": 1, "start_line": first, "end_line": last, "read_all": false })),
        ),
        (
            "numbers as strings",
            "'start_line'",
            lines(json!({ "start_line": first.to_string(), "end_line": last.to_string() })),
        ),
        (
            "numbers as floats",
            "'start_line'",
            lines(json!({ "start_line": first as f64, "end_line": last as f64 })),
        ),
        (
            "offset and limit",
            "'start_line'",
            lines(json!({ "offset": first, "limit": count })),
        ),
        (
            "offset and limit as strings",
            "'start_line'",
            lines(json!({ "offset": first.to_string(), "limit": count.to_string() })),
        ),
        (
            "start_line and count",
            "'end_line'",
            lines(json!({ "start_line": first, "count": count })),
        ),
        (
            "start_line and limit",
            "'end_line'",
            lines(json!({ "start_line": first, "limit": count })),
        ),
        (
            "view_range",
            "'start_line'",
            lines(json!({ "view_range": [first, last] })),
        ),
        (
            "view_range as a string",
            "'start_line'",
            lines(json!({ "view_range": format!("[{first}, {last}]") })),
        ),
        (
            "line_range",
            "'start_line'",
            lines(json!({ "line_range": [first, last] })),
        ),
        (
            "lines as in answers",
            "'start_line'",
            lines(json!({ "lines": format!("{first}-{last}") })),
        ),
        (
            "start and end",
            "'end_line'",
            lines(json!({ "start": first, "end": last })),
        ),
        (
            "from_line and to_line",
            "'start_line'",
            lines(json!({ "from_line": first, "to_line": last })),
        ),
        (
            "camel case",
            "'start_line'",
            lines(json!({ "startLine": first, "endLine": last, "readAll": false })),
        ),
        (
            "mode line with start_line",
            "'start_line'",
            lines(json!({ "mode": "line", "start_line": first, "end_line": last })),
        ),
        (
            "mode in the plural",
            "Accepted: page, line, char",
            lines(json!({ "mode": "lines", "start": first, "count": count })),
        ),
        (
            "select of fd_to_file",
            "'mode'",
            lines(json!({ "select": "line", "start": first, "count": count })),
        ),
        (
            "fd and part in one text",
            "'start_line'",
            json!({ "fd": format!("fd:1 lines {first}-{last}") }),
        ),
        (
            "everything at once",
            "cannot be combined",
            lines(json!({
                "page": 1, "start_line": first, "end_line": last, "mode": "line", "start": first,
                "count": count,
            })),
        ),
    ];
    written.extend(descriptor_spellings(
        &json!({ "start_line": first, "end_line": last }),
    ));
    of_tool("read_fd", written)
}

pub(super) fn read_from(first: u64) -> Vec<StyledCall> {
    let lines = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    of_tool(
        "read_fd",
        [
            ("own form", "", lines(json!({ "start_line": first }))),
            (
                "line_number",
                "'start_line'",
                lines(json!({ "line_number": first })),
            ),
            (
                "view_range to the end",
                "'start_line'",
                lines(json!({ "view_range": [first, -1] })),
            ),
            (
                "end_line -1",
                "Valid range",
                lines(json!({ "start_line": first, "end_line": -1 })),
            ),
            (
                "end_line null",
                "'end_line'",
                lines(json!({ "start_line": first, "end_line": null })),
            ),
            (
                "lines without an end",
                "'start_line'",
                lines(json!({ "lines": format!("{first}-") })),
            ),
        ],
    )
}

pub(super) fn read_page(page: u64) -> Vec<StyledCall> {
    let of = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    of_tool(
        "read_fd",
        [
            ("own form", "", of(json!({ "page": page }))),
            (
                "numbers as strings",
                "'page'",
                of(json!({ "page": page.to_string() })),
            ),
            ("page_number", "'page'", of(json!({ "page_number": page }))),
            ("camel case", "'page'", of(json!({ "pageNumber": page }))),
            (
                "page with nulls",
                "'start_line'",
                of(json!({ "page": page, "start_line": null })),
            ),
            (
                "mode page with page",
                "'page'",
                of(json!({ "mode": "page", "page": page })),
            ),
            (
                "page with read_all false",
                "'page'",
                of(json!({ "page": page, "read_all": "False" })),
            ),
        ],
    )
}

pub(super) fn read_pages(first: u64, last: u64) -> Vec<StyledCall> {
    let count = last - first + 1;
    let of = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    of_tool(
        "read_fd",
        [
            (
                "own form",
                "",
                of(json!({ "mode": "page", "start": first, "count": count })),
            ),
            (
                "page as in answers",
                "'count'",
                of(json!({ "page": format!("{first}-{last}") })),
            ),
            (
                "pages",
                "'count'",
                of(json!({ "pages": format!("{first}-{last}") })),
            ),
            (
                "page and count",
                "'start'",
                of(json!({ "page": first, "count": count })),
            ),
        ],
    )
}

pub(super) fn read_all() -> Vec<StyledCall> {
    let of = |more: Value| merged(json!({ "fd": "fd:1" }), more);
    of_tool(
        "read_fd",
        [
            ("own form", "", of(json!({ "read_all": true }))),
            (
                "flags as strings",
                "'read_all'",
                of(json!({ "read_all": "true" })),
            ),
            (
                "flags as in Python",
                "'read_all'",
                of(json!({ "read_all": "True" })),
            ),
            (
                "flags as numbers",
                "'read_all' must be true or false",
                of(json!({ "read_all": 1 })),
            ),
            (
                "page all as in answers",
                "read_all=true",
                of(json!({ "page": "all" })),
            ),
            ("camel case", "'read_all'", of(json!({ "readAll": true }))),
            ("all", "'read_all'", of(json!({ "all": true }))),
            (
                "both forms at once",
                "'read_all'",
                of(json!({ "read_all": true, "page": 1 })),
            ),
        ],
    )
}
