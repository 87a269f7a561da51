//! `send_message`: sends a message to another process, with descriptors if needed.
//!
//! This module checks a call and returns a [`PendingMessage`], which the shell delivers. The
//! supervisor decides whether the receiver may get messages of the sender, since only the
//! supervisor knows the process tree.

use dormouse_proto::mail::Address;
use dormouse_proto::tool::Access;

use super::args::Args;
use super::parameter::ItemType;
use super::transferred::transferred_descriptors;
use super::{
    Call, Envelope, Group, Handler, Parameter, PendingMessage, ProcessHandler, Refusal, Tool,
};
use crate::program::Program;

/// `send_message` as a tool.
pub const TOOL: Tool = Tool {
    name: "send_message",
    group: Group::Processes,
    access: Access::Write,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::SendMessage(pending)),
};

const FDS: &str = "fds";

const PARAMETERS: [Parameter; 3] = [
    Parameter::word(
        "to",
        "Who is to hear it: \"parent\", the pid of a process, or a name.",
    )
    .required(),
    Parameter::text(
        "text",
        "What you say. The other knows nothing of this conversation.",
    )
    .required(),
    Parameter::list(
        ItemType::Descriptors,
        FDS,
        "Descriptors that you hand over: the other gets them under numbers of its own. A part of \
         one is named as \"fd:1 lines 10-40\", or by an object.",
    )
    .with_descriptors(),
];

const DESCRIPTION: &str = "Says something to another process. It hears it when its turn ends, or \
when it calls receive_messages. You get an answer as soon as the message is kept for it, and do \
not wait for a reply. A process of your own tree that has ended, such as a child that is done, is \
opened again by it and goes on with all that it knows; hear of its next end by wait.";

const TO: &str = "\"parent\", the pid of a process, or a name";

/// Checks a call by a process of `program`.
///
/// # Errors
/// The arguments are invalid, or a descriptor is unknown. The text states what is valid.
pub fn pending(program: &Program, call: &Call<'_>) -> Result<PendingMessage, Refusal> {
    let args = Args::parse_for_program(&TOOL, program, call.args)?;
    let to = args.required_text("to", TO)?;
    let to = Address::parse(to).ok_or_else(|| format!("'{to}' is nobody: give {TO}."))?;
    let descriptors = transferred_descriptors(&args, FDS, call)?;
    let text = args.text("text").unwrap_or_default();
    if text.trim().is_empty() && descriptors.is_empty() {
        return Err(
            "Parameter 'text' is empty and no descriptor is handed over: nothing is said.".into(),
        );
    }
    Ok(PendingMessage {
        to,
        envelope: Envelope {
            program: program.name().into(),
            text: text.into(),
            descriptors,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use std::path::Path;

    use bytes::Bytes;
    use dormouse_proto::id::Pid;
    use dormouse_proto::record::Entry;
    use serde_json::Value;

    use super::*;
    use crate::program::compile;
    use crate::syscall::TOOL_SET;
    use crate::table::Table;
    use dormouse_content::Content;

    fn program(tools: &str) -> Program {
        let text = format!(
            "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [{tools}]\n"
        );
        compile(
            Path::new("p.toml"),
            &mut |_| Ok(Bytes::from(text.clone())),
            &[],
        )
        .unwrap()
        .program
    }

    fn with_descriptors() -> Program {
        program("\"send_message\", \"read_fd\"")
    }

    fn table() -> Table {
        let mut table = Table::new();
        table.insert(
            table.next_id(),
            Entry::new(Content::new("one\ntwo\nthree\n"), 8, "tool:t", 7),
        );
        table
    }

    fn checked(args: &str, program: &Program, table: &Table) -> Result<PendingMessage, Refusal> {
        let settings = program.descriptors().copied().unwrap_or_default();
        pending(program, &Call::unlimited(table, args, &settings, 0))
    }

    #[test]
    fn a_receiver_is_the_parent_a_pid_or_a_name() {
        let cases = [
            (json!("parent"), Address::Parent),
            (json!("4"), Address::Process(Pid(4))),
            (json!(4), Address::Process(Pid(4))),
            (json!("planner"), Address::Name("planner".into())),
        ];
        for (to, address) in cases {
            let args = json!({ "to": to, "text": "hello" }).to_string();
            let found = checked(&args, &with_descriptors(), &table()).unwrap();
            assert_eq!(
                (found.to, &*found.envelope.text, &*found.envelope.program),
                (address, "hello", "p")
            );
        }
    }

    #[test]
    fn a_message_may_carry_whole_descriptors_and_parts_without_text() {
        let args = json!({ "to": "parent", "text": "", "fds": ["fd:1", { "fd": "fd:1", "lines": "2-3" }] });
        let envelope = checked(&args.to_string(), &with_descriptors(), &table())
            .unwrap()
            .envelope;
        let seen = envelope.descriptors.iter().map(|d| {
            (
                d.part.as_deref(),
                d.entry
                    .content
                    .unlimited_reader()
                    .text()
                    .unwrap()
                    .to_string(),
            )
        });
        let expected = [
            (None, "one\ntwo\nthree\n".into()),
            (Some("lines 2-3"), "two\nthree\n".into()),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn invalid_messages_are_refused_with_a_reason() {
        let cases = [
            (json!({ "to": "parent" }), "nothing is said"),
            (json!({ "to": "parent", "text": " " }), "nothing is said"),
            (json!({ "to": "a b", "text": "x" }), "'a b' is nobody"),
            (json!({ "text": "x" }), "Parameter 'to' is missing"),
            (
                json!({ "to": true, "text": "x" }),
                "'to' must be a string or a number",
            ),
            (
                json!({ "to": "parent", "text": "x", "fds": ["fd:9"] }),
                "There is no descriptor 'fd:9' for 'fds'",
            ),
            (
                json!({ "to": "parent", "text": "x", "fd": "fd:1" }),
                "Unknown parameter 'fd'",
            ),
        ];
        for (args, reason) in cases {
            let message = checked(&args.to_string(), &with_descriptors(), &table())
                .unwrap_err()
                .to_string();
            assert!(message.contains(reason), "{args}: {message}");
        }
    }

    #[test]
    fn without_descriptor_tools_there_is_no_parameter_fds() {
        let plain = program("\"send_message\"");
        let schema: Value = serde_json::from_str(&TOOL.spec(&plain, &TOOL_SET).schema).unwrap();
        assert!(schema["properties"][FDS].is_null());
        let args = json!({ "to": "parent", "text": "x", "fds": [] }).to_string();
        assert!(
            checked(&args, &plain, &Table::new())
                .unwrap_err()
                .to_string()
                .contains("Unknown parameter 'fds'")
        );
    }
}
