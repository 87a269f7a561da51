//! `rename_fd`: assigns a name to a descriptor, or removes the name. All tools accept the name in
//! place of the id.
//!
//! A name belongs to one descriptor and never looks like an id. Therefore a name keeps its meaning
//! when further descriptors are opened.

use dormouse_proto::descriptor::{FdError, view};
use dormouse_proto::id::FdId;
use dormouse_proto::record::Annotation;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::search_fd::ALL;
use super::{Call, Group, Handler, Outcome, Parameter, Tool};
use crate::table::Table;

/// `rename_fd` as a tool.
pub const TOOL: Tool = Tool {
    name: "rename_fd",
    group: Group::Descriptors,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: Some("rename_fd(fd=\"fd:1\", name=\"error_logs\") - a name to use in place of fd:1"),
    may_repeat: super::always_repeatable,
    handler: Handler::Table(rename_fd),
};

/// Prefixes of ids.
const ID_PREFIXES: [&str; 5] = ["fd", "ref", "msg", "temp", "history"];

const DESCRIPTION: &str = "Gives a file descriptor a name of your choice, which you can use \
wherever its id is asked for. An empty name takes it away.";

const PARAMETERS: [Parameter; 2] = [
    Parameter::word("fd", "The descriptor, such as fd:1 or its present name")
        .required()
        .also(&RENAMED_FD_NAMES),
    Parameter::text("name", "The new name, such as error_logs; empty for none")
        .at_most(64)
        .required()
        .also(&["new_name"]),
];

/// Other names of `fd`, as [`FD_NAMES`](super::FD_NAMES) without `name`.
const RENAMED_FD_NAMES: [&str; 9] = [
    "fd_id",
    "file_descriptor",
    "descriptor",
    "descriptor_id",
    "id",
    "path",
    "file_path",
    "file",
    "old_name",
];

/// Executes a call. O(descriptors).
#[must_use]
pub fn rename_fd(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let (id, entry) = call.table.resolve_argument(args.fd()?)?;
    let name = parse_name(&args, call.table, &id)?;
    let previous = entry.notes.name.as_deref();
    let answer = view::renamed(&id, name, previous);
    if name == previous {
        return Ok(Outcome::Answer(answer));
    }
    Ok(Outcome::Annotated {
        note: Annotation::Named {
            name: name.map(Into::into),
        },
        id,
        answer,
    })
}

fn parse_name<'a>(args: &'a Args, table: &Table, id: &FdId) -> Result<Option<&'a str>, FdError> {
    if args.text("name") == Some("") {
        return Ok(None);
    }
    let name = args.label(
        "name",
        "the new name, such as \"error_logs\"; empty for none",
    )?;
    if looks_like_id(name) {
        let message = format!(
            "'{name}' cannot be a name: it reads as the id of a descriptor. Choose a word."
        );
        return Err(args.invalid_error(message));
    }
    match table.named(name) {
        Some((holder, _)) if holder != id => Err(args.invalid_error(format!(
            "The name '{name}' is that of {holder}. Choose another, or take it from {holder} \
             first: rename_fd with fd=\"{holder}\" and an empty name."
        ))),
        _ => Ok(Some(name)),
    }
}

/// Whether a name looks like an id in any spelling, such as `FD:1`, `fd-01` or `fd_1`, or is `*`.
fn looks_like_id(name: &str) -> bool {
    let local = name.to_ascii_lowercase();
    let is_number = |text: &str| text.starts_with(|digit: char| digit.is_ascii_digit());
    let is_id = |kind: &str| {
        local.strip_prefix(kind).is_some_and(|rest| {
            rest.starts_with(':') || is_number(rest.trim_start_matches(['-', '_', '#', ' ']))
        })
    };
    local == ALL || ID_PREFIXES.into_iter().any(is_id)
}

#[cfg(test)]
mod tests {
    use dormouse_proto::record::Entry;

    use super::*;
    use crate::syscall::read_fd;
    use dormouse_content::Content;
    use dormouse_proto::descriptor::DescriptorSettings;

    fn table() -> Table {
        let mut table = Table::new();
        for text in ["one", "two"] {
            table.insert(
                table.next_id(),
                Entry::new(Content::new(text), 10, "tool:t", 0),
            );
        }
        table.annotate(
            &FdId::Fd(2),
            &Annotation::Named {
                name: Some("second".into()),
            },
        );
        table
    }

    fn call(table: &Table, fd: &str, name: &str) -> Outcome {
        let args = serde_json::json!({ "fd": fd, "name": name });
        rename_fd(&Call::unlimited(
            table,
            &args.to_string(),
            &DescriptorSettings::default(),
            0,
        ))
    }

