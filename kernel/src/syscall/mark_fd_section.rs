//! `mark_fd_section`: marks lines of a descriptor as a section with an id.

use dormouse_proto::descriptor::{FdError, HintableTools, view};
use dormouse_proto::record::{Annotation, Annotations, Section};
use dormouse_proto::tool::Access;

use super::args::Args;
use super::selection::{ResolvedSelection, Selection};
use super::{
    Call, DESCRIPTOR_NAMES, Group, Handler, Outcome, Parameter, SECTION_NAMES, Tool, selection,
};

/// `mark_fd_section` as a tool.
pub const TOOL: Tool = Tool {
    name: "mark_fd_section",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some(
        "mark_fd_section(fd=\"fd:1\", start_line=45, end_line=52, ref_id=\"bug\") - mark lines to \
         come back to",
    ),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(mark_fd_section),
};

/// Maximum number of sections of one descriptor.
const MAX_SECTIONS: usize = 1_000;

const DESCRIPTION: &str = "Marks lines of a file descriptor as a section, under an id of your \
choice. Marking an id again replaces its lines.";

const PARAMETERS: [Parameter; 7] = [
    Parameter::word("fd", "The descriptor, such as fd:1")
        .required()
        .also(&DESCRIPTOR_NAMES),
    Parameter::integer("start_line", "The first line, counted from 1")
        .at_least(1)
        .required()
        .also(&selection::FIRST_LINE_NAMES),
    Parameter::integer("end_line", "The last line")
        .at_least(1)
        .required()
        .also(&selection::LAST_LINE_NAMES)
        .suggested_for(&["end"]),
    Parameter::text("ref_id", "The section's id, such as bug_details")
        .at_least(1)
        .at_most(64)
        .required()
        .also(&SECTION_NAMES),
    selection::LINES,
    selection::COUNT,
    selection::LIMIT,
];

/// Executes a call. O(log n) after the page table of the content was built.
#[must_use]
pub fn mark_fd_section(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let fd = args.fd()?;
    let ref_id = args.label("ref_id", "the section's id, such as \"bug_details\"")?;
    let lines = parse_lines(&args)?;
    let (id, entry) = call.table.resolve_argument(fd)?;
    let unreadable = |error| args.unreadable_error(error);
    let view = call.in_default_form(entry).map_err(unreadable)?;
    let ResolvedSelection { byte_range, .. } = lines.resolve(&args, &view)?;
    let line_at = |byte| view.content.line_at(byte).map_err(unreadable);
    let last = byte_range.end.saturating_sub(1).max(byte_range.start);
    let section = Section {
        start_line: line_at(byte_range.start)?,
        end_line: line_at(last)?,
    };
    let replaced = view.entry.notes.sections.get(ref_id).copied();
    check_section_limit(
        &args,
        &view.entry.notes,
        replaced,
        call.settings.hintable_tools,
    )?;
    let answer = view::marked(
        &id,
        view.extent().map_err(unreadable)?,
        ref_id,
        section,
        replaced,
    );
    Ok(Outcome::Annotated {
        note: Annotation::Marked {
            ref_id: ref_id.into(),
            section,
        },
        id,
        answer,
    })
}

fn parse_lines(args: &Args) -> Result<Selection, FdError> {
    let is_counted = args.contains("count") || args.contains("limit");
    if !args.contains("lines") {
        if !args.contains("start_line") {
            return Err(args.missing_error("start_line", "the first line, from 1"));
        }
        if !args.contains("end_line") && !is_counted {
            return Err(args.missing_error("end_line", "the last line"));
        }
    }
    Ok(selection::parse_lines(args))
}

