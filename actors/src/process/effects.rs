//! Executes the effects that the process machine has decided. The work of a call runs in a task
//! whose result comes back as an input. Other effects are sent on at once: messages to the
//! supervisor, answers to the host, and reports, which become events for those who watch the
//! kernel.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use dormouse_content::Content;
use dormouse_kernel::permits::Requester;
use dormouse_kernel::process::{Completion, Effect, Input, Report, Work};
use dormouse_kernel::program::ModelChoice;
use dormouse_kernel::syscall::{PendingSummary, PendingWrite};
use dormouse_proto::file::{FileError, FileErrorKind};
use dormouse_proto::id::{CallId, FdId, ProcessCallId};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, Request};
use dormouse_proto::record::{Caller, PendingCall, Phase};
use dormouse_proto::tool::{ExternalTool, ToolOutput};
use futures_util::future::{BoxFuture, FutureExt};
use tracing::Span;

use super::model_call::{DeltaSink, ModelRequest};
use super::tool_observer::ToolObserver;
use super::wake_timer::WakeTimer;
use super::{Delivery, ProcessMessage, RunningProcess, model_call, tool_call};
use crate::context::ToolCaller;
use crate::event::Event;
use crate::held_call::HeldCall;
use crate::ports::OutputSink;
use crate::spans;
use crate::supervisor::{RunMessage, SupervisorMessage, TreeMessage};

impl RunningProcess {
    /// Executes an effect. If the kernel has closed, or closes now because its lease is lost, nothing
    /// begins any more, and the supervisor stops the process (OWNER-1).
    pub(super) fn execute_effect(&mut self, effect: Effect) {
        if effect.begins_work() && !self.context.ownership.may_act() {
            return;
        }
        let pid = self.pid();
        match effect {
            Effect::StartWork { call, work } => self.start_work(call, work),
            Effect::Summarize {
                pending,
                request,
                model,
            } => self.start_summary(pending, request, model),
            Effect::Abandon { calls } => self.abandon_calls(calls),
            Effect::StartChildren {
                children,
                may_exist,
            } => self.start_children(children, may_exist),
            Effect::FindChild {
                call,
                index,
                reopenings,
            } => {
                self.cast_to_supervisor(TreeMessage::FindChild {
                    parent: pid,
                    call,
                    index,
                    reopenings,
                });
            }
            Effect::KillChildren { call } => {
                let calls = vec![call];
                self.cast_to_supervisor(TreeMessage::KillChildren { parent: pid, calls });
            }
            Effect::KillChildrenExcept { calls } => {
                self.cast_to_supervisor(TreeMessage::KillChildrenExcept { parent: pid, calls });
            }
            Effect::WakeAt { at_ms } => {
                self.wake_timer = Some(WakeTimer::at(at_ms, self.myself.clone()));
            }
            Effect::AnswerHost { request_id, answer } => {
                if let Some(requester) = self.host_requests.remove(&request_id) {
                    // The requester has dropped its receiver if it no longer waits.
                    let _ = requester.reply.send(answer);
                }
            }
            Effect::Report(Report::Switch { from, to, reason }) => {
                self.context.publish(Event::ModelSwitched {
                    pid,
                    from,
                    to,
                    reason,
                });
            }
            Effect::Report(Report::Held { call }) => {
                if let Some(call) = HeldCall::find(pid, self.state.phase(), call) {
                    self.context.publish(Event::CallHeld { call });
                }
            }
            Effect::Report(Report::HeldAnswered { call }) => {
                let call = ProcessCallId { pid, call };
                self.context.publish(Event::HeldCallAnswered { call });
            }
            Effect::Report(Report::Paused { paused }) => {
                // First the supervisor, so that whoever sees the event finds the process paused.
                self.set_paused(true);
                self.context.publish(Event::LimitReached { pid, paused });
            }
            Effect::Report(Report::Raised { by, source }) => {
                self.context.publish(Event::LimitRaised { pid, by, source });
            }
            Effect::Report(Report::Unpaused) => self.set_paused(false),
            Effect::Report(Report::Turn { outcome }) => {
                self.context.publish(Event::TurnEnded { pid, outcome })
            }
            Effect::Report(Report::Exit { exit }) => {
                self.cast_to_supervisor(RunMessage::Ended { pid, exit });
                self.myself.stop(None);
            }
        }
    }

    /// Reports to the supervisor whether the process is paused at a limit, for those below it.
    fn set_paused(&self, is_paused: bool) {
        let pid = self.pid();
        self.cast_to_supervisor(TreeMessage::SetPaused { pid, is_paused });
    }

