//! The tool uses of a turn: who may call what, what is answered at once, what the shell has to do.

use std::sync::Arc;

use dormouse_proto::descriptor::{DescriptorSettings, view};
use dormouse_proto::file::FileError;
use dormouse_proto::id::CallId;
use dormouse_proto::message::Media;
use dormouse_proto::model::{ModelError, Reply};
use dormouse_proto::record::{Caller, Phase, Slot};
use dormouse_proto::temp_file::{TempFileError, TempFileReply};
use dormouse_proto::tool::{Answer, Attachment, OutsideTool, ToolOutput};

use super::decide::Draft;
use super::toolbox::Kind;
use super::{Effect, Fact};
use crate::content::Content;
use crate::syscall::{self, Call, Outcome, PendingSummary, PendingTempFile, PendingWrite, Summarized, handle};
use crate::table::admission;
use crate::table::attachment::{MOST_ATTACHED, admit_attachment};

impl Draft {
    /// Starts or answers every open tool use of the turn, in order, then goes on if that was all.
    pub(super) fn act(&mut self) {
        self.make(self.open_calls());
    }

    /// The same, but for the calls that are in flight.
    pub(super) fn begin_uncalled(&mut self) {
        self.make(self.open_calls().into_iter().filter(|(_, called)| !called).collect());
    }

    /// The calls that are not answered yet, and whether they were made.
    fn open_calls(&self) -> Vec<(CallId, bool)> {
        let open = self.state.slots().iter().filter(|slot| slot.answer.is_none());
        open.map(|slot| (slot.call, slot.called)).collect()
    }

    fn make(&mut self, calls: Vec<(CallId, bool)>) {
        if self.state.is_stopped() {
            return;
        }
        let caller = self.caller();
        for (call, called) in calls {
            match self.permitted(call) {
                Err(answer) => self.answer(call, answer, 0),
                Ok(kind) if called => self.repeat_or_answer(call, &kind),
                Ok(kind) => self.perform_call(call, &kind),
            }
        }
        self.settle(caller);
    }

    /// The tool behind a slot's name, if the process may call it.
    fn permitted(&self, call: CallId) -> Result<Kind, Answer> {
        let slot = self.slot(call);
        let Some(binding) = self.state.toolbox.find(&slot.tool) else {
            let names = self.state.toolbox.names().join(", ");
            return Err(Answer::failed(format!("There is no tool '{}'. The tools are: {names}", slot.tool)));
        };
        if binding.access > self.state.access {
            return Err(Answer::failed(format!(
                "Access denied: '{}' needs {} access, and this process has {}.",
                slot.tool,
                binding.access.word(),
                self.state.access.word()
            )));
        }
        Ok(binding.kind.clone())
    }

    pub(super) fn perform_call(&mut self, call: CallId, kind: &Kind) {
        match kind {
            Kind::Descriptor(tool) => self.call_descriptor_tool(call, tool),
            Kind::Fork => self.fork(call),
            Kind::Spawn => self.spawn(call),
            Kind::Goto => self.goto(call),
            Kind::CheckpointProcess => self.checkpoint_process(call),
            Kind::RestoreProcess => self.restore_process(call),
            Kind::ListCheckpoints => self.list_checkpoints(call),
            Kind::SendMessage => self.send_message(call),
            Kind::ReceiveMessages => self.receive_messages(call),
            Kind::Wait => self.wait(call),
            Kind::ListProcesses => self.list_processes(call),
            Kind::External(tool) => self.call_outside(call, tool),
        }
    }

    fn call_outside(&mut self, call: CallId, tool: &OutsideTool) {
        let written = self.slot(call).args.clone();
        let expanded = if self.state.program.expands(tool.known_as()) {
            handle::expand(&Call::unbounded(&self.state.table, &written, &self.settings(), self.now_ms))
        } else {
            Ok(None)
        };
        match expanded {
            Ok(expanded) => {
                let args = expanded.map_or_else(|| written.clone(), Arc::from);
                self.intend(call);
                self.perform(Effect::CallTool { call, tool: tool.clone(), args, written });
            }
            Err(error) => self.answer_whole(call, error.answer()),
        }
    }

