//! `decide`: computes facts, reads and effects from a state and an input.
//!
//! This file dispatches the inputs; each group of inputs is handled in a file of its own (`turn`,
//! `tools`, `mail`, `children`, `control` …). An input whose bytes have to be read first is an
//! *arrival* (`arrival.rs`): it leaves as a read (`read.rs`), and comes back as [`Input::Placed`],
//! with a *placement* of each text (`table/placement.rs`).

use std::sync::Arc;

use dormouse_proto::budget::Paused;
use dormouse_proto::id::CallId;
use dormouse_proto::mail::Sender;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::process::Waiting;
use dormouse_proto::record::{CallFact, Caller, MailFact, Phase, TurnFact};
use dormouse_proto::tool::Answer;

use super::arrival::Arrival;
use super::{
    ChildEvent, Completion, Effect, Fact, HostRequest, Input, PlacedArrival, Read, Reopening,
    Signal, State, Verdict, VerdictError, evolve,
};
use crate::table::placement::Placement;

/// Maximum number of host calls in flight. They run independently of each other.
const MAX_HOST_CALLS: usize = 64;

/// The result of a decision.
#[derive(Clone, Debug)]
#[must_use = "facts must be persisted and effects performed"]
pub struct Decision {
    /// The facts, in order. The shell makes them durable before it performs any effect.
    pub facts: Vec<Fact>,
    /// The state after these facts, as [`evolve`] computes it. Model requests among the effects
    /// share the messages of this state.
    pub state: State,
    /// Reads of content bytes that the decision needs. The shell may perform them at once, since a
    /// read has no side effect.
    pub reads: Vec<Read>,
    /// The effects, in order, to be performed once the facts are durable.
    pub effects: Vec<Effect>,
    /// The facts by which an ended child is opened again. They are committed together with the
    /// facts of this process (REOPEN-1).
    pub reopening: Option<Reopening>,
}

impl Decision {
    /// Whether anything begins with this decision: a turn, a call, or a child. The end of a turn
    /// begins nothing.
    #[must_use]
    pub fn begins_work(&self) -> bool {
        let begins = |fact: &Fact| matches!(fact, Fact::Turn(TurnFact::Began));
        self.facts.iter().any(begins) || self.effects.iter().any(Effect::begins_work)
    }
}

/// Decides on `input` at `now_ms` (milliseconds since the epoch, UTC). Never fails: a mistake of
/// the model becomes an answer to the model, and a stale completion changes nothing.
///
/// Never reads the bytes of a content, and makes no content of bytes; it returns [`Read`]s instead.
/// The cost does not depend on the size of the state. It depends on the length of texts as follows:
/// the arguments of process tools, which have at most 1 MiB, are parsed; so are those of calls that
/// a rule of `tools.ask` may match or that are effects (`effect_log.rs`); and the characters of an
/// answer that enters the context in full are counted.
pub fn decide(state: &State, input: Input, now_ms: u64) -> Decision {
    let mut draft = Draft::new(state, now_ms);
    let wake_before = state.next_wake_ms();
    let is_resume = matches!(input, Input::Signal(Signal::Resume));
    draft.handle_input(input);
    draft.update_clock();
    draft.state.pending_reads.shrink();
    let wake = draft.state.next_wake_ms();
    if let Some(at_ms) = wake.filter(|_| is_resume || wake != wake_before) {
        draft.schedule(Effect::WakeAt { at_ms });
    }
    let Draft {
        facts,
        state,
        reads,
        effects,
        reopening,
        ..
    } = draft;
    Decision {
        facts,
        state,
        reads,
        effects,
        reopening,
    }
}

/// The facts that record the verdict of a person on a held call of a process that does not run. No
/// call begins before the process is resumed.
///
/// # Errors
/// [`VerdictError`] if no such call is held, or the verdict is not valid for it.
pub fn record_verdict(
    state: &State,
    call: CallId,
    verdict: Verdict,
    now_ms: u64,
) -> Result<Recorded, VerdictError> {
    let mut draft = Draft::of_unloaded(state, now_ms);
    draft.expire_held_calls(now_ms);
    draft.apply_verdict(call, verdict)?;
    Ok(draft.into_recorded())
}

