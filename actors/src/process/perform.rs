//! Doing what was decided.

use dormouse_kernel::process::{Effect, Input};
use dormouse_proto::file::FileWrite;
use dormouse_proto::id::CallId;
use dormouse_proto::tool::ToolOutput;
use futures_util::future::BoxFuture;

use super::{Delivery, ProcessMessage, Running, model_call, tool_call};
use crate::event::Event;
use crate::supervisor::SupervisorMessage;

impl Running {
    pub(super) fn perform(&mut self, effect: Effect) {
        let pid = self.pid();
        match effect {
            Effect::CallModel { call, request } => {
                let program = self.state.program().clone();
                let ask = model_call::ask(self.world.clone(), program, request);
                self.start(call, Box::pin(async move { Input::ModelReplied { call, result: ask.await } }));
            }
            Effect::CallTool { call, tool, args } => self.call_tool(call, &tool, &args),
            Effect::WriteFile { call, write } => self.write_file(call, write),
            Effect::StartChildren { children } => {
                self.tell_supervisor(SupervisorMessage::StartChildren { parent: pid, children });
            }
            Effect::Abandon { calls } => self.abandon(calls),
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

    /// Runs `work` beside the actor; what it yields comes back as a message.
    fn start(&mut self, call: CallId, work: BoxFuture<'static, Input>) {
        let myself = self.myself.clone();
        let task = tokio::spawn(async move {
            let delivery = Delivery::internal(work.await);
            // Where the process is gone, nobody waits for the result.
            let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
        });
        if let Some(previous) = self.in_flight.insert(call, task) {
            previous.abort();
        }
    }

    fn call_tool(&mut self, call: CallId, name: &str, args: &str) {
        let pid = self.pid();
        self.world.report(Event::ToolCalled { pid, tool: name.into(), args: args.into() });
        let work: BoxFuture<'static, ToolOutput> = match self.world.tool(self.state.program(), name) {
            Some(tool) => Box::pin(tool_call::run(tool, args.to_owned())),
            None => {
                Box::pin(std::future::ready(ToolOutput::error(format!("The tool '{name}' is no longer registered."))))
            }
        };
        self.start(call, Box::pin(async move { Input::ToolReturned { call, output: work.await } }));
    }

    fn write_file(&mut self, call: CallId, write: FileWrite) {
        let work = self.world.host.write(write);
        self.start(call, Box::pin(async move { Input::FileWritten { call, result: work.await } }));
    }

    fn abandon(&mut self, calls: Vec<CallId>) {
        for call in &calls {
            if let Some(task) = self.in_flight.remove(call) {
                task.abort();
            }
        }
        self.tell_supervisor(SupervisorMessage::Abandon { parent: self.pid(), calls });
    }

    fn tell_supervisor(&self, message: SupervisorMessage) {
        if self.supervisor.cast(message).is_err() {
            tracing::debug!(pid = %self.pid(), "the kernel is shutting down");
        }
    }
}
