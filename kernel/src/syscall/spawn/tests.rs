use std::path::Path;

use bytes::Bytes;
use dormouse_proto::id::FdId;
use dormouse_proto::message::Message;
use dormouse_proto::record::{Annotation, Entry, Section};
use serde_json::{Value, json};

use super::*;
use crate::process::{FetchError, FetchedFile, MAX_PRELOAD_BYTES, ShownPreload};
use crate::program::compile;
use crate::syscall::TOOL_SET;
use crate::table::Table;
use dormouse_content::Content;

/// A program with these sections that links `helper` and `numbering`, which numbers its messages.
fn program(rest: &str) -> Program {
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let numbering =
        "[tools]\nenabled = [\"read_fd\"]\n[file_descriptor]\nreference_messages = true\n";
    let links = "[linked_programs]\nhelper = { path = \"h.toml\", description = \"Helps.\" \
         }\nnumbering = \"n.toml\"\n";
    let read = &mut |path: &Path| {
        Ok(Bytes::from(match path.to_str() {
            Some("main.toml") => format!("{model}{rest}{links}"),
            Some("n.toml") => format!("{model}{numbering}"),
            _ => model.to_owned(),
        }))
    };
    compile(Path::new("main.toml"), read, &[])
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program
}

const ALL: &str = "[tools]\nenabled = [\"spawn\", \"read_fd\", \"read_temp_file\"]\n";

fn table() -> Table {
    let mut table = Table::new();
    table.insert(
        table.next_id(),
        Entry::new(Content::new("one\ntwo\nthree\n"), 8, "tool:t", 7),
    );
    table.insert(
        table.next_id(),
        Entry::new(Content::new(vec![0, 0xff]), 8, "tool:b", 7),
    );
    let section = Section {
        start_line: 2,
        end_line: 3,
    };
    table.annotate(
        &FdId::Fd(1),
        &Annotation::Marked {
            ref_id: "rest".into(),
            section,
        },
    );
    table.annotate(
        &FdId::Fd(1),
        &Annotation::Named {
            name: Some("log".into()),
        },
    );
    table.set_conversation(
        [std::sync::Arc::new(Message::user("said"))]
            .into_iter()
            .collect(),
        Default::default(),
        8,
    );
    table
}

fn checked(args: &str, program: &Program, table: &Table) -> Result<PendingSpawn, String> {
    let settings = program.descriptors().copied().unwrap_or_default();
    pending(program, &Call::unlimited(table, args, &settings, 0)).map_err(|error| error.to_string())
}

fn called(more: Value) -> Result<PendingSpawn, String> {
    let mut args = json!({ "program_name": "helper", "query": "do it" });
    args.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    checked(&args.to_string(), &program(ALL), &table())
}

/// Returns the ids, texts and sources of the preloaded descriptors.
fn preloaded(fds: Value) -> Vec<(String, String, String)> {
    let pending =
        called(json!({ FDS: fds.clone() })).unwrap_or_else(|message| panic!("{fds}: {message}"));
    let shown = |(id, entry, _): &(FdId, Entry<Content>, ShownPreload)| {
        (
            id.to_string(),
            entry.content.unlimited_reader().text().unwrap().to_string(),
            entry.source.to_string(),
        )
    };
    pending.descriptors.iter().map(shown).collect()
}

