//! Tests every form of selection on the same twelve lines, with pages of 18 characters (three
//! lines).

use dormouse_proto::descriptor::FdErrorKind;
use proptest::prelude::*;
use roxmltree::Document;

use super::*;
use crate::table::Table;
use dormouse_content::Content;
use dormouse_proto::descriptor::DescriptorSettings;

fn table(text: &str, page_chars: u32) -> Table {
    let entry = Entry::new(Content::new(text.to_owned()), page_chars, "tool:t", 0);
    let mut table = Table::new();
    table.insert(table.next_id(), entry);
    table
}

fn rows() -> Table {
    table(
        &(1..=12).map(|n| format!("row{n:02}\n")).collect::<String>(),
        18,
    )
}

fn call(table: &Table, args: &str) -> Outcome {
    read_fd(&Call::unlimited(
        table,
        &args.replace('\'', "\""),
        &DescriptorSettings::default(),
        5,
    ))
}

fn answer(outcome: Outcome) -> String {
    outcome
        .answer()
        .expect("read_fd asks for nothing outside")
        .text
        .to_string()
}

#[test]
fn each_form_of_selection_shows_and_names_its_part() {
    let cases = [
        ("{'fd':'fd:1'}", "page=\"1\"", "1-3"),
        ("{'fd':'fd-1','page':2}", "page=\"2\"", "4-6"),
        ("{'fd':'fd:1','page':'2'}", "page=\"2\"", "4-6"),
        (
            "{'fd':'fd:1','page':2,'mode':'page','read_all':false}",
            "page=\"2\"",
            "4-6",
        ),
        ("{'fd':'fd:1','start':2}", "page=\"2\"", "4-6"),
        (
            "{'fd':'fd:1','mode':'page','start':2,'count':3}",
            "page=\"2-4\" start=\"2\" count=\"3\"",
            "4-12",
        ),
        (
            "{'fd':'fd:1','start':3,'count':50}",
            "page=\"3-4\" start=\"3\" count=\"2\"",
            "7-12",
        ),
        (
            "{'fd':'fd:1','start':4,'count':50}",
            "page=\"4\" start=\"4\" count=\"1\"",
            "10-12",
        ),
        (
            "{'fd':'fd:1','count':1}",
            "page=\"1\" start=\"1\" count=\"1\"",
            "1-3",
        ),
        (
            "{'fd':'fd:1','mode':'line'}",
            "mode=\"line\" start=\"1\" count=\"1\"",
            "1-1",
        ),
        (
            "{'fd':'fd:1','mode':'line','start':11,'count':50}",
            "mode=\"line\" start=\"11\" count=\"2\"",
            "11-12",
        ),
        (
            "{'fd':'fd:1','start_line':2,'end_line':'4'}",
            "mode=\"line\" start=\"2\" count=\"3\"",
            "2-4",
        ),
        (
            "{'fd':'fd:1','start_line':11}",
            "mode=\"line\" start=\"11\" count=\"2\"",
            "11-12",
        ),
        (
            "{'fd':'fd:1','end_line':2}",
            "mode=\"line\" start=\"1\" count=\"2\"",
            "1-2",
        ),
        (
            "{'fd':'fd:1','end_line':99}",
            "mode=\"line\" start=\"1\" count=\"12\"",
            "1-12",
        ),
        (
            "{'fd':'fd:1','mode':'char'}",
            "mode=\"char\" start=\"0\" count=\"1\"",
            "1-1",
        ),
        (
            "{'fd':'fd:1','mode':'char','start':3,'count':6}",
            "mode=\"char\" start=\"3\" count=\"6\"",
            "1-2",
        ),
        (
            "{'fd':'fd:1','mode':'char','start':70,'count':99}",
            "mode=\"char\" start=\"70\" count=\"2\"",
            "12-12",
        ),
        (
            "{'fd':'fd:1','unit':'paragraph','index':'1'}",
            "unit=\"paragraph\" index=\"1\"",
            "1-12",
        ),
        (
            "{'fd':'fd:1','read_all':true,'unit':'x','index':9}",
            "page=\"all\"",
            "1-12",
        ),
        (
            "{'fd':'fd:1','read_all':'true','page':99,'mode':'x','start_line':7}",
            "page=\"all\"",
            "1-12",
        ),
    ];
    for (args, served, lines) in cases {
        let xml = answer(call(&rows(), args));
        assert!(
            xml.starts_with(&format!("<fd_content fd=\"fd:1\" {served} pages=\"4\" ")),
            "{args}: {xml}"
        );
        assert!(
            xml.contains(&format!("lines=\"{lines}\" total_lines=\"12\"")),
            "{args}: {xml}"
        );
    }
}

