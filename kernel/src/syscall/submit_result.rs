//! `submit_result`: ends the turn with a result that the result schema of the process accepts.
//!
//! A process has the tool if its program or its parent asks for a result. The schema of its
//! argument is then the result schema.

use dormouse_proto::tool::Access;

use super::{Group, Handler, Parameter, ProcessHandler, Tool};
use crate::program::VALUE;

/// `submit_result` as a tool.
pub const TOOL: Tool = Tool {
    name: "submit_result",
    group: Group::Processes,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::SubmitResult),
};

const PARAMETERS: [Parameter; 1] =
    [Parameter::any(VALUE, "The result. Its schema is that of the process.").required()];

const DESCRIPTION: &str = "Ends your task with its result. Call it once, when you are done: only \
this call hands the result over, and a reply without it does not count.";
