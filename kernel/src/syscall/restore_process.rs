//! `restore_process`: restores the process to a checkpoint.

use dormouse_proto::id::CheckpointId;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, Parameter, ProcessHandler, Tool};
use crate::process::CheckpointError;

/// `restore_process` as a tool.
pub const TOOL: Tool = Tool {
    name: "restore_process",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::Restore(checkpoint)),
};

const ID: &str = "checkpoint_id";
const PARAMETERS: [Parameter; 1] =
    [Parameter::word(ID, "The checkpoint, such as \"cp:3\".").required()];

const DESCRIPTION: &str = "Takes this process back to a checkpoint: its conversation and its file \
descriptors are those of then, and you remember nothing of what came after. A message tells you \
that you were restored. What was done outside, temporary files and what you used of your budget \
stay. Call nothing else in the same reply.";

/// Parses the checkpoint id of a call.
///
/// # Errors
/// [`CheckpointError::Arguments`].
pub fn checkpoint(args: &str) -> Result<CheckpointId, CheckpointError> {
    let to_checkpoint_error =
        |error: dormouse_proto::descriptor::FdError| CheckpointError::Arguments(error.message);
    let args = Args::parse(&TOOL, args).map_err(to_checkpoint_error)?;
    let requested = args
        .required_text(ID, "the checkpoint to go back to, such as \"cp:3\"")
        .map_err(to_checkpoint_error)?;
    requested
        .parse()
        .map_err(|error| CheckpointError::Arguments(format!("{error}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_named_by_its_number() {
        for args in [
            r#"{"checkpoint_id": "cp:3"}"#,
            r#"{"checkpoint_id": "3"}"#,
            r#"{"checkpoint_id": 3}"#,
        ] {
            assert_eq!(checkpoint(args), Ok(CheckpointId(3)), "{args}");
        }
        let refused = [
            ("{}", "'checkpoint_id' is missing"),
            (r#"{"checkpoint_id": "cp:0"}"#, "names no checkpoint"),
            (r#"{"checkpoint_id": "fd:1"}"#, "names no checkpoint"),
            (r#"{"checkpoint": "cp:1"}"#, "Unknown parameter"),
        ];
        for (args, words) in refused {
            let error = checkpoint(args).unwrap_err();
            assert!(
                error.word() == "invalid_parameter" && error.to_string().contains(words),
                "{args}: {error}"
            );
        }
    }
}