#[test]
fn invalid_selections_are_refused_with_the_valid_values() {
    use FdErrorKind::{InvalidPage, InvalidParameter, InvalidRange, NotFound};
    let cases = [
        ("{'fd':'fd:2'}", NotFound, "fd:2 not found"),
        ("{'fd':'1'}", NotFound, "1 not found"),
        ("{'fd':'fd:1','page':0}", InvalidPage, "Valid range: 1-4"),
        (
            "{'fd':'fd:1','page':5}",
            InvalidPage,
            "page number 5. Valid range: 1-4",
        ),
        ("{'fd':'fd:1','start':-1}", InvalidPage, "Valid range: 1-4"),
        ("{'fd':'fd:1','start':1,'count':0}", InvalidRange, "count 0"),
        (
            "{'fd':'fd:1','mode':'line','start':13}",
            InvalidRange,
            "Valid range: 1-12",
        ),
        (
            "{'fd':'fd:1','mode':'line','start':0}",
            InvalidRange,
            "Valid range: 1-12",
        ),
        (
            "{'fd':'fd:1','start_line':13,'end_line':14}",
            InvalidRange,
            "Valid range: 1-12",
        ),
        (
            "{'fd':'fd:1','start_line':3,'end_line':2}",
            InvalidRange,
            "Valid range: 3-12",
        ),
        (
            "{'fd':'fd:1','end_line':0}",
            InvalidRange,
            "Valid range: 1-12",
        ),
        (
            "{'fd':'fd:1','mode':'char','start':72}",
            InvalidRange,
            "Valid range: 0-71",
        ),
        (
            "{'fd':'fd:1','mode':'char','start':3,'count':-5}",
            InvalidRange,
            "count -5",
        ),
        (
            "{'fd':'fd:1','mode':'paragraph'}",
            InvalidParameter,
            "page, line, char",
        ),
        (
            "{'fd':'fd:1','page':1,'start_line':1}",
            InvalidParameter,
            "'page' and 'start_line'",
        ),
        (
            "{'fd':'fd:1','page':1,'start':1}",
            InvalidParameter,
            "'page' and 'start'",
        ),
        (
            "{'fd':'fd:1','page':1,'mode':'line'}",
            InvalidParameter,
            "'page' and 'mode'",
        ),
        (
            "{'fd':'fd:1','end_line':1,'mode':'page'}",
            InvalidParameter,
            "'end_line' and 'mode'",
        ),
        (
            "{'fd':'fd:1','unit':'paragraph','index':3}",
            InvalidRange,
            "paragraph index 3. Valid range: 1-1",
        ),
        (
            "{'fd':'fd:1','unit':'paragraph','index':0}",
            InvalidRange,
            "Valid range: 1-1",
        ),
        (
            "{'fd':'fd:1','unit':'paragraph','name':'x'}",
            InvalidParameter,
            "no names",
        ),
        (
            "{'fd':'fd:1','unit':'line','index':1}",
            InvalidParameter,
            "paragraph, section, function, class",
        ),
        (
            "{'fd':'fd:1','unit':'section','index':1,'name':'x'}",
            InvalidParameter,
            "'index' and 'name'",
        ),
        (
            "{'fd':'fd:1','unit':'section','index':1}",
            InvalidParameter,
            "no Markdown heading",
        ),
        ("{'fd':'fd:1','index':1}", InvalidParameter, "need 'unit'"),
        ("{'fd':'fd:1','name':'x'}", InvalidParameter, "need 'unit'"),
        (
            "{'fd':'fd:1','unit':'section','page':1}",
            InvalidParameter,
            "'page' and 'unit'",
        ),
        (
            "{'fd':'fd:1','unit':'section','mode':'line'}",
            InvalidParameter,
            "'mode' and 'unit'",
        ),
        (
            "{'fd':'fd:1','name':'x','end_line':2}",
            InvalidParameter,
            "'end_line' and 'name'",
        ),
        (
            "{'fd':'fd:1','pag':3}",
            InvalidParameter,
            "Did you mean 'page'?",
        ),
        ("{'page':3}", InvalidParameter, "'fd' is missing"),
        (
            "{'fd':'fd:1','read_all':true,'page':'x'}",
            InvalidParameter,
            "'page' must be an integer",
        ),
    ];
    for (args, kind, message) in cases {
        for args in [
            args.to_owned(),
            args.replace('}', ",'extract_to_new_fd':true}"),
        ] {
            let Outcome::Answer(answer) = call(&rows(), &args) else {
                panic!("{args} must open nothing")
            };
            assert!(
                answer.is_error && answer.text.starts_with("<fd_error"),
                "{args}: {}",
                answer.text
            );
            assert!(
                answer.text.contains(&format!("type=\"{}\"", kind.word())),
                "{args}: {}",
                answer.text
            );
            assert!(
                Document::parse(&answer.text)
                    .unwrap()
                    .root_element()
                    .children()
                    .any(|message_element| {
                        message_element
                            .text()
                            .is_some_and(|text| text.contains(message))
                    }),
                "{args}: {}",
                answer.text
            );
        }
    }
}

