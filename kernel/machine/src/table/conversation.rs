//! The conversation as descriptors: `msg:3` is its third message, `msg:3.2` the second part of it.
//!
//! These descriptors are computed when they are read, and never stored. A single text is shared
//! with its message. If a message has several parts, `msg:3` joins them with line feeds.
//!
//! Messages that were compacted keep their numbers. They are no descriptors of their own: their
//! text is in a descriptor `history:N`.

use std::cmp::Ordering;
use std::sync::Arc;

use dormouse_proto::id::FdId;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::record::{CompactedMessages, Entry};
use imbl::Vector;

use dormouse_content::Content;

/// The marker at the end of a message, from which the model reads the descriptor id of the message.
pub(crate) fn marker(number: usize) -> String {
    format!("[msg:{number}]")
}

/// The messages of a conversation as descriptors. Cloning costs O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conversation {
    /// If messages were compacted, the first of these is their summary.
    messages: Vector<Arc<Message>>,
    compacted: Vector<CompactedMessages<Content>>,
    page_chars: u32,
}

/// One text of a message and its source.
struct Part {
    text: Arc<str>,
    source: Arc<str>,
}

impl Conversation {
    pub(super) fn new(
        messages: Vector<Arc<Message>>,
        compacted: Vector<CompactedMessages<Content>>,
        page_chars: u32,
    ) -> Self {
        Self {
            messages,
            compacted,
            page_chars: page_chars.max(1),
        }
    }

    /// The message, or part of a message, with this id. O(length of its text).
    pub(super) fn entry(&self, id: &FdId) -> Option<Entry<Content>> {
        let FdId::Message { number, part } = id else {
            return None;
        };
        let parts = self.parts(*number as usize)?;
        let Part { text, source } = match part {
            None => join_parts(parts)?,
            Some(part) => parts.into_iter().nth(part.checked_sub(1)? as usize)?,
        };
        Some(Entry::new(
            Content::from_shared_text(text),
            self.page_chars,
            source,
            0,
        ))
    }

    /// Number of the last compacted message; 0 if there is none.
    fn last_compacted(&self) -> u32 {
        self.compacted.last().map_or(0, |compacted| compacted.last)
    }

    /// N of the descriptor `history:N` that holds a compacted message; `None` if the message was
    /// not compacted. O(log n).
    pub(super) fn history_of(&self, number: u32) -> Option<u32> {
        let found = self
            .compacted
            .binary_search_by(|compacted| match compacted.last < number {
                true => Ordering::Less,
                false => Ordering::Greater,
            });
        // No element is equal, so the result is where the first greater one is.
        let (Ok(at) | Err(at)) = found;
        Some(self.compacted.get(at)?.history)
    }

    /// All messages, each with all of its parts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FdId, Entry<Content>)> {
        let last_compacted = self.last_compacted();
        let has_summary = last_compacted > 0;
        let ids = (last_compacted.saturating_add(1)..)
            .take(self.messages.len() - usize::from(has_summary && !self.messages.is_empty()))
            .map(|number| FdId::Message { number, part: None });
        ids.filter_map(|id| self.entry(&id).map(|entry| (id, entry)))
    }

    /// The texts of a message in order, without the marker: texts of the user or the model, and
    /// answers of tools.
    fn parts(&self, number: usize) -> Option<Vec<Part>> {
        let last_compacted = self.last_compacted() as usize;
        let index = number.checked_sub(1)?;
        let index = match last_compacted {
            0 => index,
            last => number.checked_sub(last).filter(|index| *index > 0)?,
        };
        let message = self.messages.get(index)?;
        let marker = marker(number);
        let parts = message.blocks.iter().filter_map(|block| match block {
            Block::Text { text, .. } if **text == *marker => None,
            Block::Text { text, .. } => Some(Part {
                text: text.clone(),
                source: source_of_role(message.role).into(),
            }),
            Block::ToolResult { id, text, .. } => Some(Part {
                text: text.clone(),
                source: self.source_of_result(index, id),
            }),
            Block::ToolUse { .. } | Block::Media { .. } | Block::Opaque(_) => None,
        });
        Some(parts.collect())
    }

    /// The source of a tool result in message `index`: the tool that the preceding message called
    /// under this id.
    fn source_of_result(&self, index: usize, result_id: &str) -> Arc<str> {
        let previous = index
            .checked_sub(1)
            .and_then(|index| self.messages.get(index));
        let tool = previous.and_then(|message| {
            message.blocks.iter().find_map(|block| match block {
                Block::ToolUse { id, name, .. } if **id == *result_id => {
                    Some(format!("tool:{name}"))
                }
                _ => None,
            })
        });
        tool.unwrap_or_else(|| "tool".to_owned()).into()
    }
}