/// What is recorded in the journal of a process that is not loaded, without running it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The facts, in order.
    pub facts: Vec<Fact>,
    /// What the process waits for after them.
    pub waiting: Waiting,
    /// The limit that it is paused at after them.
    pub paused: Option<Paused>,
}

/// A decision in progress. Each fact is applied to a copy of the state when it is emitted, so that
/// the rest of the decision sees the new state.
pub(super) struct Draft {
    pub(super) state: State,
    pub(super) now_ms: u64,
    facts: Vec<Fact>,
    pub(super) reads: Vec<Read>,
    effects: Vec<Effect>,
    pub(super) reopening: Option<Reopening>,
    /// Whether the process has yet to resume in this life, so that nothing begins.
    pub(super) is_before_resume: bool,
}

impl Draft {
    pub(super) fn new(state: &State, now_ms: u64) -> Self {
        Self {
            state: state.clone(),
            now_ms,
            facts: Vec::new(),
            reads: Vec::new(),
            effects: Vec::new(),
            reopening: None,
            is_before_resume: false,
        }
    }

    /// A decision about a process that was not loaded until now: that time does not count as time
    /// that it ran.
    pub(super) fn of_unloaded(state: &State, now_ms: u64) -> Self {
        let mut draft = Self::new(state, now_ms);
        draft.skip_unloaded_time();
        draft
    }

    /// Applies a fact to the state and adds it to the decision.
    pub(super) fn emit(&mut self, fact: impl Into<Fact>) {
        let fact = fact.into();
        evolve(&mut self.state, &fact);
        self.facts.push(fact);
    }

    /// Adds an effect to the decision.
    pub(super) fn schedule(&mut self, effect: Effect) {
        // Most decisions have one effect, and an effect is large: reserve room for exactly one.
        self.effects
            .reserve_exact(usize::from(self.effects.is_empty()));
        self.effects.push(effect);
    }

    /// The facts of a decision that does not run the process.
    pub(super) fn into_facts(self) -> Vec<Fact> {
        self.facts
    }

    /// A decision that is recorded without running the process.
    pub(super) fn into_recorded(self) -> Recorded {
        Recorded {
            waiting: self.state.waiting(),
            paused: self.state.paused().cloned(),
            facts: self.facts,
        }
    }

    /// The facts so far.
    pub(super) fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Whether the decision has recorded anything.
    pub(super) fn has_facts(&self) -> bool {
        !self.facts.is_empty()
    }

    fn handle_input(&mut self, input: Input) {
        match input {
            Input::Signal(Signal::Resume) => self.resume_process(),
            _ if self.state.exit().is_some() => self.refuse_after_end(&input),
            Input::UserInput { user_input, .. } if user_input.parts.is_empty() => {}
            Input::UserInput { from, user_input } => {
                self.request_arrival_placement(Arrival::UserInput { from, user_input })
            }
            Input::Message {
                request_id,
                from,
                call,
                acked_below,
                envelope,
            } => {
                self.request_arrival_placement(Arrival::Message {
                    request_id,
                    from,
                    call,
                    acked_below,
                    envelope,
                });
            }
            Input::Placed(placed) => self.handle_placed(placed),
            Input::Host {
                request_id,
                request,
            } => self.handle_request(request_id, request),
            Input::Completed { call, result } => self.handle_completion(call, result),
            Input::Summarized { pending, result } => self.handle_auto_summary(pending, result),
            Input::Child { call, event } => self.handle_child_event(call, event),
            Input::ReopenChild { request_id, child } => self.reopen_child(request_id, &child),
            Input::Signal(signal) => self.handle_signal(signal),
            Input::SignalBeforeResume(signal) => {
                self.is_before_resume = true;
                self.skip_unloaded_time();
                self.handle_signal(signal);
            }
            Input::TimeUp { at_ms } => self.handle_time(at_ms),
            Input::WakeDue => self.handle_wake(),
        }
    }

