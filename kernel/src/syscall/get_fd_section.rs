//! `get_fd_section`: shows a marked section, or makes it a descriptor of its own. A section is a
//! note on the descriptor: a range of lines under an id that the process chose.

use dormouse_proto::descriptor::{FdError, FdErrorKind, HintableTools, view};
use dormouse_proto::record::{Annotations, Section};
use dormouse_proto::tool::Access;

use super::args::Args;
use super::read_fd::{LINE_NUMBERS, extract, wants_line_numbers};
use super::selection::Selection;
use super::{Call, DESCRIPTOR_NAMES, Group, Handler, Outcome, Parameter, SECTION_NAMES, Tool};

/// `get_fd_section` as a tool.
pub const TOOL: Tool = Tool {
    name: "get_fd_section",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some("get_fd_section(fd=\"fd:1\", ref_id=\"bug\") - read marked lines"),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(get_fd_section),
};

/// Maximum number of sections that an error lists.
const MAX_LISTED: usize = 20;

const DESCRIPTION: &str = "Reads a section of a file descriptor that was marked with \
mark_fd_section. With `extract_to_new_fd` it becomes a new descriptor and only its name is \
returned.";

const PARAMETERS: [Parameter; 4] = [
    Parameter::word("fd", "The descriptor, such as fd:1")
        .required()
        .also(&DESCRIPTOR_NAMES),
    Parameter::text("ref_id", "The section's id")
        .required()
        .also(&SECTION_NAMES),
    Parameter::flag(
        "extract_to_new_fd",
        "Make the section a new descriptor instead of showing it",
    ),
    LINE_NUMBERS,
];

/// Executes a call. `max_read_chars` of the settings limits what is shown, never what is extracted.
/// O(log n + shown).
#[must_use]
pub fn get_fd_section(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let (id, entry) = call.table.resolve_argument(args.fd()?)?;
    let tools = call.settings.hintable_tools;
    let (ref_id, section) = parse_section(&args, &entry.notes, tools)?;
    let unreadable = |error| args.unreadable_error(error);
    let view = call.in_default_form(entry).map_err(unreadable)?;
    let selection = select_lines(section).resolve(&args, &view)?;
    if args.flag("extract_to_new_fd") == Some(true) {
        return extract(call, &id, &view, selection).map_err(unreadable);
    }
    let is_numbered = wants_line_numbers(&args, call);
    let bounded = selection
        .limit_numbered(&view, call.settings.max_read_chars, is_numbered)
        .map_err(unreadable)?;
    let extent = view.extent().map_err(unreadable)?;
    Ok(Outcome::Answer(view::section(
        &id,
        extent,
        ref_id,
        &bounded.shown_part,
        bounded.part(is_numbered),
        bounded.rest.as_ref(),
    )))
}

/// The section that the argument `ref_id` names.
///
/// # Errors
/// `invalid_parameter`: it is missing. `not_found`: as [`find_section`].
pub(super) fn parse_section<'a>(
    args: &'a Args,
    notes: &Annotations,
    tools: HintableTools,
) -> Result<(&'a str, Section), FdError> {
    let ref_id = args.required_text("ref_id", "the section's id")?;
    find_section(args, notes, ref_id, tools).map(|section| (ref_id, section))
}

/// The section with this id.
///
/// # Errors
/// `not_found`, with a list of the sections.
pub(super) fn find_section(
    args: &Args,
    notes: &Annotations,
    ref_id: &str,
    tools: HintableTools,
) -> Result<Section, FdError> {
    notes.sections.get(ref_id).copied().ok_or_else(|| {
        let message = format!(
            "There is no section '{ref_id}'. {}",
            list_sections(notes, tools)
        );
        args.error(FdErrorKind::NotFound, message)
    })
}

fn list_sections(notes: &Annotations, tools: HintableTools) -> String {
    let named: Vec<_> = notes
        .sections
        .keys()
        .take(MAX_LISTED)
        .map(|id| &**id)
        .collect();
    match notes.sections.len() {
        0 => {
            let hint = tools.hint("mark_fd_section", "mark_fd_section marks lines.");
            format!("None is marked in this descriptor.{hint}")
        }
        count if count > MAX_LISTED => {
            format!(
                "There are {count}, among them {}.{}",
                named.join(", "),
                tools.hint("list_fd_sections", "list_fd_sections lists them all.")
            )
        }
        _ => format!("The sections are: {}", named.join(", ")),
    }
}

