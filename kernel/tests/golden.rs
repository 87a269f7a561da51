//! Golden files: each element that a model reads, byte for byte. `UPDATE_GOLDEN=1` writes them
//! anew.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_content::{Content, ReadQuota};
use dormouse_kernel::syscall::Call;
use dormouse_kernel::syscall::{
    Group, HANDLES, MESSAGES, Outcome, PendingTempFile, REFERENCES, Syscall,
    create_temp_file::create_temp_file, delete_fd_section, diff_fd, fd_to_file, get_fd_section,
    instructions, list_fd_sections, list_fds, mark_fd_section, names_of, read_fd, rename_fd,
    search_fd, summarize_fd,
};
use dormouse_kernel::table::placement::{Placement, Placer};
use dormouse_kernel::table::{NewDescriptor, Table};
use dormouse_proto::descriptor::{DescriptorSettings, Preview};
use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::model::Usage;
use dormouse_proto::record::{Annotation, Entry, Section};
use dormouse_proto::temp_file::{TempFileError, TempId};
use dormouse_proto::tool::{Attachment, ToolOutput};
use dormouse_proto::user_input::InputPart;
use dormouse_proto::xml::Element;
use dormouse_proto::xml::text::sanitize;

use crate::skip::skip;

const CODE: &str =
    "fn main() {\n    if a < b && c {\n        emit(\"</fd_content>\");\r\n    }\n}\n\u{1b}[0m";

const JSON: &str =
    r#"{"name":"a<b","sizes":[1.0,1e400,12345678901234567890],"none":[],"name":"\u00e9"}"#;

fn table() -> Table {
    let mut table = Table::new();
    for bytes in [CODE.as_bytes(), &[0xff, 0x00, 0x10, 0x80]] {
        let content = Content::new(bytes.to_vec());
        table.insert(table.next_id(), Entry::new(content, 40, "tool:cat", 0));
    }
    table
}

const MARK: &str = r#"{"fd": "fd:1", "start_line": 3, "end_line": 3, "ref_id": "body"}"#;

fn settings() -> DescriptorSettings {
    DescriptorSettings {
        max_direct_output_chars: 60,
        max_input_chars: 60,
        page_chars: 40,
        ..Default::default()
    }
}

fn output_with(text: impl Into<String>, preview: Preview) -> String {
    let settings = DescriptorSettings {
        preview,
        pretty_json: true,
        ..settings()
    };
    shown_output(ToolOutput::ok(text.into()), "tool:t", &settings)
}

/// What a tool wrote that failed, where the program wants the first page of an output.
fn failed(text: String) -> String {
    let output = ToolOutput {
        is_error: true,
        ..ToolOutput::ok(text)
    };
    shown_output(output, "tool:t", &settings())
}

fn shown(outcome: Outcome) -> String {
    shown_as(FdId::Fd(3), outcome)
}

/// The same; what is opened has this id.
fn shown_as(id: FdId, outcome: Outcome) -> String {
    match outcome {
        Outcome::Write(pending) => pending.answer(Ok(())).text.to_string(),
        Outcome::Opened(extracted) => extracted.answer(&id).text.to_string(),
        known => known
            .answer()
            .expect("it asks for nothing outside")
            .text
            .to_string(),
    }
}

fn placed(placement: &Placement) -> String {
    placement.answer(&table().next_id()).text.to_string()
}

fn shown_output(output: ToolOutput, source: &str, settings: &DescriptorSettings) -> String {
    placed(
        &Placer::unlimited(Some(settings), 0)
            .output(output, source)
            .placement,
    )
}

const TEMP: TempId = TempId(1);

fn temp_file(text: &str) -> String {
    let settings = DescriptorSettings {
        max_direct_output_chars: 90,
        ..settings()
    };
    placed(
        &Placer::unlimited(Some(&settings), 0).temp_file((TEMP, 3), &Content::new(text.to_owned())),
    )
}

fn pending_temp_file() -> PendingTempFile {
    let Outcome::TempFile(pending) = create_temp_file(&Call::unlimited(
        &table(),
        r#"{"fd": "fd:2"}"#,
        &settings(),
        0,
    )) else {
        panic!("it asks the files of the tree")
    };
    pending
}

/// A descriptor with a summary, as it is shown anew.
fn summarized() -> String {
    let (mut table, id) = (table(), FdId::Fd(1));
    let summary = "A main function that emits </fd_content>.".into();
    table.annotate(
        &id,
        &Annotation::Summarized {
            summary,
            usage: Usage::default(),
        },
    );
    let entry = table.get(&id).expect("it is there").clone();
    NewDescriptor::previewed(entry, "Handed over.", &settings(), ReadQuota::unlimited())
        .answer(&id)
        .text
        .to_string()
}

