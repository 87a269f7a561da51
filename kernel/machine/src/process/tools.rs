//! The tool calls of a turn: checks access, executes each call or starts its work outside of the
//! machine, and answers it.
//!
//! An *open* call has no answer yet; a call is *started* once its intent is in the journal.
//!
//! `held.rs` lists what a call has to pass before it begins. A call that needs bytes of contents
//! waits for a read (`pending_reads.rs`).

use dormouse_content::units::names_source_code;
use dormouse_proto::descriptor::{DescriptorSettings, view};
use dormouse_proto::file::FileError;
use dormouse_proto::id::CallId;
use dormouse_proto::message::Media;
use dormouse_proto::model::{ModelError, Reply};
use dormouse_proto::record::{CallFact, Caller, DescriptorFact, PendingCall, Phase};
use dormouse_proto::temp_file::{TempFileError, TempFileReply};
use dormouse_proto::tool::{Answer, ExternalTool, ToolOutput};

use super::decide::Draft;
use super::read::ReadPurpose;
use super::toolbox::BoundTool;
use super::{Effect, Fact};
use crate::table::attachment::{MAX_ATTACHMENTS, NewAttachment};
use crate::table::placement::PlacedOutput;
use crate::tool::{
    Handler, PendingSummary, PendingTempFile, PendingWrite, ProcessHandler, Summarized,
    may_hold_handle,
};
use dormouse_content::Content;

/// The most bytes that the arguments of a process tool may have, since a decision parses them.
/// [`ProcessHandler::SendMessage`] is excepted: its arguments are parsed in a read.
pub(super) const MAX_ARGUMENT_BYTES: usize = 1 << 20;

impl Draft {
    /// Starts or answers every open call of the turn in order, then continues the turn if no open
    /// call remains.
    pub(super) fn start_open_calls(&mut self) {
        self.start_calls(self.open_calls());
    }

    /// Starts the open calls that are not in flight.
    pub(super) fn start_unstarted_calls(&mut self) {
        if self.state.is_stopped() {
            return;
        }
        let calls_to_repeat = self.state.pending_reads.take_calls_to_repeat();
        let mut calls = self.open_calls();
        calls.retain(|(call, is_started)| !is_started || calls_to_repeat.contains(call));
        self.start_calls(calls);
    }

    /// The calls without an answer, each with whether it was started.
    fn open_calls(&self) -> Vec<(CallId, bool)> {
        let open = self
            .state
            .pending_calls()
            .iter()
            .filter(|pending_call| pending_call.answer.is_none());
        open.map(|pending_call| (pending_call.call, pending_call.started))
            .collect()
    }

    fn start_calls(&mut self, mut calls: Vec<(CallId, bool)>) {
        if self.state.is_stopped() {
            return;
        }
        let caller = self.caller();
        self.refuse_calls_over_limit();
        self.fence_calls();
        self.hold_speculative_calls();
        self.hold_calls();
        // First, since what waits for a held call goes on once that call is answered.
        calls.retain(|&(call, is_started)| !(is_started && self.answer_if_unrepeatable(call)));
        let mut calls = calls.into_iter();
        for (call, is_started) in calls.by_ref() {
            // The fence may have answered it.
            if !self.state.is_open(call) {
                continue;
            }
            match self.find_permitted_tool(call) {
                _ if self.state.pending_reads.is_reading(call) => {}
                Err(answer) => self.answer_call(call, answer, 0),
                Ok(_) if self.waits_for_person(call) => {
                    if is_started {
                        self.state.pending_reads.queue_repeat(call);
                    }
                }
                Ok(tool) if is_started => self.repeat_call(call, &tool),
                Ok(tool) => self.execute_call(call, &tool),
            }
            // A call that its tool refused stands for no effect any more: a later one may repeat it.
            if !self.state.is_open(call) {
                self.fence_calls();
            }
            // Later calls of the model may depend on the result of this read.
            if caller == Caller::Model && self.state.pending_reads.is_reading(call) {
                break;
            }
        }
        calls
            .filter(|(_, is_started)| *is_started)
            .for_each(|(call, _)| self.state.pending_reads.queue_repeat(call));
        self.continue_turn(caller);
    }

    /// Answers a call that was in flight when the kernel stopped, if it must not be repeated. Returns
    /// whether it answered the call.
    fn answer_if_unrepeatable(&mut self, call: CallId) -> bool {
        if self.state.pending_reads.is_reading(call) {
            return false;
        }
        let is_lost = self
            .find_permitted_tool(call)
            .is_ok_and(|tool| !self.is_repeatable(call, &tool));
        if is_lost {
            self.answer_effect_unknown(call);
        }
        is_lost
    }

