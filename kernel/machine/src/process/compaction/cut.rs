//! Where a conversation is cut, so that what remains is valid for every provider.
//!
//! A tool use is never separated from its answer, nor a paused reply from its continuation. (A
//! provider pauses a long reply, and continues it when the reply is sent back.) What remains starts
//! after a summary, which is a user message. A user message without answers of tools is *plain*.

use std::sync::Arc;

use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::thinking::is_bound_to_history;

/// How much may be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::process) enum Urgency {
    /// The program's number of messages stays.
    Early,
    /// The conversation is too long: fewer messages stay if there is nothing else to compact.
    Needed,
    /// As [`Needed`](Self::Needed), after a reply that was cut. That reply alone is no reason to
    /// compact: the next one would be as long.
    NeededAfterReply,
}

/// A division of a conversation into messages that leave it and messages that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Index of the first message that stays.
    pub(super) at: usize,
    /// How the messages from there on stay.
    pub(super) kept: Kept,
}

/// How the newest messages stay in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// As they are.
    AsMessages,
    /// As text of the summary message: they hold thinking that is bound to what is compacted, or
    /// end with a reply, after which a model cannot be called.
    AsText,
}

/// The cuts to try, one after the other. The first keeps at least `keep` messages and has something
/// before it. If the conversation is too long, further ones keep fewer messages, down to none.
/// `summaries` is the number of messages at its start that are a summary: 0 or 1. O(messages), and
/// O(n) in the raw JSON of the kept ones.
pub(super) fn cuts(
    messages: &[Arc<Message>],
    summaries: usize,
    keep: usize,
    urgency: Urgency,
) -> Vec<Cut> {
    let before_reply = &messages[..before_last_reply(messages)];
    if urgency == Urgency::NeededAfterReply
        && cuts(before_reply, summaries, keep, Urgency::Needed).is_empty()
    {
        return Vec::new();
    }
    let numbers = match urgency {
        Urgency::Early => 1,
        Urgency::Needed | Urgency::NeededAfterReply => usize::MAX,
    };
    let numbers = std::iter::successors(Some(keep), |keep| Some(keep / 2))
        .take_while(|keep| *keep > 0)
        .take(numbers);
    let places = numbers.map(|keep| last_valid_cut(messages, messages.len().saturating_sub(keep)));
    let mut cuts: Vec<Cut> = places
        .filter(|at| *at > summaries)
        .map(|at| Cut {
            at,
            kept: match can_follow_a_summary(messages, at) {
                true => Kept::AsMessages,
                false => Kept::AsText,
            },
        })
        .collect();
    // All messages can leave if there is more than a summary. A summary alone can be compacted only
    // if it shows kept messages as text, since without that text it is shorter.
    let is_text = |block: &&Block| matches!(block, Block::Text { .. });
    let has_text = messages
        .first()
        .is_some_and(|first| first.blocks.iter().filter(is_text).nth(1).is_some());
    let has_more = messages.len() > summaries || (summaries > 0 && has_text);
    if urgency != Urgency::Early && has_more {
        cuts.push(Cut {
            at: messages.len(),
            kept: Kept::AsMessages,
        });
    }
    cuts.dedup();
    cuts
}

/// Number of messages before the last reply, and before the answers to its calls.
fn before_last_reply(messages: &[Arc<Message>]) -> usize {
    let answers = messages
        .last()
        .is_some_and(|last| last.role == Role::User && !is_plain(last));
    let replied = &messages[..messages.len() - usize::from(answers)];
    let last_other = replied
        .iter()
        .rposition(|message| message.role != Role::Assistant);
    last_other.map_or(0, |index| index + 1)
}

/// The last index up to `at` at which a conversation can be cut.
fn last_valid_cut(messages: &[Arc<Message>], at: usize) -> usize {
    (0..=at.min(messages.len()))
        .rev()
        .find(|at| is_valid_cut(messages, *at))
        .unwrap_or(0)
}

fn is_valid_cut(messages: &[Arc<Message>], at: usize) -> bool {
    let Some(first) = messages.get(at) else {
        return true;
    };
    let follows_a_reply = || at > 0 && messages[at - 1].role == Role::Assistant;
    match first.role {
        Role::User => is_plain(first),
        Role::Assistant => !follows_a_reply(),
    }
}

/// Whether a message is one of the user without answers of tools.
fn is_plain(message: &Message) -> bool {
    let is_answer = |block: &Block| {
        matches!(
            block,
            Block::ToolResult { .. }
                | Block::Media {
                    answers: Some(_),
                    ..
                }
        )
    };
    message.role == Role::User && !message.blocks.iter().any(is_answer)
}

