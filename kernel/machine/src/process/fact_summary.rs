//! One-line summaries of facts, for users who look in a journal for a position to go back to. Each
//! text in a summary is truncated.

use std::fmt::Write;

use dormouse_proto::budget::{Change, RaiseSource};
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::FdId;
use dormouse_proto::mail::Sender;
use dormouse_proto::message::{Block, Message};
use dormouse_proto::record::{
    AlarmFact, Annotation, CallFact, ChildFact, ControlFact, DescriptorFact, Fact, HoldReason,
    MailFact, TurnFact,
};
use dormouse_proto::server_tool::count_calls;

use crate::schedule::format_time;

/// Maximum number of characters of one text in a summary.
const MAX_CHARS: usize = 72;

/// Summarizes a fact in one line, without the name of the fact. The summary may be empty.
#[must_use]
pub fn summary_line<C: Clone>(fact: &Fact<C>) -> String {
    match fact {
        Fact::Mail(MailFact::Queued { from, message }) => {
            format!("{}: {}", sender_name(*from), message_summary(message))
        }
        Fact::Mail(MailFact::Received {
            from,
            call,
            message,
            ..
        }) => {
            format!("process {from} ({call}): {}", message_summary(message))
        }
        Fact::Noted { text } => truncated(text),
        Fact::ToolsReplaced { tools, .. } => format!("{} tools", tools.len()),
        Fact::Mail(MailFact::Taken { at }) => format!("{} messages", at.len()),
        Fact::Turn(TurnFact::ResultSubmitted { value }) => truncated(value),
        Fact::Turn(TurnFact::ResultRequested { message }) => message_summary(message),
        Fact::Turn(TurnFact::Began | TurnFact::ResultRefused)
        | Fact::Control(
            ControlFact::Stopped
            | ControlFact::StoppedWithoutCalls
            | ControlFact::Continued
            | ControlFact::Suspended
            | ControlFact::Released
            | ControlFact::SpeculationEnded,
        ) => String::new(),
        Fact::Descriptor(DescriptorFact::Opened { id, entry }) => {
            format!("{id} of {}", entry.source)
        }
        Fact::Descriptor(DescriptorFact::Annotated { id, note }) => {
            format!("{id}: {}", note_summary(note))
        }
        Fact::Call(CallFact::ModelCalled { call } | CallFact::ToolCalled { call }) => {
            call.to_string()
        }
        Fact::Call(CallFact::Held { call, hold }) => match &hold.reason {
            HoldReason::Rule { rule } => format!("{call}: {}", truncated(rule)),
            HoldReason::Question => format!("{call}: question"),
            HoldReason::Speculation => format!("{call}: speculation"),
            HoldReason::Repeats { effect } => match effect {
                Some(effect) => format!("{call}: repeats {}", effect.call),
                None => format!("{call}: may repeat what is not known"),
            },
        },
        Fact::Call(CallFact::Recalled { call, effect }) => format!("{call}: effect {effect}"),
        Fact::Call(CallFact::EffectPolicySet { policy }) => {
            policy.map_or("program", EffectPolicy::word).to_owned()
        }
        Fact::Call(CallFact::Approved { call, edited }) => match edited {
            Some(edited) => format!("{call}: with {}", truncated(&edited.args)),
            None => call.to_string(),
        },
        Fact::Call(CallFact::ModelReplied { call, blocks, .. }) => {
            format!("{call}: {}", blocks_summary(blocks))
        }
        Fact::Call(CallFact::HostCalled { tool, args, .. }) => {
            format!("{tool} {}", truncated(args))
        }
        Fact::Child(ChildFact::Ended {
            call,
            index,
            child,
            exit,
        }) => {
            format!(
                "{call}: child {index}, process {child}, {}: {}",
                exit.status.word(),
                truncated(&exit.message)
            )
        }
        Fact::Child(ChildFact::Started { call, child }) => format!("{call}: process {child}"),
        Fact::Child(ChildFact::Reported { call, message })
        | Fact::Child(ChildFact::ReportedAgain { call, message, .. }) => {
            format!("{call}: {}", message_summary(message))
        }
        Fact::Child(ChildFact::Reopened { child }) => format!(
            "{}: child {}, process {}, the {}. time",
            child.call, child.index, child.child, child.reopenings
        ),
        Fact::Call(CallFact::ToolReturned { call, answer, .. }) => {
            let error = if answer.is_error { "error: " } else { "" };
            format!("{call}: {error}{}", truncated(&answer.text))
        }
        Fact::Call(CallFact::ModelSwitched { to, reason }) => {
            format!("to model {}: {}", to + 1, truncated(reason))
        }
        Fact::Turn(TurnFact::Interrupted { answer }) => truncated(&answer.text),
        Fact::Turn(TurnFact::Ended {
            status,
            reason: None,
        }) => status.word().to_owned(),
        Fact::Turn(TurnFact::Ended {
            status,
            reason: Some(why),
        }) => format!("{}: {}", status.word(), truncated(why)),
        Fact::Exited { exit } => format!("{}: {}", exit.status.word(), truncated(&exit.message)),
        Fact::Turn(TurnFact::WentTo { to, message, .. }) => {
            format!("msg:{to}: {}", message_summary(message))
        }
        Fact::WentToCompacted { to, message, .. } => {
            format!("msg:{to}: {}", message_summary(message))
        }
        Fact::Compacted {
            compacted, kept, ..
        } => {
            let id = FdId::History(compacted.history);
            format!("messages up to {} into {id}, {kept} kept", compacted.last)
        }
        Fact::Restored { checkpoint, .. } => checkpoint.to_string(),
        Fact::Budget(Change::Paused { at }) => at.to_string(),
        Fact::Budget(Change::Raised { by, source }) => match source {
            RaiseSource::Person => by.to_string(),
            RaiseSource::Rule => format!("{by}, by budget.raise"),
        },
        Fact::Budget(_) | Fact::Reopened { .. } => String::new(),
        Fact::Alarm(fact) => alarm_summary(fact),
    }
}

