//! Tests of paragraphs, sections and names, and of the properties of every outline.

use proptest::prelude::*;

use super::*;
use crate::Content;

fn list_units(text: &str, unit: Unit) -> Vec<(String, u64, u64)> {
    let content = Content::new(text.to_owned());
    let units = content
        .unlimited_reader()
        .units(unit, "tool:cat")
        .unwrap_or_default();
    units
        .iter()
        .map(|unit| (unit.name.to_string(), unit.first_line, unit.last_line))
        .collect()
}

fn check(text: &str, unit: Unit, expected: &[(&str, u64, u64)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, first, last)| (name.to_string(), *first, *last))
        .collect();
    assert_eq!(list_units(text, unit), expected, "{text:?}");
}

#[test]
fn paragraphs_end_at_blank_lines() {
    check("", Unit::Paragraph, &[]);
    check(" \r\n\t\n\u{3000}\n", Unit::Paragraph, &[]);
    check("one", Unit::Paragraph, &[("", 1, 1)]);
    check(
        "\n\na\nb\n \t \n\u{a0}\nc",
        Unit::Paragraph,
        &[("", 3, 4), ("", 7, 7)],
    );
    check(
        "a\r\nb\r\n\r\n\r\nc\r\n",
        Unit::Paragraph,
        &[("", 1, 2), ("", 5, 5)],
    );
    check(
        "第一段。\n还是。\n　\n第二段。\n",
        Unit::Paragraph,
        &[("", 1, 2), ("", 4, 4)],
    );
    assert_eq!(
        Content::new(" \n")
            .unlimited_reader()
            .units(Unit::Paragraph, ""),
        Err(OutlineError::None(Unit::Paragraph).into())
    );
}

#[test]
fn sections_run_to_the_next_heading_of_their_level() {
    let text = "---\ntitle: x\n---\nBefore.\n# The `main` *thing* #\n\n## 二\n```sh\n# no \
         heading\n```\n~~~\n## nor this\n~~~\n   ### \
         Deep\n\nUnder\nlined\n===\ntext\n\nLower\n-----\n> # quoted\n\n- # listed\n\n    # \
         code\n#hash\n####### seven\n";
    check(
        text,
        Unit::Section,
        &[
            ("The main thing", 5, 15),
            ("二", 7, 15),
            ("Deep", 14, 15),
            ("Under lined", 16, 29),
            ("Lower", 21, 29),
        ],
    );
    check(
        "# a\r\nb\r\n# c\r\n",
        Unit::Section,
        &[("a", 1, 2), ("c", 3, 3)],
    );
    check(
        "## a\n# b\n### c\n## d",
        Unit::Section,
        &[("a", 1, 1), ("b", 2, 4), ("c", 3, 3), ("d", 4, 4)],
    );
    check("#\n", Unit::Section, &[("", 1, 1)]);
    assert_eq!(
        Content::new("no\nheading\n")
            .unlimited_reader()
            .units(Unit::Section, ""),
        Err(OutlineError::None(Unit::Section).into())
    );
}

#[test]
fn hostile_markdown_is_read_in_one_pass() {
    for piece in [
        "> ", "- ", "[", "[a](", "*", "_a ", "`", "![", "<a ", "# ", "\n#", "a\n=\n", "1. ", "&",
        "\\", "|",
    ] {
        let _outline = Content::new(piece.repeat(50_000))
            .unlimited_reader()
            .units(Unit::Section, "")
            .map(|units| units.len());
    }
}

#[test]
fn binary_and_too_large_contents_are_refused() {
    let binary = Content::new(vec![0xff, 0]);
    for unit in Unit::ALL {
        assert_eq!(
            binary.unlimited_reader().units(unit, "a.rs"),
            Err(OutlineError::Binary(unit).into())
        );
    }
    let len = MAX_PARSED_BYTES + 1;
    let large = Content::new("a\n".repeat(len)[..len].to_owned());
    assert_eq!(
        large.unlimited_reader().units(Unit::Section, ""),
        Err(OutlineError::TooLarge {
            unit: Unit::Section,
            len
        }
        .into())
    );
    assert_eq!(
        large
            .unlimited_reader()
            .units(Unit::Paragraph, "")
            .map(|units| units.len()),
        Ok(1)
    );
    let many = Content::new("a\n\n".repeat(MAX_UNITS + 1));
    assert_eq!(
        many.unlimited_reader().units(Unit::Paragraph, ""),
        Err(OutlineError::TooMany(Unit::Paragraph).into())
    );
    #[cfg(not(feature = "grammars"))]
    assert_eq!(
        Content::new("fn f() {}")
            .unlimited_reader()
            .units(Unit::Function, "a.rs"),
        Err(OutlineError::NoGrammars(Unit::Function).into())
    );
}

