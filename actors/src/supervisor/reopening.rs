//! Opens ended processes again. A message for an ended process is read beside the actors, because
//! none runs for the process; then the message is committed together with the fact that opens the
//! process.
//!
//! A root is opened by the supervisor. A child needs a share of its parent's budget: the parent
//! decides, and commits its own facts and those of the child at once (REOPEN-1). Until the result
//! is known, further messages for the process wait.
//!
//! A raise of the limit that an ended root has reached opens it in the same way, and leaves it
//! held.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_kernel::process::{
    EndedChild, EndedProcess, Fact, Input, Reopening, ReopeningError, check_exit, check_raise,
};
use dormouse_proto::budget::Budget;
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::process::Origin;
use dormouse_proto::tool::Answer;
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::entry::{RunState, child_slot};
use super::{RunMessage, Supervisor, SupervisorMessage};
use crate::checkpoint::{AppendSize, CommitError, LogRecord};
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::{KernelError, ProcessError};
use crate::event::Event;
use crate::ports::{Store, StoreError};
use crate::process::Delivery;
use crate::recovery::{self, LoadPurpose};

/// The processes that are being opened, and the messages that wait for the result.
pub(super) type PendingReopenings = BTreeMap<Pid, Vec<Delivery>>;

/// The result of opening a process.
pub(crate) enum ReopeningOutcome {
    /// The facts are durable, the first of them with this number.
    Reopened { first: FactNumber, answer: Answer },
    /// The process stays ended. The answer is the reason, or the receipt of a message that was
    /// received before.
    Answered(Answer),
    /// The journal could not be read or written, or the parent stopped before it answered.
    Failed(KernelError),
}

/// A raise of limits of an ended root, which opens it again. It is held until it is resumed.
pub(crate) struct RaiseOfEnded {
    pub(crate) pid: Pid,
    pub(crate) by: Budget,
    /// Receives the result once it is durable.
    pub(crate) reply: oneshot::Sender<Result<(), KernelError>>,
}

/// Where the share of a process comes from.
#[derive(Clone)]
struct ParentOfEnded {
    parent: Pid,
    call: CallId,
    index: u32,
    child: Pid,
    origin: Origin,
}

impl Supervisor {
    /// Checks that a message may open an ended process again, as far as the table knows.
    ///
    /// # Errors
    /// Why it may not. `shown_pid` names the process.
    pub(super) fn check_reopening(&self, pid: Pid, shown_pid: Pid) -> Result<(), ReopeningError> {
        let Some(row) = self.table.row(pid) else {
            return Err(ReopeningError::Unknown(shown_pid));
        };
        if let Some(exit) = &row.exit {
            check_exit(shown_pid, exit)?;
        }
        if !self.context.has_store {
            return Err(ReopeningError::NoStore(shown_pid));
        }
        if let Some(name) = &row.name
            && let Some(owner) = self.table.find_by_name(name)
        {
            return Err(ReopeningError::NameTaken {
                pid: shown_pid,
                name: name.to_string(),
                owner,
            });
        }
        match row.parent {
            Some(parent) if self.table.run_state(parent) == Some(RunState::Ended) => {
                Err(ReopeningError::ParentEnded {
                    pid: shown_pid,
                    parent: self.table.row(parent).map_or(parent, |row| row.local_id()),
                })
            }
            _ => Ok(()),
        }
    }

