//! The definitions in one small source of each language, and texts that are hard to parse.

use super::*;
use crate::Outlines;

/// Every unit of a text as `function name first-last`, one a line.
fn list_units(text: &str, source: &str) -> String {
    let outlines = Outlines::default();
    let mut list = String::new();
    for unit in [Unit::Function, Unit::Class] {
        for found in &*outlines
            .get_or_build(unit, text, source)
            .unwrap_or_default()
        {
            let super::super::OutlineEntry {
                name,
                first_line,
                last_line,
                ..
            } = found;
            list += &format!("{} {name} {first_line}-{last_line}\n", unit.word());
        }
    }
    list
}

macro_rules! shapes {
    ($($extension:literal),*) => {
        [$(($extension, include_str!(concat!("tests/shapes.", $extension, ".txt")), include_str!(concat!("tests/shapes.", $extension, ".units")))),*]
    };
}

const SHAPES: [(&str, &str, &str); 9] =
    shapes!["rs", "py", "js", "ts", "tsx", "go", "java", "c", "cpp"];

#[test]
fn definitions_are_found_with_their_comments_and_attributes() {
    for (extension, text, units) in SHAPES {
        let source = format!("tool:read /a/shapes.{extension}");
        assert_eq!(list_units(text, &source), units, "{extension}");
    }
}

#[test]
fn a_language_is_recognised_by_its_text_alone() {
    for (extension, text, units) in SHAPES {
        assert_eq!(list_units(text, "tool:cat"), units, "{extension}");
    }
}

#[test]
fn a_source_name_takes_precedence_over_a_shebang_and_a_shebang_over_the_text() {
    let text = "#!/usr/bin/env python3\ndef f():\n    return 1\n";
    let cases = [
        ("file:a b/x.py", Some(Language::Python)),
        ("tool:read /a/b.rs, twice", Some(Language::Rust)),
        ("tool:read 'src/app.test.tsx'", Some(Language::Tsx)),
        ("tool:cat x.rs y.h", Some(Language::Cpp)),
        ("tool:cat", None),
        ("extract:fd:1", None),
        ("file:notes.md", None),
        ("rs", None),
    ];
    for (source, language) in cases {
        assert_eq!(Language::of_source(source), language, "{source}");
    }
    for (line, language) in [
        ("#!/usr/bin/env python3.12\n", Some(Language::Python)),
        ("#!/usr/bin/env -S node --x\n", None),
        ("#!/usr/bin/node\n", Some(Language::JavaScript)),
        ("#!/usr/bin/env -S deno\n", Some(Language::TypeScript)),
        ("#!/bin/sh\n", None),
        ("# python\n", None),
        ("#!", None),
    ] {
        assert_eq!(Language::of_shebang(line), language, "{line}");
    }
    assert_eq!(list_units(text, "tool:cat"), "function f 2-3\n");
    let outlines = Outlines::default();
    assert_eq!(
        outlines.get_or_build(Unit::Function, text, "x.c"),
        Err(OutlineError::None(Unit::Function)),
        "the text is parsed as C"
    );
    assert_eq!(
        outlines
            .get_or_build(Unit::Function, text, "x.py")
            .map(|units| units.len()),
        Ok(1),
        "the same text is then parsed as Python"
    );
}

#[test]
fn a_text_that_is_not_source_code_has_no_language() {
    let prose = "The quick brown fox jumps over the lazy dog, and then it sleeps; that is all.\n"
        .repeat(1000);
    let log = "2024-01-01T00:00:00Z [INFO] 127.0.0.1 - GET /a?b=c&d 200 \"-\" <ok>\n".repeat(1000);
    for text in [&*prose, &log, "中文文本。没有代码。\n"] {
        let error = Outlines::default()
            .get_or_build(Unit::Class, text, "tool:cat")
            .map(|units| units.len());
        assert_eq!(
            error,
            Err(OutlineError::UnknownLanguage(Unit::Class)),
            "{text:.40}"
        );
    }
}

#[test]
fn a_text_that_is_nested_too_deeply_is_refused() {
    let opened = [
        "{",
        "(",
        "[",
        "fn f(){",
        "function f(){",
        "class A{",
        "struct A{",
        "if a {",
        "`${",
        "<",
        "a<",
        "{a<",
    ];
    for open in opened {
        let text = open.repeat(100_000);
        for language in Language::ALL
            .into_iter()
            .filter(|it| *it != Language::Python)
        {
            assert!(
                find_definitions(&text, language).is_none(),
                "{open} in {language:?}"
            );
        }
    }
}

