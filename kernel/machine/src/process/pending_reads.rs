//! Pending reads: requests the reads that a process waits for, and continues its calls with their
//! results. `read.rs` explains what a read is, `arrival.rs` what an arrival is.
//!
//! The tool calls of a model start in order, and no call starts while the read of an earlier call
//! is pending, so that a later call sees the names that an earlier call gave to descriptors.
//! Outputs of tools get their descriptors in the order of the calls. The shell reads one arrival at
//! a time, in their order.

use std::sync::Arc;

use dormouse_proto::descriptor::FdError;
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::model::Reply;
use dormouse_proto::record::{Caller, DescriptorFact, PendingCall};
use dormouse_proto::temp_file::TempId;
use dormouse_proto::tool::{Answer, ExternalTool, ToolOutput};

use super::arrival::{Arrival, PlacedArrival};
use super::compaction::RunningCompaction;
use super::decide::Draft;
use super::read::{Read, ReadPurpose, ReadResult, ReadSubject};
use super::toolbox::BoundTool;
use super::{Effect, Work};
use crate::table::placement::PlacedOutput;
use crate::tool::Outcome;
use dormouse_content::Content;

/// The pending reads of a process. They are not stored, since a process that is loaded from its
/// journal requests its reads again. A comparison of states therefore ignores them.
///
/// A process has none for most of its life, and then they take a pointer.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingReads(Option<Box<Pending>>);

#[derive(Clone, Debug, Default)]
struct Pending {
    /// Calls with a pending read.
    calls: Vec<CallId>,
    /// Number of arrivals with a pending read.
    arrivals: usize,
    /// Number of descriptors that a model summarizes without being asked.
    summaries: usize,
    /// The compaction that the process waits for.
    compaction: Option<RunningCompaction>,
    /// Outputs that become descriptors and wait for the output of an earlier call.
    waiting_outputs: Vec<(CallId, PlacedOutput)>,
    /// The reply that is being read, and its call.
    reply: Option<(CallId, Arc<Reply>)>,
    /// Calls from before a restart. They are repeated once the read of an earlier call has finished
    /// or the process is continued.
    calls_to_repeat: Vec<CallId>,
    /// Whether a task may have to end once nothing is open or being read: its last alarm is gone.
    end_check: bool,
    /// Set if the process was opened again and has not begun a turn since: the descriptors that came
    /// with the message.
    reopened_with: Option<Vec<FdId>>,
}

impl PendingReads {
    fn get(&self) -> Option<&Pending> {
        self.0.as_deref()
    }

    fn get_mut(&mut self) -> Option<&mut Pending> {
        self.0.as_deref_mut()
    }

    fn get_or_create(&mut self) -> &mut Pending {
        self.0.get_or_insert_default()
    }

    /// Gives the memory back if nothing is pending. Called at the end of each decision.
    pub(super) fn shrink(&mut self) {
        if self.get().is_some_and(Pending::is_empty) {
            self.0 = None;
        }
    }

    pub(super) fn is_reading(&self, call: CallId) -> bool {
        self.get()
            .is_some_and(|pending| pending.calls.contains(&call))
    }

    /// Whether a call is being read for, or an output waits for that of an earlier call.
    pub(super) fn has_call_reads(&self) -> bool {
        self.get()
            .is_some_and(|pending| !pending.calls.is_empty() || !pending.waiting_outputs.is_empty())
    }

    pub(super) fn arrivals(&self) -> usize {
        self.get().map_or(0, |pending| pending.arrivals)
    }

    /// Whether an arrival is being read.
    pub(super) fn has_arrivals(&self) -> bool {
        self.arrivals() > 0
    }

    /// Whether a model summarizes a descriptor without being asked.
    pub(super) fn has_summaries(&self) -> bool {
        self.get().is_some_and(|pending| pending.summaries > 0)
    }

    pub(super) fn add_summary(&mut self) {
        self.get_or_create().summaries += 1;
    }

    pub(super) fn finish_summary(&mut self) {
        if let Some(pending) = self.get_mut() {
            pending.summaries = pending.summaries.saturating_sub(1);
        }
    }