    /// Opens an ended process again with an input that was sent to it.
    pub(super) fn reopen(&mut self, pid: Pid, delivery: Delivery) {
        if let Some(waiting) = self.reopenings.get_mut(&pid) {
            return waiting.push(delivery);
        }
        if let Err(error) = self.check_reopening(pid, pid) {
            return refuse(pid, delivery, Answer::failed(error.to_string()));
        }
        self.reopenings.insert(pid, Vec::new());
        let parent = self.table.row(pid).and_then(|row| {
            let (call, index) = child_slot(&row.origin)?;
            Some(ParentOfEnded {
                parent: row.parent?,
                call,
                index,
                child: row.local_id(),
                origin: row.origin,
            })
        });
        let context = self.context.clone();
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let input = delivery.input.clone();
            let outcome = open(&context, &myself, pid, parent, input)
                .await
                .unwrap_or_else(ReopeningOutcome::Failed);
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(
                RunMessage::ReopeningFinished {
                    pid,
                    delivery: Box::new(delivery),
                    outcome,
                }
                .into(),
            );
        });
    }

    /// Runs the process if it was opened, and answers the sender. Messages that came meanwhile
    /// follow.
    pub(super) fn on_reopening_finished(
        &mut self,
        pid: Pid,
        delivery: Delivery,
        outcome: ReopeningOutcome,
    ) {
        let waiting = self.reopenings.remove(&pid).unwrap_or_default();
        match outcome {
            ReopeningOutcome::Reopened { first, answer } => {
                if let Some(reopenings) = self.table.record_reopening(pid) {
                    self.context.publish(Event::Reopened { pid, reopenings });
                    self.load(pid);
                }
                accept(delivery, first, answer);
            }
            ReopeningOutcome::Answered(answer) => refuse(pid, delivery, answer),
            // A sender that is a process repeats its message, since its receipt was dropped.
            ReopeningOutcome::Failed(error) => delivery.refuse(error),
        }
        for delivery in waiting {
            self.deliver_or_reopen(pid, delivery);
        }
    }

    /// Opens an ended root again by a raise of its limits.
    pub(super) fn reopen_raised(&mut self, request: RaiseOfEnded) {
        let RaiseOfEnded { pid, by, reply } = request;
        let refusal = match self.reopenings.contains_key(&pid) {
            true => Some("it is just being opened again: look at it, and try again".to_owned()),
            false => {
                let checked = self.check_reopening(pid, pid);
                checked.err().map(|error| error.to_string())
            }
        };
        if let Some(reason) = refusal {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(Err(ProcessError::NotRaised { pid, reason }.into()));
            return;
        }
        self.reopenings.insert(pid, Vec::new());
        let context = self.context.clone();
        let myself = self.myself.clone();
        tokio::spawn(async move {
            let result = open_raised(&context, pid, by).await;
            // If the supervisor has stopped, the kernel is shutting down.
            let _ = myself.cast(RunMessage::RaisedReopening { pid, result, reply }.into());
        });
    }

    /// Holds the process if it was opened. Messages that came meanwhile follow.
    pub(super) fn on_raised_reopening(
        &mut self,
        pid: Pid,
        result: Result<(), KernelError>,
        reply: oneshot::Sender<Result<(), KernelError>>,
    ) {
        let waiting = self.reopenings.remove(&pid).unwrap_or_default();
        if result.is_ok()
            && let Some(reopenings) = self.table.record_reopening(pid)
        {
            self.context.publish(Event::Reopened { pid, reopenings });
        }
        // The requester has dropped its receiver if it no longer waits.
        let _ = reply.send(result);
        for delivery in waiting {
            self.deliver_or_reopen(pid, delivery);
        }
    }

    /// Delivers an input. A message for a process that has ended opens it again.
    pub(super) fn deliver_or_reopen(&mut self, pid: Pid, delivery: Delivery) {
        let is_mail = matches!(
            delivery.input,
            Input::UserInput { .. } | Input::Message { .. }
        );
        if is_mail && self.table.run_state(pid) == Some(RunState::Ended) {
            self.reopen(pid, delivery);
        } else {
            self.deliver(pid, delivery);
        }
    }
}

/// Reports to the sender that its message has opened the process.
fn accept(delivery: Delivery, first: FactNumber, answer: Answer) {
    // A requester that no longer waits has dropped its receiver.
    if let Some((_, reply_to)) = delivery.reply_to {
        let _ = reply_to.reply.send(answer);
    }
    if let Some(request) = delivery.turn_request {
        // The caller finds the end of its turn in the journal: no actor has seen its input.
        let _ = request.queued_reply.send(first);
    }
    if let Some(durable_reply) = delivery.durable_reply {
        let _ = durable_reply.send(Ok(()));
    }
}

