//! `delete_fd_section`: removes a section mark. The content does not change.

use dormouse_proto::descriptor::{FdError, view};
use dormouse_proto::record::Annotation;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::get_fd_section::parse_section;
use super::{Call, DESCRIPTOR_NAMES, Group, Handler, Outcome, Parameter, SECTION_NAMES, Tool};

/// `delete_fd_section` as a tool.
pub const TOOL: Tool = Tool {
    name: "delete_fd_section",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some("delete_fd_section(fd=\"fd:1\", ref_id=\"bug\") - take a mark away"),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(delete_fd_section),
};

const DESCRIPTION: &str = "Takes the mark of a section away. The content stays as it is.";

const PARAMETERS: [Parameter; 2] = [
    Parameter::word("fd", "The descriptor, such as fd:1")
        .required()
        .also(&DESCRIPTOR_NAMES),
    Parameter::text("ref_id", "The section's id")
        .required()
        .also(&SECTION_NAMES),
];

/// Executes a call. O(log n).
#[must_use]
pub fn delete_fd_section(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let (id, entry) = call.table.resolve_argument(args.fd()?)?;
    let (ref_id, section) = parse_section(&args, &entry.notes, call.settings.hintable_tools)?;
    let answer = view::unmarked(&id, ref_id, section);
    Ok(Outcome::Annotated {
        note: Annotation::Unmarked {
            ref_id: ref_id.into(),
        },
        id,
        answer,
    })
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::FdId;
    use dormouse_proto::record::{Entry, Section};

    use super::*;
    use crate::table::Table;
    use dormouse_content::Content;
    use dormouse_proto::descriptor::DescriptorSettings;

    fn call(table: &Table, ref_id: &str) -> Outcome {
        let args = serde_json::json!({ "fd": "fd:1", "ref_id": ref_id });
        delete_fd_section(&Call::unlimited(
            table,
            &args.to_string(),
            &DescriptorSettings::default(),
            0,
        ))
    }

    #[test]
    fn a_deleted_mark_no_longer_exists() {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new("a\nb\n"), 10, "tool:t", 0),
        );
        for (ref_id, line) in [("x", 1), ("y", 2)] {
            let section = Section {
                start_line: line,
                end_line: line,
            };
            table.annotate(
                &FdId::Fd(1),
                &Annotation::Marked {
                    ref_id: ref_id.into(),
                    section,
                },
            );
        }
        let Outcome::Annotated { id, note, answer } = call(&table, "x") else {
            panic!("it is noted")
        };
        assert_eq!(
            &*answer.text,
            "<fd_section fd=\"fd:1\" ref_id=\"x\" lines=\"1-1\" deleted=\"true\"/>"
        );
        table.annotate(&id, &note);
        let again = call(&table, "x").answer().unwrap().text.to_string();
        assert!(
            again.contains("type=\"not_found\"") && again.contains("The sections are: y"),
            "{again}"
        );
    }
}
