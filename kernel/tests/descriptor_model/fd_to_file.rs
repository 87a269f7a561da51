//! The bytes that `fd_to_file` asks the host to write, for every selection, against a slow and
//! obvious model.

use super::model::{Model, Selection, answer, any_selection, any_text, call, error_type, table};
use dormouse_kernel::syscall::{Outcome, fd_to_file};
use dormouse_proto::file::{Presence, WriteMode};
use proptest::prelude::*;
use roxmltree::Document;

/// What the model reads when the write was done: the numbers of `stats`.
fn stats(xml: &str) -> (usize, usize) {
    let document = Document::parse(xml).expect("XML-1");
    let number = |name| {
        let node = document
            .descendants()
            .find(|node| node.has_tag_name(name))
            .expect("it is told");
        node.text()
            .and_then(|text| text.parse().ok())
            .expect("a number")
    };
    (number("bytes"), number("lines"))
}

fn check(text: &str, page_chars: u32, selection: Selection, mode: WriteMode) {
    let (table, model) = (table(text, page_chars), Model::new(text, page_chars));
    let mut args = selection.args("select");
    args["file_path"] = "out.txt".into();
    args["mode"] = mode.word().into();
    if let WriteMode::Insert { at_line } = mode {
        args["insert_at_line"] = at_line.into();
    }
    // Without a selection everything is written, where `read_fd` would show the first page.
    let selection = if matches!(selection, Selection::Nothing) {
        Selection::All
    } else {
        selection
    };
    match (
        call(fd_to_file::fd_to_file, &table, &args, 1),
        model.select(selection),
    ) {
        (Outcome::Write(pending), Some(expected)) => {
            let write = &pending.write;
            assert_eq!(write.bytes, expected, "{args}");
            assert_eq!(
                (&*write.path, write.mode, write.presence),
                ("out.txt", mode, Presence::Any)
            );
            let lines = Model::new(&expected, page_chars).lines().len();
            assert_eq!(
                stats(&pending.answer(Ok(())).text),
                (expected.len(), lines),
                "the bytes that were written: {args}"
            );
        }
        (outcome, expected) => {
            assert_eq!(expected, None, "{args}");
            let kind = error_type(&answer(outcome)).expect("an error");
            assert!(
                ["invalid_page", "invalid_range"].contains(&&*kind),
                "{kind}: {args}"
            );
        }
    }
}

fn any_mode() -> impl Strategy<Value = WriteMode> {
    prop_oneof![
        Just(WriteMode::Write),
        Just(WriteMode::Append),
        (1_u64..9).prop_map(|at_line| WriteMode::Insert { at_line }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_bytes_are_those_that_the_model_selects(
        text in any_text(), page_chars in 1_u32..30, selection in any_selection(), mode in any_mode(),
    ) {
        check(&text, page_chars, selection, mode);
    }
}
