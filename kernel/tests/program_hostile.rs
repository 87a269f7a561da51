//! Hostile program files: refused by name, quickly, without a panic.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::program_support::compile_files;
use bytes::Bytes;
use dormouse_kernel::program::{MAX_BUNDLE_FILES, compile};
use proptest::prelude::*;

const GOOD: &str = r#"
[model]
name = "m"
provider = "anthropic"
max_iterations = 5
[prompt]
system = "You are."
user = "Do it."
[parameters]
max_tokens = 10
temperature = 0.5
[tools]
enabled = ["read_fd", { name = "grep", alias = "search", access = "read" }, "spawn"]
[[tools.command]]
name = "log"
description = "Shows the log."
argv = ["git", "log", "-n{count}"]
deadline = "30s"
output_cap = "64MB"
parameters = { count = { type = "integer", default = 10 } }
[file_descriptor]
enabled = true
default_page_size = 1000
[env_info]
variables = ["date"]
[linked_programs]
me = { path = "main.toml", description = "Myself." }
[limits]
max_depth = 2
[demo]
prompts = ["a"]
"#;

/// Compiles bytes as a program; the messages of what is wrong.
fn errors_of(bytes: Vec<u8>) -> Vec<String> {
    let bytes = Bytes::from(bytes);
    let compiled = compile(
        Path::new("main.toml"),
        &mut |_| Ok(bytes.clone()),
        &["grep"],
    );
    match compiled {
        Ok(_) => Vec::new(),
        Err(errors) => errors.errors().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_mistake_far_to_the_right_is_named_and_not_drawn() {
    let far = format!(
        "model = {{name = \"{}\", provider = \"scripted\", foo = 1}}\n",
        "a".repeat(70_000)
    );
    let hidden = format!("a = \"\\\nb = {}\n", "[".repeat(70_000));
    for (text, part) in [
        (far, "main.toml:1: unknown key `foo`"),
        (hidden, "main.toml:"),
    ] {
        let bytes = Bytes::from(text);
        let errors = compile(Path::new("main.toml"), &mut |_| Ok(bytes.clone()), &[]).unwrap_err();
        assert!(errors.to_string().contains(part), "{errors}");
        let drawn = format!("{:?}", miette::Report::new(errors));
        assert!(drawn.contains("main.toml:"), "{drawn}");
    }
}

#[test]
fn the_good_program_is_good() {
    assert_eq!(errors_of(GOOD.as_bytes().to_vec()), [""; 0]);
}

proptest! {
    #[test]
    fn any_bytes_compile_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        errors_of(bytes);
    }

    #[test]
    fn any_text_compiles_or_is_refused(text in "[\\[\\]{}=\"'.,#a-c0-9_ \\n-]{0,200}") {
        errors_of(text.into_bytes());
    }

    #[test]
    fn a_mutated_program_compiles_or_is_refused(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..12, any::<char>()), 1..6),
    ) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, removed, added) in edits {
            let at = at.index(text.len());
            let end = (at + removed).min(text.len());
            text.splice(at..end, [added]);
        }
        errors_of(text.into_iter().collect::<String>().into_bytes());
    }

    #[test]
    fn lines_in_another_order_compile_or_are_refused(
        lines in Just(GOOD.lines().collect::<Vec<_>>()).prop_shuffle(),
        count in 0_usize..40,
    ) {
        errors_of(lines[..count.min(lines.len())].join("\n").into_bytes());
    }
}

#[test]
fn what_is_too_large_or_too_deep_is_refused_by_name() {
    let depth = 100_000;
    let cases = [
        (
            "100 MB",
            "x".repeat(100_000_000),
            "the program file holds 100000000 bytes; a program may hold 1048576",
        ),
        (
            "arrays",
            format!("a = {}", "[".repeat(depth)),
            "nested more than 32 deep",
        ),
        (
            "tables",
            format!("a = {}", "{a=".repeat(depth)),
            "nested more than 32 deep",
        ),
        (
            "dotted key",
            format!("a{} = 1", ".a".repeat(depth)),
            "recursion limit",
        ),
        (
            "dotted header",
            format!("[a{}]", ".a".repeat(depth)),
            "recursion limit",
        ),
        (
            "huge integer",
            "[limits]\nmax_depth = ".to_owned() + &"9".repeat(1000),
            "`limits.max_depth` is out of range",
        ),
        (
            "huge size",
            "[file_descriptor]\nmax_read_chars = 1000000001".to_owned(),
            "is out of range",
        ),
        (
            "negative",
            "[file_descriptor]\ndefault_page_size = -1".to_owned(),
            "is out of range",
        ),
        (
            "zero",
            "[file_descriptor]\ndefault_page_size = 0".to_owned(),
            "is out of range",
        ),
        (
            "infinite",
            "[parameters]\ntemperature = inf".to_owned(),
            "`parameters.temperature` is out of range",
        ),
        (
            "overflow",
            "[parameters]\ntemperature = 1e999".to_owned(),
            "`parameters.temperature` is out of range",
        ),
        (
            "128 bits",
            "[parameters]\nseed = 99999999999999999999999".to_owned(),
            "`parameters.seed` is out of range",
        ),
    ];
    for (name, text, expected) in cases {
        let errors = errors_of(text.into_bytes());
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{name}: {errors:?}"
        );
    }
    assert!(errors_of(vec![b'#', 0xff])[0].contains("not UTF-8"));
}

