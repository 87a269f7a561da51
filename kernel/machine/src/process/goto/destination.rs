//! Finds the message that a goto goes back to.
//!
//! The caller names a position as `msg:N`, the number of a message. Providers reject a history that
//! ends with an unfinished reply: a position at a reply that calls tools, or that was paused,
//! therefore resolves to the next message.
//!
//! Messages that were compacted keep their numbers. Where a goto among them ends is known once they
//! are read.

use std::sync::Arc;

use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::tool::Answer;
use dormouse_proto::xml::Element;
use imbl::Vector;

/// Why a goto was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GotoError {
    /// Invalid arguments.
    #[error("{0}")]
    Arguments(String),
    /// The position is not the name of a message.
    #[error("'{requested}' is not the position of a message: it is written as msg:N. {valid}")]
    Unknown {
        /// The requested position.
        requested: String,
        /// The valid positions, as text.
        valid: String,
    },
    /// The compacted messages at the position cannot be read.
    #[error(
        "msg:{requested} left the conversation when it filled the context, and cannot be read: {why}"
    )]
    Unreadable {
        /// The requested position.
        requested: u32,
        /// The reason.
        why: Arc<str>,
    },
    /// The position is the end of the conversation.
    #[error(
        "msg:{requested} is where the conversation stands: there is nothing to go back over. {valid}"
    )]
    Current {
        /// The requested position.
        requested: u32,
        /// The valid positions, as text.
        valid: String,
    },
    /// The position is after the end of the conversation.
    #[error("msg:{requested} is yet to come: the last message is msg:{last}. {valid}")]
    Future {
        /// The requested position.
        requested: u32,
        /// Number of the last message.
        last: usize,
        /// The valid positions, as text.
        valid: String,
    },
    /// The reply calls other tools as well.
    #[error(
        "goto must be the only call of a reply: what the others bring would be gone. Call it \
         again, alone."
    )]
    NotAlone,
}

impl GotoError {
    /// The error type, as answers state it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Arguments(_) => "invalid_parameter",
            Self::Unknown { .. } => "unknown_position",
            Self::Current { .. } => "current_position",
            Self::Future { .. } => "future_position",
            Self::NotAlone => "not_alone",
            Self::Unreadable { .. } => "content_unreadable",
        }
    }

    /// The error as an answer.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let message = Element::new("message").text(self.to_string());
        Answer::failed(
            Element::new("goto_error")
                .attribute("type", self.word())
                .child(message),
        )
    }
}

/// The checked arguments of a goto.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GotoArguments {
    /// Position as the model wrote it, such as `msg:3`.
    pub position: String,
    /// Text of the message that is appended after that position.
    pub message: String,
}

/// Refuses a message that is only white space.
///
/// # Errors
/// [`GotoError::Arguments`].
pub fn check_goto_message(message: &str) -> Result<(), GotoError> {
    if message.trim().is_empty() {
        return Err(GotoError::Arguments(
            "Parameter 'message' is empty: say what is to be done there.".to_owned(),
        ));
    }
    Ok(())
}

/// Where a goto goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The number of the last message that is kept.
    Kept(u32),
    /// The number of a message that was compacted.
    Compacted(u32),
}

/// The messages in which a goto finds its destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages<'a> {
    /// The conversation.
    pub(super) messages: &'a Vector<Arc<Message>>,
    /// Number of the last compacted message; 0 if there is none. If there are some, the first of
    /// `messages` is their summary.
    pub(super) last_compacted: u32,
}

impl Messages<'_> {
    fn before_first(self) -> usize {
        self.last_compacted.saturating_sub(1) as usize
    }

    fn last(self) -> usize {
        self.before_first() + self.messages.len()
    }

    /// The first message from `number` on after which no call is open.
    pub(super) fn finished_from(self, number: u32) -> Option<u32> {
        (number..).find(|number| {
            let index = (*number as usize).saturating_sub(self.before_first());
            !is_unfinished_reply(self.messages, index)
        })
    }
}

/// Finds the number of the last message that a goto keeps. Messages are numbered from 1; `current`
/// is the message that the goto starts from, and the destination must precede it. O(1), except for
/// paused replies.
///
/// # Errors
/// [`GotoError::Unknown`], [`GotoError::Current`], [`GotoError::Future`].
pub(super) fn find_destination(
    messages: Messages<'_>,
    current: usize,
    requested: &str,
) -> Result<Destination, GotoError> {
    let position = requested
        .trim()
        .trim_start_matches('[')
        .trim_end_matches(']');
    // A number alone can only be that of a message.
    let position = match position.parse::<u32>() {
        Ok(number) => format!("msg:{number}"),
        Err(_) => position.replacen('_', ":", 1),
    };
    let Ok(FdId::Message { number, part: None }) = position.parse() else {
        return Err(GotoError::Unknown {
            requested: requested.to_owned(),
            valid: describe_valid_positions(current),
        });
    };
    if number as usize > messages.last() {
        return Err(GotoError::Future {
            requested: number,
            last: messages.last(),
            valid: describe_valid_positions(current),
        });
    }
    if number <= messages.last_compacted && (number as usize) < current {
        return Ok(Destination::Compacted(number));
    }
    match messages.finished_from(number) {
        Some(to) if (to as usize) < current => Ok(Destination::Kept(to)),
        _ => Err(GotoError::Current {
            requested: number,
            valid: describe_valid_positions(current),
        }),
    }
}

