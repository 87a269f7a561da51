//! What a model reads after a compaction: the message that takes the place of its older messages,
//! and their text, which a descriptor holds.
//!
//! * [`history_text`] is the text of the descriptor. It is complete: every block of every message.
//! * [`excerpts`] is a summary that needs no model.
//! * [`SummaryMessage`] is the message. Its size is bounded by that of the summary and of the
//!   recent messages that it shows as text; it does not grow with the number of compactions, since
//!   it names earlier descriptors and repeats none of them.

mod excerpt;
mod text;

use std::sync::Arc;

pub use self::excerpt::excerpts;
pub use self::text::{history_text, readable_text};
use crate::descriptor::HintableTools;
use crate::id::FdId;
use crate::message::{Block, Message, Role};
use crate::xml::Element;

/// Messages of a conversation, each with its number.
#[derive(Clone, Copy, Debug)]
pub struct NumberedMessages<'a> {
    /// Number of the last message that was compacted before, counted from 1. If it is not 0, the
    /// first of `messages` is the summary of everything up to that message.
    pub compacted: u32,
    /// The messages.
    pub messages: &'a [Arc<Message>],
}

impl<'a> NumberedMessages<'a> {
    /// The messages with their numbers, the oldest first. A summary has none.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (Option<u32>, &'a Arc<Message>)> {
        let number = move |index: usize| match (self.compacted, index) {
            (0, index) => Some(index as u32 + 1),
            (_, 0) => None,
            (last, index) => Some(last.saturating_add(index as u32)),
        };
        self.messages
            .iter()
            .enumerate()
            .map(move |(index, message)| (number(index), message))
    }
}

/// The name of a role in texts.
fn role_word(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// Who wrote a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryAuthor {
    /// A model.
    Model,
    /// The kernel: excerpts of the messages.
    Kernel,
}

/// The message that takes the place of compacted messages.
#[derive(Clone, Debug)]
pub struct SummaryMessage<'a> {
    /// Number of the descriptor that holds the messages that were compacted now.
    pub history: u32,
    /// Numbers of the first and the last descriptor of earlier compactions, if there are some.
    pub earlier: Option<(u32, u32)>,
    /// Number of the first message that was compacted now, counted from 1. It is greater than
    /// `last` if only messages were compacted that the summary before showed as text.
    pub first: u32,
    /// Number of the last message that was compacted.
    pub last: u32,
    /// The summary.
    pub text: &'a str,
    /// Who wrote the summary.
    pub author: SummaryAuthor,
    /// The tools by which the model can read descriptors.
    pub tools: HintableTools,
    /// Recent messages that stay in the context as text, with their numbers.
    pub recent: &'a [(u32, Arc<Message>)],
}

impl SummaryMessage<'_> {
    /// The message. O(n) in the summary and the recent messages.
    #[must_use]
    pub fn to_message(&self) -> Message {
        let recent = self.recent.iter().map(|(number, message)| {
            let element = Element::new("compacted_message")
                .attribute("number", number)
                .attribute("role", role_word(message.role))
                .text(readable_text(message));
            Block::text(element.to_xml())
        });
        Message {
            role: Role::User,
            blocks: std::iter::once(Block::text(self.element().to_xml()))
                .chain(recent)
                .collect(),
        }
    }

    fn element(&self) -> Element {
        let author = match self.author {
            SummaryAuthor::Model => "model",
            SummaryAuthor::Kernel => "excerpts",
        };
        Element::new("compacted_messages")
            .attribute("fd", FdId::History(self.history))
            .attribute("messages", format!("1-{}", self.last))
            .child(Element::new("message").text(self.explanation()))
            .child(
                Element::new("summary")
                    .attribute("by", author)
                    .text(self.text),
            )
    }

    fn explanation(&self) -> String {
        let Self {
            history,
            earlier,
            first,
            last,
            ..
        } = self;
        let what = match first > last {
            true => "The newest messages".to_owned(),
            false => format!("Messages {first}-{last}"),
        };
        let earlier = match earlier {
            None => String::new(),
            Some((one, last)) if one == last => {
                format!(" Earlier messages are in history:{one}.")
            }
            Some((one, last)) => {
                format!(" Earlier messages are in history:{one} to history:{last}.")
            }
        };
        let recent = match self.recent.is_empty() {
            true => "",
            false => " The newest of them follow as text.",
        };
        format!(
            "The conversation had filled your context. {what} are no longer part of it and are \
             kept, word for word, in history:{history}.{earlier}{}{recent}",
            self.hint()
        )
    }

    fn hint(&self) -> String {
        let read = self.tools.hint("read_fd", "Use read_fd to read them.");
        let search = self
            .tools
            .hint("search_fd", "Use search_fd to find something in them.");
        match read.is_empty() && search.is_empty() {
            true => " You have no tool to read them: ask for what you need of them.".to_owned(),
            false => read + &search,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(text: &str, tools: &[&str], history: u32) -> Message {
        let recent = [(41, Arc::new(Message::user("</compacted_message>")))];
        SummaryMessage {
            history,
            earlier: (history > 1).then(|| (1, history - 1)),
            first: 21,
            last: 41,
            text,
            author: SummaryAuthor::Kernel,
            tools: HintableTools::of(tools.iter().copied()),
            recent: &recent,
        }
        .to_message()
    }

    #[test]
    fn a_summary_says_where_everything_is_and_names_only_enabled_tools() {
        let cases = [
            (
                &["read_fd", "search_fd"][..],
                1,
                &["in history:1. Use read_fd", "search_fd"][..],
            ),
            (
                &["search_fd"],
                2,
                &["Earlier messages are in history:1. Use search_fd"],
            ),
            (&["grep"], 9, &["history:1 to history:8. You have no tool"]),
        ];
        for (tools, history, expected) in cases {
            let text = summary("all <b>well</b>", tools, history).text();
            for words in expected {
                assert!(text.contains(words), "{tools:?}: {text}");
            }
            assert_eq!(
                text.contains("read_fd"),
                tools.contains(&"read_fd"),
                "{text}"
            );
        }
    }

    #[test]
    fn recent_text_cannot_end_its_element() {
        let message = summary("fine", &[], 1);
        let [_, Block::Text { text, .. }] = &message.blocks[..] else {
            panic!("{message:?}");
        };
        assert_eq!(text.matches("</compacted_message>").count(), 1, "{text}");
        assert!(text.starts_with(r#"<compacted_message number="41" role="user">"#));
    }

    #[test]
    fn messages_are_numbered_after_the_summary_of_earlier_ones() {
        let messages = ["s", "a", "b"].map(|text| Arc::new(Message::user(text)));
        let numbers = |compacted| {
            let numbered = NumberedMessages {
                compacted,
                messages: &messages,
            };
            numbered
                .iter()
                .map(|(number, _)| number)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(0), [Some(1), Some(2), Some(3)]);
        assert_eq!(numbers(7), [None, Some(8), Some(9)]);
    }
}