fn check_section_limit(
    args: &Args,
    notes: &Annotations,
    replaced: Option<Section>,
    tools: HintableTools,
) -> Result<(), FdError> {
    if replaced.is_some() || notes.sections.len() < MAX_SECTIONS {
        return Ok(());
    }
    Err(args.invalid_error(format!(
        "{MAX_SECTIONS} sections are marked in this descriptor, and no more can be. Mark one of \
         their ids again.{}",
        tools.hint("delete_fd_section", "delete_fd_section deletes one.")
    )))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::FdId;
    use dormouse_proto::record::Entry;

    use super::*;
    use crate::table::Table;
    use dormouse_content::Content;
    use dormouse_proto::descriptor::DescriptorSettings;

    fn table(text: &str) -> Table {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new(text.to_owned()), 10, "tool:t", 0),
        );
        table
    }

    fn call(table: &Table, args: &str) -> Outcome {
        mark_fd_section(&Call::unlimited(
            table,
            &args.replace('\'', "\""),
            &DescriptorSettings::default(),
            0,
        ))
    }

    fn lines(first: i64, last: i64) -> String {
        format!("{{'fd':'fd:1','start_line':{first},'end_line':{last},'ref_id':'bug'}}")
    }

    #[test]
    fn a_mark_reports_the_lines_that_it_replaces() {
        let mut table = table("a\nb\nc\n");
        let steps = [
            (lines(2, 3), (2, 3), "lines=\"2-3\" total_lines=\"3\"/>"),
            (
                lines(1, 99),
                (1, 3),
                "lines=\"1-3\" total_lines=\"3\" replaced=\"2-3\"/>",
            ),
            (
                lines(2, 2),
                (2, 2),
                "lines=\"2-2\" total_lines=\"3\" replaced=\"1-3\"/>",
            ),
        ];
        for (args, (start_line, end_line), shown) in steps {
            let Outcome::Annotated { id, note, answer } = call(&table, &args) else {
                panic!("{args} is noted")
            };
            let xml = format!("<fd_section fd=\"fd:1\" ref_id=\"bug\" {shown}");
            assert_eq!((&*answer.text, answer.is_error), (xml.as_str(), false));
            assert_eq!(
                note,
                Annotation::Marked {
                    ref_id: "bug".into(),
                    section: Section {
                        start_line,
                        end_line
                    }
                }
            );
            table.annotate(&id, &note);
        }
        let Outcome::Annotated { note, .. } = call(&self::table(""), &lines(1, 1)) else {
            panic!("empty content has a line")
        };
        assert_eq!(
            note,
            Annotation::Marked {
                ref_id: "bug".into(),
                section: Section {
                    start_line: 1,
                    end_line: 1
                }
            }
        );
    }

    #[test]
    fn invalid_lines_and_ids_are_refused() {
        let cases = [
            (lines(4, 5), "invalid_range", "Valid range: 1-3"),
            (lines(0, 2), "invalid_range", "Valid range: 1-3"),
            (lines(3, 2), "invalid_range", "Valid range: 3-3"),
            (
                lines(1, 2).replace("fd:1", "fd:2"),
                "not_found",
                "fd:2 not found",
            ),
            (
                lines(1, 2).replace("bug", ""),
                "invalid_parameter",
                "'ref_id' is missing",
            ),
            (
                lines(1, 2).replace("bug", &"x".repeat(65)),
                "invalid_parameter",
                "has 65 characters",
            ),
            (
                "{'fd':'fd:1','start_line':1,'ref_id':'x'}".to_owned(),
                "invalid_parameter",
                "'end_line' is missing",
            ),
            (
                "{'fd':'fd:1','end_line':1,'ref_id':'x'}".to_owned(),
                "invalid_parameter",
                "'start_line' is missing",
            ),
        ];
        for (args, kind, message) in cases {
            let text = call(&table("a\nb\nc"), &args)
                .answer()
                .unwrap()
                .text
                .to_string();
            assert!(
                text.contains(&format!("type=\"{kind}\"")) && text.contains(message),
                "{args}: {text}"
            );
        }
    }

    #[test]
    fn a_descriptor_has_a_thousand_sections_at_most() {
        let mut table = table("a\nb\nc\n");
        for number in 0..MAX_SECTIONS {
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
        let text = call(&table, &lines(1, 1))
            .answer()
            .unwrap()
            .text
            .to_string();
        assert!(text.contains("1000 sections are marked"), "{text}");
        assert!(
            matches!(
                call(&table, &lines(2, 2).replace("bug", "s7")),
                Outcome::Annotated { .. }
            ),
            "one is replaced"
        );
    }
}
