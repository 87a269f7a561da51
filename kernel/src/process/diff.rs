//! What differs between two points of one process or of two: where their conversations part, which
//! descriptors one has and the other has not, where each stands, and what each used.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use dormouse_proto::id::FdId;
use dormouse_proto::message::{Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::record::{Control, Entry, Phase};
use serde::Serialize;

use super::Image;
use super::gist::said;
use dormouse_content::Content;

/// What differs between a left and a right point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// So many messages both begin with.
    pub common_messages: usize,
    /// The messages that follow on each side.
    pub messages: Pair<Vec<Line>>,
    /// The descriptors that differ, by id.
    pub descriptors: Vec<Difference>,
    /// The word for where each stands.
    pub phase: Pair<String>,
    /// Messages that wait for each.
    pub waiting: Pair<usize>,
    /// What each used itself.
    pub used: Pair<Usage>,
}

/// The same of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair<T> {
    /// Of the left one.
    pub left: T,
    /// Of the right one.
    pub right: T,
}

/// A message in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The message, counted from 1.
    pub number: usize,
    /// `user` or `assistant`.
    pub role: &'static str,
    /// How it begins, on one line.
    pub gist: String,
}

/// A descriptor that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its id, such as `fd:1`.
    pub id: String,
    /// What it is on each side; none where it is not there.
    pub sides: Pair<Option<Held>>,
}

/// A descriptor in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The hash of its content.
    pub content: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where it comes from.
    pub source: Arc<str>,
    /// The name that the process gave it.
    pub name: Option<Arc<str>>,
}

/// Compares two points. Costs the messages up to where they part, and the descriptors; no content
/// is read for it.
#[must_use]
pub fn diff(left: &Image, right: &Image) -> Diff {
    let both = left.messages.iter().zip(&right.messages);
    let common_messages = both
        .take_while(|(left, right)| Arc::ptr_eq(left, right) || left == right)
        .count();
    let pair = |of: &dyn Fn(&Image) -> Vec<Line>| Pair {
        left: of(left),
        right: of(right),
    };
    let rest = |image: &Image| {
        let messages = image.messages.iter().enumerate().skip(common_messages);
        messages
            .map(|(at, message)| line(at + 1, message))
            .collect()
    };
    let ids: BTreeSet<&FdId> = left.table.keys().chain(right.table.keys()).collect();
    Diff {
        common_messages,
        messages: pair(&rest),
        descriptors: ids
            .into_iter()
            .filter_map(|id| difference(id, left, right))
            .collect(),
        phase: Pair {
            left: phase(left),
            right: phase(right),
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

fn line(number: usize, message: &Message) -> Line {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    Line {
        number,
        role,
        gist: said(message),
    }
}

fn difference(id: &FdId, left: &Image, right: &Image) -> Option<Difference> {
    let (left, right) = (left.table.get(id).map(held), right.table.get(id).map(held));
    (left != right).then(|| Difference {
        id: id.to_string(),
        sides: Pair { left, right },
    })
}

fn held(entry: &Entry<Content>) -> Held {
    let reference = entry.content.reference();
    Held {
        content: reference.hash.to_string(),
        bytes: reference.len,
        source: entry.source.clone(),
        name: entry.notes.name.clone(),
    }
}

fn phase(image: &Image) -> String {
    let word = match &image.phase {
        Phase::Idle => "idle".to_owned(),
        Phase::Thinking { .. } => "thinking".to_owned(),
        Phase::Ready { .. } => "ready".to_owned(),
        Phase::Acting { slots, .. } => {
            let open = slots.iter().filter(|slot| slot.answer.is_none());
            format!(
                "acting: {}",
                open.map(|slot| &*slot.tool).collect::<Vec<_>>().join(", ")
            )
        }
        Phase::Ended { exit } => format!("ended as {}", exit.status.word()),
    };
    match image.control {
        Control::Running => word,
        Control::Stopped | Control::Frozen => format!("{word}, stopped"),
    }
}

impl fmt::Display for Diff {
    /// Lines of `<` for what is on the left only, of `>` for what is on the right only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "messages in common: {}", self.common_messages)?;
        for (mark, lines) in [('<', &self.messages.left), ('>', &self.messages.right)] {
            for Line { number, role, gist } in lines {
                writeln!(f, "{mark} msg:{number} {role}: {gist}")?;
            }
        }
        for Difference { id, sides } in &self.descriptors {
            for (mark, held) in [('<', &sides.left), ('>', &sides.right)] {
                if let Some(Held {
                    content,
                    bytes,
                    source,
                    name,
                }) = held
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
        pair(f, "phase", &self.phase)?;
        pair(f, "messages waiting", &self.waiting)?;
        let tokens = |usage: &Usage| {
            format!(
                "{} in, {} out",
                usage.all_input_tokens(),
                usage.output_tokens
            )
        };
        pair(
            f,
            "tokens",
            &Pair {
                left: tokens(&self.used.left),
                right: tokens(&self.used.right),
            },
        )
    }
}

fn pair<T: fmt::Display + PartialEq>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    pair: &Pair<T>,
) -> fmt::Result {
    match pair {
        Pair { left, right } if left == right => writeln!(f, "{what}: {left}"),
        Pair { left, right } => writeln!(f, "< {what}: {left}\n> {what}: {right}"),
    }
}