    fn handle_request(&mut self, request_id: Arc<str>, request: HostRequest) {
        match request {
            HostRequest::Open {
                capped,
                source,
                page_chars,
            } => {
                self.request_arrival_placement(Arrival::Opened {
                    request_id,
                    capped,
                    source,
                    page_chars,
                });
            }
            HostRequest::Call { tool, args } => self.handle_host_call(request_id, tool, args),
            HostRequest::ReplaceTools { tools, external } => {
                self.replace_tools_for_host(request_id, tools, external)
            }
            HostRequest::AnswerHeld { call, verdict } => {
                self.answer_held_call(request_id, call, verdict)
            }
            HostRequest::SetEffectPolicy(policy) => self.set_effect_policy(request_id, policy),
            HostRequest::Raise { by, expected } => {
                self.raise_for_host(request_id, &by, expected.as_ref())
            }
            HostRequest::RaiseShare {
                call,
                index,
                limits,
            } => self.raise_share_for_host(request_id, (call, index), &limits),
            HostRequest::EndSpeculation => self.end_speculation(request_id),
            HostRequest::Cancel => self.cancel_request(&request_id),
            HostRequest::CancelAlarm(id) => self.cancel_alarm_for_host(request_id, id),
            HostRequest::Goto { position, message } => {
                self.request_goto(request_id, position, message)
            }
            HostRequest::Restore(restored) => self.restore_for_host(request_id, *restored),
        }
    }

    fn handle_completion(&mut self, call: CallId, result: Completion) {
        match result {
            Completion::Model(result) => self.handle_model_reply(call, result),
            Completion::Reply(placed) => self.handle_placed_reply(call, *placed),
            Completion::Tool(output) => self.handle_tool_output(call, output),
            Completion::Read(found) => self.handle_read_result(call, found),
            Completion::FileWritten { pending, result } => {
                self.handle_file_written(call, &pending, result)
            }
            Completion::Summarized { pending, result } => {
                self.handle_summary(call, pending, result)
            }
            Completion::TempFile { pending, result } => {
                self.handle_temp_file(call, &pending, result)
            }
            Completion::Checkpoint(result) => self.handle_checkpoint_reply(call, result),
            Completion::Fetched { pending, result } => self.handle_fetched(call, pending, result),
            Completion::MessageSent(receipt) => {
                self.complete_call(call, |draft| draft.answer_in_full(call, receipt))
            }
            Completion::Listed { known, hidden } => self.handle_process_list(call, known, hidden),
            Completion::TimedOut => self.handle_timeout(call),
        }
    }

