//! `delete_temp_file`: deletes a file for all processes of the tree.

use dormouse_proto::descriptor::FdError;
use dormouse_proto::temp_file::TempFileOp;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::temp_file::{self, FILE_NAMES};
use super::{Call, Group, Handler, Outcome, Parameter, Tool};

/// `delete_temp_file` as a tool.
pub const TOOL: Tool = Tool {
    name: "delete_temp_file",
    group: Group::TempFiles,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Table(delete_temp_file),
};

const DESCRIPTION: &str = "Deletes a temporary file for all processes of your tree. With `version` \
only if that is still its newest version. Copies that a process has as a file descriptor stay.";

const PARAMETERS: [Parameter; 2] = [
    Parameter::word("temp_file_id", "The file, such as temp:1")
        .required()
        .also(&FILE_NAMES),
    Parameter::integer(
        "version",
        "Delete it only if this is its newest version; whatever it is if left out",
    )
    .at_least(1),
];

/// Executes a call: returns the operation on the tree's files, or an error.
#[must_use]
pub fn delete_temp_file(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let id = temp_file::parse_id(&args)?;
    let version = temp_file::parse_version(&args)?;
    Ok(temp_file::pending_operation(
        &args,
        TempFileOp::Delete { id, version },
        call.settings,
    ))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::temp_file::TempId;

    use super::super::temp_file::tests::{assert_refused, operation};
    use super::*;

    #[test]
    fn the_version_is_optional() {
        let cases = [
            (r#"{"temp_file_id": "temp:1"}"#, None),
            (r#"{"temp_file_id": "temp:1", "version": 4}"#, Some(4)),
        ];
        for (args, version) in cases {
            assert_eq!(
                operation(&TOOL, args),
                TempFileOp::Delete {
                    id: TempId(1),
                    version
                }
            );
        }
        assert_refused(
            &TOOL,
            "{}",
            "invalid_parameter",
            "'temp_file_id' is missing",
        );
        assert_refused(
            &TOOL,
            r#"{"temp_file_id": "temp:1", "version": 0}"#,
            "invalid_range",
            "count from 1",
        );
        assert_refused(
            &TOOL,
            r#"{"temp_file_id": "temp:1", "fd": "fd:1"}"#,
            "invalid_parameter",
            "Unknown parameter 'fd'",
        );
    }
}