/// Seconds are enough; what costs the square of a mebibyte takes hours. A machine that does much
/// else is neither.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn a_file_full_of_mistakes_is_told_in_good_time_and_in_few_words() {
    let full = |line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for n in 0.. {
            let line = line(n);
            if text.len() + line.len() > (1 << 20) - 8 {
                return text;
            }
            text.push_str(&line);
        }
        unreachable!("a text is full at some time")
    };
    let cases = [
        ("unknown keys", full(&|n| format!("key{n} = 1\n"))),
        ("unknown sections", full(&|n| format!("[s{n}]\n"))),
        (
            "one section again and again",
            full(&|_| "[model]\n".to_owned()),
        ),
        (
            "unknown tools",
            format!("tools.enabled = [{}]", full(&|n| format!("\"t{n}\","))),
        ),
        ("commands", full(&|_| "[[tools.command]]\n".to_owned())),
        (
            "labels",
            format!("[env_info]\n{}", full(&|n| format!("v{n} = 1\n"))),
        ),
        (
            "links",
            format!(
                "[linked_programs]\n{}",
                full(&|n| format!("p{n} = \"{n}\"\n"))
            ),
        ),
        (
            "open braces",
            format!(
                "tools.command = [{{argv = [\"a\", \"{}\"]}}]",
                full(&|_| "{".to_owned())
            ),
        ),
        (
            "placeholders",
            format!(
                "tools.command = [{{argv = [\"a\", \"{}\"]}}]",
                full(&|n| format!("{{a{n}}}"))
            ),
        ),
        ("no TOML at all", full(&|_| "= = =\n".to_owned())),
        ("quotes", full(&|_| "'\n".to_owned())),
        ("long key", format!("{} = 1\n", full(&|_| "a".to_owned()))),
    ];
    for (name, mut text) in cases {
        text.truncate(1 << 20);
        let began = Instant::now();
        let errors = errors_of(text.into_bytes());
        let took = began.elapsed();
        assert!(
            !errors.is_empty() && errors.len() < 60,
            "{name}: {} errors",
            errors.len()
        );
        assert!(
            errors.iter().all(|error| error.len() < 500),
            "{name}: {errors:?}"
        );
        assert!(took < PATIENCE, "{name} took {took:?}");
    }
}

#[test]
fn a_chain_of_programs_without_end_is_refused() {
    let mut count = 0;
    let mut read = |_: &Path| {
        count += 1;
        let text = format!(
            "[model]\nprovider = \"scripted\"\n[tools]\nenabled = \
             [\"spawn\"]\n[linked_programs]\nn = \"{count}.toml\"\n"
        );
        Ok(Bytes::from(text))
    };
    let errors = compile(Path::new("main.toml"), &mut read, &[]).unwrap_err();
    assert!(
        errors.to_string().contains("may name 1024 files"),
        "{errors}"
    );
    assert_eq!(count, MAX_BUNDLE_FILES);
}

#[test]
fn files_that_are_too_large_together_are_refused_where_they_are_named() {
    let text = "[model]\nprovider = \"scripted\"\n[preload]\nfiles = [\"a\", \"b\", \"c\"]\n";
    let large = Bytes::from(vec![0; 30 << 20]);
    let mut read = |path: &Path| {
        Ok(if path.ends_with("main.toml") {
            Bytes::from(text)
        } else {
            large.clone()
        })
    };
    let errors = compile(Path::new("main.toml"), &mut read, &[]).unwrap_err();
    assert_eq!(errors.errors().len(), 1);
    assert_eq!(errors.errors()[0].line(), Some(4));
    assert!(
        errors.to_string().contains("exceed 67108864 bytes"),
        "{errors}"
    );
}

#[test]
fn a_path_that_is_no_file_is_refused() {
    for path in ["", "..", "/"] {
        let errors = compile(Path::new(path), &mut |_| Ok(Bytes::new()), &[]).unwrap_err();
        assert!(
            errors.to_string().contains("names no file"),
            "{path}: {errors}"
        );
    }
    assert!(compile_files(&[("", "")]).is_err());
}