/// Creates the selection of a section's lines.
pub(super) fn select_lines(section: Section) -> Selection {
    let [first, last] =
        [section.start_line, section.end_line].map(|line| i64::try_from(line).unwrap_or(i64::MAX));
    Selection::LineRange {
        first,
        last: Some(last),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::FdId;
    use dormouse_proto::record::{Annotation, Entry};

    use super::*;
    use crate::table::Table;
    use dormouse_content::Content;
    use dormouse_proto::descriptor::DescriptorSettings;

    fn table() -> Table {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new("one\ntwo\nthree\nfour\n"), 8, "tool:t", 0),
        );
        let section = Section {
            start_line: 2,
            end_line: 3,
        };
        table.annotate(
            &FdId::Fd(1),
            &Annotation::Marked {
                ref_id: "bug".into(),
                section,
            },
        );
        table
    }

    fn call(table: &Table, args: &str, max_read_chars: u64) -> Outcome {
        let settings = DescriptorSettings {
            max_read_chars,
            ..DescriptorSettings::default()
        };
        get_fd_section(&Call::unlimited(
            table,
            &args.replace('\'', "\""),
            &settings,
            5,
        ))
    }

    fn shown(args: &str, max_read_chars: u64) -> String {
        call(&table(), args, max_read_chars)
            .answer()
            .unwrap()
            .text
            .to_string()
    }

    #[test]
    fn a_section_is_shown_as_its_lines() {
        let xml = shown("{'fd':'fd:1','ref_id':'bug'}", 100);
        let start = "<fd_content fd=\"fd:1\" section=\"bug\" mode=\"line\" start=\"2\" count=\"2\" \
             pages=\"3\"";
        assert!(
            xml.starts_with(start) && xml.ends_with(">two\nthree\n</fd_content>"),
            "{xml}"
        );
    }

    #[test]
    fn a_long_section_is_limited_and_the_answer_states_the_remaining_lines() {
        let xml = shown("{'fd':'fd:1','ref_id':'bug'}", 5);
        assert!(
            xml.contains("start=\"2\" count=\"1\"") && xml.ends_with(">two\n</fd_content>"),
            "{xml}"
        );
        assert!(
            xml.contains("next_mode=\"line\" next_start=\"3\" next_count=\"1\""),
            "{xml}"
        );
    }

    #[test]
    fn extraction_is_not_limited_by_max_read_chars() {
        let args = "{'fd':'fd:1','ref_id':'bug','extract_to_new_fd':true}";
        let Outcome::Opened(extracted) = call(&table(), args, 1) else {
            panic!("it opens")
        };
        let (entry, answer) = (&extracted.entry, extracted.answer(&FdId::Fd(2)));
        assert_eq!(
            (
                &*entry.content.unlimited_reader().text().unwrap(),
                &*entry.source
            ),
            ("two\nthree\n", "extract:fd:1")
        );
        assert!(
            entry.notes.sections.is_empty(),
            "notes are those of the source"
        );
        assert!(answer.text.contains("lines=\"2-3\""), "{}", answer.text);
    }

    #[test]
    fn an_unknown_section_is_an_error_that_lists_the_known_ones() {
        let mut table = table();
        let error =
            |table: &Table, args: &str| call(table, args, 100).answer().unwrap().text.to_string();
        let text = error(&table, "{'fd':'fd:1','ref_id':'bog'}");
        assert!(
            text.contains("type=\"not_found\"") && text.contains("The sections are: bug"),
            "{text}"
        );
        assert!(error(&table, "{'fd':'fd:1'}").contains("'ref_id' is missing"));
        assert!(error(&table, "{'fd':'fd:2','ref_id':'bug'}").contains("fd:2 not found"));
        for number in 0..MAX_LISTED {
            let section = Section {
                start_line: 1,
                end_line: 1,
            };
            table.annotate(
                &FdId::Fd(1),
                &Annotation::Marked {
                    ref_id: format!("s{number}").into(),
                    section,
                },
            );
        }
        let text = error(&table, "{'fd':'fd:1','ref_id':'bog'}");
        assert!(
            text.contains("There are 21, among them bug, s0") && text.contains("list_fd_sections"),
            "{text}"
        );
        table.insert(FdId::Fd(2), Entry::new(Content::new(""), 8, "tool:t", 0));
        assert!(error(&table, "{'fd':'fd:2','ref_id':'bug'}").contains("None is marked"));
    }
}