    /// Finds the tool that a pending call names. The error is the answer to the call if there is no
    /// such tool or the process has no access to it.
    fn find_permitted_tool(&self, call: CallId) -> Result<BoundTool, Answer> {
        let pending_call = self.pending_call(call);
        let Some(binding) = self.state.toolbox.find(&pending_call.tool) else {
            let names = self.state.toolbox.names().join(", ");
            return Err(Answer::failed(format!(
                "There is no tool '{}'. The tools are: {names}",
                pending_call.tool
            )));
        };
        if binding.access > self.state.access {
            return Err(Answer::failed(format!(
                "Access denied: '{}' needs {} access, and this process has {}.",
                pending_call.tool,
                binding.access.word(),
                self.state.access.word()
            )));
        }
        Ok(binding.tool.clone())
    }

    pub(super) fn execute_call(&mut self, call: CallId, tool: &BoundTool) {
        match tool {
            BoundTool::External(tool) => self.call_external_tool(call, tool),
            BoundTool::Kernel(tool) => match tool.handler {
                Handler::Table(syscall) => self.read_for_call(call, ReadPurpose::Tool(syscall)),
                Handler::Process(handler) => self.execute_process_tool(call, handler),
            },
        }
    }

    fn execute_process_tool(&mut self, call: CallId, handler: ProcessHandler) {
        let PendingCall { tool, args, .. } = self.pending_call(call);
        let is_read = matches!(handler, ProcessHandler::SendMessage(_));
        if args.len() > MAX_ARGUMENT_BYTES && !is_read {
            let bytes = args.len();
            let refusal = format!(
                "Nothing was done: the arguments of '{tool}' have {bytes} bytes, and it takes at \
                 most {MAX_ARGUMENT_BYTES}. Hand over large content as a descriptor."
            );
            return self.answer_in_full(call, Answer::failed(refusal));
        }
        match handler {
            ProcessHandler::Fork { prompts, .. } => self.fork(call, prompts),
            ProcessHandler::Explore { prompts, judge, .. } => self.explore(call, prompts, judge),
            ProcessHandler::Spawn { check, .. } => self.spawn(call, check),
            ProcessHandler::Goto(arguments) => self.goto(call, arguments),
            ProcessHandler::MakeCheckpoint(label) => self.make_checkpoint(call, label),
            ProcessHandler::Restore(checkpoint) => self.restore_process(call, checkpoint),
            ProcessHandler::ListCheckpoints(check) => self.list_checkpoints(call, check),
            ProcessHandler::SendMessage(check) => {
                self.read_for_call(call, ReadPurpose::Message(check))
            }
            ProcessHandler::ReceiveMessages(timeout_ms) => self.receive_messages(call, timeout_ms),
            ProcessHandler::Wait(arguments) => self.wait(call, arguments),
            ProcessHandler::ListProcesses(check) => self.list_processes(call, check),
            ProcessHandler::AskUser(question) => self.ask_user(call, question),
            ProcessHandler::SubmitResult => self.submit_result(call),
            ProcessHandler::WakeAt(request) => self.set_alarm(call, request),
            ProcessHandler::CancelAlarm(id) => self.cancel_alarm(call, id),
        }
    }

    fn call_external_tool(&mut self, call: CallId, tool: &ExternalTool) {
        let args = self.pending_call(call).args.clone();
        if self.state.program.expands(tool.name_in_program()) && may_hold_handle(&args) {
            let expand = self.state.host.kernel_tools.expand_handles;
            return self.read_for_call(call, ReadPurpose::Arguments(expand));
        }
        self.start_external_call(call, tool.clone(), args);
    }

    /// Records the intent of a call before it starts (CALL-2), unless the journal already has it.
    pub(super) fn record_intent(&mut self, call: CallId) {
        if !self.pending_call(call).started {
            self.emit(CallFact::ToolCalled { call });
        }
    }

    pub(super) fn settings(&self) -> DescriptorSettings {
        self.state.settings().copied().unwrap_or_default()
    }

    /// Whether a call that may already have run can run again. Examples: some writes are
    /// idempotent, and temporary files recognise a repeated call (TEMP-1).
    pub(super) fn is_repeatable(&self, call: CallId, tool: &BoundTool) -> bool {
        // A message of an earlier epoch belongs to the process that this one was copied from.
        if let Some(ProcessHandler::SendMessage(_)) = tool.process_handler()
            && call.epoch != self.state.epoch
        {
            return false;
        }
        match tool {
            BoundTool::Kernel(tool) => (tool.may_repeat)(&self.pending_call(call).args),
            BoundTool::External(tool) => tool.policy.idempotent,
        }
    }

