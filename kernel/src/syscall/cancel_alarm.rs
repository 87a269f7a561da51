//! `cancel_alarm`: cancels an alarm that `wake_at` has set.

use dormouse_proto::alarm::AlarmId;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, Tool};

/// `cancel_alarm` as a tool.
pub const TOOL: Tool = Tool {
    name: "cancel_alarm",
    group: Group::Processes,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::CancelAlarm(arguments)),
};

const ALARM: &str = "alarm";
const PARAMETERS: [Parameter; 1] =
    [
        Parameter::word(ALARM, "The alarm, such as alarm:1, as wake_at named it.")
            .required()
            .also(&["id", "alarm_id"]),
    ];

const DESCRIPTION: &str = "Cancels an alarm, and lists those that are still open.";

/// Parses the arguments of a call.
///
/// # Errors
/// The arguments are invalid.
pub fn arguments(args: &str) -> Result<AlarmId, Refusal> {
    let args = Args::parse(&TOOL, args)?;
    let text = args.required_text(ALARM, "the alarm, such as \"alarm:1\"")?;
    text.parse()
        .map_err(|error| Refusal::from(format!("No alarm was cancelled: {error}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_named_by_its_number() {
        for args in [r#"{"alarm": "alarm:3"}"#, r#"{"id": 3}"#] {
            assert_eq!(arguments(args), Ok(AlarmId(3)), "{args}");
        }
        for args in ["{}", r#"{"alarm": "noon"}"#, r#"{"alarm": "alarm:0"}"#] {
            assert!(arguments(args).is_err(), "{args}");
        }
    }
}