    /// Journals the intent, unless that was done before the kernel stopped.
    pub(super) fn intend(&mut self, call: CallId) {
        if !self.slot(call).called {
            self.emit(Fact::ToolCalled { call });
        }
    }

    fn call_descriptor_tool(&mut self, call: CallId, tool: &syscall::Tool) {
        match self.outcome(call, tool) {
            Outcome::Answer(answer) => self.answer_whole(call, answer),
            Outcome::Opened { id, entry, answer } => {
                self.open(id, entry);
                self.answer_whole(call, answer);
            }
            Outcome::Noted { id, note, answer } => {
                self.emit(Fact::DescriptorNoted { id, note });
                self.answer_whole(call, answer);
            }
            Outcome::Write(pending) => {
                self.intend(call);
                self.perform(Effect::WriteFile { call, pending });
            }
            Outcome::Summarize(pending) => {
                if let Some(why) = self.refusal_to_spend() {
                    return self.answer_whole(call, Answer::failed(why));
                }
                let model = self.state.summarizer();
                let request = self.state.summary_request(&model, pending.prompt.clone());
                self.intend(call);
                self.perform(Effect::Summarize { call, pending, request, model });
            }
            Outcome::TempFile(pending) => {
                self.intend(call);
                self.perform(Effect::TempFile { call, pending });
            }
        }
    }

    pub(super) fn settings(&self) -> DescriptorSettings {
        self.state.settings().copied().unwrap_or_default()
    }

    fn outcome(&self, call: CallId, tool: &syscall::Tool) -> Outcome {
        (tool.call)(&Call::unbounded(&self.state.table, &self.slot(call).args, &self.settings(), self.now_ms))
    }

    /// Whether a call that may have been made can be made again: a model is only asked once more, some writes are the same
    /// however often they are done, and the tree's files know a call that they have seen (TEMP-1).
    pub(super) fn is_repeatable(&self, call: CallId, kind: &Kind) -> bool {
        // A message of another epoch is that of the process that this one is a copy of.
        if *kind == Kind::SendMessage && call.epoch != self.state.epoch {
            return false;
        }
        let Kind::Descriptor(tool) = kind else { return kind.may_repeat() };
        match self.outcome(call, tool) {
            Outcome::Write(pending) => pending.write.is_repeatable(),
            Outcome::Summarize(_) | Outcome::TempFile(_) => true,
            Outcome::Answer(_) | Outcome::Opened { .. } | Outcome::Noted { .. } => false,
        }
    }

    /// What came of a call that still waits for its answer: `answer` gives it, and the turn goes on if that was all. What is
    /// stale changes nothing (CALL-1).
    pub(super) fn complete(&mut self, call: CallId, answer: impl FnOnce(&mut Self)) {
        if self.state.open_slot(call).is_some() {
            let caller = self.caller();
            answer(self);
            self.settle(caller);
        }
    }

    pub(super) fn take_written(&mut self, call: CallId, pending: &PendingWrite, result: Result<(), FileError>) {
        self.complete(call, |draft| draft.answer_whole(call, pending.answer(result)));
    }

    /// A summary costs what it costs, also where nothing came of it.
    pub(super) fn take_summary(&mut self, call: CallId, pending: PendingSummary, result: Result<Reply, ModelError>) {
        let model = self.state.summarizer().name;
        if self.state.open_slot(call).is_none() {
            return self.count_late(call, &model, &result);
        }
        let result = result.map(|reply| Reply { usage: self.state.priced(&model, reply.usage), ..reply });
        let used = result.as_ref().map(|reply| reply.usage).unwrap_or_default();
        self.complete(call, |draft| {
            let Summarized { note, answer } = pending.settle(result);
            match note {
                Some((id, note)) => draft.emit(Fact::DescriptorNoted { id, note }),
                None => draft.count(call, used),
            }
            draft.answer_whole(call, answer);
        });
    }

