//! `read_temp_file`: reads the newest version of a file. A large file becomes a descriptor of the
//! process that reads it.

use dormouse_proto::descriptor::FdError;
use dormouse_proto::temp_file::TempFileOp;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::temp_file::{self, FILE_NAMES};
use super::{Call, Group, Handler, Outcome, Parameter, Tool};

/// `read_temp_file` as a tool.
pub const TOOL: Tool = Tool {
    name: "read_temp_file",
    group: Group::TempFiles,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Table(read_temp_file),
};

const DESCRIPTION: &str = "Reads a temporary file of your tree of processes, whoever made it. You \
get what it holds now, and its version, which write_temp_file needs. A large file becomes a file \
descriptor of yours, a copy of that version.";

const PARAMETERS: [Parameter; 1] = [Parameter::word("temp_file_id", "The file, such as temp:1")
    .required()
    .also(&FILE_NAMES)];

/// Executes a call: returns the operation on the tree's files, or an error.
#[must_use]
pub fn read_temp_file(call: &Call<'_>) -> Outcome {
    run(call).into()
}

fn run(call: &Call<'_>) -> Result<Outcome, FdError> {
    let args = Args::parse(&TOOL, call.args)?;
    let id = temp_file::parse_id(&args)?;
    Ok(temp_file::pending_operation(
        &args,
        TempFileOp::Read { id },
        call.settings,
    ))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::temp_file::TempId;

    use super::super::temp_file::tests::{assert_refused, operation};
    use super::*;

    #[test]
    fn the_file_is_parsed_from_its_name() {
        for name in ["temp:3", "temp-3"] {
            let args = format!(r#"{{"temp_file_id": "{name}"}}"#);
            assert_eq!(operation(&TOOL, &args), TempFileOp::Read { id: TempId(3) });
        }
        assert_refused(
            &TOOL,
            "{}",
            "invalid_parameter",
            "'temp_file_id' is missing",
        );
        assert_refused(
            &TOOL,
            r#"{"temp_file_id": ""}"#,
            "invalid_parameter",
            "'temp_file_id' is missing",
        );
        assert_refused(
            &TOOL,
            r#"{"temp_file_id": "fd:1"}"#,
            "invalid_parameter",
            "'fd:1' is not a temporary file",
        );
        assert_refused(
            &TOOL,
            r#"{"temp_file_id": ["temp:1"]}"#,
            "invalid_parameter",
            "must be a string",
        );
        assert_refused(
            &TOOL,
            r#"{"temp_file_name": "temp:1"}"#,
            "invalid_parameter",
            "Did you mean 'temp_file_id'?",
        );
        for args in [
            r#"{"temp_file_id": 1}"#,
            r#"{"temp_file_id": "temp_1"}"#,
            r#"{"temp_file": "temp:1"}"#,
        ] {
            let id = "temp:1".parse().unwrap();
            assert_eq!(operation(&TOOL, args), TempFileOp::Read { id }, "{args}");
        }
    }
}