#[test]
fn an_extraction_opens_a_descriptor_and_shows_no_content() {
    let cases = [
        ("'start':2", "row04\nrow05\nrow06\n"),
        ("'mode':'char','start':3,'count':4", "01\nr"),
        ("'page':4", "row10\nrow11\nrow12\n"),
    ];
    for (selection, text) in cases {
        let args = format!("{{'fd':'fd:1',{selection},'extract_to_new_fd':true}}");
        let Outcome::Opened(extracted) = call(&rows(), &args) else {
            panic!("{args} must open")
        };
        let (entry, answer) = (&extracted.entry, extracted.answer(&FdId::Fd(2)));
        assert_eq!(
            (
                &*entry.content.unlimited_reader().text().unwrap(),
                entry.page_chars
            ),
            (text, 18)
        );
        assert_eq!((&*entry.source, entry.opened_ms), ("extract:fd:1", 5));
        assert!(
            answer
                .text
                .starts_with("<fd_extraction source_fd=\"fd:1\" new_fd=\"fd:2\" "),
            "{}",
            answer.text
        );
        assert!(!answer.text.contains("row"), "{}", answer.text);
    }
    for args in [
        "{'fd':'fd:1','extract_to_new_fd':true}",
        "{'fd':'fd:1','mode':'char','extract_to_new_fd':true}",
    ] {
        let Outcome::Opened(extracted) = call(&table("", 18), args) else {
            panic!("{args} must open")
        };
        assert_eq!(extracted.entry.content, Content::new(""));
    }
}

#[test]
fn an_extraction_is_not_limited_by_max_read_chars() {
    let settings = DescriptorSettings {
        max_read_chars: 10,
        ..DescriptorSettings::default()
    };
    let args = r#"{"fd": "fd:1", "read_all": true, "extract_to_new_fd": true}"#;
    let Outcome::Opened(extracted) = read_fd(&Call::unlimited(&rows(), args, &settings, 0)) else {
        panic!("it must open")
    };
    assert_eq!(
        extracted
            .entry
            .content
            .unlimited_reader()
            .total_chars()
            .unwrap(),
        72
    );
}

