//! The files of `[preload]`: what the system prompt shows of them, and what is a descriptor.

use std::sync::Arc;

use dormouse_kernel::process::{Birth, Effect, HostContext, Image, Preloads, State, initial_image};
use dormouse_kernel::program::Program;
use dormouse_kernel::syscall::TOOL_SET;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::process::Priority;
use dormouse_proto::record::Lifetime;
use dormouse_proto::tool::Access;

use crate::program_support::compile_files;
use crate::replay::Replay;

const NOTE: &str = "one\ntwo\nthree\nfour\n";

/// A program that preloads `files`, in a folder with `note.txt` of 19 characters and `long.txt` of
/// 60.
fn program(files: &str, settings: &str) -> Program {
    let main = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"read_fd\", \
         \"spawn\"]\n[linked_programs]\nme = \"main.toml\"\n[preload]\nfiles = [{files}]\n\
         [file_descriptor]\n{settings}\n"
    );
    let long = "long text ".repeat(6);
    let files = [
        ("main.toml", main.as_str()),
        ("note.txt", NOTE),
        ("long.txt", &long),
    ];
    let compiled = compile_files(&files);
    compiled
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .program
}

fn host() -> Arc<HostContext> {
    Arc::new(HostContext::new(&TOOL_SET))
}

fn image(program: &Program) -> Image {
    let birth = Birth {
        access: Access::Admin,
        depth: 0,
        lifetime: Lifetime::Session,
        priority: Priority::Normal,
        preloads: &Preloads::default(),
        input: Some(&"go".into()),
    };
    initial_image(program, &host(), birth, 5)
}

/// The element of the system prompt that holds the preloads.
fn shown(image: &Image) -> &str {
    let start = image.system.find("<preload>").expect("it has preloads");
    let end = image.system.find("</preload>").expect("it ends");
    &image.system[start..end]
}

const LIMITED: &str = "max_direct_output_chars = 40";

#[test]
fn a_file_over_the_limit_is_a_preview_and_a_descriptor_and_any_other_is_shown() {
    let long = "long text ".repeat(6);
    let cases = [
        ("\"note.txt\"", LIMITED, true, 0),
        ("\"long.txt\"", LIMITED, false, 1),
        ("{ path = \"long.txt\" }", LIMITED, false, 1),
        ("{ path = \"long.txt\", full = true }", LIMITED, true, 0),
        ("{ path = \"long.txt\", full = false }", LIMITED, false, 1),
        ("{ path = \"long.txt\", lines = \"1\" }", LIMITED, true, 0),
        ("\"long.txt\"", "enabled = false", true, 0),
        (
            "\"long.txt\", \"note.txt\", \"long.txt\"",
            LIMITED,
            false,
            2,
        ),
    ];
    for (files, settings, is_whole, descriptors) in cases {
        let image = image(&program(files, settings));
        let text = shown(&image);
        let whole = if files.contains("long") { &long } else { NOTE };
        let has_whole = text.contains(whole.trim_end()) && !text.contains("<preview>");
        assert_eq!(has_whole, is_whole, "{files}: {text}");
        assert_eq!(image.table.len(), descriptors, "{files}");
        assert_eq!(image.next_fd as usize, descriptors + 1, "{files}");
        assert_eq!(image.budget.held_bytes, 60 * descriptors as u64);
        for number in 1..=descriptors {
            let entry = &image.table[&FdId::Fd(u32::try_from(number).unwrap())];
            assert_eq!((&*entry.source, entry.opened_ms), ("file:long.txt", 5));
            assert_eq!(&*entry.content.unlimited_reader().text().unwrap(), long);
            let preview = format!("<preload_file path=\"long.txt\" fd=\"fd:{number}\"");
            assert!(text.contains(&preview), "{text}");
        }
    }
}

#[test]
fn lines_of_a_file_are_shown_in_full() {
    let cases = [
        ("2-3", "two\nthree\n", "2-3"),
        ("4", "four\n", "4-4"),
        ("3-99", "three\nfour\n", "3-99"),
    ];
    for (lines, expected, attribute) in cases {
        let files = format!("{{ path = \"note.txt\", lines = \"{lines}\" }}");
        // The part exceeds the limit too.
        let image = image(&program(
            &files,
            "max_direct_output_chars = 4\ndefault_page_size = 4",
        ));
        let element = format!(
            "<preload_file path=\"note.txt\" lines=\"{attribute}\">{expected}</preload_file>"
        );
        assert!(shown(&image).contains(&element), "{}", shown(&image));
        assert_eq!(image.table.len(), 0);
    }
}

#[test]
fn every_process_of_a_program_has_the_same_prompt_and_contents() {
    let program = program("\"long.txt\"", LIMITED);
    let (first, second) = (image(&program), image(&program));
    assert!(Arc::ptr_eq(&first.system, &second.system));
    let bytes = |image: &Image| {
        let content = &image.table[&FdId::Fd(1)].content;
        content.bytes_if_resident().unwrap().as_ptr()
    };
    assert_eq!(bytes(&first), bytes(&second));
}

#[test]
fn the_files_of_a_spawned_program_follow_what_its_parent_gives() {
    let program = program("\"long.txt\"", LIMITED);
    let image = image(&program);
    let state = State::from_image(Pid(1), program, host(), image).unwrap();
    let mut run = Replay::of(state, 5);
    let args = r#"{"program_name": "me", "query": "x", "additional_preload_fds": ["fd:1"]}"#;
    run.reply(&[("spawn", args)]);
    let child = run.effects.iter().find_map(|effect| match effect {
        Effect::StartChildren { children, .. } => children.first(),
        _ => None,
    });
    let child = &child.expect("it is spawned").image;
    let fds: Vec<_> = child.table.keys().cloned().collect();
    assert_eq!((fds, child.next_fd), (vec![FdId::Fd(1), FdId::Fd(2)], 3));
    let text = shown(child);
    for element in [
        "<preload_file path=\"long.txt\" fd=\"fd:2\"",
        "<preload_fd fd=\"fd:1\"",
    ] {
        assert!(text.contains(element), "{element} in {text}");
    }
}
