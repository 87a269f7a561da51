//! `receive_messages`: returns messages of other processes within a turn.

use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, Tool};

/// `receive_messages` as a tool.
pub const TOOL: Tool = Tool {
    name: "receive_messages",
    group: Group::Processes,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::ReceiveMessages(timeout_ms)),
};

const TIMEOUT: &str = "timeout_ms";
/// Maximum timeout: one hour.
pub(super) const MAX_TIMEOUT_MS: u64 = 3_600_000;

const PARAMETERS: [Parameter; 1] = [Parameter::integer(
    TIMEOUT,
    "Milliseconds to wait for a message if none is there; 0 if left out.",
)
.at_least(0)
.at_most(MAX_TIMEOUT_MS)];

const DESCRIPTION: &str = "Returns the messages that other processes sent you. Those that you do not \
receive are delivered when your turn ends. waiting=\"3\": 3 more messages are there; call it again.";

/// The timeout of a call, in milliseconds.
///
/// # Errors
/// The arguments are invalid.
pub fn timeout_ms(args: &str) -> Result<u64, Refusal> {
    let args = Args::parse(&TOOL, args)?;
    Ok(parse_timeout(&args, TIMEOUT)?.unwrap_or(0))
}

/// The timeout argument, if given.
pub(super) fn parse_timeout(args: &Args, key: &'static str) -> Result<Option<u64>, Refusal> {
    let Some(requested) = args.integer(key) else {
        return Ok(None);
    };
    let in_range = u64::try_from(requested)
        .ok()
        .filter(|ms| *ms <= MAX_TIMEOUT_MS);
    let error = || format!("Invalid {key} {requested}: give 0 to {MAX_TIMEOUT_MS} milliseconds.");
    in_range.map(Some).ok_or_else(|| error().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_parsed_and_limited() {
        for (args, ms) in [
            ("{}", 0),
            (r#"{"timeout_ms": 50}"#, 50),
            (r#"{"timeout_ms": "50"}"#, 50),
        ] {
            assert_eq!(timeout_ms(args), Ok(ms));
        }
        for args in [
            r#"{"timeout_ms": -1}"#,
            r#"{"timeout_ms": 3600001}"#,
            r#"{"timeout": 1}"#,
            "[]",
        ] {
            assert!(timeout_ms(args).is_err(), "{args}");
        }
    }
}