    fn start_work(&mut self, call: CallId, work: Work) {
        match work {
            Work::Model {
                request,
                media,
                model,
            } => {
                let delta_sink = DeltaSink::Publish(self.started_signal.clone());
                let work = self.call_model((request, media), model, delta_sink, &self.turn_span());
                self.spawn_work(work, call, Completion::Model, model_failed);
            }
            Work::Summarize {
                pending,
                request,
                model,
            } => {
                let span = self.tool_span(call);
                let work =
                    self.call_model((request, BTreeMap::new()), model, DeltaSink::Discard, &span);
                let work = in_tool_span(span, work, Result::is_err);
                self.spawn_work(
                    work,
                    call,
                    move |result| Completion::Summarized { pending, result },
                    model_failed,
                );
            }
            Work::Tool {
                tool,
                args,
                written,
            } => {
                let pid = self.pid();
                self.context.publish(Event::ToolCalled {
                    pid,
                    tool: tool.name_in_program().clone(),
                    args: written,
                });
                self.call_tool(call, &tool, &args);
            }
            Work::WriteFile(pending) => self.write_file(call, pending),
            Work::TempFile(pending) => self.start_temp_file_op(call, pending),
            Work::Fetch(pending) => self.fetch_spawn_files(call, pending),
            Work::Send {
                acked_below,
                pending,
            } => self.send_message(call, acked_below, pending),
            Work::ListProcesses => self.list_processes(call),
            Work::Checkpoint(op) => self.start_checkpoint_op(call, op),
            Work::Wait { timeout_ms } => self.await_timeout(call, timeout_ms),
        }
    }

    /// Calls the summary model in a task that no call waits for. Its result comes back as an input.
    fn start_summary(&mut self, pending: PendingSummary, request: Request, model: ModelChoice) {
        let call = (request, BTreeMap::new());
        let work = self.call_model(call, model, DeltaSink::Discard, &self.turn_span());
        let myself = self.myself.clone();
        let summary_tasks = self.summary_tasks.get_or_insert_default();
        // The set keeps the results of finished tasks until they are taken out.
        while summary_tasks.try_join_next().is_some() {}
        summary_tasks.spawn(async move {
            let result = AssertUnwindSafe(work).catch_unwind().await;
            let result =
                result.unwrap_or_else(|panic| model_failed(tool_call::panic_text(&*panic)));
            let delivery = Delivery::internal(Input::Summarized { pending, result });
            // If the process has stopped, nobody waits for the summary.
            let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
        });
    }

