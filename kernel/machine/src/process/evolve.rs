//! `evolve`: applies one fact to the state.
//!
//! `evolve` makes no decision and cannot fail, neither live nor on replay (DUR-2), since a fact has
//! already happened. Facts that were read from a journal are validated by [`State::check`] first.
//!
//! `proto/src/record/fact.rs` says what each fact means, `state.rs` what each field of the state
//! means. `effect_log.rs` keeps the log of what the process did outside of itself.

use std::sync::Arc;

use dormouse_proto::budget::{Change, Ledger};
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::mail::{Mail, Sender};
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::{StopReason, Usage};
use dormouse_proto::record::{
    AlarmFact, Annotation, ArgumentEdit, CallFact, Caller, ChildFact, CompactedMessages,
    DescriptorFact, EditedArguments, Entry, Gate, Hold, Lifetime, MailFact, PendingCall, Phase,
    ResultProgress, TurnFact,
};
use dormouse_proto::server_tool::container_note;
use dormouse_proto::tool::Answer;
use imbl::{OrdMap, Vector};

use super::effect_log::{go_back_to_message, gone_back, void_verdict};
use super::state::alarms_by_id;
use super::{Fact, Image, State};
use crate::budget::Account;
use crate::table::marker;
use dormouse_content::Content;
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