/// Reports to the sender why its message has not opened the process.
fn refuse(pid: Pid, mut delivery: Delivery, answer: Answer) {
    let reason = answer.text.to_string();
    if let Some((_, reply_to)) = delivery.reply_to.take() {
        // The requester has dropped its receiver if it no longer waits.
        let _ = reply_to.reply.send(answer);
    }
    delivery.refuse(ProcessError::NotReopened { pid, reason }.into());
}

/// Opens a process: reads its journal and the message, then commits the facts.
async fn open(
    context: &Arc<KernelContext>,
    supervisor: &ActorRef<SupervisorMessage>,
    pid: Pid,
    parent: Option<ParentOfEnded>,
    input: Input,
) -> Result<ReopeningOutcome, KernelError> {
    let read =
        move |store: &dyn Store, context: &KernelContext| read_ended(store, context, pid, input);
    let process = match context.query_store(read).await? {
        Ok(process) => process,
        Err(answer) => return Ok(ReopeningOutcome::Answered(answer)),
    };
    let first = process.last_fact.plus(1);
    let request_id: Arc<str> = format!("reopen:{pid}:{first}").into();
    let (reply, answer) = oneshot::channel();
    match parent {
        None => match process.reopen_root(request_id, now_ms()) {
            Err(answer) => return Ok(ReopeningOutcome::Answered(answer)),
            Ok(reopening) => {
                let commit = ReopeningCommit::new(context.clone(), reopening, Some(reply));
                let (records, finish) = commit.into_parts();
                context.append_records(records, Box::new(move |result| finish(&result)));
            }
        },
        Some(ParentOfEnded {
            parent,
            call,
            index,
            child,
            origin,
        }) => {
            // A fork runs the program of its parent, and gets an equal part.
            let requested_budget = match origin {
                Origin::Spawned { .. } | Origin::Judge { .. } => process.state.program().budget(),
                _ => Budget::default(),
            };
            let child = Box::new(EndedChild {
                call,
                index,
                child,
                requested_budget,
                process,
            });
            let input = Input::ReopenChild {
                request_id: request_id.clone(),
                child,
            };
            let delivery = Delivery {
                reply_to: Some((request_id, reply.into())),
                ..Delivery::internal(input)
            };
            let delivery = Box::new(delivery);
            let message = RunMessage::AskParent { parent, delivery };
            supervisor
                .cast(message.into())
                .map_err(|_| KernelError::Closed)?;
        }
    }
    let answer = answer.await.map_err(|_| ProcessError::Unanswered(pid))?;
    Ok(if answer.is_error {
        ReopeningOutcome::Answered(answer)
    } else {
        ReopeningOutcome::Reopened { first, answer }
    })
}

/// Opens a root by a raise of its limits: reads its journal, then commits the facts.
async fn open_raised(
    context: &Arc<KernelContext>,
    pid: Pid,
    by: Budget,
) -> Result<(), KernelError> {
    let read =
        move |store: &dyn Store, context: &KernelContext| read_raised(store, context, pid, by);
    let reopening = context.query_store(read).await?;
    let (reply, opened) = oneshot::channel();
    let commit = ReopeningCommit::new(context.clone(), reopening, Some(reply));
    let (records, finish) = commit.into_parts();
    context.append_records(records, Box::new(move |result| finish(&result)));
    // The answer is dropped if the facts could not be made durable.
    opened
        .await
        .map(drop)
        .map_err(|_| ProcessError::Unanswered(pid).into())
}

