//! What replaces the conversation by an earlier or shorter one: goto, compaction and restore.
//!
//! The epoch rises each time, so that completions of the calls that are gone are stale.

use std::sync::Arc;

use dormouse_proto::id::FdId;
use dormouse_proto::mail::Mail;
use dormouse_proto::message::Message;
use dormouse_proto::record::{Caller, CompactedMessages, Entry, Lifetime, Phase};
use imbl::Vector;

use super::super::Image;
use super::super::effect_log::{go_back_to_message, gone_back};
use super::super::stored_state::alarms_by_id;
use super::{State, push_message};
use dormouse_content::Content;

/// Goes back to message `to`: drops the later messages and their annotations, and appends
/// `message`. The epoch rises, so that completions of the dropped calls are stale.
pub(super) fn go_to_message(state: &mut State, to: u32, message: &Message, by: Caller) {
    let index = (to as usize).saturating_sub(state.messages_before_first());
    state.messages.truncate(index);
    state.forked_at.retain(|at| *at as usize <= index);
    append_after_goto(state, to, message, by);
}

/// Appends the message of a goto to message `to`, which is now the last one.
pub(super) fn append_after_goto(state: &mut State, to: u32, message: &Message, by: Caller) {
    state.epoch = state.epoch.saturating_add(1);
    go_back_to_message(&mut state.effects, to);
    state.request_tokens = 0;
    state.recount_server_tool_calls();
    state.table.drop_notes_after(to);
    push_message(state, message.role, message.blocks.clone());
    state.result.value = None;
    if by == Caller::Host {
        state.iterations = 0;
        state.result.failed_attempts = 0;
    }
    state.phase = Phase::Ready { stop_reason: None };
}

/// Replaces all messages except the last `kept` ones by `summary`. The epoch rises, since the
/// process waits for a model that refused the conversation, or for none.
pub(super) fn compact(
    state: &mut State,
    compacted: &CompactedMessages<Content>,
    entry: &Entry<Content>,
    summary: &Arc<Message>,
    kept: u32,
) {
    if let Phase::Thinking { .. } = state.phase {
        // A refused call does not count against `max_iterations`.
        state.iterations = state.iterations.saturating_sub(1);
    }
    state.epoch = state.epoch.saturating_add(1);
    let first_kept = state.messages.len().saturating_sub(kept as usize);
    let mut messages = state.messages.split_off(first_kept);
    messages.push_front(summary.clone());
    state.messages = messages;
    // `forked_at` names prefixes that other descendants of a fork share. None of them has this
    // summary.
    state.forked_at.clear();
    state.request_tokens = 0;
    state.recount_server_tool_calls();
    let id = FdId::History(compacted.history);
    state.table.insert(id, entry.clone());
    state.compacted.push_back(compacted.clone());
    state.update_message_descriptors();
    state.phase = Phase::Ready { stop_reason: None };
}

/// Restores the process to `image` and appends `message`. The epoch rises, counters continue, and
/// usage, receipts and waiting mail are kept. The alarms that were open are open again. Effects after
/// the checkpoint lie beyond it. If the host restores a session that was idle at the checkpoint,
/// the session is idle again; otherwise the model is called next.
pub(super) fn restore_image(state: &mut State, image: &Image, message: &Message, by: Caller) {
    state.epoch = state.epoch.saturating_add(1);
    state.restores = state.restores.saturating_add(1);
    state.effects = gone_back(image, &state.effects);
    let older_children = state
        .background
        .iter()
        .filter(|(call, _)| call.seq < image.next_seq);
    state.background = older_children
        .map(|(call, child)| (*call, *child))
        .collect();
    let older_children = state
        .reopened_children
        .iter()
        .filter(|((call, _), _)| call.seq < image.next_seq);
    state.reopened_children = older_children.map(|(key, child)| (*key, *child)).collect();
    state
        .table
        .restore(image.table.clone(), image.next_fd, image.last_history);
    state.compacted = image.compacted.clone();
    state.request_tokens = image.request_tokens;
    state.alarms = alarms_by_id(&image.alarms);
    state.mailbox = restored_mailbox(&image.mailbox, &state.mailbox);
    state.messages = image.messages.clone();
    state.forked_at.clone_from(&image.forked_at);
    state.recount_server_tool_calls();
    // The restored history may contain blocks that only the model at the checkpoint accepts.
    state.model = image.model;
    state.update_message_descriptors();
    push_message(state, message.role, message.blocks.clone());
    state.result.value = None;
    if by == Caller::Host {
        state.iterations = 0;
        state.result.failed_attempts = 0;
    }
    state.phase = match (&image.phase, by, state.lifetime) {
        (
            Phase::Idle
            | Phase::Acting {
                caller: Caller::Host,
                ..
            },
            Caller::Host,
            Lifetime::Session,
        ) => Phase::Idle,
        _ => Phase::Ready { stop_reason: None },
    };
}

/// The mailbox after a restore. A message that was waiting at the checkpoint and was delivered
/// afterwards is put back, before the messages that are waiting now.
fn restored_mailbox(at_checkpoint: &[Mail], current: &Vector<Mail>) -> Vector<Mail> {
    // Equal messages are matched one to one: if a message was sent twice and delivered once, one
    // copy waits again.
    let mut unmatched = current.clone();
    let mut restored = Vector::new();
    for mail in at_checkpoint {
        match unmatched.iter().position(|waiting| waiting == mail) {
            Some(index) => drop(unmatched.remove(index)),
            None => restored.push_back(mail.clone()),
        }
    }
    restored.append(current.clone());
    restored
}