    /// Runs `work` in a task. Its result comes back as the `completion` of the call. If the work
    /// panics, `on_panic` creates the result, since a call without a result would never end.
    pub(super) fn spawn_work<T: Send + 'static>(
        &mut self,
        work: BoxFuture<'static, T>,
        call: CallId,
        completion: impl FnOnce(T) -> Completion + Send + 'static,
        on_panic: fn(String) -> T,
    ) {
        let delivery = move |result| {
            Delivery::internal(Input::Completed {
                call,
                result: completion(result),
            })
        };
        self.spawn_for_delivery(work, call, delivery, on_panic);
    }

    /// Like [`spawn_work`](Self::spawn_work), for work whose result is a whole input, or comes with
    /// something that the process keeps until the input is handled.
    pub(super) fn spawn_for_delivery<T: Send + 'static>(
        &mut self,
        work: BoxFuture<'static, T>,
        call: CallId,
        delivery: impl FnOnce(T) -> Delivery + Send + 'static,
        on_panic: fn(String) -> T,
    ) {
        let myself = self.myself.clone();
        let task = tokio::spawn(async move {
            let result = AssertUnwindSafe(work).catch_unwind().await;
            let result = result.unwrap_or_else(|panic| on_panic(tool_call::panic_text(&*panic)));
            let delivery = delivery(result);
            // If the process has stopped, no call waits for the result.
            let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
        });
        if let Some(previous) = self.call_tasks.insert(call, task) {
            previous.abort();
        }
    }

    /// Prepares a model call. Its span is a child of `parent`.
    fn call_model(
        &self,
        (mut request, media): (Request, BTreeMap<FdId, Content>),
        model: ModelChoice,
        delta_sink: DeltaSink,
        parent: &Span,
    ) -> BoxFuture<'static, Result<Reply, ModelError>> {
        let context = self.context.clone();
        let program = self.state.program().clone();
        // Adapters see the pid of this kernel, not the local id of the tree.
        request.pid = self.pid;
        let span = spans::model_call_span(parent, model.provider.word(), self.root, &request);
        let requester = Requester {
            priority: self.state.priority(),
            tree: self.root,
        };
        let model_request = Box::new(ModelRequest {
            context,
            program,
            model,
            requester,
            request,
            media,
            delta_sink,
        });
        let call = model_call::call_model(model_request);
        spans::in_span(span, call.boxed(), spans::record_model_result)
    }

    /// The span of a tool call, a child of the span of the turn.
    pub(super) fn tool_span(&self, call: CallId) -> Span {
        // A call that is no longer pending is about to be abandoned and gets no span.
        self.pending_call(call)
            .map_or_else(Span::none, |pending_call| {
                spans::tool_call_span(&self.turn_span(), &pending_call.tool, &pending_call.id)
            })
    }

    fn call_tool(&mut self, call: CallId, tool: &ExternalTool, args: &str) {
        let work: BoxFuture<'static, ToolOutput> = match self.context.tool_run(
            &ToolCaller {
                program: self.state.program(),
                root: self.root,
            },
            tool,
            args.to_owned(),
        ) {
            Ok(run) => Box::pin(tool_call::run(
                tool.name_for_model.clone(),
                tool.policy,
                run,
                self.output_sink(call, tool),
            )),
            Err(error) => Box::pin(std::future::ready(ToolOutput::error(String::from(error)))),
        };
        let work = in_tool_span(self.tool_span(call), work, |output| output.is_error);
        let on_panic = |why| ToolOutput::error(format!("The tool failed internally: {why}"));
        self.spawn_work(work, call, Completion::Tool, on_panic);
    }

    /// The output sink of a tool. Progress goes to the event stream, and to the host if the host
    /// made the call.
    fn output_sink(&self, call: CallId, tool: &ExternalTool) -> OutputSink {
        let keep_bytes = self
            .state
            .program()
            .descriptors()
            .map_or(u64::MAX, |settings| settings.max_content_bytes);
        let requester = match self.state.phase() {
            Phase::Acting {
                caller: Caller::Host,
                ..
            } => self
                .pending_call(call)
                .and_then(|pending_call| self.host_requests.get(&pending_call.id)),
            _ => None,
        };
        let observer = ToolObserver {
            host: requester.and_then(|requester| requester.observer.clone()),
            context: self.context.clone(),
            pid: self.pid,
            tool: tool.name_in_program().clone(),
        };
        OutputSink::with_limits(keep_bytes, tool.policy.output_cap_bytes).with_observer(observer)
    }

    fn pending_call(&self, call: CallId) -> Option<&PendingCall> {
        let pending_calls = if let Phase::Acting { pending_calls, .. } = self.state.phase() {
            &pending_calls[..]
        } else {
            &[]
        };
        pending_calls
            .iter()
            .find(|pending_call| pending_call.call == call)
    }

    fn write_file(&mut self, call: CallId, pending: PendingWrite) {
        let work = in_tool_span(
            self.tool_span(call),
            self.context.host.write(pending.write.clone()),
            Result::is_err,
        );
        let completion = move |result| Completion::FileWritten { pending, result };
        self.spawn_work(work, call, completion, |why| {
            let message = format!("The host failed internally: {why}");
            Err(FileError {
                kind: FileErrorKind::WriteError,
                message,
            })
        });
    }

    fn abandon_calls(&mut self, calls: Vec<CallId>) {
        for call in &calls {
            if let Some(task) = self.call_tasks.remove(call) {
                task.abort();
            }
        }
        self.cast_to_supervisor(TreeMessage::KillChildren {
            parent: self.pid(),
            calls,
        });
    }

    pub(super) fn cast_to_supervisor(&self, message: impl Into<SupervisorMessage>) {
        if self.supervisor.cast(message.into()).is_err() {
            tracing::debug!(pid = %self.pid(), "the kernel is shutting down");
        }
    }
}

/// Runs the work of a tool in its span.
pub(super) fn in_tool_span<T: Send + 'static>(
    span: Span,
    work: BoxFuture<'static, T>,
    is_error: fn(&T) -> bool,
) -> BoxFuture<'static, T> {
    let record_outcome = move |span: &Span, result: &T| {
        if is_error(result) {
            spans::record_tool_failure(span);
        }
    };
    spans::in_span(span, work, record_outcome)
}

fn model_failed(why: String) -> Result<Reply, ModelError> {
    Err(ModelError::new(
        ModelErrorKind::Unavailable,
        format!("the model failed internally: {why}"),
    ))
}