    /// Runs `apply_result` if the call is still open, then continues the turn. A stale completion
    /// changes nothing (CALL-1). Neither does one that arrives while the call is being read for: it
    /// repeats the completion that requested the read.
    pub(super) fn complete_call(&mut self, call: CallId, apply_result: impl FnOnce(&mut Self)) {
        let is_read_for = self.state.pending_reads.is_reading(call);
        if self.state.call_in_flight(call).is_some() && !is_read_for {
            let caller = self.caller();
            apply_result(self);
            self.continue_turn(caller);
        }
    }

    pub(super) fn handle_file_written(
        &mut self,
        call: CallId,
        pending: &PendingWrite,
        result: Result<(), FileError>,
    ) {
        self.complete_call(call, |draft| {
            draft.answer_in_full(call, pending.answer(result))
        });
    }

    /// Handles the reply to a summary request. Its usage is charged even if the summary is
    /// unusable.
    pub(super) fn handle_summary(
        &mut self,
        call: CallId,
        pending: PendingSummary,
        result: Result<Reply, ModelError>,
    ) {
        let model = self.state.summarizer().name;
        if self.state.call_in_flight(call).is_none() {
            return self.record_late_usage(call, &model, &result);
        }
        let result = result.map(|reply| Reply {
            usage: self.state.usage_with_cost(&model, &reply),
            ..reply
        });
        let usage = result.as_ref().map(|reply| reply.usage).unwrap_or_default();
        self.complete_call(call, |draft| {
            let Summarized { note, answer } = pending.into_summarized(result);
            match note {
                Some((id, note)) => draft.emit(DescriptorFact::Annotated { id, note }),
                None => draft.record_usage(call, usage),
            }
            draft.answer_in_full(call, answer);
        });
    }

    pub(super) fn handle_temp_file(
        &mut self,
        call: CallId,
        pending: &PendingTempFile,
        result: Result<TempFileReply<Content>, TempFileError>,
    ) {
        self.complete_call(call, |draft| match result {
            Ok(TempFileReply::Contents {
                id,
                version,
                content,
            }) => draft.request_temp_file_placement(call, (id, version), content),
            Ok(TempFileReply::Changed {
                id,
                version,
                total_bytes,
            }) => {
                draft.answer_in_full(call, pending.changed(id, version, total_bytes));
            }
            Err(error) => draft.answer_in_full(call, pending.refused(&error)),
        });
    }

    pub(super) fn handle_tool_output(&mut self, call: CallId, output: ToolOutput) {
        self.complete_call(call, |draft| draft.request_output_placement(call, output));
    }

    /// Answers with tool output, in full or as the preview of a new descriptor. The attachments of
    /// the output are listed after it; media among them are shown to the model within the limits of
    /// the conversation.
    pub(super) fn answer_output(&mut self, call: CallId, output: PlacedOutput) {
        let PlacedOutput {
            placement,
            attached,
            total_attached,
        } = output;
        let produced_chars = placement.produced_chars();
        let mut answer = self.open_placement(placement);
        self.append_attachments(&mut answer, attached, total_attached);
        self.answer_call(call, answer, produced_chars);
    }

    fn append_attachments(
        &mut self,
        answer: &mut Answer,
        attached: Vec<NewAttachment>,
        total_attached: usize,
    ) {
        if total_attached == 0 {
            return;
        }
        // The text of the answer is already escaped; the lines that follow are elements of the
        // kernel.
        let mut lines: Vec<_> = Some(answer.text.to_string())
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let is_truncated = total_attached > attached.len();
        for attachment in attached {
            let id = self.state.table.next_id();
            lines.push(attachment.element(&id).to_xml());
            let shown = self.state.measure_shown_media(answer);
            let fits = |media: &Media| {
                shown
                    .with(media, attachment.entry.content.len_bytes())
                    .fits()
            };
            answer.media.extend(attachment.media(&id).filter(fits));
            self.open_under_id(id, attachment.entry);
        }
        if is_truncated {
            lines.push(view::attachments_left_out(total_attached, MAX_ATTACHMENTS).to_xml());
        }
        answer.text = lines.join("\n").into();
    }

    /// Answers with text that enters the context completely.
    pub(super) fn answer_in_full(&mut self, call: CallId, answer: Answer) {
        let produced = answer.text.chars().count() as u64;
        self.answer_call(call, answer, produced);
    }

    pub(super) fn answer_call(&mut self, call: CallId, answer: Answer, produced_chars: u64) {
        let request_id = self.pending_call(call).id.clone();
        let caller = self.caller();
        self.state.pending_reads.finish_call_read(call);
        self.cancel_work(call);
        let answer = self.with_opened(call, answer);
        self.emit(CallFact::ToolReturned {
            call,
            answer: answer.clone(),
            produced_chars,
        });
        if caller == Caller::Host {
            self.schedule(Effect::AnswerHost { request_id, answer });
        }
    }