fn sender_name(from: Sender) -> String {
    match from {
        Sender::Host => "host".to_owned(),
        Sender::Process(pid) => format!("process {pid}"),
        Sender::Alarm(id) => id.to_string(),
    }
}

fn alarm_summary(fact: &AlarmFact) -> String {
    match fact {
        AlarmFact::Set { alarm } => format!(
            "{}, due {}: {}",
            alarm.id,
            format_time(alarm.due_ms),
            truncated(&alarm.note)
        ),
        AlarmFact::Cancelled { id } => id.to_string(),
        AlarmFact::Fired { id, next_ms, .. } => match next_ms {
            Some(next_ms) => format!("{id}, next {}", format_time(*next_ms)),
            None => id.to_string(),
        },
    }
}

fn note_summary(note: &Annotation) -> String {
    match note {
        Annotation::Named { name } => name
            .as_ref()
            .map_or_else(|| "no name".to_owned(), |name| format!("name {name}")),
        Annotation::Marked { ref_id, .. } => format!("section {ref_id}"),
        Annotation::Unmarked { ref_id } => format!("no section {ref_id}"),
        Annotation::Summarized { summary, .. } => truncated(summary),
    }
}

/// Summarizes a message: the beginning of its text, and the tools that it calls.
pub(super) fn message_summary(message: &Message) -> String {
    blocks_summary(&message.blocks)
}

fn blocks_summary(blocks: &[Block]) -> String {
    let summarize_block = |block: &Block| match block {
        Block::Text { text, .. } => truncated(text),
        Block::ToolUse { name, args, .. } => format!("{name}({})", truncated(args)),
        Block::ToolResult { text, .. } => format!("= {}", truncated(text)),
        Block::Media { media, .. } => format!("{} {}", media.fd, media.media_type),
        Block::Opaque(_) => String::new(),
    };
    let summarize_block = |block: &Block| {
        let summary = summarize_block(block);
        let called = count_calls(std::slice::from_ref(block)).into_iter();
        let called = called.map(|(tool, calls)| format!("server:{tool} ({calls})"));
        let parts = called.chain([summary]).filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(" | ")
    };
    let parts: Vec<_> = blocks
        .iter()
        .map(summarize_block)
        .filter(|part| !part.is_empty())
        .collect();
    truncated(&parts.join(" | "))
}

/// The beginning of a text, with control characters replaced by spaces so that it is one line.
fn truncated(text: &str) -> String {
    let mut shown = String::new();
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.extend(chars.by_ref().take(MAX_CHARS));
    if chars.next().is_some() {
        // Writing to a string cannot fail.
        let _ = shown.write_str("…");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_truncated_and_put_on_one_line() {
        assert_eq!(truncated("one\ntwo\u{1b}"), "one two ");
        assert_eq!(truncated(&"é".repeat(MAX_CHARS)), "é".repeat(MAX_CHARS));
        assert_eq!(
            truncated(&"é".repeat(MAX_CHARS + 1)),
            "é".repeat(MAX_CHARS) + "…"
        );
    }
}