    pub(super) fn take_temp_file(
        &mut self,
        call: CallId,
        pending: &PendingTempFile,
        result: Result<TempFileReply<Content>, TempFileError>,
    ) {
        self.complete(call, |draft| match result {
            Ok(TempFileReply::Contents { id, version, content }) => {
                let (table, settings) = (&draft.state.table, draft.state.settings());
                let admission = admission::admit_temp_file(table, (id, version), &content, settings, draft.now_ms);
                let answer = draft.admitted(admission);
                // What cannot be read is answered with an error, and counts for nothing.
                draft.answer(call, answer, content.unbounded().total_chars().unwrap_or_default());
            }
            result => draft.answer_whole(call, pending.answer(result)),
        });
    }

    pub(super) fn take_output(&mut self, call: CallId, output: ToolOutput) {
        self.complete(call, |draft| {
            let source = format!("tool:{}", draft.slot(call).tool);
            draft.answer_output(call, output, &source);
        });
    }

    /// Answers with an output: all of it where it is small, its preview where it became a descriptor. What is attached to it
    /// is named behind that, and shown where it can be.
    pub(super) fn answer_output(&mut self, call: CallId, mut output: ToolOutput, source: &str) {
        let attached = std::mem::take(&mut output.attached);
        let table = &self.state.table;
        let admission = admission::admit_output(table, output, source, self.state.settings(), self.now_ms);
        let produced = admission.produced_chars();
        let mut answer = self.admitted(admission);
        self.attach(&mut answer, &attached, source);
        self.answer(call, answer, produced);
    }

    fn attach(&mut self, answer: &mut Answer, attached: &[Attachment], source: &str) {
        // The answer was shown by the rule already; what follows are elements.
        let mut lines: Vec<_> = Some(answer.text.to_string()).into_iter().filter(|text| !text.is_empty()).collect();
        for attachment in attached.iter().take(MOST_ATTACHED) {
            let id = self.state.table.next_id();
            let admitted = admit_attachment(id.clone(), attachment, source, self.state.settings(), self.now_ms);
            self.open(id, admitted.entry);
            lines.push(admitted.element.to_xml());
            let gallery = self.state.gallery(answer);
            let is_taken = |media: &Media| gallery.with(media, attachment.bytes.len() as u64).is_taken();
            answer.media.extend(admitted.media.filter(is_taken));
        }
        if attached.len() > MOST_ATTACHED {
            lines.push(view::attachments_left_out(attached.len(), MOST_ATTACHED).to_xml());
        }
        if !attached.is_empty() {
            answer.text = lines.join("\n").into();
        }
    }

    /// Answers with a text that a tool of the kernel made; all of it enters the context.
    pub(super) fn answer_whole(&mut self, call: CallId, answer: Answer) {
        let produced = answer.text.chars().count() as u64;
        self.answer(call, answer, produced);
    }

    pub(super) fn answer(&mut self, call: CallId, answer: Answer, produced_chars: u64) {
        let (ticket, caller) = (self.slot(call).id.clone(), self.caller());
        self.emit(Fact::ToolReturned { call, answer: answer.clone(), produced_chars });
        if caller == Caller::Host {
            self.perform(Effect::AnswerHost { ticket, answer });
        }
    }

    /// Answers the calls that waited for what has come, and goes on once all tool uses are answered: with the model, or with
    /// what the mailbox holds after a call of the host.
    pub(super) fn settle(&mut self, caller: Caller) {
        self.answer_waiting();
        match (&self.state.phase, caller) {
            (Phase::Ready { .. }, Caller::Model) => self.ask_model(),
            (Phase::Idle, Caller::Host) if !self.state.mailbox.is_empty() => self.begin_turn(),
            _ => {}
        }
    }

    pub(super) fn kind(&self, call: CallId) -> Option<Kind> {
        self.kind_of(self.slot(call)).cloned()
    }

    /// The same of a slot at hand: whoever looks at all of them does not look each up.
    pub(super) fn kind_of(&self, slot: &Slot) -> Option<&Kind> {
        Some(&self.state.toolbox.find(&slot.tool)?.kind)
    }

    pub(super) fn caller(&self) -> Caller {
        match &self.state.phase {
            Phase::Acting { caller, .. } => *caller,
            _ => Caller::Model,
        }
    }

    pub(super) fn slot(&self, call: CallId) -> &Slot {
        let slot = self.state.slots().iter().find(|slot| slot.call == call);
        slot.expect("only calls of the current turn are looked up while it lasts")
    }
}