    fn add_read(&mut self, call: Option<CallId>) {
        let pending = self.get_or_create();
        match call {
            Some(call) => pending.calls.push(call),
            None => pending.arrivals += 1,
        }
    }

    /// Removes the pending reads of all calls, since the calls are abandoned. Reads of arrivals
    /// continue.
    pub(super) fn drop_call_reads(&mut self) {
        if let Some(pending) = self.get_mut() {
            pending.calls.clear();
            pending.compaction = None;
            pending.waiting_outputs.clear();
            pending.calls_to_repeat.clear();
        }
    }

    pub(super) fn set_reply(&mut self, call: CallId, reply: Arc<Reply>) {
        self.get_or_create().reply = Some((call, reply));
    }

    /// Removes and returns the reply that is being read, and its call.
    pub(super) fn take_reply(&mut self) -> Option<(CallId, Arc<Reply>)> {
        self.get_mut()?.reply.take()
    }

    pub(super) fn queue_repeat(&mut self, call: CallId) {
        self.get_or_create().calls_to_repeat.push(call);
    }

    /// Removes and returns the calls that are to be repeated.
    pub(super) fn take_calls_to_repeat(&mut self) -> Vec<CallId> {
        let pending = self.get_mut();
        pending.map_or_else(Vec::new, |pending| {
            std::mem::take(&mut pending.calls_to_repeat)
        })
    }

    /// The compaction that the process waits for.
    pub(super) fn compaction(&self) -> Option<&RunningCompaction> {
        self.get()?.compaction.as_ref()
    }

    pub(super) fn set_compaction(&mut self, compaction: RunningCompaction) {
        self.get_or_create().compaction = Some(compaction);
    }

    /// Removes and returns the compaction that the process waits for.
    pub(super) fn take_compaction(&mut self) -> Option<RunningCompaction> {
        self.get_mut()?.compaction.take()
    }

    pub(super) fn set_end_check(&mut self) {
        self.get_or_create().end_check = true;
    }

    /// Whether the process has to look again whether it ends. Asked once.
    pub(super) fn take_end_check(&mut self) -> bool {
        let pending = self.get_mut();
        pending.is_some_and(|pending| std::mem::take(&mut pending.end_check))
    }

    /// The process was opened again: the descriptors that are opened from now on came with the
    /// message.
    pub(super) fn begin_reopening(&mut self) {
        self.get_or_create().reopened_with = Some(Vec::new());
    }

    pub(super) fn note_opened(&mut self, id: &FdId) {
        let fds = self.get_mut().and_then(|it| it.reopened_with.as_mut());
        if let Some(fds) = fds {
            fds.push(id.clone());
        }
    }

    /// Removes and returns the descriptors that came with the message that opened the process again.
    /// Later ones are none of them.
    pub(super) fn take_reopened_with(&mut self) -> Vec<FdId> {
        let fds = self.get_mut().and_then(|it| it.reopened_with.take());
        fds.unwrap_or_default()
    }

    fn finish_arrival(&mut self) {
        if let Some(pending) = self.get_mut() {
            pending.arrivals = pending.arrivals.saturating_sub(1);
        }
    }

    /// Removes the pending read of a call. Returns whether there was one.
    pub(super) fn finish_call_read(&mut self, call: CallId) -> bool {
        let Some(pending) = self.get_mut() else {
            return false;
        };
        let before = pending.calls.len();
        pending.calls.retain(|reading_call| *reading_call != call);
        pending.calls.len() < before
    }

    fn add_waiting_output(&mut self, call: CallId, output: PlacedOutput) {
        self.get_or_create().waiting_outputs.push((call, output));
    }

    fn waiting_outputs(&self) -> &[(CallId, PlacedOutput)] {
        self.get().map_or(&[], |pending| &pending.waiting_outputs)
    }