/// Reads to the end, part by part, as the answers state. Returns the joined text and the number of
/// answers.
fn read_all_parts(table: &Table, mut args: String, max_read_chars: u64) -> (String, usize) {
    let settings = DescriptorSettings {
        max_read_chars,
        ..DescriptorSettings::default()
    };
    let mut joined = String::new();
    for answers in 1.. {
        let xml = answer(read_fd(&Call::unlimited(table, &args, &settings, 0)));
        let document = Document::parse(&xml).unwrap();
        let root = document.root_element();
        let text: String = root.children().filter_map(|node| node.text()).collect();
        assert!(
            text.chars().count() as u64 <= max_read_chars.max(1),
            "{xml}"
        );
        joined += &text;
        let Some(mode) = root.attribute("next_mode") else {
            return (joined, answers);
        };
        let (start, count) = (
            root.attribute("next_start").unwrap(),
            root.attribute("next_count").unwrap(),
        );
        args = format!(r#"{{"fd": "fd:1", "mode": "{mode}", "start": {start}, "count": {count}}}"#);
    }
    unreachable!("the loop has no end of its own")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_part_by_part_returns_the_whole_selection(
        text in "([a-z]{0,12}\n|é<&]]>|[a-z]{20,40}){0,20}",
        page_chars in 1_u32..40,
        max_read_chars in 0_u64..40,
    ) {
        let table = table(&text, page_chars);
        for args in ["\"read_all\": true", "\"count\": 9999", "\"start_line\": 1", "\"mode\": \
             \"char\", \"count\": 9999"] {
            let (joined, answers) = read_all_parts(&table, format!(r#"{{"fd": "fd:1", {args}}}"#), max_read_chars);
            prop_assert_eq!(&joined, &text);
            prop_assert!(answers == 1 || text.chars().count() as u64 > max_read_chars);
        }
    }
}

#[test]
fn a_limited_answer_ends_at_the_end_of_a_line_or_page() {
    let cases = [
        (
            "{'fd':'fd:1','read_all':true}",
            "mode=\"line\" start=\"1\" count=\"6\"",
            "next_mode=\"line\" next_start=\"7\" next_count=\"6\"",
        ),
        (
            "{'fd':'fd:1','start':2,'count':3}",
            "page=\"2-3\"",
            "next_mode=\"page\" next_start=\"4\" next_count=\"1\"",
        ),
        (
            "{'fd':'fd:1','start_line':2}",
            "start=\"2\" count=\"6\"",
            "next_mode=\"line\" next_start=\"8\" next_count=\"5\"",
        ),
        (
            "{'fd':'fd:1','mode':'char','count':72}",
            "start=\"0\" count=\"40\"",
            "next_mode=\"char\" next_start=\"40\" next_count=\"32\"",
        ),
    ];
    let settings = DescriptorSettings {
        max_read_chars: 40,
        ..DescriptorSettings::default()
    };
    for (args, served, next) in cases {
        let xml = answer(read_fd(&Call::unlimited(
            &rows(),
            &args.replace('\'', "\""),
            &settings,
            0,
        )));
        assert!(
            xml.contains(served) && xml.contains(next) && xml.contains("complete=\"false\""),
            "{args}: {xml}"
        );
    }
}

const MANUAL: &str = "# Manual\n\n## Set up\nfirst\nsecond\nthird\n\n## Use\n\n### Set up\nlast\n";

#[test]
fn a_unit_is_shown_by_name_and_units_are_listed_without_one() {
    let table = table(MANUAL, 100);
    let xml = answer(call(
        &table,
        "{'fd':'fd:1','unit':'section','name':'## Use'}",
    ));
    assert!(
        xml.starts_with(
            "<fd_content fd=\"fd:1\" unit=\"section\" index=\"3\" name=\"Use\" pages=\"1\" "
        ),
        "{xml}"
    );
    assert!(
        xml.contains("lines=\"8-11\"") && xml.contains(">## Use\n\n### Set up\nlast\n<"),
        "{xml}"
    );
    let xml = answer(call(&table, "{'fd':'fd:1','unit':'paragraph'}"));
    assert!(
        xml.starts_with("<fd_units fd=\"fd:1\" unit=\"paragraph\" total=\"4\" total_lines=\"11\">"),
        "{xml}"
    );
    assert!(
        xml.contains("<unit index=\"2\" name=\"## Set up first second third\" lines=\"3-6\"/>"),
        "{xml}"
    );
    let bounded = DescriptorSettings {
        max_read_chars: 550,
        ..DescriptorSettings::default()
    };
    let xml = answer(read_fd(&Call::unlimited(
        &table,
        r#"{"fd": "fd:1", "unit": "section"}"#,
        &bounded,
        0,
    )));
    assert!(
        xml.contains("total=\"4\" shown=\"1-2\"") && xml.contains("next_start=\"3\""),
        "{xml}"
    );
    assert_eq!(xml.matches("<unit ").count(), 2, "{xml}");
    let xml = answer(call(
        &table,
        "{'fd':'fd:1','unit':'section','start':3,'count':1}",
    ));
    assert!(
        xml.contains("shown=\"3-3\"") && xml.contains("next_start=\"4\""),
        "{xml}"
    );
    assert!(
        xml.contains("<unit index=\"3\" name=\"Use\" lines=\"8-11\"/>"),
        "{xml}"
    );
    let xml = answer(call(&table, "{'fd':'fd:1','unit':'section','start':5}"));
    assert!(
        xml.contains("Invalid section index 5. Valid range: 1-4"),
        "{xml}"
    );
}

#[test]
fn an_unknown_or_ambiguous_name_is_refused_with_the_valid_ones() {
    let cases = [
        (
            "Set up",
            &[
                "2 sections are named 'Set up'",
                "'Set up' (index 2, lines 3-7); 'Set up' (index 4, lines 10-11)",
            ][..],
        ),
        (
            "use",
            &["No section is named 'use'. Did you mean 'Use' (index 3, lines 8-11)?"],
        ),
        (
            "zzz",
            &[
                "No section is named 'zzz'. The content has 4 sections: Manual, Set up, Use, Set \
                 up.",
            ],
        ),
    ];
    for (name, expected) in cases {
        let text = answer(call(
            &table(MANUAL, 100),
            &format!("{{'fd':'fd:1','unit':'section','name':'{name}'}}"),
        ));
        for part in expected {
            assert!(
                text.contains("type=\"invalid_parameter\"") && text.contains(part),
                "{text}"
            );
        }
    }
    let many: String = (0..30).map(|n| format!("# h{n}\n")).collect();
    let text = answer(call(
        &table(&many, 100),
        "{'fd':'fd:1','unit':'section','name':'zzz'}",
    ));
    assert!(
        text.contains("h19, and 10 more.") && !text.contains("h20"),
        "{text}"
    );
}

#[test]
fn a_unit_is_extracted_whole_and_a_limited_one_continues_by_lines() {
    let table = table(MANUAL, 100);
    let args = "{'fd':'fd:1','unit':'section','index':2,'extract_to_new_fd':true}";
    let Outcome::Opened(extracted) = call(&table, args) else {
        panic!("it must open")
    };
    let extraction = extracted.answer(&FdId::Fd(2));
    assert_eq!(
        extracted.entry.content.unlimited_reader().text().unwrap(),
        "## Set up\nfirst\nsecond\nthird\n\n"
    );
    assert!(
        extraction
            .text
            .contains("unit=\"section\" index=\"2\" name=\"Set up\" lines=\"3-7\""),
        "{}",
        extraction.text
    );
    let listing = answer(call(
        &table,
        "{'fd':'fd:1','unit':'section','extract_to_new_fd':true}",
    ));
    assert!(
        listing.contains("Which section is not said. Use 'index' (1-4) or 'name'."),
        "{listing}"
    );
    let bounded = DescriptorSettings {
        max_read_chars: 17,
        ..DescriptorSettings::default()
    };
    let xml = answer(read_fd(&Call::unlimited(
        &table,
        r#"{"fd": "fd:1", "unit": "section", "index": 2}"#,
        &bounded,
        0,
    )));
    assert!(
        xml.contains("unit=\"section\" index=\"2\"") && xml.contains("lines=\"3-4\""),
        "{xml}"
    );
    assert!(
        xml.contains("next_mode=\"line\" next_start=\"5\" next_count=\"3\""),
        "{xml}"
    );
    let (joined, answers) = read_all_parts(
        &table,
        r#"{"fd": "fd:1", "unit": "section", "index": 2}"#.to_owned(),
        4,
    );
    assert_eq!(
        (&*joined, answers > 4),
        ("## Set up\nfirst\nsecond\nthird\n\n", true)
    );
}

#[test]
fn a_list_of_units_obeys_max_read_chars_and_is_paged_to_the_end() {
    let heading = |n: usize| format!("# {n} {}\n\n", "<& \"long\" ".repeat(n % 40));
    let table = table(&(1..=300).map(heading).collect::<String>(), 100);
    let settings = DescriptorSettings {
        max_read_chars: 4000,
        ..DescriptorSettings::default()
    };
    let (mut start, mut listed) = (Some(1), 0);
    while let Some(first) = start {
        let args = format!(r#"{{"fd": "fd:1", "unit": "section", "start": {first}}}"#);
        let xml = answer(read_fd(&Call::unlimited(&table, &args, &settings, 0)));
        assert!(xml.len() <= 4000, "{} characters", xml.len());
        let document = Document::parse(&xml).unwrap();
        let units = document
            .descendants()
            .filter(|node| node.has_tag_name("unit"));
        for unit in units {
            listed += 1;
            assert_eq!(unit.attribute("index"), Some(&*listed.to_string()));
        }
        let next = document.root_element().attribute("next_start");
        start = next.map(|next| next.parse::<usize>().unwrap());
    }
    assert_eq!(listed, 300);
}

#[cfg(feature = "grammars")]
#[test]
fn functions_that_share_a_line_are_shown_without_each_other() {
    let licence = "/*! Licence of a library. */\n";
    let filler = format!("var a=\"{}\";", "x".repeat(300));
    let text = format!(
        "{licence}!function(){{{filler}function G(a){{return a+1}}function H(a){{return G(a)}}}}();\n\
         function one() {{ return 1; }} function two() {{ return 2; }}\n\
         // Of three.\nexport function three() {{ return 3; }}\n"
    );
    let table = table(&text, 1000);
    for (name, expected) in [
        ("G", "function G(a){return a+1}"),
        ("H", "function H(a){return G(a)}"),
        ("one", "function one() { return 1; }"),
        ("two", "function two() { return 2; }"),
        (
            "three",
            "// Of three.\nexport function three() { return 3; }\n",
        ),
    ] {
        let args =
            format!("{{'fd':'fd:1','unit':'function','name':'{name}','language':'javascript'}}");
        let xml = answer(call(&table, &args));
        let document = Document::parse(&xml).unwrap();
        let root = document.root_element();
        let shown: String = root.children().filter_map(|node| node.text()).collect();
        assert_eq!(shown, expected, "{xml}");
        if name == "three" {
            continue;
        }
        let [start, count] = ["start", "count"].map(|key| root.attribute(key).unwrap());
        let again = format!("{{'fd':'fd:1','mode':'char','start':{start},'count':{count}}}");
        assert!(
            answer(call(&table, &again)).contains(expected),
            "the place is stated"
        );
    }
    let list = answer(call(
        &table,
        "{'fd':'fd:1','unit':'function','language':'javascript'}",
    ));
    let start = text.find("function G").unwrap();
    let chars = format!("name=\"G\" lines=\"2-2\" chars=\"{start}-{}\"", start + 24);
    assert!(list.contains(&chars), "{list}");
}

#[cfg(feature = "grammars")]
#[test]
fn the_language_of_a_content_can_be_said() {
    let table = table("x\n", 100);
    let xml = answer(call(&table, "{'fd':'fd:1','unit':'function'}"));
    assert!(xml.contains("Say which with language"), "{xml}");
    let xml = answer(call(
        &table,
        "{'fd':'fd:1','unit':'function','language':'go'}",
    ));
    assert!(xml.contains("has no functions"), "{xml}");
    let xml = answer(call(
        &table,
        "{'fd':'fd:1','unit':'function','language':'cobol'}",
    ));
    assert!(
        xml.contains("invalid_parameter") && xml.contains("python"),
        "{xml}"
    );
}

#[cfg(feature = "grammars")]
#[test]
fn a_method_is_shown_by_its_qualified_name() {
    let text = "struct A;\n\nimpl A {\n    /// Of A.\n    fn new() -> A { A }\n}\n\nimpl B {\n    \
         fn new() -> B { B }\n}\n";
    let table = table(text, 100);
    let xml = answer(call(
        &table,
        "{'fd':'fd:1','unit':'function','name':'A::new'}",
    ));
    assert!(
        xml.contains("unit=\"function\" index=\"1\" name=\"A.new\"")
            && xml.contains("lines=\"4-5\""),
        "{xml}"
    );
    let xml = answer(call(&table, "{'fd':'fd:1','unit':'function','name':'new'}"));
    assert!(
        xml.contains("'A.new' (index 1, lines 4-5); 'B.new' (index 2, lines 9-9)."),
        "{xml}"
    );
}

#[test]
fn line_numbers_are_shown_by_a_parameter_or_the_setting() {
    let settings = |line_numbers, max_read_chars| DescriptorSettings {
        line_numbers,
        max_read_chars,
        ..DescriptorSettings::default()
    };
    let shown = |text: &str, args: &str, settings: &DescriptorSettings| {
        let args = format!(r#"{{"fd": "fd:1"{}}}"#, args.replace('\'', "\""));
        answer(read_fd(&Call::unlimited(
            &table(text, 18),
            &args,
            settings,
            0,
        )))
    };
    let rows: String = (1..=12).map(|n| format!("row{n:02}\n")).collect();
    let (off, on) = (settings(false, 1000), settings(true, 1000));
    let numbered = "line_numbers=\"true\">4\trow04\n5\trow05\n6\trow06\n</fd_content>";
    assert!(shown(&rows, ",'page':2,'line_numbers':true", &off).ends_with(numbered));
    assert!(shown(&rows, ",'page':2", &on).ends_with(numbered));
    for (args, settings) in [(",'page':2", &off), (",'page':2,'line_numbers':false", &on)] {
        let xml = shown(&rows, args, settings);
        assert!(
            xml.ends_with(">row04\nrow05\nrow06\n</fd_content>"),
            "{xml}"
        );
    }
    let within = shown(&rows, ",'mode':'char','start':8,'count':6", &on);
    assert!(within.ends_with(">2\tw02\n3\tro</fd_content>"), "{within}");
    let crlf = shown("a\r\nb\r\n", "", &on);
    assert!(
        crlf.ends_with("line_ending=\"crlf\">1\ta\n2\tb\n</fd_content>"),
        "{crlf}"
    );
    let empty = shown("", "", &on);
    assert!(empty.contains("lines=\"1-1\""), "{empty}");
}

#[test]
fn the_numbers_of_lines_fit_into_max_read_chars() {
    let rows: String = (1..=2000).map(|n| "x".repeat(n % 7) + "\n").collect();
    for max_read_chars in [1, 2, 3, 10, 100, 777, 5000] {
        let settings = DescriptorSettings {
            line_numbers: true,
            max_read_chars,
            ..DescriptorSettings::default()
        };
        let args = r#"{"fd": "fd:1", "read_all": true}"#;
        let xml = answer(read_fd(&Call::unlimited(
            &table(&rows, 100),
            args,
            &settings,
            0,
        )));
        let document = Document::parse(&xml).unwrap();
        let text = document.root_element().text().unwrap_or_default();
        let chars = text.chars().count() as u64;
        // At least a character is shown, with the number of its line.
        assert!(
            chars <= max_read_chars.max(3),
            "{chars} of {max_read_chars}"
        );
        assert!(
            max_read_chars < 100 || chars * 2 > max_read_chars,
            "{chars} of {max_read_chars}"
        );
    }
}
