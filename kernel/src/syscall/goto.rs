//! `goto`: goes back to an earlier message of the conversation and continues from there.

use dormouse_machine::process::{GotoArguments, GotoError, check_goto_message};
use dormouse_proto::tool::Access;

use super::args::Args;
use super::{Group, Handler, Parameter, ProcessHandler, Tool};

/// `goto` as a tool.
pub const TOOL: Tool = Tool {
    name: "goto",
    group: Group::Processes,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::Goto(arguments)),
};

const PARAMETERS: [Parameter; 2] = [
    Parameter::word("position", "The message to go back to, such as \"msg:3\".")
        .required()
        .also(&["msg", "message_id", "to"]),
    Parameter::text(
        "message",
        "What you need to know there, and what to do next.",
    )
    .required(),
];

const DESCRIPTION: &str = "Goes back to an earlier message: all after it is gone from this \
conversation, and your own message follows it. The number of a message stands behind it as \
[msg:N]. Descriptors stay, and so does what was done outside. Call nothing else in the same reply.";

/// Parses the arguments of a call.
///
/// # Errors
/// [`GotoError::Arguments`].
pub fn arguments(args: &str) -> Result<GotoArguments, GotoError> {
    let to_goto_error =
        |error: dormouse_proto::descriptor::FdError| GotoError::Arguments(error.message);
    let args = Args::parse(&TOOL, args).map_err(to_goto_error)?;
    let position = args
        .required_text("position", "the message to go back to, such as \"msg:3\"")
        .map_err(to_goto_error)?;
    let message = args
        .required_text(
            "message",
            "what you need to know there, and what to do next",
        )
        .map_err(to_goto_error)?;
    check_goto_message(message)?;
    Ok(GotoArguments {
        position: position.to_owned(),
        message: message.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_both_arguments_are_accepted() {
        let parsed = arguments(r#"{"position": "msg:3", "message": "again"}"#);
        assert_eq!(
            parsed,
            Ok(GotoArguments {
                position: "msg:3".into(),
                message: "again".into()
            })
        );
        let refused = [
            ("{}", "'position' is missing"),
            (r#"{"position": "msg:3"}"#, "'message' is missing"),
            (
                r#"{"position": "msg:3", "message": " \n"}"#,
                "'message' is empty",
            ),
            (
                r#"{"position": ["msg:3"], "message": "x"}"#,
                "'position' must be a string",
            ),
            (
                r#"{"position": "msg:3", "mesage": "x"}"#,
                "Did you mean 'message'?",
            ),
            ("[", "not JSON"),
        ];
        for (args, words) in refused {
            let error = arguments(args).unwrap_err();
            assert!(
                error.word() == "invalid_parameter" && error.to_string().contains(words),
                "{args}: {error}"
            );
        }
    }
}