#[test]
fn a_descriptor_is_preloaded_whole_or_in_part_under_its_id() {
    let part = |words: &str| format!("fd:1 {words} of the parent");
    let cases = [
        (
            json!("fd:1"),
            "fd:1",
            "one\ntwo\nthree\n",
            "tool:t".to_owned(),
        ),
        (
            json!("log"),
            "fd:1",
            "one\ntwo\nthree\n",
            "tool:t".to_owned(),
        ),
        (json!("fd-2"), "fd:2", "AP8=", "tool:b".to_owned()),
        (json!("msg:1"), "msg:1", "said", "user_input".to_owned()),
        (
            json!("fd:1 lines 2-3"),
            "fd:1",
            "two\nthree\n",
            part("lines 2-3"),
        ),
        (json!("log line 1"), "fd:1", "one\n", part("line 1")),
        (
            json!({ "fd": "fd:1" }),
            "fd:1",
            "one\ntwo\nthree\n",
            "tool:t".to_owned(),
        ),
        (
            json!({ "fd": "log", "lines": "2-3" }),
            "fd:1",
            "two\nthree\n",
            part("lines 2-3"),
        ),
        (
            json!({ "fd": "fd:1", "section": "rest" }),
            "fd:1",
            "two\nthree\n",
            part("section rest"),
        ),
        (
            json!({ "fd": "fd:1", "pages": "1-1" }),
            "fd:1",
            "one\ntwo\n",
            part("pages 1-1"),
        ),
        (
            json!({ "fd": "fd:1", "page": 2 }),
            "fd:1",
            "three\n",
            part("page 2"),
        ),
        (
            json!({ "fd": "fd:1", "chars": "0-2" }),
            "fd:1",
            "one",
            part("chars 0-2"),
        ),
    ];
    for (item, id, text, source) in cases {
        assert_eq!(
            preloaded(json!([item])),
            [(id.to_owned(), text.to_owned(), source)],
            "{item}"
        );
    }
    let ids: Vec<_> = preloaded(json!(["fd:2", "fd:1"]))
        .into_iter()
        .map(|(id, ..)| id)
        .collect();
    assert_eq!(ids, ["fd:2", "fd:1"], "in the order that they were named");
}

#[test]
fn a_whole_descriptor_keeps_its_notes_and_a_part_keeps_the_name() {
    let table = table();
    let notes = |words: &str| {
        called(json!({ FDS: [words] }))
            .unwrap()
            .descriptors
            .remove(0)
            .1
            .notes
    };
    let whole = table.get(&FdId::Fd(1)).unwrap();
    assert_eq!(notes("fd:1"), whole.notes);
    let part = notes("fd:1 lines 1-2");
    assert_eq!(
        (part.name.as_deref(), part.sections.len()),
        (Some("log"), 0),
        "marked lines are those of the whole"
    );
    let args =
        json!({ "program_name": "helper", "query": "x", FDS: ["fd:1 lines 2-2"] }).to_string();
    let shared = checked(&args, &program(ALL), &table)
        .unwrap()
        .descriptors
        .remove(0)
        .1
        .content;
    assert_eq!(
        shared.unlimited_reader().text().unwrap().as_ptr(),
        whole.content.unlimited_reader().text().unwrap()[4..].as_ptr(),
        "nothing is copied"
    );
}

#[test]
fn a_message_is_not_preloaded_into_a_child_with_messages_of_its_own() {
    let spawn_with = |fd: &str| called(json!({ "program_name": "numbering", FDS: [fd] }));
    assert!(spawn_with("fd:1").is_ok());
    for message in ["msg:1", "msg:1.1", "msg:1 lines 1-1"] {
        let refused = spawn_with(message).unwrap_err();
        assert!(
            refused.contains("has messages of its own") && refused.contains("extract_to_new_fd"),
            "{refused}"
        );
    }
}

