//! The parameter `pretty`: whether a call shows reformatted JSON.
//!
//! A `Form` is the text as it is, or its JSON reformatted; a `View` is a descriptor in one form.
//! `kernel/machine/src/table/form.rs` defines both, and the form for a call that requests none.

use std::borrow::Cow;

use dormouse_proto::descriptor::FdError;
use dormouse_proto::record::Entry;

use super::Call;
use super::args::Args;
use crate::table::{Form, View, view_as};
use dormouse_content::{Content, PrettyError};

/// The form that a call requests, if any.
pub(super) fn requested(args: &Args) -> Option<Form> {
    args.flag("pretty")
        .map(|pretty| if pretty { Form::Pretty } else { Form::Plain })
}

/// The descriptor in the requested or the default form.
///
/// # Errors
/// `invalid_parameter` if reformatted JSON was requested and the content is not JSON.
/// `content_unreadable`.
pub(super) fn view<'a>(
    args: &Args,
    entry: Cow<'a, Entry<Content>>,
    requested: Option<Form>,
    call: &Call<'a>,
) -> Result<View<'a>, FdError> {
    view_as(entry, requested, call.settings, call.quota).map_err(|error| match error {
        PrettyError::Unreadable(error) => args.unreadable_error(error),
        error => args.invalid_error(format!(
            "pretty=true cannot be served: {error}. Leave 'pretty' out or false."
        )),
    })
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::FdId;
    use dormouse_proto::tool::Answer;
    use roxmltree::Document;

    use super::super::{
        Outcome, Syscall, fd_to_file, list_fd_sections, list_fds, mark_fd_section, read_fd,
        search_fd,
    };
    use super::*;
    use crate::table::Table;
    use dormouse_proto::descriptor::DescriptorSettings;

    const JSON: &str = r#"{"a":1.0,"b":[10,20]}"#;
    const PRETTY: &str = "{\n  \"a\": 1.0,\n  \"b\": [\n    10,\n    20\n  ]\n}";

    fn settings(pretty_json: bool) -> DescriptorSettings {
        DescriptorSettings {
            pretty_json,
            ..DescriptorSettings::default()
        }
    }

    fn table(bytes: &[u8]) -> Table {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new(bytes.to_vec()), 12, "tool:t", 0),
        );
        table
    }

    fn args(more: &str) -> String {
        format!(r#"{{"fd": "fd:1"{}}}"#, more.replace('\'', "\""))
    }

    fn read(more: &str, settings: &DescriptorSettings) -> Outcome {
        read_fd(&Call::unlimited(
            &table(JSON.as_bytes()),
            &args(more),
            settings,
            0,
        ))
    }

    fn written(more: &str, settings: &DescriptorSettings) -> (String, Answer) {
        let args = args(&format!(",'file_path':'o'{more}"));
        let Outcome::Write(pending) = fd_to_file(&Call::unlimited(
            &table(JSON.as_bytes()),
            &args,
            settings,
            0,
        )) else {
            panic!("{args} must write")
        };
        (
            String::from_utf8(pending.write.bytes.to_vec()).unwrap(),
            pending.answer(Ok(())),
        )
    }

    /// Returns the text of an answer and its attribute `pretty`.
    fn shown(outcome: &Outcome) -> (String, Option<String>) {
        let xml = outcome.answer().unwrap().text.to_string();
        let document = Document::parse(&xml).unwrap();
        let text = document
            .root_element()
            .children()
            .filter_map(|node| node.text())
            .collect();
        (
            text,
            document
                .root_element()
                .attribute("pretty")
                .map(str::to_owned),
        )
    }

    #[test]
    fn a_part_is_read_extracted_and_written_from_the_same_view() {
        let cases = [
            (
                false,
                ",'start_line':3,'end_line':4,'pretty':true",
                Some("true"),
                "  \"b\": [\n    10,\n",
            ),
            (
                true,
                ",'start_line':3,'end_line':4",
                Some("true"),
                "  \"b\": [\n    10,\n",
            ),
            (
                true,
                ",'start':0,'count':4,'UNIT':'char','pretty':'true'",
                Some("true"),
                "{\n  ",
            ),
            (true, ",'page':1,'pretty':false", Some("false"), &JSON[..12]),
            (false, ",'page':1", None, &JSON[..12]),
            (
                false,
                ",'page':2,'pretty':true",
                Some("true"),
                "  \"a\": 1.0,\n",
            ),
            (true, ",'read_all':true,'pretty':true", Some("true"), PRETTY),
        ];
        for (is_on, more, says, text) in cases {
            let expected = (text.to_owned(), says.map(str::to_owned));
            let (settings, more_read) = (settings(is_on), more.replace("UNIT", "mode"));
            assert_eq!(shown(&read(&more_read, &settings)), expected, "{more}");
            let extracted = read(&format!("{more_read},'extract_to_new_fd':true"), &settings);
            let Outcome::Opened(extracted) = extracted else {
                panic!("{more} must open")
            };
            let answer = extracted.answer(&FdId::Fd(2));
            assert_eq!(shown(&Outcome::Answer(answer)).1, expected.1, "{more}");
            assert_eq!(
                extracted.entry.content.unlimited_reader().bytes().unwrap(),
                text,
                "{more}"
            );
            let (bytes, answer) = written(&more.replace("UNIT", "select"), &settings);
            assert_eq!(bytes, text, "{more}");
            assert_eq!(shown(&Outcome::Answer(answer)).1, expected.1, "{more}");
        }
    }

    #[test]
    fn the_whole_content_is_written_exactly_unless_the_call_requests_json() {
        let cases = [
            (false, "", JSON, None),
            (true, "", JSON, Some("false")),
            (true, ",'read_all':true", JSON, Some("false")),
            (false, ",'pretty':true", PRETTY, Some("true")),
        ];
        for (is_on, more, text, says) in cases {
            let (bytes, answer) = written(more, &settings(is_on));
            assert_eq!(
                (bytes.as_str(), shown(&Outcome::Answer(answer)).1.as_deref()),
                (text, says),
                "{is_on} {more}"
            );
        }
    }

    #[test]
    fn a_search_states_positions_in_the_shown_form() {
        let cases = [
            (false, ",'pretty':true", "line=\"5\""),
            (true, "", "line=\"5\""),
            (false, "", "line=\"1\""),
        ];
        for (is_on, more, place) in cases {
            let args = args(&format!(",'query':'20'{more}"));
            let outcome = search_fd(&Call::unlimited(
                &table(JSON.as_bytes()),
                &args,
                &settings(is_on),
                0,
            ));
            let xml = &outcome.answer().unwrap().text;
            assert!(xml.contains(place), "{args}: {xml}");
            assert_eq!(
                xml.contains("pretty=\"true\""),
                place != "line=\"1\"",
                "{args}: {xml}"
            );
        }
    }

    #[test]
    fn a_search_of_all_uses_the_requested_form_and_plain_text_for_other_contents() {
        let mut table = table(JSON.as_bytes());
        table.insert(
            table.next_id(),
            Entry::new(Content::new("prose 20"), 12, "tool:t", 0),
        );
        for (is_on, more, line, says) in [
            (false, "", "1", None),
            (false, ",'pretty':true", "5", Some("true")),
            (true, "", "5", Some("true")),
            (true, ",'pretty':false", "1", Some("false")),
        ] {
            let args = format!("{{'fd':'*','query':'20'{more}}}").replace('\'', "\"");
            let xml = search_fd(&Call::unlimited(&table, &args, &settings(is_on), 0))
                .answer()
                .unwrap()
                .text
                .to_string();
            let document = Document::parse(&xml).unwrap();
            let groups: Vec<_> = document
                .descendants()
                .filter(|node| node.has_tag_name("fd_matches"))
                .collect();
            let found: Vec<_> = groups
                .iter()
                .map(|group| {
                    (
                        group.first_element_child().unwrap().attribute("line"),
                        group.attribute("pretty"),
                    )
                })
                .collect();
            assert_eq!(
                found,
                [(Some(line), says), (Some("1"), None)],
                "{is_on} {args}"
            );
        }
    }

    #[test]
    fn lists_and_marks_state_the_form_of_their_line_numbers() {
        let table = table(JSON.as_bytes());
        for (call, more) in [
            (list_fds as Syscall, "{}".to_owned()),
            (list_fd_sections, args("")),
            (
                mark_fd_section,
                args(",'start_line':1,'end_line':1,'ref_id':'x'"),
            ),
        ] {
            for is_on in [false, true] {
                let xml = call(&Call::unlimited(&table, &more, &settings(is_on), 0))
                    .answer()
                    .unwrap()
                    .text
                    .to_string();
                assert!(
                    xml.contains(if is_on {
                        "total_lines=\"7\""
                    } else {
                        "total_lines=\"1\""
                    }),
                    "{xml}"
                );
                assert_eq!(xml.contains("pretty=\"true\""), is_on, "{xml}");
            }
        }
    }

    #[test]
    fn the_next_part_is_offered_in_the_requested_form() {
        for (is_on, more, form) in [
            (false, ",'pretty':true", "count=1, pretty=true."),
            (true, ",'pretty':false", "count=11, pretty=false."),
            (false, "", "count=11."),
        ] {
            let settings = DescriptorSettings {
                max_read_chars: 10,
                ..settings(is_on)
            };
            let outcome = read(&format!(",'mode':'line','count':2{more}"), &settings);
            let xml = &outcome.answer().unwrap().text;
            assert!(xml.contains(form), "{more}: {xml}");
        }
    }

    #[test]
    fn content_that_is_not_json_is_refused_if_requested_pretty_and_plain_otherwise() {
        let on = settings(true);
        let cases: [(&[u8], &str); 3] = [
            (
                b"[prose]",
                "the content is not JSON: expected value at line 1 column 2. Leave 'pretty' out or \
                 false.",
            ),
            (b"", "the content is empty"),
            (&[0xff, 0xfe], "the content is binary"),
        ];
        for (bytes, message) in cases {
            let table = table(bytes);
            for (call, more) in [
                (read_fd as Syscall, ""),
                (search_fd, ",'query':'x'"),
                (fd_to_file, ",'file_path':'o'"),
            ] {
                let refused = call(&Call::unlimited(
                    &table,
                    &args(&format!(",'pretty':true{more}")),
                    &on,
                    0,
                ));
                let answer = refused.answer().expect("nothing is written");
                assert!(
                    answer.is_error && answer.text.contains("type=\"invalid_parameter\""),
                    "{}",
                    answer.text
                );
                assert!(answer.text.contains(message), "{}", answer.text);
                let served = call(&Call::unlimited(&table, &args(more), &on, 0));
                assert!(
                    !served.answer().is_some_and(|answer| answer.is_error),
                    "{served:?}"
                );
            }
        }
    }
}
