//! `list_checkpoints`: lists the checkpoints that the process can be restored to.

use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, ProcessHandler, Tool};
use crate::process::CheckpointError;

/// `list_checkpoints` as a tool.
pub const TOOL: Tool = Tool {
    name: "list_checkpoints",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &[],
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::ListCheckpoints(check)),
};

const DESCRIPTION: &str =
    "Lists the checkpoints that restore_process can take this process back to, the newest first.";

/// Checks that a call has no arguments.
///
/// # Errors
/// [`CheckpointError::Arguments`].
pub fn check(args: &str) -> Result<(), CheckpointError> {
    let args = Args::parse(&TOOL, args).map(drop);
    args.map_err(|error| CheckpointError::Arguments(error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_refused() {
        assert_eq!(check("{}"), Ok(()));
        assert!(
            check(r#"{"all": true}"#)
                .unwrap_err()
                .to_string()
                .contains("Unknown parameter 'all'")
        );
    }
}