/// Whether the messages from `at` on can stay as they are. Thinking in the turn to which they
/// belong counts too, since some providers want all of it or none.
fn can_follow_a_summary(messages: &[Arc<Message>], at: usize) -> bool {
    let turn = (0..=at)
        .rev()
        .find(|at| messages.get(*at).is_some_and(|message| is_plain(message)))
        .unwrap_or(0);
    let ends_with_reply = messages
        .last()
        .is_some_and(|last| last.role == Role::Assistant);
    !ends_with_reply
        && !messages[turn..]
            .iter()
            .any(|message| is_bound_to_history(message))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::message::Raw;

    use super::*;

    /// A conversation from letters: `u` a user's text, `c` a reply with a call, `r` the answer, `t`
    /// a reply with signed thinking and a call, `a` a final reply, `s` a summary with text.
    fn conversation(letters: &str) -> Vec<Arc<Message>> {
        let call = || Block::ToolUse {
            id: "a".into(),
            name: "t".into(),
            args: "{}".into(),
            raw: None,
        };
        let thinking = || Block::Opaque(Raw::new("anthropic", r#"{"type":"thinking"}"#));
        let result = || Block::ToolResult {
            id: "a".into(),
            text: "found".into(),
            is_error: false,
        };
        let message = |letter| {
            let (role, blocks) = match letter {
                'u' => (Role::User, vec![Block::text("go")]),
                'c' => (Role::Assistant, vec![call()]),
                't' => (Role::Assistant, vec![thinking(), call()]),
                'r' => (Role::User, vec![result()]),
                'a' => (Role::Assistant, vec![Block::text("done")]),
                _ => (Role::User, vec![Block::text("so far"), Block::text("new")]),
            };
            Arc::new(Message { role, blocks })
        };
        letters.chars().map(message).collect()
    }

    #[test]
    fn a_cut_keeps_pairs_together_and_the_requested_number_of_messages() {
        use Kept::{AsMessages, AsText};
        use Urgency::{Early, Needed, NeededAfterReply};
        let cases = [
            // A user's message, or a reply with its answer.
            ("uauau", 0, 1, Early, Some((4, AsMessages))),
            ("uauau", 0, 2, Early, Some((3, AsMessages))),
            ("ucrcrcr", 0, 1, Early, Some((5, AsMessages))),
            ("ucrcrcr", 0, 2, Early, Some((5, AsMessages))),
            ("ucrcrcr", 0, 3, Early, Some((3, AsMessages))),
            ("ucrcr", 0, 9, Early, None),
            // Replies in a row are parts of one reply.
            ("uaacr", 0, 5, Early, None),
            ("uaacr", 0, 3, Early, Some((1, AsMessages))),
            ("uauaacr", 0, 3, Early, Some((3, AsMessages))),
            // What is bound to the compacted messages stays as text.
            ("uautr", 0, 2, Early, Some((3, AsText))),
            ("uautrcr", 0, 2, Early, Some((5, AsText))),
            ("utrau", 0, 1, Early, Some((4, AsMessages))),
            ("utrau", 0, 2, Early, Some((3, AsText))),
            // No model can be called after its own reply.
            ("uaua", 0, 1, Needed, Some((3, AsText))),
            // After a summary there must be something to compact.
            ("su", 1, 1, Early, None),
            ("sauau", 1, 4, Early, None),
            ("sauau", 1, 3, Early, Some((2, AsMessages))),
            // If nothing else helps, fewer messages stay, and at last none.
            ("sauau", 1, 6, Needed, Some((2, AsMessages))),
            ("scr", 1, 6, Needed, Some((3, AsMessages))),
            ("u", 0, 6, Needed, Some((1, AsMessages))),
            ("s", 1, 6, Needed, Some((1, AsMessages))),
            // What a cut reply follows can be compacted, or nothing is.
            ("ua", 0, 6, NeededAfterReply, Some((1, AsText))),
            ("sa", 1, 6, NeededAfterReply, Some((2, AsMessages))),
            ("saucr", 1, 1, NeededAfterReply, Some((3, AsMessages))),
        ];
        for (letters, summaries, keep, urgency, expected) in cases {
            let found = cuts(&conversation(letters), summaries, keep, urgency);
            let found = found.first().map(|cut| (cut.at, cut.kept));
            assert_eq!(found, expected, "{letters}, {keep} {urgency:?}");
        }
        let bare = [Arc::new(Message::user("so far"))];
        assert_eq!(cuts(&bare, 1, 6, Urgency::Needed), []);
        let mut noted = Message::user("so far");
        noted.blocks.push(Block::Opaque(Raw::adapter_block("{}")));
        assert_eq!(cuts(&[noted.into()], 1, 6, Urgency::Needed), []);
        let mut replied = bare.to_vec();
        replied.extend(conversation("cr"));
        assert_eq!(cuts(&replied, 1, 6, Urgency::NeededAfterReply), []);
        assert_eq!(cuts(&[], 0, 6, Urgency::Needed), []);
        let places = cuts(&conversation("uauaucr"), 0, 4, Urgency::Needed);
        let places: Vec<_> = places.iter().map(|cut| cut.at).collect();
        assert_eq!(places, [3, 5, 7], "then fewer stay");
    }
}
