//! Compares two positions of the same process or of different processes: conversation, descriptors,
//! phase and usage.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use dormouse_proto::id::FdId;
use dormouse_proto::message::{Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::record::{Control, Entry, Phase};
use serde::Serialize;

use super::Image;
use super::fact_summary::message_summary;
use dormouse_content::Content;

/// The differences between a left and a right position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Length of the common prefix of both conversations.
    pub common_messages: usize,
    /// The messages after the common prefix.
    pub messages: Pair<Vec<MessageSummary>>,
    /// The descriptors that differ, in the order of their ids.
    pub descriptors: Vec<DescriptorDifference>,
    /// Phase of each side, as text.
    pub phase: Pair<String>,
    /// Number of messages in each mailbox.
    pub waiting: Pair<usize>,
    /// Tokens that each side used itself, without children.
    pub used: Pair<Usage>,
}

/// A value for each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair<T> {
    /// Value of the left side.
    pub left: T,
    /// Value of the right side.
    pub right: T,
}

/// A message, summarized in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageSummary {
    /// Number of the message, counted from 1.
    pub number: usize,
    /// `user` or `assistant`.
    pub role: &'static str,
    /// Beginning of the message.
    pub summary: String,
}

/// A descriptor that differs between the sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescriptorDifference {
    /// Id of the descriptor, such as `fd:1`.
    pub id: String,
    /// The descriptor on each side; `None` if it does not exist there.
    pub sides: Pair<Option<DescriptorSummary>>,
}

/// The properties of a descriptor that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DescriptorSummary {
    /// Hash of the content.
    pub content: String,
    /// Length of the content in bytes.
    pub bytes: u64,
    /// Source of the content, such as `tool:grep`.
    pub source: Arc<str>,
    /// The name that the process gave to the descriptor.
    pub name: Option<Arc<str>>,
}

/// Compares two images. O(common messages + descriptors); reads no content.
#[must_use]
pub fn diff(left: &Image, right: &Image) -> Diff {
    let message_pairs = left.messages.iter().zip(&right.messages);
    let common_messages = message_pairs
        .take_while(|(left, right)| Arc::ptr_eq(left, right) || left == right)
        .count();
    let summarize_rest = |image: &Image| {
        let messages = image.messages.iter().enumerate().skip(common_messages);
        let before_first = image.last_message_number() - image.messages.len();
        messages
            .map(|(index, message)| summarize_message(before_first + index + 1, message))
            .collect::<Vec<_>>()
    };
    let ids: BTreeSet<&FdId> = left.table.keys().chain(right.table.keys()).collect();
    Diff {
        common_messages,
        messages: Pair {
            left: summarize_rest(left),
            right: summarize_rest(right),
        },
        descriptors: ids
            .into_iter()
            .filter_map(|id| compare_descriptor(id, left, right))
            .collect(),
        phase: Pair {
            left: describe_phase(left),
            right: describe_phase(right),
        },
        waiting: Pair {
            left: left.mailbox.len(),
            right: right.mailbox.len(),
        },
        used: Pair {
            left: left.usage,
            right: right.usage,
        },
    }
}

fn summarize_message(number: usize, message: &Message) -> MessageSummary {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    MessageSummary {
        number,
        role,
        summary: message_summary(message),
    }
}

fn compare_descriptor(id: &FdId, left: &Image, right: &Image) -> Option<DescriptorDifference> {
    let left = left.table.get(id).map(descriptor_summary);
    let right = right.table.get(id).map(descriptor_summary);
    (left != right).then(|| DescriptorDifference {
        id: id.to_string(),
        sides: Pair { left, right },
    })
}

fn descriptor_summary(entry: &Entry<Content>) -> DescriptorSummary {
    let reference = entry.content.reference();
    DescriptorSummary {
        content: reference.hash.to_string(),
        bytes: reference.len,
        source: entry.source.clone(),
        name: entry.notes.name.clone(),
    }
}

fn describe_phase(image: &Image) -> String {
    let phase = match &image.phase {
        Phase::Idle => "idle".to_owned(),
        Phase::Thinking { .. } => "thinking".to_owned(),
        Phase::Ready { .. } => "ready".to_owned(),
        Phase::Acting { pending_calls, .. } => {
            let open = pending_calls
                .iter()
                .filter(|pending_call| pending_call.answer.is_none());
            format!(
                "acting: {}",
                open.map(|pending_call| &*pending_call.tool)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        Phase::Ended { exit } => format!("ended as {}", exit.status.word()),
    };
    match image.control {
        Control::Running => phase,
        Control::Stopped | Control::StoppedWithoutCalls => format!("{phase}, stopped"),
    }
}

impl fmt::Display for Diff {
    /// One difference per line: `<` marks the left side, `>` the right side.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "messages in common: {}", self.common_messages)?;
        for (mark, lines) in [('<', &self.messages.left), ('>', &self.messages.right)] {
            for MessageSummary {
                number,
                role,
                summary,
            } in lines
            {
                writeln!(f, "{mark} msg:{number} {role}: {summary}")?;
            }
        }
        for DescriptorDifference { id, sides } in &self.descriptors {
            for (mark, descriptor) in [('<', &sides.left), ('>', &sides.right)] {
                if let Some(DescriptorSummary {
                    content,
                    bytes,
                    source,
                    name,
                }) = descriptor
                {
                    let name = name
                        .as_ref()
                        .map(|name| format!(" '{name}'"))
                        .unwrap_or_default();
                    let content: String = content.chars().take(12).collect();
                    writeln!(f, "{mark} {id}{name} of {source}: {bytes} bytes, {content}")?;
                }
            }
        }
        write_pair(f, "phase", &self.phase)?;
        write_pair(f, "messages waiting", &self.waiting)?;
        let tokens = |usage: &Usage| {
            format!(
                "{} in, {} out",
                usage.all_input_tokens(),
                usage.output_tokens
            )
        };
        write_pair(
            f,
            "tokens",
            &Pair {
                left: tokens(&self.used.left),
                right: tokens(&self.used.right),
            },
        )
    }
}

/// Writes one line if both sides are equal, otherwise one line for each side.
fn write_pair<T: fmt::Display + PartialEq>(
    f: &mut fmt::Formatter<'_>,
    label: &str,
    pair: &Pair<T>,
) -> fmt::Result {
    match pair {
        Pair { left, right } if left == right => writeln!(f, "{label}: {left}"),
        Pair { left, right } => writeln!(f, "< {label}: {left}\n> {label}: {right}"),
    }
}
