//! `list_checkpoints`: lists the checkpoints that the process can be restored to.

use std::cmp::Reverse;

use dormouse_proto::tool::{Access, Answer};
use dormouse_proto::xml::Element;

use super::args::Args;
use super::checkpoint::{CheckpointError, CheckpointInfo};
use super::{Group, Handler, ProcessHandler, Tool};
use crate::process::Draft;

/// `list_checkpoints` as a tool.
pub const TOOL: Tool = Tool {
    name: "list_checkpoints",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &[],
    adapt: None,
    example: None,
    may_repeat: super::always,
    handler: Handler::Process(ProcessHandler(Draft::list_checkpoints)),
};

/// Maximum number of checkpoints in one answer.
pub const MAX_SHOWN: usize = 100;

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

/// The answer of the tool.
#[must_use]
pub fn answer(mut checkpoints: Vec<CheckpointInfo>) -> Answer {
    checkpoints.sort_by_key(|checkpoint| Reverse(checkpoint.id));
    let hidden = checkpoints.len().saturating_sub(MAX_SHOWN);
    checkpoints.truncate(MAX_SHOWN);
    let list = Element::new("checkpoint_list")
        .attribute("count", checkpoints.len())
        .attribute_if("not_shown", (hidden > 0).then_some(hidden));
    Answer::shown(
        checkpoints
            .iter()
            .fold(list, |list, checkpoint| list.child(checkpoint.element())),
    )
}

#[cfg(test)]
mod tests {
    use dormouse_proto::checkpoint::Scope;
    use dormouse_proto::id::{CheckpointId, FactNumber};

    use super::*;

    #[test]
    fn the_newest_come_first_and_what_is_left_out_is_counted() {
        let checkpoints = (1..=120).map(|id| CheckpointInfo {
            id: CheckpointId(id),
            label: "".into(),
            at: FactNumber(id),
            scope: Scope::Tree,
        });
        let text = answer(checkpoints.collect()).text;
        assert!(
            text.starts_with(r#"<checkpoint_list count="100" not_shown="20">"#),
            "{text}"
        );
        assert!(
            text.find("cp:120\"") < text.find("cp:21\"") && !text.contains("cp:20\""),
            "{text}"
        );
        assert_eq!(&*answer(Vec::new()).text, r#"<checkpoint_list count="0"/>"#);
    }

    #[test]
    fn a_call_takes_nothing() {
        assert_eq!(check("{}"), Ok(()));
        assert!(
            check(r#"{"all": true}"#)
                .unwrap_err()
                .to_string()
                .contains("Unknown parameter 'all'")
        );
    }
}
