//! `evolve`: applies one fact to the state.
//!
//! `evolve` makes no decision and cannot fail, neither live nor on replay (DUR-2), since a fact has
//! already happened. Facts that were read from a journal are validated by [`State::check`] first.
//!
//! `proto/src/record/fact.rs` says what each fact means, `state.rs` what each field of the state
//! means. `effect_log.rs` keeps the log of what the process did outside of itself.

mod calls;
mod earlier_point;

use std::sync::Arc;

use dormouse_proto::budget::{Change, Ledger};
use dormouse_proto::mail::{Mail, Sender};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::Usage;
use dormouse_proto::record::{
    AlarmFact, Annotation, ChildFact, DescriptorFact, MailFact, Phase, ResultProgress, TurnFact,
};
use dormouse_proto::server_tool::container_block;
use imbl::OrdMap;

pub(super) use self::calls::tool_result_blocks;
use self::calls::{evolve_call, interrupt, update_pending_call};
use self::earlier_point::{append_after_goto, compact, go_to_message, restore_image};
use super::{Fact, State};
use crate::budget::Account;
use crate::table::marker;
use dormouse_program::Program;

/// Applies `fact`. O(log n) in the size of the conversation or table; a switch to a model of
/// another server is O(n), since it rewrites the conversation.
pub fn evolve(state: &mut State, fact: &Fact) {
    match fact {
        Fact::Mail(fact) => evolve_mail(state, fact),
        Fact::Turn(fact) => evolve_turn(state, fact),
        Fact::Call(fact) => evolve_call(state, fact),
        Fact::Child(fact) => evolve_child(state, fact),
        Fact::Descriptor(DescriptorFact::Opened { id, entry }) => {
            state.budget_mut().add_held_bytes(entry.content.len_bytes());
            state.table.insert(id.clone(), entry.clone());
            state.pending_reads.note_opened(id);
        }
        Fact::Descriptor(DescriptorFact::Annotated { id, note }) => {
            state.table.annotate(id, note);
            if let Annotation::Summarized { usage, .. } = note {
                state.budget_mut().add_usage(*usage);
            }
        }
        Fact::Budget(change) => {
            state.budget_mut().apply(change);
            if let Change::Warned { text, .. } = change {
                append_to_last_message(state, text);
            }
            state.apply_to_pausing(change);
        }
        Fact::Control(fact) => state.apply_control(*fact),
        Fact::Restored {
            image, message, by, ..
        } => restore_image(state, image, message, *by),
        Fact::Exited { exit } => {
            state.background = OrdMap::new();
            state.reopened_children = OrdMap::new();
            state.alarms = OrdMap::new();
            state.budget_mut().close();
            state.end_pausing();
            state.phase = Phase::Ended { exit: exit.clone() };
        }
        Fact::Noted { text } => append_to_last_message(state, text),
        Fact::Compacted {
            compacted,
            entry,
            summary,
            kept,
            usage,
        } => {
            state.budget_mut().add_usage(*usage);
            compact(state, compacted, entry, summary, *kept);
        }
        Fact::WentToCompacted {
            to,
            messages,
            forked_at,
            message,
            by,
        } => {
            state.compacted.retain(|compacted| compacted.last < *to);
            state.messages = messages.clone();
            state.forked_at.clone_from(forked_at);
            append_after_goto(state, *to, message, *by);
        }
        Fact::Alarm(fact) => evolve_alarm(state, fact),
        Fact::Reopened { budget } => {
            state.reopenings = state.reopenings.saturating_add(1);
            if let Some(ledger) = budget {
                state.budget = Account::new(Ledger::clone(ledger), Usage::default()).into();
            }
            state.phase = Phase::Idle;
            state.pending_reads.begin_reopening();
        }
        Fact::ToolsReplaced { tools, external } => state.set_tools(tools.clone(), external.clone()),
    }
}

fn evolve_mail(state: &mut State, fact: &MailFact) {
    match fact {
        MailFact::Queued { from, message } => queue_mail(state, *from, message),
        MailFact::Received {
            from,
            call,
            acked_below,
            message,
        } => {
            state
                .receipts
                .entry(*from)
                .or_default()
                .record(call.seq, *acked_below);
            queue_mail(state, Sender::Process(*from), message);
        }
        MailFact::Taken { at } => {
            let mut position = 0;
            state.mailbox.retain(|_| {
                let is_kept = at.binary_search(&position).is_err();
                position += 1;
                is_kept
            });
        }
    }
}

fn evolve_alarm(state: &mut State, fact: &AlarmFact) {
    match fact {
        AlarmFact::Set { alarm } => {
            state.alarms_set = state.alarms_set.max(alarm.id.0);
            state.alarms.insert(alarm.id, alarm.clone());
        }
        AlarmFact::Cancelled { id } => {
            state.alarms.remove(id);
        }
        AlarmFact::Fired {
            id,
            next_ms,
            message,
        } => {
            match next_ms {
                None => drop(state.alarms.remove(id)),
                Some(next_ms) => {
                    if let Some(alarm) = state.alarms.get_mut(id) {
                        alarm.due_ms = *next_ms;
                    }
                }
            }
            if let Some(message) = message {
                queue_mail(state, Sender::Alarm(*id), message);
            }
        }
    }
}