fn read(args: &str) -> String {
    shown(read_fd(&Call::unlimited(&table(), args, &settings(), 0)))
}

fn bounded(args: &str) -> String {
    shown(read_fd(&Call::unlimited(
        &table(),
        args,
        &DescriptorSettings {
            max_read_chars: 50,
            ..settings()
        },
        0,
    )))
}

const MANUAL: &str = "# Manual\n\n## Use <it>\n<unit> & more\n\n## End\n";

fn units(args: &str) -> String {
    let content = Content::new(MANUAL);
    let mut table = Table::new();
    table.insert(table.next_id(), Entry::new(content, 40, "tool:cat", 0));
    shown(read_fd(&Call::unlimited(
        &table,
        args,
        &DescriptorSettings {
            max_read_chars: 130,
            ..settings()
        },
        0,
    )))
}

/// A comparison of the code with another version of it.
fn changed(args: &str, max_read_chars: u64) -> String {
    let mut table = table();
    let other = CODE.replace("a < b", "a <= b").replace("emit", "<emit>");
    table.insert(
        table.next_id(),
        Entry::new(Content::new(other), 40, "tool:cat", 0),
    );
    let settings = DescriptorSettings {
        max_read_chars,
        ..settings()
    };
    shown_as(
        FdId::Fd(4),
        diff_fd::diff_fd(&Call::unlimited(&table, args, &settings, 0)),
    )
}

fn search(args: &str) -> String {
    shown(search_fd(&Call::unlimited(&table(), args, &settings(), 0)))
}

/// The answer of a tool about a table with notes.
fn noted(tool: Syscall, args: &str) -> String {
    let mut table = table();
    let section = Section {
        start_line: 2,
        end_line: 4,
    };
    for note in [
        Annotation::Named {
            name: Some("a <name>".into()),
        },
        Annotation::Marked {
            ref_id: "body".into(),
            section,
        },
        Annotation::Summarized {
            summary: "A function & a <tag>.".into(),
            usage: Usage::default(),
        },
    ] {
        table.annotate(&FdId::Fd(1), &note);
    }
    shown(tool(&Call::unlimited(&table, args, &settings(), 0)))
}

fn write(args: &str) -> String {
    shown(fd_to_file(&Call::unlimited(&table(), args, &settings(), 0)))
}

fn attached(max_content_bytes: u64) -> String {
    let (name, media_type) = (Some("a <chart>.png".into()), "image/png".into());
    let attachment = Attachment {
        name,
        media_type,
        bytes: bytes::Bytes::from_static(b"\x89PNG\r\n\x1a\n and so on"),
    };
    let settings = DescriptorSettings {
        max_content_bytes,
        ..settings()
    };
    let new = Placer::unlimited(Some(&settings), 0)
        .attachment(&attachment, "tool:plot")
        .expect("all may be read");
    new.element(&FdId::Fd(2)).to_xml()
}

fn of_json(call: Syscall, args: &str, max_read_chars: u64) -> String {
    let mut table = Table::new();
    table.insert(
        table.next_id(),
        Entry::new(Content::new(JSON), 40, "tool:t", 0),
    );
    shown_as(
        table.next_id(),
        call(&Call::unlimited(
            &table,
            args,
            &DescriptorSettings {
                max_read_chars,
                ..settings()
            },
            0,
        )),
    )
}

fn refused(args: &str) -> String {
    let Outcome::Write(pending) = fd_to_file(&Call::unlimited(&table(), args, &settings(), 0))
    else {
        panic!("it asks the host")
    };
    let message = "out.txt is there already. Use another path, or exist_ok=true.".into();
    pending
        .answer(Err(FileError {
            kind: FileErrorKind::FileExists,
            message,
        }))
        .text
        .to_string()
}

