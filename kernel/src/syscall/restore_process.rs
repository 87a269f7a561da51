//! `restore_process`: restores the process to a checkpoint.

use dormouse_proto::id::CheckpointId;
use dormouse_proto::tool::Access;
use dormouse_proto::xml::Element;

use super::args::Args;
use super::checkpoint::{CheckpointError, CheckpointInfo};
use super::{Group, Handler, Parameter, ProcessHandler, Tool};
use crate::process::Draft;

/// `restore_process` as a tool.
pub const TOOL: Tool = Tool {
    name: "restore_process",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always,
    handler: Handler::Process(ProcessHandler(Draft::restore_process)),
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
    let wrong =
        |error: dormouse_proto::descriptor::FdError| CheckpointError::Arguments(error.message);
    let args = Args::parse(&TOOL, args).map_err(wrong)?;
    let requested = args
        .required_text(ID, "the checkpoint to go back to, such as \"cp:3\"")
        .map_err(wrong)?;
    requested
        .parse()
        .map_err(|error| CheckpointError::Arguments(format!("{error}.")))
}

/// The element that tells the model that it was restored, and how often so far.
#[must_use]
pub fn notice(checkpoint: &CheckpointInfo, restores: u32, max_restores: u32) -> Element {
    let label = (!checkpoint.label.is_empty()).then_some(&checkpoint.label);
    let message = "You were restored to this checkpoint: what you did after it is gone from this \
         conversation, and so are the descriptors of then. What was done outside stays. Choose \
         another way than before.";
    Element::new("process_restored")
        .attribute("checkpoint_id", checkpoint.id)
        .attribute_if("label", label)
        .attribute("fact", checkpoint.at)
        .attribute("restores", restores)
        .attribute("max_restores", max_restores)
        .child(Element::new("message").text(message))
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