fn source_of_role(role: Role) -> &'static str {
    match role {
        Role::User => "user_input",
        Role::Assistant => "reply",
    }
}

/// Joins the parts with line feeds. `None` if the message has no text.
fn join_parts(mut parts: Vec<Part>) -> Option<Part> {
    if parts.len() < 2 {
        return parts.pop();
    }
    let texts: Vec<_> = parts.iter().map(|part| &*part.text).collect();
    Some(Part {
        text: texts.join("\n").into(),
        source: parts[0].source.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool_use(id: &str, name: &str) -> Block {
        Block::ToolUse {
            id: id.into(),
            name: name.into(),
            args: "{}".into(),
            raw: None,
        }
    }

    fn tool_result(id: &str, text: &str) -> Block {
        Block::ToolResult {
            id: id.into(),
            text: text.into(),
            is_error: false,
        }
    }

    fn conversation() -> Conversation {
        let messages = [
            (
                Role::User,
                vec![Block::text("find it"), Block::text("[msg:1]")],
            ),
            (
                Role::Assistant,
                vec![
                    Block::text("I look."),
                    tool_use("a", "grep"),
                    tool_use("b", "cat"),
                ],
            ),
            (
                Role::User,
                vec![
                    tool_result("a", "found"),
                    tool_result("b", "é\n[msg:3]"),
                    Block::text("[msg:3]"),
                ],
            ),
            (Role::Assistant, vec![tool_use("c", "cat")]),
            (Role::User, vec![tool_result("z", "unasked")]),
        ];
        let messages = messages.map(|(role, blocks)| Arc::new(Message { role, blocks }));
        Conversation::new(messages.into_iter().collect(), Vector::new(), 10)
    }

    #[test]
    fn messages_and_their_parts_are_read_by_position() {
        let conversation = conversation();
        let cases = [
            ("msg:1", Some(("find it", "user_input"))),
            ("msg:1.1", Some(("find it", "user_input"))),
            ("msg:1.2", None),
            ("msg:2", Some(("I look.", "reply"))),
            ("msg:3", Some(("found\né\n[msg:3]", "tool:grep"))),
            ("msg:3.1", Some(("found", "tool:grep"))),
            ("msg:3.2", Some(("é\n[msg:3]", "tool:cat"))),
            ("msg:3.3", None),
            ("msg:4", None),
            ("msg:5", Some(("unasked", "tool"))),
            ("msg:6", None),
            ("fd:1", None),
        ];
        for (name, expected) in cases {
            let entry = conversation.entry(&name.parse().unwrap());
            let found = entry.as_ref().map(|entry| {
                (
                    entry.content.unlimited_reader().text().unwrap(),
                    &*entry.source,
                )
            });
            let found = found.as_ref().map(|(text, source)| (&**text, *source));
            assert_eq!(found, expected, "{name}");
        }
        let ids: Vec<_> = conversation.iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(ids, ["msg:1", "msg:2", "msg:3", "msg:5"]);
    }

    #[test]
    fn compacted_messages_keep_their_numbers_and_say_where_they_are() {
        let segment = |history, last| CompactedMessages {
            history,
            last,
            forked_at: Vec::new(),
            messages: Content::new(""),
            model: 0,
        };
        let conversation = Conversation {
            compacted: [segment(1, 4), segment(2, 4), segment(5, 9)]
                .into_iter()
                .collect(),
            ..conversation()
        };
        let ids: Vec<_> = conversation.iter().map(|(id, _)| id.to_string()).collect();
        assert_eq!(
            ids,
            ["msg:10", "msg:11", "msg:13"],
            "the first is the summary"
        );
        let cases = [
            (1, Some(1)),
            (4, Some(1)),
            (5, Some(5)),
            (9, Some(5)),
            (10, None),
        ];
        for (number, history) in cases {
            assert_eq!(conversation.history_of(number), history, "{number}");
            let id = FdId::Message { number, part: None };
            assert_eq!(conversation.entry(&id).is_some(), number >= 10, "{number}");
        }
    }

    #[test]
    fn a_single_text_is_shared_and_not_copied() {
        let text: Arc<str> = "said".into();
        let message = Message {
            role: Role::User,
            blocks: vec![Block::text(text.clone())],
        };
        let conversation =
            Conversation::new([Arc::new(message)].into_iter().collect(), Vector::new(), 10);
        let entry = conversation
            .entry(&FdId::Message {
                number: 1,
                part: None,
            })
            .unwrap();
        assert_eq!(
            entry.content.unlimited_reader().text().unwrap().as_ptr(),
            text.as_ptr()
        );
    }
}