    /// Removes and returns the waiting output at this index.
    fn take_waiting_output(&mut self, at: usize) -> Option<(CallId, PlacedOutput)> {
        Some(self.get_mut()?.waiting_outputs.remove(at))
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        let Self {
            calls,
            arrivals,
            summaries,
            compaction,
            waiting_outputs,
            reply,
            calls_to_repeat,
            end_check,
            reopened_with,
        } = self;
        calls.is_empty()
            && *arrivals == 0
            && *summaries == 0
            && compaction.is_none()
            && waiting_outputs.is_empty()
            && reply.is_none()
            && calls_to_repeat.is_empty()
            && !end_check
            && reopened_with.is_none()
    }
}

impl PartialEq for PendingReads {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Draft {
    /// Requests the bytes that a call needs before it can start or be answered.
    pub(super) fn read_for_call(&mut self, call: CallId, purpose: ReadPurpose) {
        let args = self.pending_call(call).args.clone();
        let table = self.state.table.clone();
        let program = self.state.program.clone();
        self.request_read(ReadSubject::Call {
            call,
            purpose,
            args,
            table,
            program,
        });
    }

    /// Requests the placement of the output of a call.
    pub(super) fn request_output_placement(&mut self, call: CallId, output: ToolOutput) {
        let PendingCall { tool, args, .. } = self.pending_call(call);
        let (tool, args) = (tool.clone(), args.clone());
        self.request_read(ReadSubject::Output {
            call,
            output,
            tool,
            args,
        });
    }

    /// Requests the placement of a temporary file's content.
    pub(super) fn request_temp_file_placement(
        &mut self,
        call: CallId,
        (id, version): (TempId, u64),
        content: Content,
    ) {
        self.request_read(ReadSubject::TempFile {
            call,
            id,
            version,
            content,
        });
    }

    /// Requests the placement of an arrival.
    pub(super) fn request_arrival_placement(&mut self, arrival: Arrival) {
        self.request_read(ReadSubject::Arrival(arrival));
    }

    pub(super) fn request_read(&mut self, subject: ReadSubject) {
        let read = Read {
            subject,
            settings: self.state.settings().copied(),
            now_ms: self.now_ms,
        };
        self.state.pending_reads.add_read(read.call());
        self.reads.push(read);
    }

    pub(super) fn handle_placed(&mut self, placed: PlacedArrival) {
        self.state.pending_reads.finish_arrival();
        match placed {
            PlacedArrival::UserInput { from, parts } => self.queue_input(from, parts),
            PlacedArrival::Summary(pending) => {
                if let Some(pending) = pending {
                    self.start_auto_summary(pending);
                }
            }
            PlacedArrival::Compaction { epoch, draft } => {
                self.handle_compaction_draft(epoch, draft);
            }
            PlacedArrival::EarlierMessages { goto, messages } => {
                self.handle_earlier_messages(goto, messages);
            }
            PlacedArrival::Opened { request_id, new } => self.open_for_host(request_id, new),
            PlacedArrival::EndedChild { call, ended } => self.report_child_end(call, ended),
            PlacedArrival::Goto {
                request_id,
                position,
                message,
            } => self.goto_for_request(request_id, position, message, None),
            PlacedArrival::Message {
                request_id,
                from,
                call,
                acked_below,
                envelope,
            } => {
                self.receive_message(request_id, (from, call), acked_below, envelope);
            }
        }
        self.check_end();
    }

    /// Handles the result of a read. The result is stale if the call is no longer open (CALL-1).
    pub(super) fn handle_read_result(&mut self, call: CallId, result: ReadResult) {
        let is_open = self.state.is_open(call);
        if !self.state.pending_reads.finish_call_read(call) || !is_open {
            return;
        }
        // A stopped process starts nothing: the call reads again when the process is continued.
        if self.state.is_stopped() && result.starts_work() {
            if self.pending_call(call).started {
                self.state.pending_reads.queue_repeat(call);
            }
            return;
        }
        let caller = self.caller();
        match result {
            ReadResult::Tool(outcome) => self.handle_outcome(call, outcome),
            ReadResult::Arguments(arguments) => self.handle_arguments(call, arguments),
            ReadResult::Spawn(pending) => self.handle_checked_spawn(call, pending),
            ReadResult::Message(pending) => self.handle_checked_message(call, pending),
            ReadResult::Output(output) => {
                self.state.pending_reads.add_waiting_output(call, output);
                self.answer_waiting_outputs();
            }
            ReadResult::EndedChildren(ended) => self.answer_with_children(call, ended),
            ReadResult::Birth(image) => self.start_child(call, image),
            ReadResult::TempFile(placement) => {
                let produced_chars = placement.produced_chars();
                let answer = self.open_placement(placement);
                self.answer_call(call, answer, produced_chars);
            }
        }
        match caller {
            // Later calls of the model were waiting for this read.
            Caller::Model if !self.state.is_stopped() => self.start_unstarted_calls(),
            _ => self.continue_turn(caller),
        }
    }