    /// Adds the descriptors that this decision opened for the call, if its effect is recorded.
    fn with_opened(&self, call: CallId, answer: Answer) -> Answer {
        if self.state.effect_of(call).is_none() {
            return answer;
        }
        let since_answer = self
            .facts()
            .iter()
            .rev()
            .take_while(|fact| !matches!(fact, Fact::Call(CallFact::ToolReturned { .. })));
        let mut opened: Vec<_> = since_answer
            .filter_map(|fact| match fact {
                Fact::Descriptor(DescriptorFact::Opened { id, .. }) => Some(id.clone()),
                _ => None,
            })
            .collect();
        opened.reverse();
        Answer { opened, ..answer }
    }

    /// Continues after a call was answered. Outputs that waited for it, and calls that wait for
    /// mail, are answered first. Then the model is called if all of its tool uses are answered. If
    /// the last host call is answered, a turn begins with the messages that are waiting, or a task
    /// ends whose last alarm was cancelled meanwhile.
    pub(super) fn continue_turn(&mut self, caller: Caller) {
        self.answer_waiting_outputs();
        self.answer_waiting_calls();
        match (&self.state.phase, caller) {
            (Phase::Ready { .. }, Caller::Model) => self.call_model(),
            (Phase::Idle, Caller::Host) if !self.state.mailbox.is_empty() => self.begin_turn(),
            (Phase::Idle, Caller::Host) => self.check_end(),
            (Phase::Acting { .. }, Caller::Model) => self.end_at_write(),
            _ => {}
        }
    }

    pub(super) fn bound_tool(&self, call: CallId) -> Option<BoundTool> {
        self.bound_tool_of(self.pending_call(call)).cloned()
    }

    /// The handler of a call, if it calls a process tool.
    pub(super) fn process_handler(&self, call: CallId) -> Option<ProcessHandler> {
        self.process_handler_of(self.pending_call(call))
    }

    /// The handler of a pending call, if it calls a process tool.
    pub(super) fn process_handler_of(&self, pending_call: &PendingCall) -> Option<ProcessHandler> {
        self.bound_tool_of(pending_call)?.process_handler()
    }

    /// The tool that a pending call names; `None` if the process has no such tool.
    pub(super) fn bound_tool_of(&self, pending_call: &PendingCall) -> Option<&BoundTool> {
        Some(&self.state.toolbox.find(&pending_call.tool)?.tool)
    }

    pub(super) fn caller(&self) -> Caller {
        match &self.state.phase {
            Phase::Acting { caller, .. } => *caller,
            _ => Caller::Model,
        }
    }

    pub(super) fn pending_call(&self, call: CallId) -> &PendingCall {
        let pending_call = self
            .state
            .pending_calls()
            .iter()
            .find(|pending_call| pending_call.call == call);
        pending_call.expect("only calls of the current turn are looked up while it lasts")
    }
}

/// The source of a descriptor with the output of a tool. O(length of the arguments).
pub(super) fn source_of_output(tool: &str, args: &str) -> String {
    match source_code_file(args) {
        Some(file) => format!("tool:{tool} {file}"),
        None => format!("tool:{tool}"),
    }
}

/// The one file of source code that the arguments of a call name, such as `src/main.rs` in
/// `{"command": "cat src/main.rs"}`: the output is most likely in its language. `None` if there are
/// several or none.
fn source_code_file(args: &str) -> Option<String> {
    const MAX_FILE_CHARS: usize = 200;
    let args: serde_json::Map<String, serde_json::Value> = serde_json::from_str(args).ok()?;
    let texts = args.values().flat_map(|value| match value {
        serde_json::Value::Array(items) => items.iter().collect(),
        single => vec![single],
    });
    let is_separator = |c: char| c.is_whitespace() || "'\"`|;&<>()[]{}=,".contains(c);
    let mut files = texts
        .filter_map(serde_json::Value::as_str)
        .flat_map(|text| text.split(is_separator))
        .filter(|word| word.len() <= MAX_FILE_CHARS && names_source_code(word));
    let file = files.next()?;
    files.all(|other| other == file).then(|| file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_at_most_one_file_of_source_code() {
        let cases = [
            (
                r#"{"command":"cat src/main.rs | head -50"}"#,
                Some("src/main.rs"),
            ),
            (r#"{"argv":["sed","-n","1,9p","a/b.py"]}"#, Some("a/b.py")),
            (r#"{"path":"x.rs","again":"x.rs"}"#, Some("x.rs")),
            (r#"{"command":"cat a.rs b.rs"}"#, None),
            (r#"{"command":"cat notes.txt","lines":7}"#, None),
            (r#"{"query":"where is main?"}"#, None),
            ("[1]", None),
        ];
        for (args, expected) in cases {
            let expected = expected.filter(|_| names_source_code("x.rs"));
            assert_eq!(source_code_file(args).as_deref(), expected, "{args}");
        }
    }
}
