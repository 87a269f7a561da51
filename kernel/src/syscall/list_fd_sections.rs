//! `list_fd_sections`: lists the marked sections of a descriptor, in the order of their lines.

use std::sync::Arc;

use dormouse_proto::descriptor::FdError;
use dormouse_proto::descriptor::view::{self, ListedSection};
use dormouse_proto::record::Section;
use dormouse_proto::text::truncate;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::window::Window;
use super::{Call, FD_NAMES, Group, Handler, Outcome, Parameter, Tool};
use dormouse_content::Reader;

/// `list_fd_sections` as a tool.
pub const TOOL: Tool = Tool {
    name: "list_fd_sections",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some("list_fd_sections(fd=\"fd:1\") - what is marked"),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(list_fd_sections),
};

/// Characters of a section's first line that are shown.
const FIRST_LINE_CHARS: usize = 80;

/// Estimated characters of an item, without its id and its first line.
const ELEMENT_CHARS: u64 = 64;

const DESCRIPTION: &str = "Lists the sections that are marked in a file descriptor: the id, the \
lines and the first line's text of each.";

const PARAMETERS: [Parameter; 2] = [
    Parameter::word("fd", "The descriptor, such as fd:1")
        .required()
        .also(&FD_NAMES),
    Parameter::integer(
        "start",
        "The position of the first section to list; 1 if left out",
    )
    .at_least(1),
];

/// Executes a call. `max_read_chars` of the settings limits what is shown. O(sections log n).
#[must_use]
pub fn list_fd_sections(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let (id, entry) = call.table.resolve_argument(args.fd()?)?;
    let unreadable = |error| args.unreadable_error(error);
    let view = call.in_default_form(entry).map_err(unreadable)?;
    let window = Window::parse(&args, u64::MAX, call.settings.max_read_chars)?;
    let mut sections: Vec<_> = view.entry.notes.sections.iter().collect();
    sections.sort_by_key(|(_, section)| (section.start_line, section.end_line));
    let listed = sections
        .into_iter()
        .map(|section| describe_section(&view.content, section));
    let (shown, listed) = window.select(&args, listed, estimated_chars)?;
    Ok(Outcome::Answer(view::sections(
        &id,
        view.extent().map_err(unreadable)?,
        shown,
        &listed,
    )))
}

fn describe_section<'a>(
    content: &Reader<'_>,
    (ref_id, section): (&'a Arc<str>, &Section),
) -> ListedSection<'a> {
    let line = match content.lines(section.start_line, 1) {
        Ok(line) => line.map(|slice| slice.text).unwrap_or_default(),
        // If one section cannot be read, the others are still listed.
        Err(error) => error.to_string().into(),
    };
    let line = line.trim_end_matches(['\r', '\n']);
    ListedSection {
        ref_id,
        section: *section,
        text: truncate(line, FIRST_LINE_CHARS),
    }
}

fn estimated_chars(listed: &ListedSection<'_>) -> u64 {
    ELEMENT_CHARS + (listed.ref_id.chars().count() + listed.text.chars().count()) as u64
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::FdId;
    use dormouse_proto::record::Annotation;
    use roxmltree::Document;

    use super::*;
    use crate::table::Table;
    use dormouse_content::Content;
    use dormouse_proto::descriptor::DescriptorSettings;
    use dormouse_proto::record::Entry;

    fn table(text: &str, sections: &[(&str, u64, u64)]) -> Table {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new(text.to_owned()), 10, "tool:t", 0),
        );
        for (ref_id, start_line, end_line) in sections {
            let section = Section {
                start_line: *start_line,
                end_line: *end_line,
            };
            table.annotate(
                &FdId::Fd(1),
                &Annotation::Marked {
                    ref_id: (*ref_id).into(),
                    section,
                },
            );
        }
        table
    }

    fn call(table: &Table, args: &str, max_read_chars: u64) -> String {
        let settings = DescriptorSettings {
            max_read_chars,
            ..DescriptorSettings::default()
        };
        let outcome = list_fd_sections(&Call::unlimited(
            table,
            &args.replace('\'', "\""),
            &settings,
            0,
        ));
        outcome.answer().unwrap().text.to_string()
    }

    /// Returns `total`, `shown` and `next_start`, and the id, lines and text of each section.
    fn seen(xml: &str) -> (String, Vec<String>) {
        let document = Document::parse(xml).unwrap();
        let root = document.root_element();
        let of = |name| root.attribute(name).unwrap_or("-");
        let sections = root
            .children()
            .filter(|node| node.is_element())
            .map(|node| {
                let text: String = node.children().filter_map(|child| child.text()).collect();
                format!(
                    "{} {} {text}",
                    node.attribute("ref_id").unwrap(),
                    node.attribute("lines").unwrap()
                )
            });
        (
            ["total", "shown", "next_start"].map(of).join(" "),
            sections.collect(),
        )
    }

    #[test]
    fn sections_are_listed_in_line_order_with_their_first_line() {
        let long = "é".repeat(81);
        let table = table(
            &format!("<a>\r\n{long}\n\nfour"),
            &[
                ("z", 1, 4),
                ("b", 2, 3),
                ("c", 4, 4),
                ("a", 1, 1),
                ("d", 3, 3),
            ],
        );
        let expected = vec![
            "a 1-1 <a>".to_owned(),
            "z 1-4 <a>".to_owned(),
            format!("b 2-3 {}…", "é".repeat(80)),
            "d 3-3 ".to_owned(),
            "c 4-4 four".to_owned(),
        ];
        assert_eq!(
            seen(&call(&table, "{'fd':'fd:1'}", 10_000)),
            ("5 1-5 -".to_owned(), expected)
        );
        assert_eq!(
            seen(&call(&table, "{'fd':'fd:1','start':5}", 10_000)).1,
            ["c 4-4 four"]
        );
    }

    #[test]
    fn a_descriptor_without_sections_has_an_empty_list() {
        let xml = call(&table("a", &[]), "{'fd':'fd:1'}", 10);
        assert_eq!(
            xml,
            "<fd_sections fd=\"fd:1\" total=\"0\" shown=\"0\" total_lines=\"1\"/>"
        );
        assert!(call(&table("a", &[]), "{'fd':'fd:2'}", 10).contains("not_found"));
        assert!(call(&table("a", &[]), "{'fd':'fd:1','start':2}", 10).contains("Valid range: 1-1"));
    }

    #[test]
    fn a_long_list_is_bounded_and_can_be_continued() {
        let ids: Vec<_> = (0..100).map(|number| format!("s{number:02}")).collect();
        let sections: Vec<_> = ids.iter().map(|id| (id.as_str(), 1, 1)).collect();
        let table = table("some text\n", &sections);
        let (mut start, mut found) = (1, Vec::new());
        loop {
            let xml = call(&table, &format!("{{'fd':'fd:1','start':{start}}}"), 1_000);
            assert!(xml.len() < 1_500, "{}", xml.len());
            found.extend(seen(&xml).1.iter().map(|line| line[..3].to_owned()));
            match Document::parse(&xml)
                .unwrap()
                .root_element()
                .attribute("next_start")
            {
                Some(next) => start = next.parse().unwrap(),
                None => break,
            }
        }
        assert_eq!(found, ids);
    }
}
