//! `checkpoint_process`: makes a checkpoint that the process can be restored to.

use std::sync::Arc;

use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, Parameter, ProcessHandler, Tool};
use crate::process::CheckpointError;

/// `checkpoint_process` as a tool.
pub const TOOL: Tool = Tool {
    name: "checkpoint_process",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::MakeCheckpoint(label)),
};

const LABEL: &str = "label";
const PARAMETERS: [Parameter; 1] = [Parameter::text(
    LABEL,
    "What the point is called, such as \"before the rewrite\".",
)];

const DESCRIPTION: &str = "Makes a checkpoint of this process: its conversation and its file \
descriptors as they are now. Returns its checkpoint_id, which restore_process takes. It costs \
nothing, whatever you hold.";

/// The label of the checkpoint; empty if the call gives none.
///
/// # Errors
/// [`CheckpointError::Arguments`].
pub fn label(args: &str) -> Result<Arc<str>, CheckpointError> {
    let to_checkpoint_error =
        |error: dormouse_proto::descriptor::FdError| CheckpointError::Arguments(error.message);
    let args = Args::parse(&TOOL, args).map_err(to_checkpoint_error)?;
    match args.contains(LABEL) {
        true => args
            .label(LABEL, "what the point is called")
            .map(Arc::from)
            .map_err(to_checkpoint_error),
        false => Ok("".into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_label_is_optional_and_checked() {
        assert_eq!(label("{}"), Ok("".into()));
        assert_eq!(
            label(r#"{"label": "before the rewrite"}"#),
            Ok("before the rewrite".into())
        );
        for args in [
            r#"{"label": ""}"#,
            r#"{"label": 3}"#,
            r#"{"name": "x"}"#,
            "[]",
        ] {
            assert_eq!(
                label(args).unwrap_err().word(),
                "invalid_parameter",
                "{args}"
            );
        }
        assert!(label(&json!({ "label": "x".repeat(65) }).to_string()).is_err());
    }
}
