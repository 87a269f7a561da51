//! Bundles: a program compiles again from what was read, and from nothing else.

use crate::program_support::{File, compile_files};
use dormouse_kernel::program::{Bundle, Program, compile_bundle};

const HOST_TOOLS: [&str; 2] = ["grep", "http-get"];

const CYCLE: [File<'_>; 6] = [
    (
        "demo/main.toml",
        "[model]\nprovider = \"scripted\"\nscript = \"turns.toml\"\n[tools]\nenabled = [\"spawn\", \
         \"grep\"]\n[preload]\nfiles = [\"notes.md\"]\nrelative_to = \
         \"cwd\"\n[linked_programs]\nother = { path = \"../shared/other.toml\", description = \
         \"Others.\" }\nme = \"main.toml\"\n",
    ),
    (
        "shared/other.toml",
        "[model]\nprovider = \"scripted\"\nscript = \
         \"../demo/turns.toml\"\n[prompt]\nsystem_prompt_file = \"s.md\"\n[tools]\nenabled = \
         [\"spawn\"]\n[linked_programs]\nback = \"other.toml\"\nend = \"/opt/end.toml\"\n",
    ),
    ("/opt/end.toml", "[model]\nprovider = \"scripted\"\n"),
    ("demo/turns.toml", "turns"),
    ("shared/s.md", "Other."),
    ("notes.md", "notes"),
];

/// Everything that can be seen of a program and its links, as text.
fn portrait(program: &Program) -> String {
    let links: Vec<_> = program
        .linked()
        .map(|(name, text, to)| (name.to_owned(), text.to_owned(), to))
        .collect();
    let look = (
        program.model(),
        program.script(program.model()),
        program.system(),
        program.tools(),
        program.preloads(),
    );
    format!("{program:?} {look:?} {links:?}")
}

#[test]
fn a_cycle_is_compiled_once_and_can_be_walked_for_ever() {
    let program = compile_files(&CYCLE).unwrap().program;
    let other = program.linked_program("other").unwrap();
    assert_eq!(
        (other.key(), other.system()),
        ("../shared/other.toml", "Other.")
    );
    assert_eq!(other.linked_program("back"), Some(other.clone()));
    assert_eq!(program.linked_program("me"), Some(program.clone()));
    assert_eq!(program.linked_program("nobody"), None);
    assert_eq!(other.linked_program("end").unwrap().key(), "/opt/end.toml");
    assert_eq!(program.by_key(other.key()), Some(other));
    assert_eq!(program.by_key("elsewhere.toml"), None);
}

#[test]
fn a_program_compiles_again_from_its_bundle_alone() {
    let program = compile_files(&CYCLE).unwrap().program;
    let bytes = program.bundle().to_bytes();
    let bundle = Bundle::from_bytes(&bytes).unwrap();
    let again = compile_bundle(&bundle, &HOST_TOOLS).unwrap().program;
    assert_eq!(portrait(&again), portrait(&program));
    for (_, _, linked) in program.linked() {
        assert_eq!(
            portrait(&again.by_key(linked.key()).unwrap()),
            portrait(&linked)
        );
    }
    assert_eq!(again.bundle().to_bytes(), bytes);
    assert_ne!(again, program);
}

#[test]
fn a_bundle_does_not_say_where_its_files_lay() {
    let moved = CYCLE.map(|(path, text)| match path.strip_prefix('/') {
        Some(_) => (path.to_owned(), text),
        None if path == "notes.md" => (path.to_owned(), text),
        None => (format!("/somewhere/else/{path}"), text),
    });
    let moved: Vec<_> = moved
        .iter()
        .map(|(path, text)| (path.as_str(), *text))
        .collect();
    let here = compile_files(&CYCLE).unwrap().program.bundle();
    let there = compile_files(&moved).unwrap().program.bundle();
    assert_eq!(there.to_bytes(), here.to_bytes());
}

#[test]
fn a_bundle_without_its_host_tools_says_which_one_is_missing() {
    let bundle = compile_files(&CYCLE).unwrap().program.bundle();
    let errors = compile_bundle(&bundle, &[]).unwrap_err();
    assert_eq!(errors.errors().len(), 1);
    let error = &errors.errors()[0];
    assert_eq!((error.file(), error.line()), ("main.toml", Some(5)));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let bytes = compile_files(&CYCLE).unwrap().program.bundle().to_bytes();
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 0x55;
        let _ = Bundle::from_bytes(&damaged).map(|bundle| compile_bundle(&bundle, &HOST_TOOLS));
        assert!(Bundle::from_bytes(&bytes[..at]).is_err());
    }
}
