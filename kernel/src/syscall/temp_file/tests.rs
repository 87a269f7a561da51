//! Shared code for the tests of the five tools, and tests of their answers.

use std::sync::LazyLock;

use dormouse_proto::record::Entry;
use dormouse_proto::temp_file::TempFileError;

use super::*;
use crate::syscall::{
    Call, Tool, append_temp_file, create_temp_file, delete_temp_file, write_temp_file,
};
use crate::table::placement::temp_file_answer;

static CONTENT: LazyLock<Content> = LazyLock::new(|| Content::new("of a descriptor\n".repeat(3)));

/// The content of `fd:1`.
pub(in crate::syscall) fn content_of_fd() -> Content {
    CONTENT.clone()
}

fn outcome(tool: &Tool, args: &str) -> Outcome {
    let mut table = Table::new();
    table.insert(
        table.next_id(),
        Entry::new(content_of_fd(), 10, "tool:t", 0),
    );
    let settings = DescriptorSettings {
        max_content_bytes: 77,
        ..DescriptorSettings::default()
    };
    tool.call(&Call::unlimited(&table, args, &settings, 0))
        .expect("it is a function of the table")
}

fn pending(tool: &Tool, args: &str) -> PendingTempFile {
    match outcome(tool, args) {
        Outcome::TempFile(pending) => pending,
        other => panic!("{args} must ask for an operation, not {other:?}"),
    }
}

/// Returns the operation that a call requests.
pub(in crate::syscall) fn operation(tool: &Tool, args: &str) -> TempFileOp<Content> {
    let PendingTempFile { op, max_bytes, .. } = pending(tool, args);
    assert_eq!(max_bytes, 77, "as the program says");
    op
}

/// Asserts that a call requests no operation, and checks the kind and text of its error.
pub(in crate::syscall) fn assert_refused(tool: &Tool, args: &str, kind: &str, message: &str) {
    let outcome = outcome(tool, args);
    let answer = outcome
        .answer()
        .unwrap_or_else(|| panic!("{args} must be refused, not {outcome:?}"));
    assert!(
        answer.is_error && answer.text.contains(&format!("type=\"{kind}\"")),
        "{args}: {}",
        answer.text
    );
    assert!(answer.text.contains(message), "{args}: {}", answer.text);
}

#[test]
fn an_answer_names_the_file_and_its_version() {
    let calls = [
        (&create_temp_file::TOOL, r#"{"content": "x"}"#, "Created."),
        (
            &write_temp_file::TOOL,
            r#"{"temp_file_id": "temp:1", "content": "x", "version": 1}"#,
            "Written.",
        ),
        (
            &append_temp_file::TOOL,
            r#"{"temp_file_id": "temp:1", "content": "x"}"#,
            "Appended.",
        ),
        (
            &delete_temp_file::TOOL,
            r#"{"temp_file_id": "temp:1"}"#,
            "Deleted",
        ),
    ];
    for (tool, args, word) in calls {
        let answer = pending(tool, args).changed(TempId(1), 2, 9);
        let start =
            format!("<temp_file id=\"temp:1\" version=\"2\" total_bytes=\"9\">\n  <message>{word}");
        assert!(
            answer.text.starts_with(&start) && !answer.is_error,
            "{}",
            answer.text
        );
    }
}

#[test]
fn an_error_repeats_the_temp_file_id_as_the_model_wrote_it() {
    let pending = pending(
        &write_temp_file::TOOL,
        r#"{"temp_file_id": "temp-1", "content": "x", "version": 1}"#,
    );
    let answer = pending.refused(&TempFileError::Stale {
        id: TempId(1),
        given: 1,
        current: 2,
    });
    let start = "<fd_error type=\"stale_version\" fd=\"temp-1\">\n  <message>temp:1 is at version \
         2, and version 1 was given";
    assert!(
        answer.text.starts_with(start) && answer.is_error,
        "{}",
        answer.text
    );
}

#[test]
fn contents_are_shown_exactly_and_bytes_as_base64() {
    let cases = [
        (
            Content::new("a < b"),
            "total_chars=\"5\"><![CDATA[a < b]]></temp_file>",
        ),
        (
            Content::new("</temp_file>"),
            "total_chars=\"12\"><![CDATA[<]]><![CDATA[/temp_file>]]></temp_file>",
        ),
        (Content::new(""), "total_chars=\"0\"></temp_file>"),
        (
            Content::new(vec![0, 0xff]),
            "total_chars=\"4\" encoding=\"base64\">AP8=</temp_file>",
        ),
    ];
    for (content, rest) in cases {
        let expected = format!("<temp_file id=\"temp:3\" version=\"4\" {rest}");
        assert_eq!(
            *temp_file_answer(TempId(3), 4, &content.unlimited_reader())
                .unwrap()
                .text,
            *expected
        );
    }
}