    fn handle_child_event(&mut self, call: CallId, event: ChildEvent) {
        match event {
            ChildEvent::Started { child } => self.handle_child_started(call, child),
            ChildEvent::Absent { index } => self.handle_child_absent(call, index),
            ChildEvent::CreationFailed { why } => {
                self.complete_call(call, |draft| draft.refuse_spawn(call, why.into()))
            }
            ChildEvent::Ended { index, child, exit } => {
                self.handle_child_ended(call, index, child, exit)
            }
        }
    }

    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Resume => self.resume_process(),
            Signal::Interrupt => self.interrupt_turn(),
            Signal::Stop => self.stop_process(),
            Signal::Continue => self.continue_after_stop(),
            Signal::Kill => self.kill_process(),
            Signal::Suspend => self.suspend(),
            Signal::Release => self.release(),
        }
    }

    /// Handles input for an ended process. A request gets an error as its answer. A repeated
    /// message that arrived before the end gets its receipt, which acknowledges it. Everything else
    /// is dropped.
    fn refuse_after_end(&mut self, input: &Input) {
        let pid = self.state.pid;
        let (request_id, receipt) = match input {
            Input::ReopenChild { request_id, child } => {
                let answer = Answer::failed(format!(
                    "Process {} has ended and cannot be opened again: its parent, process {pid}, \
                     has ended too. Send the message to that process.",
                    child.child
                ));
                let request_id = request_id.clone();
                return self.schedule(Effect::AnswerHost { request_id, answer });
            }
            Input::Message {
                request_id,
                from,
                call,
                ..
            }
            | Input::Placed(PlacedArrival::Message {
                request_id,
                from,
                call,
                ..
            }) => (request_id, self.state.receipt(*from, *call)),
            Input::Host {
                request_id,
                request:
                    HostRequest::Open { .. }
                    | HostRequest::Call { .. }
                    | HostRequest::ReplaceTools { .. }
                    | HostRequest::AnswerHeld { .. }
                    | HostRequest::Goto { .. }
                    | HostRequest::CancelAlarm(_)
                    | HostRequest::SetEffectPolicy(_)
                    | HostRequest::Raise { .. }
                    | HostRequest::RaiseShare { .. }
                    | HostRequest::EndSpeculation
                    | HostRequest::Restore(_),
            }
            | Input::Placed(
                PlacedArrival::Opened { request_id, .. } | PlacedArrival::Goto { request_id, .. },
            ) => (request_id, None),
            Input::Placed(PlacedArrival::EarlierMessages { goto, .. }) => match goto.request_id() {
                Some(request_id) => (request_id, None),
                // The call was answered when the process ended.
                None => return,
            },
            _ => return,
        };
        let answer = receipt.unwrap_or_else(|| Answer::failed(format!("Process {pid} has ended.")));
        self.schedule(Effect::AnswerHost {
            request_id: request_id.clone(),
            answer,
        });
    }

    /// Queues an input in the mailbox. Input of the host becomes one block for each part; input
    /// that the host sends on behalf of another process becomes one XML element.
    pub(super) fn queue_input(&mut self, from: Sender, parts: Vec<Placement>) {
        self.record_input(from, parts);
        self.handle_new_mail();
    }

    /// As [`queue_input`](Self::queue_input), without a reaction.
    pub(super) fn record_input(&mut self, from: Sender, parts: Vec<Placement>) {
        let message = match from {
            Sender::Process(pid) => self.render_host_message(pid, parts),
            Sender::Host | Sender::Alarm(_) => {
                let blocks = parts
                    .into_iter()
                    .map(|part| Block::text(self.open_placement(part).text))
                    .collect();
                Arc::new(Message {
                    role: Role::User,
                    blocks,
                })
            }
        };
        self.emit(MailFact::Queued { from, message });
    }

    /// Starts a tool call of the host, or refuses it if the process is in a turn or stopped.
    fn handle_host_call(&mut self, request_id: Arc<str>, tool: String, args: String) {
        let pid = self.state.pid;
        let refusal = match self.state.phase {
            _ if self.state.is_held_by_limit() => Some(self.describe_hold_by_limit()),
            _ if self.state.is_stopped() => {
                Some(format!("process {pid} is stopped: continue it first"))
            }
            Phase::Idle => None,
            // A queue of host calls must not delay the turn that the mailbox is waiting for.
            Phase::Acting {
                caller: Caller::Host,
                ..
            } if !self.state.mailbox.is_empty() => Some(format!(
                "process {pid} is about to begin a turn: wait for its end"
            )),
            Phase::Acting {
                caller: Caller::Host,
                ref pending_calls,
            } if pending_calls.len() < MAX_HOST_CALLS => None,
            Phase::Acting {
                caller: Caller::Host,
                ..
            } => Some(format!(
                "process {pid} has {MAX_HOST_CALLS} calls in flight: wait for one of them"
            )),
            _ => Some(format!(
                "process {pid} is in the middle of a turn: wait for its end"
            )),
        };
        if let Some(refusal) = refusal {
            let answer = Answer::failed(refusal);
            return self.schedule(Effect::AnswerHost { request_id, answer });
        }
        self.emit(CallFact::HostCalled {
            request_id,
            tool: tool.into(),
            args: args.into(),
        });
        self.start_unstarted_calls();
    }
}