/// Reads an ended root and decides the facts that open it with raised limits.
fn read_raised(
    store: &dyn Store,
    context: &KernelContext,
    pid: Pid,
    by: Budget,
) -> Result<Reopening, KernelError> {
    let refused = |reason: String| ProcessError::NotRaised { pid, reason };
    let loaded = recovery::load_process(store, context, pid, None, LoadPurpose::Run)?;
    // LOST-1: opened a second time, the process would repeat what it did since the first.
    store.check_end(pid)?;
    check_raise(pid, loaded.state.budget().limits(), &by)
        .map_err(|error| refused(error.to_string()))?;
    let last_fact = loaded.last_fact;
    let process = EndedProcess::raised(pid, Box::new(loaded.state), last_fact, now_ms());
    let request_id = format!("raise:{pid}:{}", last_fact.plus(1)).into();
    let reopening = process.reopen_raised(request_id, by, now_ms());
    Ok(reopening.map_err(|error| refused(error.to_string()))?)
}

/// Reads an ended process and the message for it. Returns the answer if the process received the
/// message before it ended, or cannot be opened by it.
fn read_ended(
    store: &dyn Store,
    context: &KernelContext,
    pid: Pid,
    input: Input,
) -> Result<Result<EndedProcess, Answer>, KernelError> {
    let loaded = recovery::load_process(store, context, pid, None, LoadPurpose::Run)?;
    if let Input::Message { from, call, .. } = &input
        && let Some(receipt) = loaded.state.receipt(*from, *call)
    {
        return Ok(Err(receipt));
    }
    if let Err(error) = loaded.state.check_reopening() {
        return Ok(Err(Answer::failed(error.to_string())));
    }
    // LOST-1: opened a second time, the process would repeat what it did since the first.
    match (store.check_end(pid), &input) {
        (Ok(()), _) => {}
        (
            Err(error @ (StoreError::Damaged { .. } | StoreError::Lost { .. })),
            Input::Message { .. },
        ) => {
            let text = format!("Process {pid} cannot be opened again: {error}.");
            return Ok(Err(Answer::failed(text)));
        }
        (Err(error), _) => return Err(error.into()),
    }
    let Some(mail) = loaded.state.place_mail(input, now_ms()) else {
        return Err(ProcessError::EmptyInput(pid).into());
    };
    Ok(Ok(EndedProcess {
        pid,
        state: Box::new(loaded.state),
        last_fact: loaded.last_fact,
        mail,
    }))
}

/// The records that open a process, and what happens once they are durable.
pub(crate) struct ReopeningCommit {
    context: Arc<KernelContext>,
    pid: Pid,
    first: FactNumber,
    facts: Arc<[Fact]>,
    reopenings: u32,
    answer: Answer,
    reply: Option<oneshot::Sender<Answer>>,
}

impl ReopeningCommit {
    pub(crate) fn new(
        context: Arc<KernelContext>,
        reopening: Reopening,
        reply: Option<oneshot::Sender<Answer>>,
    ) -> Self {
        Self {
            context,
            pid: reopening.pid,
            first: reopening.first,
            facts: reopening.facts.into(),
            reopenings: reopening.reopenings,
            answer: reopening.answer,
            reply,
        }
    }

    /// The records, which belong in one append, and the function to call with its result. It does
    /// not depend on the actor that appends them.
    pub(crate) fn into_parts(
        self,
    ) -> (
        Vec<LogRecord>,
        impl FnOnce(&Result<AppendSize, CommitError>) + Send + 'static,
    ) {
        let Self {
            context,
            pid,
            first,
            facts,
            reopenings,
            answer,
            reply,
        } = self;
        let records = vec![
            LogRecord::Reopened { pid, reopenings },
            LogRecord::Facts {
                pid,
                first,
                facts: facts.clone(),
            },
        ];
        let finish = move |result: &Result<AppendSize, CommitError>| {
            if result.is_err() {
                return;
            }
            context.publish_facts(pid, first, &facts);
            if let Some(reply) = reply {
                // The requester has dropped its receiver if it no longer waits.
                let _ = reply.send(answer);
            }
        };
        (records, finish)
    }
}
