//! `create_temp_file`: makes a file that all processes of the tree share.

use dormouse_proto::descriptor::FdError;
use dormouse_proto::temp_file::TempFileOp;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::temp_file::{self, CONTENT_NAMES};
use super::{Call, DESCRIPTOR_NAMES, Group, Handler, Outcome, Parameter, Tool};

/// `create_temp_file` as a tool.
pub const TOOL: Tool = Tool {
    name: "create_temp_file",
    group: Group::TempFiles,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Table(create_temp_file),
};

const DESCRIPTION: &str = "Makes a temporary file that you share with your parent, your children \
and all other processes of your tree, and that each of them can read and change. You get its id, \
such as temp:1, and its version, 1: tell the id to whoever is to use the file. Give its text as \
`content`, or a file descriptor as `fd` to take what that holds.";

const PARAMETERS: [Parameter; 2] = [
    Parameter::text("content", "What the file holds; may be empty").also(&CONTENT_NAMES),
    Parameter::word(
        "fd",
        "In place of content: the descriptor whose content the file holds, such as fd:1",
    )
    .also(&DESCRIPTOR_NAMES),
];

/// Executes a call: returns the operation on the tree's files, or an error. The content of a
/// descriptor is not copied.
#[must_use]
pub fn create_temp_file(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let content = temp_file::parse_content(&args, call.table)?;
    Ok(temp_file::pending_operation(
        &args,
        TempFileOp::Create { content },
        call.settings,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::temp_file::tests::{assert_refused, content_of_fd, operation};
    use super::*;
    use dormouse_content::Content;

    #[test]
    fn the_content_is_a_text_or_a_descriptor() {
        let created = |args: &str| match operation(&TOOL, args) {
            TempFileOp::Create { content } => content,
            other => panic!("{args}: {other:?}"),
        };
        assert_eq!(
            created(r#"{"content": "a < b\n"}"#),
            Content::new("a < b\n")
        );
        assert_eq!(created(r#"{"content": ""}"#), Content::new(""));
        let from_descriptor = created(r#"{"fd": "fd-1"}"#);
        assert_eq!(
            from_descriptor.unlimited_reader().bytes().unwrap().as_ptr(),
            content_of_fd().unlimited_reader().bytes().unwrap().as_ptr(),
            "not a copy"
        );
    }

    #[test]
    fn other_arguments_are_refused() {
        assert_refused(&TOOL, "{}", "invalid_parameter", "'content' is missing");
        assert_refused(
            &TOOL,
            r#"{"content": "a", "fd": "fd:1"}"#,
            "invalid_parameter",
            "not both",
        );
        assert_refused(
            &TOOL,
            r#"{"content": 1}"#,
            "invalid_parameter",
            "'content' must be a string",
        );
        assert_refused(
            &TOOL,
            r#"{"fd": "fd:7"}"#,
            "not_found",
            "File descriptor fd:7 not found",
        );
        assert_refused(
            &TOOL,
            r#"{"content": "a", "temp_file_id": "temp:1"}"#,
            "invalid_parameter",
            "Unknown parameter",
        );
    }
}
