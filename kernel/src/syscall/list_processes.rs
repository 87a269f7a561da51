//! `list_processes`: lists the processes to which the caller can send messages.

pub use dormouse_machine::process::MAX_SHOWN_PROCESSES as MAX_SHOWN;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, ProcessHandler, Refusal, Tool};

/// `list_processes` as a tool.
pub const TOOL: Tool = Tool {
    name: "list_processes",
    group: Group::Processes,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &[],
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::ListProcesses(check)),
};

const DESCRIPTION: &str = "Lists the processes that you can write to: your own tree, with your \
parent, your children and your siblings first, and those that have a name. Your children that \
have ended come last: a message opens one again.";

/// Checks that a call has no arguments.
///
/// # Errors
/// The call has arguments.
pub fn check(args: &str) -> Result<(), Refusal> {
    Args::parse(&TOOL, args)?;
    Ok(())
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
