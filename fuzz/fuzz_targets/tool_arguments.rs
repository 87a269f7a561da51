//! Any arguments of any descriptor tool: every answer is one element whose flag is right, nothing
//! changes the table (FD-2), and no answer shows more than it may.

#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use dormouse_fuzz::answer::{parse, text};
use dormouse_fuzz::table;
use dormouse_fuzz::tools;
use dormouse_kernel::syscall::{Call, Outcome, Syscall};
use dormouse_kernel::table::Table;
use dormouse_proto::descriptor::DescriptorSettings;
use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::id::FdId;
use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, StopReason, Usage};
use dormouse_proto::record::{Annotation, Section};
use dormouse_proto::temp_file::TempFileError;
use dormouse_proto::tool::Answer;
use libfuzzer_sys::fuzz_target;
use roxmltree::Node;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Call {
        max_read_chars: u16,
        call: tools::Call<'a>,
    },
    Json {
        tool: u8,
        max_read_chars: u16,
        json: &'a str,
    },
}

/// Text with CRLF and marks, binary, nothing, one long line, many lines, a last line without LF.
fn contents() -> Table {
    let long = "é<&]]>a ".repeat(60);
    let many = "fn main() {\n\n".repeat(40);
    let texts: [&[u8]; 6] = [
        b"a\r\nb <fd_error> \x1b\r\n\r\nc",
        &[0, 0xff, 7, 8],
        b"",
        long.as_bytes(),
        many.as_bytes(),
        "😀\n一".as_bytes(),
    ];
    let mut table = table(texts, 37);
    let plan = table.get(&FdId::Fd(5)).expect("it was put in").clone();
    table.insert(FdId::Ref("plan".to_owned()), plan);
    table.annotate(
        &FdId::Fd(5),
        &Annotation::Named {
            name: Some("the log".into()),
        },
    );
    let section = Section {
        start_line: 2,
        end_line: 3,
    };
    table.annotate(
        &FdId::Fd(5),
        &Annotation::Marked {
            ref_id: "part".into(),
            section,
        },
    );
    table
}

/// The one that is called on, and one that is never touched.
static TABLES: LazyLock<(Table, Table)> = LazyLock::new(|| (contents(), contents()));

fuzz_target!(|input: Input<'_>| {
    match input {
        Input::Call {
            max_read_chars,
            call,
        } => run(call.tool(), &call.arguments(), max_read_chars.into()),
        Input::Json {
            tool,
            max_read_chars,
            json,
        } => {
            run(tools::tool(tool), json, max_read_chars.into());
        }
    }
});

fn run(call: Syscall, args: &str, max_read_chars: u64) {
    let (table, untouched) = &*TABLES;
    let settings = DescriptorSettings {
        max_read_chars,
        ..DescriptorSettings::default()
    };
    let outcome = call(&Call::unlimited(table, args, &settings, 7));
    assert_eq!(
        outcome,
        call(&Call::unlimited(table, args, &settings, 7)),
        "a syscall is a function"
    );
    assert!(table == untouched, "FD-2: {args}");
    match outcome {
        Outcome::Answer(answer) => is_bounded(&answer, max_read_chars),
        Outcome::Opened(extracted) => {
            let answer = extracted.answer(&table.next_id());
            assert!(!answer.is_error && extracted.entry.page_chars > 0);
            is_bounded(&answer, max_read_chars);
        }
        Outcome::Annotated { id, note, answer } => {
            assert!(!answer.is_error);
            is_bounded(&answer, max_read_chars);
            let mut noted = table.clone();
            noted.annotate(&id, &note);
            assert_eq!(
                (noted.len(), noted.next_id()),
                (table.len(), table.next_id())
            );
        }
        Outcome::Summarize(pending) => {
            let reply = Reply {
                blocks: vec![Block::text("short")],
                stop: StopReason::EndTurn,
                usage: Usage::default(),
            };
            assert!(
                parse(&pending.into_summarized(Ok(reply)).answer)
                    .root_element()
                    .has_tag_name("fd_summary")
            );
        }
        Outcome::TempFile(pending) => {
            let failed = pending.refused(&TempFileError::TooMany { max_files: 1 });
            assert!(parse(&failed).root_element().has_tag_name("fd_error"));
        }
        Outcome::Write(pending) => {
            assert!(!pending.write.path.is_empty());
            let error = FileError {
                kind: FileErrorKind::WriteError,
                message: pending.write.path.clone(),
            };
            assert!(
                !parse(&pending.answer(Ok(())))
                    .root_element()
                    .has_tag_name("fd_error")
            );
            assert!(
                parse(&pending.answer(Err(error)))
                    .root_element()
                    .has_tag_name("fd_error")
            );
        }
    }
}

/// Content, that is: the texts of `fd_content` and of `match`. What an error says of the call is no
/// content.
fn is_bounded(answer: &Answer, max_read_chars: u64) {
    let document = parse(answer);
    let holds_content =
        |node: &Node<'_, '_>| node.has_tag_name("fd_content") || node.has_tag_name("match");
    let shown: usize = document
        .descendants()
        .filter(holds_content)
        .map(|node| text(node).chars().count())
        .sum();
    assert!(
        shown as u64 <= max_read_chars.max(1),
        "{shown} characters are shown: {}",
        answer.text
    );
    assert!(
        document.root_element().tag_name().name().starts_with("fd_"),
        "{}",
        answer.text
    );
}