fn evolve_turn(state: &mut State, fact: &TurnFact) {
    match fact {
        TurnFact::Began => begin_turn(state),
        TurnFact::Ended { .. } => state.phase = Phase::Idle,
        TurnFact::Interrupted { answer } => interrupt(state, answer),
        TurnFact::WentTo { to, message, by } => go_to_message(state, *to, message, *by),
        TurnFact::ResultSubmitted { value } => state.result.value = Some(value.clone()),
        TurnFact::ResultRefused => add_failed_attempt(state),
        TurnFact::ResultRequested { message } => {
            add_failed_attempt(state);
            push_message(state, message.role, message.blocks.clone());
            state.phase = Phase::Ready { stop_reason: None };
        }
    }
}

fn add_failed_attempt(state: &mut State) {
    let failed = &mut state.result.failed_attempts;
    *failed = failed.saturating_add(1);
}

fn evolve_child(state: &mut State, fact: &ChildFact) {
    match fact {
        ChildFact::Started { call, child } => {
            state.background.insert(*call, *child);
        }
        ChildFact::Ended {
            call,
            index,
            child,
            exit,
        } => {
            update_pending_call(state, *call, |pending_call| {
                drop(
                    pending_call
                        .ended_children
                        .insert(*index, (*child, exit.clone())),
                )
            });
        }
        ChildFact::Reported { call, message } => {
            if let Some(child) = state.background.remove(call) {
                queue_mail(state, Sender::Process(child), message);
            }
        }
        ChildFact::Reopened { child } => {
            let key = (child.call, child.index);
            state.reopened_children.insert(key, *child);
        }
        ChildFact::ReportedAgain {
            call,
            index,
            message,
        } => {
            if let Some(reopened) = state.reopened_children.remove(&(*call, *index)) {
                queue_mail(state, Sender::Process(reopened.child), message);
            }
        }
    }
}

fn queue_mail(state: &mut State, from: Sender, message: &Arc<Message>) {
    state.mailbox.push_back(Mail {
        from,
        message: message.clone(),
    });
}

/// Moves the mailbox into the conversation as one user message.
fn begin_turn(state: &mut State) {
    let blocks: Vec<Block> = std::mem::take(&mut state.mailbox)
        .iter()
        .flat_map(|mail| mail.message.blocks.clone())
        .collect();
    push_message(state, Role::User, blocks);
    state.iterations = 0;
    state.result = ResultProgress::default();
    state.phase = Phase::Ready { stop_reason: None };
    state.pending_reads.take_reopened_with();
}

/// Switches the current model. If the next model is on another server, drops the raw JSON of the
/// previous provider, which that server may refuse, and the name of its container (where the tools
/// of the provider run code), which that server does not have.
fn switch_model(state: &mut State, to: u32) {
    let from = state.model().clone();
    state.model = to;
    // A failed call does not count against `max_iterations`.
    state.iterations = state.iterations.saturating_sub(1);
    state.phase = Phase::Ready { stop_reason: None };
    if !from.is_at_the_server_of(state.model()) {
        state.messages = state.messages.iter().map(without_server_data).collect();
        state.recount_server_tool_calls();
    }
}

/// The message without raw provider JSON and without the name of a container; the same `Arc` if it
/// has neither.
pub(super) fn without_server_data(message: &Arc<Message>) -> Arc<Message> {
    let has_raw = |block: &Block| {
        matches!(
            block,
            Block::Text { raw: Some(_), .. } | Block::ToolUse { raw: Some(_), .. }
        )
    };
    let names_container = |block: &Block| container_block(block).is_some();
    if !message
        .blocks
        .iter()
        .any(|block| has_raw(block) || names_container(block))
    {
        return message.clone();
    }
    let mut message = Message::clone(message);
    message.blocks.retain(|block| !names_container(block));
    for block in &mut message.blocks {
        if let Block::Text { raw, .. } | Block::ToolUse { raw, .. } = block {
            *raw = None;
        }
    }
    Arc::new(message)
}

fn push_message(state: &mut State, role: Role, blocks: Vec<Block>) {
    if !blocks.is_empty() {
        let message = append_marker(
            &state.program,
            state.last_message_number(),
            Message { role, blocks },
        );
        state.messages.push_back(Arc::new(message));
        state.update_message_descriptors();
    }
}

/// Appends the marker `msg:N` to a message that the model did not write, if the program shows
/// message numbers. `preceding` is the number of messages before it.
pub(super) fn append_marker(program: &Program, preceding: usize, mut message: Message) -> Message {
    if program.numbers_messages() && message.role == Role::User {
        message.blocks.push(Block::text(marker(preceding + 1)));
    }
    message
}

/// Appends a text block to the last message, which has not been sent yet.
fn append_to_last_message(state: &mut State, text: &str) {
    if let Some(last) = state.messages.back_mut() {
        Arc::make_mut(last).blocks.push(Block::text(text));
        state.update_message_descriptors();
    }
}