#[test]
fn every_element_is_as_it_was() {
    let everything: Vec<_> = names_of(Group::Descriptors)
        .chain(["fork", REFERENCES, MESSAGES, HANDLES])
        .collect();
    let cases = [
        (
            "fd_result.xml",
            shown_output(ToolOutput::ok(CODE), "tool:cat", &settings()),
        ),
        (
            "fd_result_user_input.xml",
            placed(
                &Placer::unlimited(Some(&settings()), 0)
                    .input(&InputPart::text("hello & goodbye\n".repeat(9))),
            ),
        ),
        (
            "fd_result_base64.xml",
            shown_output(ToolOutput::ok(vec![255; 60]), "tool:t", &settings()),
        ),
        (
            "fd_result_head_tail.xml",
            output_with(
                (1..=30)
                    .map(|n| format!("line {n}\r\n"))
                    .collect::<String>(),
                Preview::HeadTail,
            ),
        ),
        (
            "fd_result_head_tail_of_a_line.xml",
            output_with("<b>&".repeat(30), Preview::HeadTail),
        ),
        (
            "fd_result_error.xml",
            failed((1..=30).map(|n| format!("line {n}\n")).collect()),
        ),
        ("fd_result_pretty.xml", output_with(JSON, Preview::Head)),
        (
            "fd_text.xml",
            output_with("ok</fd_result>\n[msg:2]", Preview::Head),
        ),
        (
            "fd_text_sanitized.xml",
            output_with("\u{1b}[1mbold \u{202e}cod.exe", Preview::Head),
        ),
        ("fd_attachment.xml", attached(200)),
        ("fd_attachment_cut.xml", attached(10)),
        (
            "fd_result_pretty_head_tail.xml",
            output_with(JSON, Preview::HeadTail),
        ),
        (
            "fd_content_pretty.xml",
            of_json(read_fd, r#"{"fd": "fd:1", "page": 2, "pretty": true}"#, 50),
        ),
        (
            "fd_content_pretty_bounded.xml",
            of_json(
                read_fd,
                r#"{"fd": "fd:1", "read_all": true, "pretty": true}"#,
                50,
            ),
        ),
        (
            "fd_extraction_pretty.xml",
            of_json(
                read_fd,
                r#"{"fd": "fd:1", "page": 2, "pretty": true, "extract_to_new_fd": true}"#,
                50,
            ),
        ),
        (
            "fd_search_pretty.xml",
            of_json(
                search_fd,
                r#"{"fd": "fd:1", "query": "name", "pretty": true}"#,
                500,
            ),
        ),
        (
            "fd_write_pretty.xml",
            of_json(
                fd_to_file,
                r#"{"fd": "fd:1", "file_path": "out.json", "pretty": true}"#,
                50,
            ),
        ),
        (
            "fd_error_pretty.xml",
            read(r#"{"fd": "fd:1", "pretty": true}"#),
        ),
        ("fd_result_summarized.xml", summarized()),
        ("fd_summary.xml", noted(summarize_fd, r#"{"fd": "fd:1"}"#)),
        ("fd_content.xml", read(r#"{"fd": "fd:1", "page": 2}"#)),
        (
            "fd_content_all.xml",
            read(r#"{"fd": "fd:1", "read_all": true}"#),
        ),
        (
            "fd_content_lines.xml",
            read(r#"{"fd": "fd:1", "start_line": 1, "end_line": 2}"#),
        ),
        (
            "fd_content_bounded.xml",
            bounded(r#"{"fd": "fd:1", "read_all": true}"#),
        ),
        ("fd_content_base64.xml", read(r#"{"fd": "fd:2"}"#)),
        (
            "fd_content_unit.xml",
            units(r#"{"fd": "fd:1", "unit": "section", "name": "Use <it>"}"#),
        ),
        (
            "fd_units.xml",
            units(r#"{"fd": "fd:1", "unit": "section"}"#),
        ),
        (
            "fd_units_bounded.xml",
            units(r#"{"fd": "fd:1", "unit": "paragraph"}"#),
        ),
        (
            "fd_error_unit.xml",
            units(r#"{"fd": "fd:1", "unit": "section", "name": "use"}"#),
        ),
        (
            "fd_extraction.xml",
            read(r#"{"fd": "fd:1", "page": 2, "extract_to_new_fd": true}"#),
        ),
        (
            "fd_search.xml",
            search(r#"{"fd": "fd:1", "query": "e", "max_matches": 2, "context": 1}"#),
        ),
        (
            "fd_search_none.xml",
            search(r#"{"fd": "fd:1", "query": "<none>"}"#),
        ),
        (
            "fd_search_distinct.xml",
            search(
                r#"{"fd": "fd:1", "query": "(\\w+)( |\\()", "regex": true, "distinct": true, "max_matches": 3}"#,
            ),
        ),
        (
            "fd_search_distinct_all.xml",
            search(
                r#"{"fd": "*", "query": "[(</]", "regex": true, "distinct": true, "max_matches": 2}"#,
            ),
        ),
        (
            "fd_diff.xml",
            changed(r#"{"a": "fd:1", "b": "fd:3"}"#, 4000),
        ),
        (
            "fd_diff_bounded.xml",
            changed(r#"{"a": "fd:1", "b": "fd:3"}"#, 50),
        ),
        (
            "fd_diff_extracted.xml",
            changed(
                r#"{"a": "fd:1", "b": "fd:3", "extract_to_new_fd": true}"#,
                50,
            ),
        ),
        (
            "fd_diff_none.xml",
            changed(r#"{"a": "fd:1", "b": "fd:1"}"#, 50),
        ),
        (
            "fd_search_all.xml",
            search(r#"{"fd": "*", "query": "/", "max_matches": 1}"#),
        ),
        ("fd_list.xml", noted(list_fds, "{}")),
        ("fd_list_bounded.xml", noted(list_fds, r#"{"max": 1}"#)),
        (
            "fd_renamed.xml",
            noted(rename_fd, r#"{"fd": "fd:1", "name": "main.rs"}"#),
        ),
        ("fd_section.xml", noted(mark_fd_section, MARK)),
        (
            "fd_section_deleted.xml",
            noted(delete_fd_section, r#"{"fd": "fd:1", "ref_id": "body"}"#),
        ),
        (
            "fd_section_content.xml",
            noted(get_fd_section, r#"{"fd": "a <name>", "ref_id": "body"}"#),
        ),
        (
            "fd_sections.xml",
            noted(list_fd_sections, r#"{"fd": "fd:1"}"#),
        ),
        (
            "fd_error_section.xml",
            noted(get_fd_section, r#"{"fd": "fd:1", "ref_id": "head"}"#),
        ),
        (
            "fd_error_name.xml",
            noted(rename_fd, r#"{"fd": "fd:2", "name": "a <name>"}"#),
        ),
        (
            "fd_write.xml",
            write(r#"{"fd": "fd:1", "file_path": "out.txt", "mode": "append"}"#),
        ),
        ("fd_error_not_found.xml", read(r#"{"fd": "fd:\"9"}"#)),
        ("fd_error_page.xml", read(r#"{"fd": "fd:1", "page": 9}"#)),
        (
            "fd_error_parameter.xml",
            read(r#"{"fd": "fd:1", "paeg": 9}"#),
        ),
        (
            "fd_error_file.xml",
            refused(r#"{"fd": "fd:1", "file_path": "out.txt", "exist_ok": false}"#),
        ),
        ("temp_file.xml", temp_file(CODE)),
        ("temp_file_large.xml", temp_file(&CODE.repeat(2))),
        (
            "temp_file_created.xml",
            pending_temp_file().changed(TEMP, 1, 6).text.to_string(),
        ),
        (
            "temp_file_stale.xml",
            pending_temp_file()
                .refused(&TempFileError::Stale {
                    id: TEMP,
                    given: 1,
                    current: 2,
                })
                .text
                .to_string(),
        ),
        (
            "file_descriptor_instructions.txt",
            instructions(&["read_fd", "search_fd", "fd_to_file", "fork"], &[]),
        ),
        (
            "file_descriptor_instructions_all.txt",
            instructions(&everything, &[]),
        ),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, found) in cases {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &found).expect("the folder of golden files can be written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, golden, "{name}");
    }
}

/// Reads `[[xml, text], …]` and fails on the first that does not come back.
const EXPAT: &str = r#"
import json, sys, xml.etree.ElementTree as tree
for xml, text in json.load(sys.stdin):
    root = tree.fromstring(xml.encode())
    assert (root.text or "", root.get("fd"), len(root)) == (text, text, 0), (xml, root.text)
"#;

/// XML-1 by a second, older parser. Where there is no Python, the other parser of the tests stands
/// alone.
#[test]
fn expat_reads_back_what_is_shown() {
    let texts = [
        CODE,
        "a]]>b&amp;<c>",
        "\r\n\r]]>\r<&",
        " \u{0}\u{b}\u{85}\u{2028}\u{feff}\u{fffe}\u{ffff}\t\n ",
        "é😀\"'<fd_x/>",
        "[msg:1] ＜fd_x> [msg:2]]]>",
        "\u{1b}[31m \u{9b}1m \u{202e}\u{2066}\u{200f}\u{61c}",
        "",
    ];
    let cases: Vec<_> = texts
        .iter()
        .map(|text| {
            (
                Element::new("fd_content")
                    .attribute("fd", text)
                    .text(*text)
                    .to_xml(),
                sanitize(text),
            )
        })
        .collect();
    let python = Command::new("python3")
        .args(["-c", EXPAT])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        return skip("python3", "there is no python3 to check with");
    };
    let input = serde_json::to_vec(&cases).expect("texts are JSON");
    python
        .stdin
        .take()
        .expect("it is piped")
        .write_all(&input)
        .expect("it reads to the end");
    let output = python.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