/// The number of the last message that the model did not write. A goto of the model starts from it.
pub(super) fn last_user_message_number(numbered: Messages<'_>) -> usize {
    let last = numbered
        .messages
        .iter()
        .rposition(|message| message.role == Role::User);
    last.map_or(0, |index| numbered.before_first() + index + 1)
}

/// The sentence of an error that lists the valid positions.
fn describe_valid_positions(current: usize) -> String {
    match current {
        0 | 1 => "There is no earlier message.".to_owned(),
        2 => "Valid: msg:1.".to_owned(),
        _ => format!("Valid: msg:1 to msg:{}.", current - 1),
    }
}

/// Whether the message at this place, counted from 1, is a reply that needs the next message: that
/// message continues the reply, or answers its tool calls.
fn is_unfinished_reply(messages: &Vector<Arc<Message>>, number: usize) -> bool {
    let Some(message) = number
        .checked_sub(1)
        .and_then(|index| messages.get(index))
        .filter(|message| message.role == Role::Assistant)
    else {
        return false;
    };
    let has_calls = message
        .blocks
        .iter()
        .any(|block| matches!(block, Block::ToolUse { .. }));
    has_calls
        || messages
            .get(number)
            .is_some_and(|next| next.role == Role::Assistant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation() -> Vector<Arc<Message>> {
        let call = Block::ToolUse {
            id: "a".into(),
            name: "t".into(),
            args: "{}".into(),
            raw: None,
        };
        let result = Block::ToolResult {
            id: "a".into(),
            text: "found".into(),
            is_error: false,
        };
        let messages = [
            (Role::User, Block::text("go")),
            (Role::Assistant, call.clone()),
            (Role::User, result),
            (Role::Assistant, Block::text("first half")),
            (Role::Assistant, Block::text("second half")),
            (Role::User, Block::text("more")),
            (Role::Assistant, call),
        ];
        messages
            .into_iter()
            .map(|(role, block)| {
                Arc::new(Message {
                    role,
                    blocks: vec![block],
                })
            })
            .collect()
    }

    #[test]
    fn a_position_resolves_to_a_message_after_which_no_call_is_open() {
        let messages = conversation();
        let messages = Messages {
            messages: &messages,
            last_compacted: 0,
        };
        assert_eq!(last_user_message_number(messages), 6);
        let cases = [
            ("msg:1", 6, Ok(1)),
            ("[msg:1]", 6, Ok(1)),
            ("msg-1", 6, Ok(1)),
            ("msg:2", 6, Ok(3)),
            ("msg:3", 6, Ok(3)),
            ("msg:4", 6, Ok(5)),
            ("msg:5", 6, Ok(5)),
            ("msg:6", 6, Err("current_position")),
            ("msg:7", 6, Err("current_position")),
            ("msg:6", 7, Ok(6)),
            ("msg:7", 7, Err("current_position")),
            ("msg:8", 7, Err("future_position")),
            ("msg:4294967295", 6, Err("future_position")),
            ("msg:0", 6, Err("unknown_position")),
            ("msg:4294967296", 6, Err("unknown_position")),
            ("msg:3.1", 6, Err("unknown_position")),
            ("fd:1", 6, Err("unknown_position")),
            ("3", 6, Ok(3)),
            ("msg_3", 6, Ok(3)),
            ("0", 6, Err("unknown_position")),
            ("three", 6, Err("unknown_position")),
            ("", 6, Err("unknown_position")),
        ];
        for (requested, current, expected) in cases {
            let found = find_destination(messages, current, requested);
            let found = found.map_err(|error| error.word());
            let expected = expected.map(Destination::Kept);
            assert_eq!(found, expected, "{requested} at {current}");
        }
        let none = Messages {
            messages: &Vector::new(),
            last_compacted: 0,
        };
        assert!(
            find_destination(none, 0, "msg:1")
                .is_err_and(|error| error.word() == "future_position")
        );
    }

    #[test]
    fn numbers_go_on_after_a_compaction() {
        let messages = conversation();
        let messages = Messages {
            messages: &messages,
            last_compacted: 40,
        };
        assert_eq!(last_user_message_number(messages), 45);
        let cases = [
            ("msg:1", 45, Ok(Destination::Compacted(1))),
            ("msg:40", 45, Ok(Destination::Compacted(40))),
            ("msg:40", 40, Err("current_position")),
            // A call of a tool, and its answer.
            ("msg:41", 45, Ok(Destination::Kept(42))),
            ("msg:44", 45, Ok(Destination::Kept(44))),
            ("msg:45", 45, Err("current_position")),
            ("msg:47", 47, Err("future_position")),
        ];
        for (requested, current, expected) in cases {
            let found = find_destination(messages, current, requested);
            let found = found.map_err(|error| error.word());
            assert_eq!(found, expected, "{requested} at {current}");
        }
    }

    #[test]
    fn errors_list_the_valid_positions() {
        let cases = [
            (0, "no earlier message"),
            (1, "no earlier message"),
            (2, "Valid: msg:1."),
            (7, "msg:1 to msg:6."),
        ];
        for (current, words) in cases {
            let messages = Messages {
                messages: &conversation(),
                last_compacted: 0,
            };
            let error = find_destination(messages, current, "msg:9").unwrap_err();
            let answer = error.answer();
            assert!(
                answer.is_error && answer.text.contains(words),
                "{}",
                answer.text
            );
            assert!(
                answer
                    .text
                    .starts_with("<goto_error type=\"future_position\">"),
                "{}",
                answer.text
            );
        }
    }
}
