//! Calls of models and tools: begun, held, answered, interrupted.
//!
//! The answers of a turn enter the conversation together, once the last call has its answer.

use std::sync::Arc;

use dormouse_proto::id::CallId;
use dormouse_proto::message::{Block, Role};
use dormouse_proto::model::StopReason;
use dormouse_proto::record::{
    ArgumentEdit, CallFact, Caller, EditedArguments, Gate, Hold, PendingCall, Phase,
};
use dormouse_proto::tool::Answer;
use imbl::OrdMap;

use super::super::effect_log::void_verdict;
use super::{State, push_message, switch_model};

pub(super) fn evolve_call(state: &mut State, fact: &CallFact) {
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

/// Answer to a tool use of a truncated reply. The tool use may be truncated itself, so it never
/// runs.
const NOT_RUN: &str =
    "Not run: the reply was cut before it was complete. Ask again in a shorter reply.";

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

pub(super) fn update_pending_call(
    state: &mut State,
    call: CallId,
    change: impl FnOnce(&mut PendingCall),
) {
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
pub(in crate::process) fn tool_result_blocks(
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

/// Abandons the calls in flight. The epoch rises, so that their completions are stale. Each tool
/// use without an answer gets `answer`, so that the history stays valid.
pub(super) fn interrupt(state: &mut State, answer: &Answer) {
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
