//! Tests the writes that the host receives and the answers that the model reads.

use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;

use super::*;
use crate::table::Table;
use dormouse_content::Content;
use dormouse_proto::descriptor::DescriptorSettings;

fn table(bytes: &[u8]) -> Table {
    let content = Content::new(bytes.to_vec());
    let entry = Entry::new(content, 6, "tool:t", 0);
    let mut table = Table::new();
    table.insert(table.next_id(), entry);
    table
}

fn call(bytes: &[u8], args: &str) -> Outcome {
    let args = format!(
        r#"{{"fd": "fd-1", "file_path": "out.txt"{}}}"#,
        args.replace('\'', "\"")
    );
    fd_to_file(&Call::unlimited(
        &table(bytes),
        &args,
        &DescriptorSettings::default(),
        0,
    ))
}

#[test]
fn the_write_contains_exactly_the_selected_part() {
    let text = "one\r\n\u{1b}two\nthree";
    let cases = [
        ("", text, 3, WriteMode::Write, Presence::Any),
        (
            ",'mode':'append','page':2",
            "\u{1b}two\n",
            1,
            WriteMode::Append,
            Presence::Any,
        ),
        (
            ",'start_line':2,'end_line':9",
            "\u{1b}two\nthree",
            2,
            WriteMode::Write,
            Presence::Any,
        ),
        (
            ",'select':'char','start':1,'count':2",
            "ne",
            1,
            WriteMode::Write,
            Presence::Any,
        ),
        (
            ",'start':2,'count':2",
            "\u{1b}two\nthree",
            2,
            WriteMode::Write,
            Presence::Any,
        ),
        (
            ",'select':'line','start':1",
            "one\r\n",
            1,
            WriteMode::Write,
            Presence::Any,
        ),
        (
            ",'unit':'paragraph','index':1",
            text,
            3,
            WriteMode::Write,
            Presence::Any,
        ),
        (
            ",'read_all':true,'page':77",
            text,
            3,
            WriteMode::Write,
            Presence::Any,
        ),
        (
            ",'mode':'insert','insert_at_line':3",
            text,
            3,
            WriteMode::Insert { at_line: 3 },
            Presence::Any,
        ),
        (
            ",'create':false",
            text,
            3,
            WriteMode::Write,
            Presence::Present,
        ),
        (
            ",'exist_ok':'false'",
            text,
            3,
            WriteMode::Write,
            Presence::Absent,
        ),
        (
            ",'create':false,'exist_ok':false",
            text,
            3,
            WriteMode::Write,
            Presence::Neither,
        ),
    ];
    for (args, bytes, lines, mode, presence) in cases {
        let Outcome::Write(pending) = call(text.as_bytes(), args) else {
            panic!("{args} must write")
        };
        let write = FileWrite {
            path: "out.txt".into(),
            bytes: Bytes::from(bytes),
            mode,
            presence,
        };
        assert_eq!(
            pending,
            PendingWrite {
                write,
                requested_fd: "fd-1".into(),
                fd: FdId::Fd(1),
                lines,
                pretty: None
            },
            "{args}"
        );
    }
}

#[test]
fn the_answer_states_the_written_bytes_and_lines() {
    let cases: [(&[u8], u64, u64); 6] = [
        ("é😀".as_bytes(), 6, 1),
        (b"", 0, 1),
        (b"\n", 1, 1),
        (b"a\nb", 3, 2),
        (b"a\r\nb\r\n", 6, 2),
        (&[0, 0xff, b'\n', 0xff], 4, 2),
    ];
    for (content, bytes, lines) in cases {
        let Outcome::Write(pending) = call(content, "") else {
            panic!("{content:?} must be written")
        };
        assert_eq!(pending.write.bytes, content, "raw bytes");
        let answer = pending.answer(Ok(()));
        assert!(
            answer.text.contains(&format!("<bytes>{bytes}</bytes>")),
            "{}",
            answer.text
        );
        assert!(
            answer.text.contains(&format!("<lines>{lines}</lines>")),
            "{}",
            answer.text
        );
        assert!(!answer.is_error);
    }
}