fn evolve_call(state: &mut State, fact: &CallFact) {
    match fact {
        // A call that is repeated after a restart counts once.
        CallFact::ModelCalled { call } if state.phase == (Phase::Thinking { call: *call }) => {}
        CallFact::ModelCalled { call } => {
            state.iterations = state.iterations.saturating_add(1);
            allocate_call(state);
            state.phase = Phase::Thinking { call: *call };
        }
        CallFact::ModelReplied {
            blocks,
            stop,
            usage,
            ..
        } => {
            state.budget_mut().add_usage(*usage);
            state.request_tokens = usage.all_input_tokens().saturating_add(usage.output_tokens);
            apply_reply(state, blocks, *stop);
        }
        CallFact::ModelSwitched { to, .. } => switch_model(state, *to),
        CallFact::HostCalled {
            request_id,
            tool,
            args,
        } => {
            let pending_call =
                new_pending_call(state, request_id.clone(), tool.clone(), args.clone());
            match &mut state.phase {
                Phase::Acting {
                    caller: Caller::Host,
                    pending_calls,
                } => pending_calls.push(pending_call),
                phase => {
                    *phase = Phase::Acting {
                        caller: Caller::Host,
                        pending_calls: vec![pending_call],
                    }
                }
            }
        }
        CallFact::ToolCalled { call } => {
            state.count_limited_call(*call);
            update_pending_call(state, *call, |pending_call| pending_call.started = true);
            state.record_effect(*call);
        }
        CallFact::ToolReturned {
            call,
            answer,
            produced_chars,
        } => {
            state.output_totals.produced_chars = state
                .output_totals
                .produced_chars
                .saturating_add(*produced_chars);
            if !answer.is_error {
                state.count_limited_call(*call);
            }
            state.record_outcome(*call, answer);
            update_pending_call(state, *call, |pending_call| {
                pending_call.answer = Some(answer.clone())
            });
            finish_calls(state);
        }
        CallFact::Held { call, hold } => {
            update_pending_call(state, *call, |pending_call| hold_call(pending_call, hold))
        }
        CallFact::Recalled { call, effect } => state.record_recall(*call, *effect),
        CallFact::EffectPolicySet { policy } => state.effects.policy = *policy,
        CallFact::Approved { call, edited } => update_pending_call(state, *call, |pending_call| {
            approve(pending_call, edited.as_ref())
        }),
    }
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

/// Answer to a tool use of a truncated reply. The tool use may be truncated itself, so it never
/// runs.
const NOT_RUN: &str =
    "Not run: the reply was cut before it was complete. Ask again in a shorter reply.";

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
    let names_container = |block: &Block| container_note(block).is_some();
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

fn apply_reply(state: &mut State, blocks: &[Block], stop: StopReason) {
    push_message(state, Role::Assistant, blocks.to_vec());
    state.add_server_tool_calls(blocks);
    let is_truncated = matches!(
        stop,
        StopReason::MaxTokens | StopReason::Refusal | StopReason::ContextWindow
    );
    let mut pending_calls = Vec::new();
    for block in blocks {
        if let Block::ToolUse { id, name, args, .. } = block {
            let answer = is_truncated.then(|| Answer::failed(NOT_RUN));
            pending_calls.push(PendingCall {
                answer,
                ..new_pending_call(state, id.clone(), name.clone(), args.clone())
            });
        }
    }
    state.phase = Phase::Acting {
        caller: Caller::Model,
        pending_calls,
    };
    if is_truncated || state.pending_calls().is_empty() {
        finish_calls(state);
        state.phase = Phase::Ready {
            stop_reason: Some(stop),
        };
    }
}

/// Holds a call. An approval that it had, and the change that came with it, are void.
fn hold_call(pending_call: &mut PendingCall, hold: &Hold) {
    void_verdict(pending_call);
    pending_call.gate = Some(Gate::Held(hold.clone()));
}

/// Approves a held call. The tool use in the conversation keeps the arguments of the model.
fn approve(pending_call: &mut PendingCall, edited: Option<&EditedArguments>) {
    let Some(Gate::Held(hold)) = pending_call.gate.take() else {
        return;
    };
    let edit = edited.map(|edited| ArgumentEdit {
        original: std::mem::replace(&mut pending_call.args, edited.args.clone()),
        notice: edited.notice.clone(),
    });
    pending_call.gate = Some(Gate::Approved { hold, edit });
}

fn new_pending_call(
    state: &mut State,
    id: Arc<str>,
    tool: Arc<str>,
    args: Arc<str>,
) -> PendingCall {
    PendingCall {
        call: allocate_call(state),
        id,
        tool,
        args,
        started: false,
        ended_children: OrdMap::new(),
        answer: None,
        gate: None,
    }
}

fn allocate_call(state: &mut State) -> CallId {
    let call = state.next_call();
    state.next_seq = state.next_seq.saturating_add(1);
    call
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

/// The calls that were started and have no answer.
fn calls_in_flight(phase: &Phase) -> Vec<CallId> {
    match phase {
        Phase::Thinking { call } => vec![*call],
        Phase::Acting { pending_calls, .. } => pending_calls
            .iter()
            .filter(|pending_call| pending_call.started && pending_call.answer.is_none())
            .map(|pending_call| pending_call.call)
            .collect(),
        Phase::Idle | Phase::Ready { .. } | Phase::Ended { .. } => Vec::new(),
    }
}

fn update_pending_call(state: &mut State, call: CallId, change: impl FnOnce(&mut PendingCall)) {
    if let Phase::Acting { pending_calls, .. } = &mut state.phase
        && let Some(pending_call) = pending_calls
            .iter_mut()
            .find(|pending_call| pending_call.call == call)
    {
        change(pending_call);
    }
}

/// Finishes the pending calls. Once all tool uses of the model have an answer, the answers enter
/// the conversation as one message, in the order of the uses. Host calls are independent: each is
/// removed as soon as it is answered.
fn finish_calls(state: &mut State) {
    let Phase::Acting {
        caller,
        pending_calls,
    } = &mut state.phase
    else {
        return;
    };
    if *caller == Caller::Host {
        pending_calls.retain(|pending_call| pending_call.answer.is_none());
        if pending_calls.is_empty() {
            state.phase = Phase::Idle;
        }
        return;
    }
    let Some(answers) = pending_calls
        .iter()
        .map(|pending_call| pending_call.answer.clone())
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let results = pending_calls
        .iter()
        .zip(&answers)
        .flat_map(|(pending_call, answer)| tool_result_blocks(pending_call, answer))
        .collect();
    let entered_chars = answers
        .iter()
        .map(|answer| answer.text.chars().count() as u64)
        .sum();
    state.output_totals.entered_chars = state
        .output_totals
        .entered_chars
        .saturating_add(entered_chars);
    push_message(state, Role::User, results);
    state.phase = Phase::Ready { stop_reason: None };
}

/// The blocks of an answer in the conversation: its text, then its media. If a person changed the
/// arguments of the call, the text begins with what they are.
pub(super) fn tool_result_blocks(
    pending_call: &PendingCall,
    answer: &Answer,
) -> impl Iterator<Item = Block> {
    let text = Block::ToolResult {
        id: pending_call.id.clone(),
        text: match pending_call.edit() {
            Some(edit) => format!("{}\n{}", edit.notice, answer.text).into(),
            None => answer.text.clone(),
        },
        is_error: answer.is_error,
    };
    let id = pending_call.id.clone();
    let media = answer.media.clone().into_iter();
    std::iter::once(text).chain(media.map(move |media| Block::Media {
        answers: Some(id.clone()),
        media,
    }))
}

/// Goes back to message `to`: drops the later messages and their annotations, and appends
/// `message`. The epoch rises, so that completions of the dropped calls are stale.
fn go_to_message(state: &mut State, to: u32, message: &Message, by: Caller) {
    let index = (to as usize).saturating_sub(state.messages_before_first());
    state.messages.truncate(index);
    state.forked_at.retain(|at| *at as usize <= index);
    append_after_goto(state, to, message, by);
}

/// Appends the message of a goto to message `to`, which is now the last one.
fn append_after_goto(state: &mut State, to: u32, message: &Message, by: Caller) {
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
fn compact(
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
fn restore_image(state: &mut State, image: &Image, message: &Message, by: Caller) {
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

/// Abandons the calls in flight. The epoch rises, so that their completions are stale. Each tool
/// use without an answer gets `answer`, so that the history stays valid.
fn interrupt(state: &mut State, answer: &Answer) {
    state.epoch = state.epoch.saturating_add(1);
    let calls = calls_in_flight(&state.phase);
    state.budget_mut().abandon_calls(calls);
    if let Phase::Acting { pending_calls, .. } = &mut state.phase {
        for pending_call in pending_calls {
            pending_call.answer.get_or_insert_with(|| answer.clone());
        }
        // After host calls the process is idle again; after tool uses of the model it is ready.
        finish_calls(state);
    } else if !matches!(state.phase, Phase::Ready { .. }) {
        // A `Ready` process keeps the stop reason of its last reply. Without it, a process restored
        // from here would call the model again although the model has ended its turn.
        state.phase = Phase::Ready { stop_reason: None };
    }
}