    /// Answers the calls whose outputs have been placed. An output that becomes a descriptor waits
    /// while an earlier tool of the same reply still runs, so that descriptors are numbered in the
    /// order of the calls, whichever tool ends first.
    pub(super) fn answer_waiting_outputs(&mut self) {
        loop {
            let waiting = self.state.pending_reads.waiting_outputs();
            let ready = waiting.iter().position(|(call, output)| {
                !output.opens_descriptor() || !self.is_earlier_tool_running(*call)
            });
            let reads = &mut self.state.pending_reads;
            let Some((call, output)) = ready.and_then(|at| reads.take_waiting_output(at)) else {
                return;
            };
            if self.state.call_in_flight(call).is_some() {
                self.answer_output(call, output);
            }
        }
    }

    /// Whether a tool outside of the kernel that the model called earlier in its reply has begun and
    /// has no answer yet. A call that waits for a person delays no output.
    fn is_earlier_tool_running(&self, call: CallId) -> bool {
        let is_running = |earlier: &PendingCall| {
            let tool = self.bound_tool_of(earlier);
            let is_outside = tool.is_some_and(|tool| matches!(tool, BoundTool::External(_)));
            earlier.started && earlier.answer.is_none() && is_outside
        };
        let mut calls = self.state.pending_calls().iter();
        self.caller() == Caller::Model
            && calls
                .by_ref()
                .take_while(|earlier| earlier.call != call)
                .any(is_running)
    }

    fn handle_arguments(&mut self, call: CallId, arguments: Result<Option<String>, FdError>) {
        let Some(BoundTool::External(tool)) = self.bound_tool(call) else {
            return;
        };
        match arguments {
            Ok(expanded) => {
                let args = expanded.map_or_else(|| self.pending_call(call).args.clone(), Arc::from);
                self.start_external_call(call, tool, args);
            }
            Err(error) => self.answer_in_full(call, error.answer()),
        }
    }

    pub(super) fn start_external_call(&mut self, call: CallId, tool: ExternalTool, args: Arc<str>) {
        let written = self.pending_call(call).args.clone();
        self.record_intent(call);
        self.schedule(Effect::StartWork {
            call,
            work: Work::Tool {
                tool,
                args,
                written,
            },
        });
    }

    fn handle_outcome(&mut self, call: CallId, outcome: Outcome) {
        match outcome {
            Outcome::Answer(answer) => self.answer_in_full(call, answer),
            Outcome::Opened(new) => {
                let answer = self.open_descriptor(*new);
                self.answer_in_full(call, answer);
            }
            Outcome::Annotated { id, note, answer } => {
                self.emit(DescriptorFact::Annotated { id, note });
                self.answer_in_full(call, answer);
            }
            Outcome::Write(pending) => {
                self.record_intent(call);
                self.schedule(Effect::StartWork {
                    call,
                    work: Work::WriteFile(pending),
                });
            }
            Outcome::Summarize(pending) => {
                if let Some(why) = self.find_summary_refusal() {
                    return self.answer_in_full(call, Answer::failed(why));
                }
                let model = self.state.summarizer();
                let request = self.state.summary_request(&model, &pending);
                self.record_intent(call);
                self.schedule(Effect::StartWork {
                    call,
                    work: Work::Summarize {
                        pending,
                        request,
                        model,
                    },
                });
            }
            Outcome::TempFile(pending) => {
                self.record_intent(call);
                self.schedule(Effect::StartWork {
                    call,
                    work: Work::TempFile(pending),
                });
            }
        }
    }
}