#[test]
fn decoded_text_is_written_in_its_own_encoding_also_a_part_of_it() {
    let broken = b"one\ntwo \xff\nthree, four and five\n";
    let latin = b"Stra\xdfe\nCaf\xe9 und Bar\nende\n";
    let utf16: Vec<u8> = "\u{feff}one\nt\u{f6}\nthree"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let cases: [(&[u8], &str, &[u8], u64); 7] = [
        (broken, "", broken, 3),
        (broken, ",'start_line':2,'end_line':2", b"two \xff\n", 1),
        (latin, "", latin, 3),
        (latin, ",'start_line':1,'end_line':2", &latin[..20], 2),
        (latin, ",'select':'char','start':7,'count':4", b"Caf\xe9", 1),
        (&utf16, ",'start_line':1,'end_line':2", &utf16[..16], 2),
        (&utf16, ",'start_line':3", b"t\0h\0r\0e\0e\0", 1),
    ];
    for (content, args, bytes, lines) in cases {
        let Outcome::Write(pending) = call(content, args) else {
            panic!("{args} must write")
        };
        assert_eq!(pending.write.bytes, bytes, "{args}");
        assert_eq!(pending.lines, lines, "{args}");
    }
}

#[test]
fn a_failed_write_is_an_error_of_its_kind() {
    let kinds = [
        (FileErrorKind::FileExists, "file_exists"),
        (FileErrorKind::FileNotFound, "file_not_found"),
        (FileErrorKind::PermissionError, "permission_error"),
        (FileErrorKind::AccessDenied, "access_denied"),
        (FileErrorKind::InvalidRange, "invalid_range"),
        (FileErrorKind::WriteError, "write_error"),
    ];
    for (kind, word) in kinds {
        let Outcome::Write(pending) = call(b"x", "") else {
            panic!("it must write")
        };
        let answer = pending.answer(Err(FileError {
            kind,
            message: "out.txt: why".into(),
        }));
        assert!(answer.is_error);
        assert!(
            answer
                .text
                .starts_with(&format!("<fd_error type=\"{word}\" fd=\"fd-1\">")),
            "{}",
            answer.text
        );
    }
}

#[test]
fn contradicting_arguments_are_refused() {
    let cases = [
        (
            ",'mode':'insert'",
            "invalid_parameter",
            "needs 'insert_at_line'",
        ),
        (
            ",'insert_at_line':1",
            "invalid_parameter",
            "mode insert only",
        ),
        (
            ",'mode':'append','insert_at_line':1",
            "invalid_parameter",
            "mode insert only",
        ),
        (
            ",'mode':'overwrite','insert_at_line':1",
            "invalid_parameter",
            "mode insert only",
        ),
        (
            ",'mode':'a','insert_at_line':1",
            "invalid_parameter",
            "mode insert only",
        ),
        (
            ",'mode':'insert','insert_at_line':0",
            "invalid_range",
            "count from 1",
        ),
        (
            ",'mode':'line'",
            "invalid_parameter",
            "write, append, insert",
        ),
        (
            ",'file_path':''",
            "invalid_parameter",
            "'file_path' is missing",
        ),
        (
            ",'page':1,'start':1",
            "invalid_parameter",
            "'page' and 'start'",
        ),
        (",'page':9", "invalid_page", "Valid range: 1-1"),
        (",'select':'word'", "invalid_parameter", "page, line, char"),
        (
            ",'encoding':'utf8'",
            "invalid_parameter",
            "Unknown parameter 'encoding'",
        ),
        (
            ",'create':'no'",
            "invalid_parameter",
            "'create' must be true or false",
        ),
    ];
    for (args, kind, message) in cases {
        let Outcome::Answer(answer) = call(b"x", args) else {
            panic!("{args} must write nothing")
        };
        assert!(
            answer.is_error && answer.text.contains(&format!("type=\"{kind}\"")),
            "{args}: {}",
            answer.text
        );
        assert!(answer.text.contains(message), "{args}: {}", answer.text);
    }
}
