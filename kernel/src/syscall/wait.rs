//! `wait`: waits for background children to end.

use dormouse_proto::id::Pid;
use dormouse_proto::mail::Address;
use dormouse_proto::tool::Access;
use serde_json::Value;

use super::args::Args;
use super::parameter::ItemType;
use super::receive_messages::{MAX_TIMEOUT_MS, parse_timeout};
use super::transferred::check_list_length;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, Tool};
use crate::process::WaitArguments;

/// `wait` as a tool.
pub const TOOL: Tool = Tool {
    name: "wait",
    group: Group::Processes,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::Wait(arguments)),
};

const PIDS: &str = "pids";
const TIMEOUT: &str = "timeout_ms";
const PARAMETERS: [Parameter; 2] = [
    Parameter::list(
        ItemType::Integers,
        PIDS,
        "The children to wait for, as spawn with wait=false named them; all, if left out.",
    ),
    Parameter::integer(
        TIMEOUT,
        "How long to wait at most; until they have ended, if left out.",
    )
    .at_least(0)
    .at_most(MAX_TIMEOUT_MS),
];

const DESCRIPTION: &str =
    "Waits until children that run in the background have ended, and returns what they said.";

/// The checked arguments of a call.
///
/// # Errors
/// The arguments are invalid.
pub fn arguments(args: &str) -> Result<WaitArguments, Refusal> {
    let args = Args::parse(&TOOL, args)?;
    let pids = check_list_length(PIDS, args.list(PIDS))?
        .iter()
        .map(parse_pid)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(WaitArguments {
        pids: (!pids.is_empty()).then_some(pids),
        timeout_ms: parse_timeout(&args, TIMEOUT)?,
    })
}

fn parse_pid(item: &Value) -> Result<Pid, Refusal> {
    let text = item
        .as_str()
        .map_or_else(|| item.to_string(), str::to_owned);
    match Address::parse(&text) {
        Some(Address::Process(pid)) => Ok(pid),
        _ => Err(format!(
            "'{PIDS}' must be a list of process numbers, such as [3, 4], and holds {item}."
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_listed_by_pid_and_an_empty_list_selects_all() {
        let of = |pids: &[u64]| Some(pids.iter().map(|pid| Pid(*pid)).collect());
        let cases = [
            ("{}", None, None),
            (r#"{"pids": []}"#, None, None),
            (
                r#"{"pids": [3, "4"], "timeout_ms": 0}"#,
                of(&[3, 4]),
                Some(0),
            ),
        ];
        for (args, pids, timeout_ms) in cases {
            assert_eq!(
                arguments(args),
                Ok(WaitArguments { pids, timeout_ms }),
                "{args}"
            );
        }
        for args in [
            r#"{"pids": [0]}"#,
            r#"{"pids": ["parent"]}"#,
            r#"{"pids": [1.5]}"#,
            r#"{"pid": 3}"#,
        ] {
            assert!(arguments(args).is_err(), "{args}");
        }
    }
}
