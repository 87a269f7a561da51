//! `append_temp_file`: appends to a temporary file. Appending overwrites no text, so no version is
//! required.

use dormouse_proto::descriptor::FdError;
use dormouse_proto::temp_file::TempFileOp;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::temp_file::{self, CONTENT_NAMES, FILE_NAMES};
use super::{Call, DESCRIPTOR_NAMES, Group, Handler, Outcome, Parameter, Tool};

/// `append_temp_file` as a tool.
pub const TOOL: Tool = Tool {
    name: "append_temp_file",
    group: Group::TempFiles,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Table(append_temp_file),
};

const DESCRIPTION: &str = "Adds `content`, or what the file descriptor `fd` holds, to the end of a \
temporary file of your tree of processes. Nothing of the file is lost, whoever else adds to it at \
the same time, so that no version is needed. Nothing is put in between: end `content` with a line \
feed where the next addition is to begin a line.";

const PARAMETERS: [Parameter; 3] = [
    Parameter::word("temp_file_id", "The file, such as temp:1")
        .required()
        .also(&FILE_NAMES),
    Parameter::text("content", "What follows what the file holds").also(&CONTENT_NAMES),
    Parameter::word(
        "fd",
        "In place of content: the descriptor whose content follows, such as fd:1",
    )
    .also(&DESCRIPTOR_NAMES),
];

/// Executes a call: returns the operation on the tree's files, or an error. The content of a
/// descriptor is not copied.
#[must_use]
pub fn append_temp_file(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let id = temp_file::parse_id(&args)?;
    let content = temp_file::parse_content(&args, call.table)?;
    Ok(temp_file::pending_operation(
        &args,
        TempFileOp::Append { id, content },
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
    fn a_file_and_a_content_are_required() {
        let cases = [
            (
                r#"{"temp_file_id": "temp:2", "content": "more\n"}"#,
                Content::new("more\n"),
            ),
            (
                r#"{"temp_file_id": "temp:2", "fd": "fd:1"}"#,
                content_of_fd(),
            ),
        ];
        for (args, content) in cases {
            assert_eq!(
                operation(&TOOL, args),
                TempFileOp::Append {
                    id: TempId(2),
                    content
                }
            );
        }
        assert_refused(
            &TOOL,
            r#"{"content": "a"}"#,
            "invalid_parameter",
            "'temp_file_id' is missing",
        );
        assert_refused(
            &TOOL,
            r#"{"temp_file_id": "temp:1"}"#,
            "invalid_parameter",
            "'content' is missing",
        );
        let with_version = r#"{"temp_file_id": "temp:1", "content": "a", "version": 1}"#;
        assert_refused(
            &TOOL,
            with_version,
            "invalid_parameter",
            "Unknown parameter 'version'",
        );
    }
}