#[test]
fn comparisons_and_shifts_do_not_nest() {
    let list = |entry: &str| entry.repeat(600);
    let cases = [
        (
            "a.c",
            format!(
                "enum e {{ {} }};\nint f(void) {{ return 1; }}\n",
                list("A = 1 << 0,\n")
            ),
        ),
        (
            "a.go",
            format!(
                "package a\n\nconst (\n{})\n\nfunc f() int {{ return 1 }}\n",
                list("\tA = 1<<3\n")
            ),
        ),
        (
            "a.rs",
            format!(
                "fn f(x: u32) -> u32 {{ match x {{ {} _ => 1 }} }}\n",
                list("y if y <= 3 => 2,\n")
            ),
        ),
    ];
    for (source, text) in cases {
        let units = list_units(&text, source);
        assert!(units.contains("function f "), "{source}: {units}");
    }
    // They are not ambiguous, so that parsing many of them takes linear time.
    for piece in ["a<= ", "a<<= ", "a<< ", "a<<1 ", "a << "] {
        for language in Language::ALL {
            let found = find_definitions(&piece.repeat(20_000), language);
            assert!(found.is_some(), "{piece} in {language:?}");
        }
    }
}

#[test]
fn the_language_of_a_long_text_does_not_follow_from_its_first_lines() {
    let method =
        "    size(a: number, b?: string): number {\n        return a as number;\n    }\n\n";
    let class = format!(
        "import {{ b }} from './b';\n\nexport class A {{\n{}}}\n",
        method.repeat(1200)
    );
    let licence = format!(
        "/* A licence. */\n{}",
        "static struct s *f(struct s *a){return a->next;}".repeat(2500)
    );
    for (text, language) in [(class, Language::TypeScript), (licence, Language::C)] {
        assert!(text.len() > 64 << 10);
        assert_eq!(detect::detect_language(&text), Some(language), "{text:.60}");
    }
}

/// Syntax trees that are deep without brackets, and texts with a syntax error at every token.
#[test]
fn deep_syntax_trees_do_not_overflow_the_stack() {
    let cases = [
        ("a::", Language::Cpp),
        ("template<class T> ", Language::Cpp),
        ("if(a)else ", Language::C),
        ("(a)", Language::C),
        ("*", Language::C),
        ("a<", Language::Python),
        ("(", Language::Python),
        ("[a,", Language::Python),
        ("{a:(", Language::Python),
        ("lambda:", Language::Python),
        ("a.", Language::JavaScript),
        ("<a>", Language::Tsx),
        ("-", Language::Go),
        ("a+", Language::Java),
        ("&", Language::Rust),
        ("#[a]\n", Language::Rust),
        ("\u{0}\u{feff}é\"", Language::Rust),
    ];
    for (piece, language) in cases {
        assert!(
            find_definitions(&piece.repeat(20_000), language).is_some(),
            "{piece} in {language:?}"
        );
    }
}

#[test]
fn ordinary_nesting_is_accepted() {
    for (source, open, close) in [
        ("a.rs", "fn f(){", "}"),
        ("a.js", "function f(){", "}"),
        ("a.cpp", "struct f{", "};"),
    ] {
        let nested = open.repeat(200) + &close.repeat(200);
        let unit = if source == "a.cpp" {
            Unit::Class
        } else {
            Unit::Function
        };
        let units = Outlines::default()
            .get_or_build(unit, &nested, source)
            .unwrap();
        // In C++ types on the same lines are names for the same thing.
        let deepest = if source == "a.cpp" {
            "f"
        } else {
            "f.f.f.f.f.f.f.f"
        };
        assert_eq!((units.len(), &*units[199].name), (200, deepest), "{source}");
    }
}

#[test]
fn a_leading_comment_shares_no_line_with_other_code() {
    let cases = [
        (
            "a.rs",
            "#[inline] fn a() {}\n#[inline] fn b() {}\n",
            "function a 1-1\nfunction b 2-2\n",
        ),
        (
            "a.rs",
            "#[a] #[b]\n/* c */ // d\n#[e] /* f\n*/ #[g]\nfn h() {}\n",
            "function h 1-5\n",
        ),
        (
            "a.rs",
            "/* x */ const A: u8 = 1;\nfn b() {}\n",
            "function b 2-2\n",
        ),
        (
            "a.rs",
            "/* x\n*/ const A: u8 = 1;\n// y\nfn b() {}\n",
            "function b 3-4\n",
        ),
        (
            "a.c",
            "/* a */ int a(void) { return 1; }\n/* b */ int b(void) { return 2; } /* c */\n",
            "function a 1-1\nfunction b 2-2\n",
        ),
        (
            "a.py",
            "@a\n# b\n@c # d\ndef e():\n    pass\n",
            "function e 1-5\n",
        ),
        // The outer function ends on a line with another one, so it is shown without its line.
        (
            "a.cpp",
            "// c\nint f(int a) {int f(int a) {}a\n=\n}int f(int a) {}",
            "function f 2-4\nfunction f.f 2-2\nfunction f 4-4\n",
        ),
    ];
    for (source, text, expected) in cases {
        assert_eq!(list_units(text, source), expected, "{text}");
    }
}
