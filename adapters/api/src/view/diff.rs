//! Differences between two positions.

use dormouse_kernel::process::{DescriptorSummary, Diff, MessageSummary, Pair};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::usage::UsageView;

/// What differs between two positions, as `dormouse diff --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffView {
    /// The length of the common beginning of both conversations.
    pub common_messages: usize,
    /// The messages after it.
    pub messages: Sides<Vec<MessageSummaryView>>,
    /// The descriptors that differ.
    pub descriptors: Vec<DescriptorDifferenceView>,
    /// What each side does, as text.
    pub phase: Sides<String>,
    /// Messages that wait.
    pub waiting: Sides<usize>,
    /// What each side used itself.
    pub used: Sides<UsageView>,
}

/// A value for each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sides<T> {
    /// That of the left side.
    pub left: T,
    /// That of the right side.
    pub right: T,
}

/// A message in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageSummaryView {
    /// Its number, from 1.
    pub number: usize,
    /// `user` or `assistant`.
    pub role: String,
    /// Its beginning.
    pub summary: String,
}

/// A descriptor that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescriptorDifferenceView {
    /// Its id, such as `fd:1`.
    pub id: String,
    /// What it is on each side; `null` where it does not exist.
    pub sides: Sides<Option<DescriptorSummaryView>>,
}

/// What is compared of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescriptorSummaryView {
    /// The hash of its content.
    pub content: String,
    /// Bytes of its content.
    pub bytes: u64,
    /// Where its content comes from.
    pub source: String,
    /// The name that the process gave it.
    pub name: Option<String>,
}

fn sides<T, U>(pair: Pair<T>, convert: impl Fn(T) -> U) -> Sides<U> {
    Sides {
        left: convert(pair.left),
        right: convert(pair.right),
    }
}

impl From<MessageSummary> for MessageSummaryView {
    fn from(message: MessageSummary) -> Self {
        Self {
            number: message.number,
            role: message.role.to_owned(),
            summary: message.summary,
        }
    }
}

impl From<DescriptorSummary> for DescriptorSummaryView {
    fn from(summary: DescriptorSummary) -> Self {
        Self {
            content: summary.content,
            bytes: summary.bytes,
            source: summary.source.to_string(),
            name: summary.name.as_deref().map(str::to_owned),
        }
    }
}

impl From<Diff> for DiffView {
    fn from(diff: Diff) -> Self {
        let descriptors = diff.descriptors.into_iter();
        Self {
            common_messages: diff.common_messages,
            messages: sides(diff.messages, |messages| {
                messages.into_iter().map(MessageSummaryView::from).collect()
            }),
            descriptors: descriptors
                .map(|differing| DescriptorDifferenceView {
                    id: differing.id,
                    sides: sides(differing.sides, |side| {
                        side.map(DescriptorSummaryView::from)
                    }),
                })
                .collect(),
            phase: sides(diff.phase, |phase| phase),
            waiting: sides(diff.waiting, |waiting| waiting),
            used: sides(diff.used, UsageView::from),
        }
    }
}