    #[test]
    fn a_name_is_set_changed_and_removed() {
        let cases = [
            (
                "fd:1",
                "error logs",
                Some(Some("error logs")),
                "<fd_renamed fd=\"fd:1\" name=\"error logs\"/>",
            ),
            (
                "fd-1",
                "fd",
                Some(Some("fd")),
                "<fd_renamed fd=\"fd:1\" name=\"fd\"/>",
            ),
            (
                "fd:2",
                "b",
                Some(Some("b")),
                "<fd_renamed fd=\"fd:2\" name=\"b\" previous=\"second\"/>",
            ),
            (
                "second",
                "",
                Some(None),
                "<fd_renamed fd=\"fd:2\" previous=\"second\"/>",
            ),
            (
                "second",
                "second",
                None,
                "<fd_renamed fd=\"fd:2\" name=\"second\" previous=\"second\"/>",
            ),
            ("fd:1", "", None, "<fd_renamed fd=\"fd:1\"/>"),
        ];
        for (fd, name, noted, xml) in cases {
            let outcome = call(&table(), fd, name);
            assert_eq!(&*outcome.answer().unwrap().text, xml);
            let note = match outcome {
                Outcome::Annotated {
                    note: Annotation::Named { name },
                    ..
                } => Some(name),
                Outcome::Answer(_) => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(note.as_ref().map(Option::as_deref), noted, "{fd} {name}");
        }
    }

    #[test]
    fn names_that_look_like_ids_or_are_taken_are_refused() {
        let ids = [
            "fd:1",
            "fd-1",
            "FD:1",
            "fd:x",
            "fd-01",
            "ref:plan",
            "Ref:",
            "msg:1",
            "msg-1.2",
            "temp:1",
            "temp-1",
            "*",
            "fd_1",
            "fd1",
            "FD 1",
            "msg#1",
            "history:1",
            "history-2",
        ];
        for name in ids {
            let outcome = call(&table(), "fd:1", name);
            assert!(
                outcome.answer().unwrap().text.contains("reads as the id"),
                "{name}: {outcome:?}"
            );
        }
        for name in [
            "fd",
            "fd-notes",
            "reference",
            "message:1",
            "logs/fd",
            "**",
            "temp",
            "history",
            "fds:1",
        ] {
            assert!(
                matches!(call(&table(), "fd:1", name), Outcome::Annotated { .. }),
                "{name}"
            );
        }
        let taken = call(&table(), "fd:1", "second")
            .answer()
            .unwrap()
            .text
            .to_string();
        assert!(
            taken.contains("type=\"invalid_parameter\"") && taken.contains("is that of fd:2"),
            "{taken}"
        );
        for (fd, name, message) in [
            ("fd:9", "x", "fd:9 not found"),
            ("fd:1", " x", "white space"),
            ("fd:1", "a\u{1b}", "a control character"),
        ] {
            let text = call(&table(), fd, name).answer().unwrap().text.to_string();
            assert!(
                text.contains("<fd_error") && text.contains(message),
                "{text}"
            );
        }
        let missing = rename_fd(&Call::unlimited(
            &table(),
            r#"{"fd": "fd:1"}"#,
            &DescriptorSettings::default(),
            0,
        ));
        assert!(
            missing.answer().unwrap().text.contains("'name' is missing"),
            "{missing:?}"
        );
    }

    #[test]
    fn an_unknown_descriptor_is_an_error_that_lists_the_known_ones() {
        let text = call(&table(), "secnod", "x")
            .answer()
            .unwrap()
            .text
            .to_string();
        assert!(
            text.contains("secnod not found. This process has fd:2 ('second'), fd:1."),
            "{text}"
        );
    }

    #[test]
    fn a_descriptor_is_read_by_its_name() {
        for args in [
            r#"{"fd": "second"}"#,
            r#"{"name": "second"}"#,
            r#"{"name": "second", "page": 1}"#,
        ] {
            let outcome = read_fd(&Call::unlimited(
                &table(),
                args,
                &DescriptorSettings::default(),
                0,
            ));
            let text = &outcome.answer().unwrap().text;
            assert!(
                text.starts_with("<fd_content fd=\"fd:2\"") && text.contains("two"),
                "{args}: {text}"
            );
        }
        for (args, message) in [
            (r#"{"name": "third"}"#, "fd=\"third\""),
            (r#"{"name": "second", "page": 9}"#, "fd=\"second\""),
            (
                r#"{"name": "second", "unit": "function"}"#,
                "'fd' is missing",
            ),
        ] {
            let outcome = read_fd(&Call::unlimited(
                &table(),
                args,
                &DescriptorSettings::default(),
                0,
            ));
            let text = &outcome.answer().unwrap().text;
            assert!(
                text.contains("<fd_error") && text.contains(message),
                "{args}: {text}"
            );
        }
    }
}
