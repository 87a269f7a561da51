//! `write_temp_file`: replaces the content of a file if nobody has changed it since it was read
//! (compare and swap on its version).

use dormouse_proto::descriptor::FdError;
use dormouse_proto::temp_file::TempFileOp;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::temp_file::{self, CONTENT_NAMES, FILE_NAMES};
use super::{Call, DESCRIPTOR_NAMES, Group, Handler, Outcome, Parameter, Tool};

/// `write_temp_file` as a tool.
pub const TOOL: Tool = Tool {
    name: "write_temp_file",
    group: Group::TempFiles,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Table(write_temp_file),
};

const DESCRIPTION: &str = "Replaces all that a temporary file of your tree of processes holds, by \
`content` or by what the file descriptor `fd` holds. `version` is the version that you read: where \
another process has changed the file since, nothing is written and the error stale_version says \
which version is the newest; then read it again, merge, and write with that version. To add to the \
end of a file, use append_temp_file, which needs no version.";

const PARAMETERS: [Parameter; 4] = [
    Parameter::word("temp_file_id", "The file, such as temp:1")
        .required()
        .also(&FILE_NAMES),
    Parameter::text("content", "What the file holds from then on; may be empty")
        .also(&CONTENT_NAMES),
    Parameter::word(
        "fd",
        "In place of content: the descriptor whose content the file holds, such as fd:1",
    )
    .also(&DESCRIPTOR_NAMES),
    Parameter::integer("version", "The version that you read")
        .at_least(1)
        .required(),
];

/// Executes a call: returns the operation on the tree's files, or an error. The content of a
/// descriptor is not copied.
#[must_use]
pub fn write_temp_file(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let id = temp_file::parse_id(&args)?;
    let version = temp_file::parse_version(&args)?;
    let version = version.ok_or_else(|| {
        args.missing_error("version", "the version that you read with read_temp_file")
    })?;
    let content = temp_file::parse_content(&args, call.table)?;
    Ok(temp_file::pending_operation(
        &args,
        TempFileOp::Write {
            id,
            content,
            version,
        },
        call.settings,
    ))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::temp_file::TempId;

    use super::super::temp_file::tests::{assert_refused, content_of_fd, operation};
    use super::*;
    use dormouse_content::Content;

    #[test]
    fn a_file_a_content_and_a_version_are_parsed() {
        let cases = [
            (
                r#"{"temp_file_id": "temp:2", "content": "new", "version": 3}"#,
                Content::new("new"),
            ),
            (
                r#"{"temp_file_id": "temp:2", "fd": "fd:1", "version": "3"}"#,
                content_of_fd(),
            ),
        ];
        for (args, content) in cases {
            assert_eq!(
                operation(&TOOL, args),
                TempFileOp::Write {
                    id: TempId(2),
                    content,
                    version: 3
                }
            );
        }
    }

    #[test]
    fn missing_or_invalid_arguments_are_refused() {
        let cases = [
            (
                r#"{"content": "a", "version": 1}"#,
                "invalid_parameter",
                "'temp_file_id' is missing",
            ),
            (
                r#"{"temp_file_id": "temp:1", "version": 1}"#,
                "invalid_parameter",
                "'content' is missing",
            ),
            (
                r#"{"temp_file_id": "temp:1", "content": "a"}"#,
                "invalid_parameter",
                "'version' is missing: the version that",
            ),
            (
                r#"{"temp_file_id": "temp:1", "content": "a", "version": 0}"#,
                "invalid_range",
                "versions count from 1",
            ),
            (
                r#"{"temp_file_id": "temp:1", "content": "a", "version": -1}"#,
                "invalid_range",
                "versions count from 1",
            ),
            (
                r#"{"temp_file_id": "temp:1", "content": "a", "version": "x"}"#,
                "invalid_parameter",
                "must be an integer",
            ),
        ];
        for (args, kind, message) in cases {
            assert_refused(&TOOL, args, kind, message);
        }
    }
}