#[test]
fn invalid_arguments_are_refused_with_the_valid_values() {
    let cases = [
        (
            json!({ FDS: ["fd:9"] }),
            "There is no descriptor 'fd:9' for 'additional_preload_fds'. The descriptors are: fd:1 \
             (log), fd:2, and messages up to msg:1",
        ),
        (json!({ FDS: ["nobody"] }), "no descriptor 'nobody'"),
        (
            json!({ FDS: [{ "fd": "fd:9", "lines": "1-2" }] }),
            "no descriptor 'fd:9'",
        ),
        (
            json!({ FDS: ["fd:1 lines 9"] }),
            "Invalid line 9. Valid range: 1-3",
        ),
        (
            json!({ FDS: ["fd:1 words 9"] }),
            "by 'words'. Parts: lines 10-40",
        ),
        (
            json!({ FDS: [{ "fd": "fd:1", "section": "bug" }] }),
            "The sections are: rest",
        ),
        (
            json!({ FDS: [{ "fd": "fd:1", "linse": "1" }] }),
            "no key 'linse'. Did you mean 'lines'?",
        ),
        (
            json!({ FDS: [{ "fd": "fd:1", "lines": "1", "page": 1 }] }),
            "several parts",
        ),
        (
            json!({ FDS: [{ "lines": "1" }] }),
            "holds {\"lines\":\"1\"}",
        ),
        (json!({ FDS: [1] }), "and holds 1"),
        (json!({ FDS: ["fd:1", "log lines 1"] }), "names fd:1 twice"),
        (json!({ FDS: "fd:1" }), "must be a list"),
        (json!({ FILES: ["a", "a"] }), "names 'a' twice"),
        (json!({ FILES: [""] }), "empty string: give a path"),
        (json!({ FILES: [1] }), "holds 1"),
        (json!({ FILES: vec!["a"; 65] }), "up to 64 are valid"),
        (
            json!({ TEMP_FILES: ["temp:1", "temp-1"] }),
            "names temp:1 twice",
        ),
        (
            json!({ TEMP_FILES: ["fd:1"] }),
            "'fd:1' is not a temporary file",
        ),
        (
            json!({ "program_name": "helpr" }),
            "no linked program 'helpr'. Did you mean 'helper'? The programs are: helper, numbering",
        ),
        (
            json!({ "program": "numbering" }),
            "'program_name' is given twice",
        ),
        (json!({ "query": "" }), "'query' is missing"),
        (json!({ "wait": "no" }), "must be true or false"),
        (
            json!({ "additional_preload_fd": [] }),
            "Did you mean 'additional_preload_fds'?",
        ),
    ];
    for (more, message) in cases {
        let error = called(more.clone()).expect_err("it is refused");
        assert!(error.contains(message), "{more}: {error}");
    }
    let missing = checked(r#"{"query": "x"}"#, &program(ALL), &table()).unwrap_err();
    assert!(
        missing.contains("'program_name' is missing. The programs are: helper"),
        "{missing}"
    );
}

#[test]
fn both_parameters_for_the_program_and_quoted_flags_are_accepted() {
    for (args, waits_for_it) in [
        (json!({ "program": "helper", "query": "x" }), true),
        (
            json!({ "program_name": "helper", "query": "x", "wait": true }),
            true,
        ),
        (
            json!({ "program_name": "helper", "query": "x", "wait": "false" }),
            false,
        ),
        (
            json!({ "program": "helper", "query": "x", "wait": false, FDS: [{ "fd": "fd:1" }] }),
            false,
        ),
    ] {
        let args = args.to_string();
        assert!(checked(&args, &program(ALL), &table()).is_ok(), "{args}");
        assert_eq!(
            (waits(&args), program_name(&args).as_deref()),
            (waits_for_it, Some("helper")),
            "{args}"
        );
    }
}

#[test]
fn the_error_states_that_the_program_links_no_other() {
    let text = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"spawn\"]\n";
    let read = &mut |_: &Path| Ok(Bytes::from(text));
    let alone = compile(Path::new("main.toml"), read, &[]).unwrap().program;
    let cases = [
        (alone, "No program is linked."),
        (program(ALL), "Programs:\n- helper: Helps.\n- numbering: "),
    ];
    for (program, end) in cases {
        let description = TOOL.spec(&program, &TOOL_SET).description;
        assert!(
            description.contains(&format!("comes to you by itself. {end}")),
            "{description}"
        );
    }
}

#[test]
fn the_schema_lists_exactly_the_parameters_that_the_program_offers() {
    let cases = [
        (ALL, true, true),
        ("[tools]\nenabled = [\"spawn\", \"read_fd\"]\n", true, false),
        (
            "[tools]\nenabled = [\"spawn\", \"append_temp_file\"]\n",
            false,
            true,
        ),
        ("[tools]\nenabled = [\"spawn\"]\n", false, false),
    ];
    for (tools, has_fds, has_temp_files) in cases {
        let program = program(tools);
        let spec = TOOL.spec(&program, &TOOL_SET);
        assert!(
            spec.description.contains("- helper: Helps."),
            "{}",
            spec.description
        );
        let schema: Value = serde_json::from_str(&spec.schema).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        assert_eq!(
            properties["program_name"]["enum"],
            json!(["helper", "numbering"])
        );
        for (name, expected) in [
            (FDS, has_fds),
            (TEMP_FILES, has_temp_files),
            (FILES, true),
            ("wait", true),
        ] {
            assert_eq!(properties.contains_key(name), expected, "{name}: {tools}");
        }
        for name in [FDS, TEMP_FILES, FILES] {
            let args = json!({ "program_name": "helper", "query": "x", name: [] }).to_string();
            let result = checked(&args, &program, &table());
            assert_eq!(
                result.is_ok(),
                properties.contains_key(name),
                "{name}: {result:?}"
            );
        }
    }
}

#[test]
fn a_large_descriptor_is_previewed_unless_a_part_is_named() {
    let mut table = table();
    let lines: String = (1..=100_000).map(|line| format!("line {line}\n")).collect();
    let entry = Entry::new(Content::new(lines.clone()), 4000, "tool:t", 0);
    table.insert(FdId::Fd(3), entry);
    let shown = |program_name: &str, fd: &str| {
        let args = json!({ "program": program_name, "query": "x", FDS: [fd] }).to_string();
        let pending = checked(&args, &program(ALL), &table).unwrap();
        let (_, entry, shown) = pending.descriptors.into_iter().next().unwrap();
        (entry.content, shown.xml().to_owned())
    };
    let (content, xml) = shown("numbering", "fd:3");
    assert_eq!(
        content.unlimited_reader().text().unwrap(),
        lines,
        "the table has all of it"
    );
    assert!(
        xml.len() < 5_000 && xml.contains("total_lines=\"100000\""),
        "{xml}"
    );
    assert!(
        xml.contains("<preview>line 1\n") && xml.contains("Use read_fd"),
        "{xml}"
    );
    let (_, part) = shown("numbering", "fd:3 lines 1-20000");
    assert!(part.len() > 200_000 && part.contains("line 20000\n</preload_fd>"));
    let (_, all) = shown("helper", "fd:3");
    assert!(
        all.len() > lines.len(),
        "a program without descriptors is shown all of it"
    );
}

#[test]
fn the_total_size_of_preloads_is_limited() {
    let mut table = table();
    let half = usize::try_from(MAX_PRELOAD_BYTES / 2).unwrap();
    table.insert(
        FdId::Fd(3),
        Entry::new(Content::new("x".repeat(half)), u32::MAX, "tool:t", 0),
    );
    table.insert(
        FdId::Fd(4),
        Entry::new(Content::new("y".repeat(half + 1)), u32::MAX, "tool:t", 0),
    );
    let spawn_with = |fds: Value| {
        checked(
            &json!({ "program": "helper", "query": "x", FDS: fds }).to_string(),
            &program(ALL),
            &table,
        )
    };
    assert!(
        spawn_with(json!(["fd:3 page 1", "fd:4 page 1"]))
            .unwrap_err()
            .contains("Name parts")
    );
    let pending = spawn_with(json!(["fd:3 page 1"])).unwrap();
    let pending = PendingSpawn {
        files: vec!["f".into()],
        ..pending
    };
    let file = |bytes: usize| {
        let content = Content::new("z".repeat(bytes));
        let path = "f".to_owned();
        pending.place(vec![FetchedFile::File { path, content }], 0)
    };
    assert!(pending.preloads(&file(half)).is_ok());
    assert!(
        pending
            .preloads(&file(half + 1))
            .unwrap_err()
            .to_string()
            .contains("Nothing was started")
    );
    assert!(
        pending
            .preloads(&Err(FetchError::TooLarge { path: "f".into() }))
            .unwrap_err()
            .to_string()
            .contains("f is larger")
    );
}
