//! Doing what was decided.

use std::panic::AssertUnwindSafe;

use dormouse_kernel::content::Content;
use dormouse_kernel::process::{Effect, Input};
use dormouse_proto::file::{FileError, FileErrorKind, FileWrite};
use dormouse_proto::id::CallId;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::temp_file::{TempFileError, TempFileOp, TempFileOrigin};
use dormouse_proto::tool::ToolOutput;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;

use super::{Delivery, ProcessMessage, Running, model_call, tool_call};
use crate::event::Event;
use crate::supervisor::SupervisorMessage;
use crate::temp_files::{Request, TempFilesMessage};

impl Running {
    pub(super) fn perform(&mut self, effect: Effect) {
        let pid = self.pid();
        match effect {
            Effect::CallModel { call, request } => {
                let program = self.state.program().clone();
                let ask = model_call::ask(self.world.clone(), program, request);
                let work = Box::pin(async move { Input::ModelReplied { call, result: ask.await } });
                self.start(call, work, |call, why| {
                    let why = format!("the model failed inside: {why}");
                    Input::ModelReplied { call, result: Err(ModelError::new(ModelErrorKind::Unavailable, why)) }
                });
            }
            Effect::CallTool { call, tool, args, written } => {
                self.world.report(Event::ToolCalled { pid, tool: tool.clone(), args: written });
                self.call_tool(call, &tool, &args);
            }
            Effect::WriteFile { call, write } => self.write_file(call, write),
            Effect::TempFile { call, op, max_bytes } => self.ask_temp_files(call, op, max_bytes),
            Effect::StartChildren { children } => {
                self.tell_supervisor(SupervisorMessage::StartChildren { parent: pid, children });
            }
            Effect::Abandon { calls } => self.abandon(calls),
            Effect::KeepChildren { calls } => {
                self.tell_supervisor(SupervisorMessage::KeepChildren { parent: pid, calls });
            }
            Effect::AnswerHost { ticket, answer } => {
                if let Some(reply) = self.tickets.remove(&ticket) {
                    // A host that no longer waits has dropped its side.
                    let _ = reply.send(answer);
                }
            }
            Effect::ReportTurn { outcome } => self.world.report(Event::TurnEnded { pid, outcome }),
            Effect::ReportExit { exit } => {
                self.tell_supervisor(SupervisorMessage::Ended { pid, exit });
                self.myself.stop(None);
            }
        }
    }

    /// Runs `work` beside the actor; what it yields comes back as a message. Where an adapter panics, what `failed` makes
    /// of that comes back: a call that nothing came of would be waited for without end.
    fn start(&mut self, call: CallId, work: BoxFuture<'static, Input>, failed: fn(CallId, String) -> Input) {
        let myself = self.myself.clone();
        let task = tokio::spawn(async move {
            let end = AssertUnwindSafe(work).catch_unwind().await;
            let input = end.unwrap_or_else(|panic| failed(call, tool_call::panic_text(&*panic)));
            let delivery = Delivery::internal(input);
            // Where the process is gone, nobody waits for the result.
            let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
        });
        if let Some(previous) = self.in_flight.insert(call, task) {
            previous.abort();
        }
    }

    fn call_tool(&mut self, call: CallId, name: &str, args: &str) {
        let work: BoxFuture<'static, ToolOutput> = match self.world.tool(self.state.program(), name) {
            Some(tool) => Box::pin(tool_call::run(tool, args.to_owned())),
            None => {
                Box::pin(std::future::ready(ToolOutput::error(format!("The tool '{name}' is no longer registered."))))
            }
        };
        let work = Box::pin(async move { Input::ToolReturned { call, output: work.await } });
        self.start(call, work, |call, why| Input::ToolReturned {
            call,
            output: ToolOutput::error(format!("The tool failed inside: {why}")),
        });
    }

    fn write_file(&mut self, call: CallId, write: FileWrite) {
        let work = self.world.host.write(write);
        let work = Box::pin(async move { Input::FileWritten { call, result: work.await } });
        self.start(call, work, |call, why| {
            let message = format!("The host failed inside: {why}");
            Input::FileWritten { call, result: Err(FileError { kind: FileErrorKind::WriteError, message }) }
        });
    }

    /// Asked at once, so that what one reply asks for is done in its order; only the answer is waited for beside the actor.
    fn ask_temp_files(&mut self, call: CallId, op: TempFileOp<Content>, max_bytes: u64) {
        let (reply, answer) = oneshot::channel();
        let origin = TempFileOrigin { pid: self.pid(), call };
        let request = Request { root: self.root, origin, op, max_bytes, reply };
        // Where the files are gone the reply is dropped with the request.
        let _ = self.world.temp_files.cast(TempFilesMessage::Request(request));
        let work = Box::pin(async move {
            let result = answer.await.unwrap_or_else(|_| Err(temp_files_failed("they gave no answer")));
            Input::TempFileDone { call, result }
        });
        self.start(call, work, |call, why| Input::TempFileDone { call, result: Err(temp_files_failed(&why)) });
    }

    fn abandon(&mut self, calls: Vec<CallId>) {
        for call in &calls {
            if let Some(task) = self.in_flight.remove(call) {
                task.abort();
            }
        }
        self.tell_supervisor(SupervisorMessage::Abandon { parent: self.pid(), calls });
    }

    pub(super) fn tell_supervisor(&self, message: SupervisorMessage) {
        if self.supervisor.cast(message).is_err() {
            tracing::debug!(pid = %self.pid(), "the kernel is shutting down");
        }
    }
}

/// What was asked may have been done, and the model is told so.
fn temp_files_failed(why: &str) -> TempFileError {
    let reason =
        format!("The temporary files failed inside: {why}. Whether this was done is unknown: read, then decide.");
    TempFileError::Unavailable { reason }
}