fn unit(name: &str, implemented: &str) -> OutlineEntry {
    OutlineEntry {
        name: name.into(),
        implemented: implemented.into(),
        first_line: 1,
        last_line: 1,
        within_lines: None,
    }
}

#[test]
fn an_exact_name_is_found_before_looser_matches() {
    let units = [
        unit("Circle", ""),
        unit("impl Circle", "Circle"),
        unit("impl Shape for Square", "Square"),
        unit("Circle.area", ""),
        unit("geo.Circle.area", ""),
        unit("area", ""),
        unit("Set up", ""),
        unit("Square.side", ""),
    ];
    let cases: [(&str, &[usize]); 12] = [
        ("Circle", &[0]),
        ("impl Circle", &[1]),
        ("Square", &[2]),
        ("Circle.area", &[3]),
        ("Circle::area", &[3, 4]),
        ("geo::Circle::area", &[4]),
        ("area", &[5]),
        ("side", &[7]),
        ("## Set  up", &[6]),
        ("ide", &[]),
        ("circle", &[]),
        ("", &[]),
    ];
    for (query, found) in cases {
        assert_eq!(name::find(&units, query), found, "{query}");
    }
    for (query, nearest) in [
        ("circle", 0),
        ("AREA", 3),
        ("sied", 7),
        ("Square::side", 7),
        ("set up", 6),
    ] {
        assert_eq!(
            name::nearest(&units, query).first(),
            Some(&nearest),
            "{query}"
        );
    }
    for unlike in ["zzz", &"Circle".repeat(100)] {
        assert!(name::nearest(&units, unlike).is_empty(), "{unlike}");
    }
}

#[test]
fn white_space_is_collapsed_and_text_is_cut_by_characters() {
    assert_eq!(name::words(" a\r\n\tb  c ", 9), "a b c");
    assert_eq!(name::words("ééé é", 4), "ééé …");
    assert_eq!(name::words("ééé é", 5), "ééé é");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn units_are_whole_lines_of_the_content_in_its_order(
        pieces in prop::collection::vec(prop_oneof![
            Just("\n"), Just("\r\n"), Just("# "), Just("a\n=\n"), Just("```\n"), Just("é 中"), Just("fn f() {"), Just("def f():\n  a"),
            Just("}"), Just("class A {"), Just("("), Just("*/"), Just("/*"), Just("// c\n"), Just("int f(int a) {"), Just("\""),
            Just("@d\n"), Just("function f() {"), Just("impl A for B {"), Just(";"), Just(" "),
        ], 0..60),
    ) {
        let content = Content::new(pieces.concat());
        for (unit, source) in Unit::ALL.into_iter().flat_map(|unit| ["a.rs", "a.py", "a.cpp", "a.tsx", "a.java"].map(|source| (unit, source))) {
            let mut before = 1;
            for found in &*content.unlimited_reader().units(unit, source).unwrap_or_default() {
                let OutlineEntry { first_line, last_line, .. } = *found;
                prop_assert!(first_line >= before && last_line >= first_line && last_line <= content.unlimited_reader().total_lines().unwrap(), "{found:?}");
                let slice = content.unlimited_reader().lines(first_line, found.lines()).unwrap().expect("the lines exist");
                prop_assert!(!slice.continued && !slice.truncated && !slice.text.is_empty(), "{found:?}");
                prop_assert_eq!((slice.first_line, slice.last_line), (first_line, last_line));
                before = first_line;
            }
        }
    }
}

#[test]
#[cfg(feature = "grammars")]
fn code_is_parsed_once_for_each_language() {
    use crate::ReadQuota;

    let text = "fn a() {\n}\nstruct B {\n}\n".repeat(10_000);
    let content = Content::new(text);
    let units = |unit, quota: &ReadQuota| content.reader(quota).units(unit, "file:a.rs");
    let small = ReadQuota::inline(1 << 10);
    assert!(units(Unit::Function, &small).is_err() && small.is_used_up());
    let parsed = units(Unit::Function, ReadQuota::unlimited()).unwrap();
    // What was found needs no byte of the text, and classes are found with the functions.
    let small = ReadQuota::inline(1 << 10);
    assert!(std::sync::Arc::ptr_eq(
        &parsed,
        &units(Unit::Function, &small).unwrap()
    ));
    assert_eq!(units(Unit::Class, &small).unwrap().len(), 10_000);
    assert!(!small.is_used_up());
}
