//! The process actor: feeds inputs to the process machine, makes the resulting facts durable, then
//! executes the effects.
//!
//! Invariants:
//!
//! * A handler never blocks. Models, tools and files run in tasks, and reads above
//!   [`read::INLINE_BYTES`] run on a pool (`read.rs`, `incoming_reads.rs`). Results come back as
//!   messages, so a signal is handled in the middle of a call.
//! * An effect starts only after all facts up to and including its own commit are durable.
//! * A process that faults or ends leaves no task behind.

mod alarm;
mod checkpoint;
mod copy;
mod effects;
mod fetch;
mod hibernation;
mod incoming_reads;
mod labels;
mod model_call;
mod read;
mod send_message;
mod started_signal;
pub(crate) mod tool_call;
mod tool_observer;
mod turn_end;
mod turn_span;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dormouse_kernel::journal::JournalTail;
use dormouse_kernel::process::{
    Child, Completion, Decision, Effect, Fact, Input, PlacedArrival, Reopening, Report, Signal,
    State,
};
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::label::Label;
use dormouse_proto::process::Waiting;
use dormouse_proto::record::CallFact;
use dormouse_proto::tool::Answer;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::Span;

use crate::checkpoint::{AppendSize, CommitError, LogRecord, SnapshotOutcome};
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::environment::StartContextError;
use crate::error::{KernelError, ProcessError};
use crate::event::ProcessView;
use crate::ports::SharedObserver;
use crate::read_pool::ReadError;
use crate::recovery::StoredWait;
use crate::supervisor::{ReopeningCommit, RunMessage, SupervisorMessage, WakeMessage};

use alarm::Alarm;
pub(crate) use copy::{CopyReply, ProcessCopy};
pub(crate) use hibernation::HibernationBlocker;
use incoming_reads::IncomingReads;
pub(crate) use started_signal::StartedSignal;
pub(crate) use turn_end::TurnRequest;
use turn_end::{EndedTurns, TurnWaiters};

/// The messages of a process actor.
pub(crate) enum ProcessMessage {
    /// An input for the machine.
    Input(Box<Delivery>),
    /// The facts up to `up_to` are durable, or could not be made durable.
    Committed {
        up_to: FactNumber,
        result: Result<AppendSize, CommitError>,
    },
    /// The start context of the children of a call was collected, or one of them cannot be created.
    ChildrenPrepared {
        call: CallId,
        children: Result<Vec<Child>, StartContextError>,
    },
    /// Return a copy of the current process.
    Copy { reply: CopyReply },
    /// Hibernate if nothing is pending. The supervisor delivers no input until the process has
    /// answered.
    Hibernate,
    /// The read of an incoming content failed.
    ReadFailed { error: ReadError },
    /// The snapshot before hibernation is written, or could not be written.
    SnapshotWritten {
        result: Result<AppendSize, CommitError>,
    },
}

/// Receives the result once an input is durable, or the reason why it was refused.
pub(crate) type DurableReply = oneshot::Sender<Result<(), KernelError>>;

/// An input on its way to a process.
pub(crate) struct Delivery {
    pub(crate) input: Input,
    /// The inbox slot that the input occupies until it is handled; for a message, until its turn
    /// begins.
    pub(crate) inbox_slot: Option<OwnedSemaphorePermit>,
    /// Where the answer goes, by the request id in `input`.
    pub(crate) reply_to: Option<(Arc<str>, ReplyTo)>,
    /// Notified when the input is durable.
    pub(crate) durable_reply: Option<DurableReply>,
    /// The caller that waits for the end of the turn that handles this input.
    pub(crate) turn_request: Option<TurnRequest>,
}

/// Receives the answer to a call or a message.
pub(crate) struct ReplyTo {
    pub(crate) reply: oneshot::Sender<Answer>,
    /// Receives progress reports of a tool.
    pub(crate) observer: Option<SharedObserver>,
}

impl From<oneshot::Sender<Answer>> for ReplyTo {
    fn from(reply: oneshot::Sender<Answer>) -> Self {
        Self {
            reply,
            observer: None,
        }
    }
}

impl Delivery {
    /// An input from inside the kernel. It occupies no inbox slot.
    pub(crate) fn internal(input: Input) -> Self {
        Self {
            input,
            inbox_slot: None,
            reply_to: None,
            durable_reply: None,
            turn_request: None,
        }
    }

    /// Whether the input ends or stops work. Such signals are delivered before other inputs that
    /// wait.
    pub(crate) fn is_signal(&self) -> bool {
        matches!(
            self.input,
            Input::Signal(Signal::Interrupt | Signal::Stop | Signal::Kill | Signal::Suspend)
        )
    }

    /// Reports to the sender that the input was refused.
    pub(crate) fn refuse(self, error: KernelError) {
        if let Some(durable_reply) = self.durable_reply {
            // The requester has dropped its receiver if it no longer waits.
            let _ = durable_reply.send(Err(error));
        }
    }
}

/// The arguments that a process actor starts with.
pub(crate) struct ProcessArgs {
    pub(crate) pid: Pid,
    pub(crate) context: Arc<KernelContext>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
    pub(crate) state: State,
    /// The root process of the tree.
    pub(crate) root: Pid,
    /// The labels of the tree.
    pub(crate) labels: Arc<[Label]>,
    pub(crate) last_fact: FactNumber,
    /// The size of the journal after the latest snapshot.
    pub(crate) journal_tail: JournalTail,
    /// How the process waits, as its row in the store says.
    pub(crate) stored_wait: StoredWait,
    pub(crate) view: watch::Sender<Option<ProcessView>>,
    /// Notified when the process has produced its first output, if siblings wait for that output.
    pub(crate) started_signal: Option<StartedSignal>,
}

pub(crate) struct ProcessActor;

/// The state of a process actor.
pub(crate) struct RunningProcess {
    /// The pid in this kernel. Within its tree, a restored process keeps another id: `state.pid()`.
    pid: Pid,
    context: Arc<KernelContext>,
    supervisor: ActorRef<SupervisorMessage>,
    myself: ActorRef<ProcessMessage>,
    state: State,
    root: Pid,
    /// The labels of the tree.
    labels: Arc<[Label]>,
    /// The last fact, durable or not.
    last_fact: FactNumber,
    /// The size of the journal after the latest snapshot. For facts that are not durable yet only
    /// their number is known.
    journal_tail: JournalTail,
    view: watch::Sender<Option<ProcessView>>,
    started_signal: Option<StartedSignal>,
    /// The span of the current turn.
    turn_span: Option<Span>,
    turn_waiters: TurnWaiters,
    pending_commits: VecDeque<PendingCommit>,
    /// Inbox slots of messages that wait for the next turn.
    waiting_slots: Vec<OwnedSemaphorePermit>,
    /// The tasks of the calls in flight.
    call_tasks: BTreeMap<CallId, JoinHandle<()>>,
    /// The tasks of summaries that no call waits for, since the first one. Dropping the set aborts
    /// them.
    summary_tasks: Option<JoinSet<()>>,
    incoming_reads: IncomingReads,
    /// Whether the process has reported to the supervisor that nothing is pending.
    is_quiescent: bool,
    alarm: Option<Alarm>,
    /// How the process waits, as last appended to the journal.
    stored_wait: StoredWait,
    /// What the process waits for, as last reported to the supervisor. The supervisor knows of nothing
    /// when the actor starts.
    reported_waiting: Waiting,
    /// The senders of host calls and messages that wait for an answer, by request id.
    host_requests: BTreeMap<Arc<str>, ReplyTo>,
}

/// The effects and replies that wait until a commit is durable.
struct PendingCommit {
    up_to: FactNumber,
    facts: Arc<[Fact]>,
    effects: Vec<Effect>,
    view: ProcessView,
    durable_reply: Option<DurableReply>,
    ended_turns: EndedTurns,
    /// Inbox slots that are released once the facts are durable.
    inbox_slots: Vec<OwnedSemaphorePermit>,
    /// The process at this fact, and the requester of the copy.
    copy: Option<(CopyReply, ProcessCopy)>,
}

impl Actor for ProcessActor {
    type Msg = ProcessMessage;
    type State = RunningProcess;
    type Arguments = ProcessArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let ProcessArgs {
            pid,
            context,
            supervisor,
            state,
            root,
            labels,
            last_fact,
            journal_tail,
            stored_wait,
            view,
            started_signal,
        } = args;
        Ok(RunningProcess {
            pid,
            context,
            supervisor,
            myself,
            state,
            root,
            labels,
            last_fact,
            journal_tail,
            view,
            started_signal,
            turn_span: None,
            turn_waiters: TurnWaiters::default(),
            pending_commits: VecDeque::new(),
            waiting_slots: Vec::new(),
            call_tasks: BTreeMap::new(),
            summary_tasks: None,
            incoming_reads: IncomingReads::default(),
            is_quiescent: false,
            alarm: None,
            stored_wait,
            reported_waiting: Waiting::Nothing,
            host_requests: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        running: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProcessMessage::Input(delivery) => running.handle_input(*delivery),
            ProcessMessage::Committed {
                up_to,
                result: Ok(size),
            } => running.on_committed(up_to, size),
            ProcessMessage::Committed {
                result: Err(error), ..
            } => running.stop_after_failed_commit(&error),
            ProcessMessage::ChildrenPrepared { call, children } => {
                running.start_prepared_children(call, children)
            }
            ProcessMessage::Copy { reply } => running.copy(reply),
            ProcessMessage::Hibernate => running.hibernate(),
            ProcessMessage::ReadFailed { error } => return Err(error.into()),
            ProcessMessage::SnapshotWritten { result } => running.on_snapshot_written(result),
        }
        running.report_waiting();
        running.report_quiescence();
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        running: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        running.call_tasks.values().for_each(JoinHandle::abort);
        // The tasks are awaited, so that none of them holds the store after the shutdown.
        let tasks = std::mem::take(&mut running.call_tasks).into_values();
        for task in tasks.chain(running.incoming_reads.abort()) {
            let _ = task.await;
        }
        if let Some(summary_tasks) = &mut running.summary_tasks {
            summary_tasks.shutdown().await;
        }
        Ok(())
    }
}

impl Drop for RunningProcess {
    /// Aborts all tasks if the actor panics: its successor starts the calls again.
    fn drop(&mut self) {
        self.call_tasks.values().for_each(JoinHandle::abort);
        self.incoming_reads.abort();
    }
}

impl RunningProcess {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn handle_input(&mut self, delivery: Delivery) {
        if self.is_kept_suspended(&delivery.input) {
            return;
        }
        let Delivery {
            input,
            mut inbox_slot,
            reply_to,
            durable_reply,
            mut turn_request,
        } = delivery;
        self.is_quiescent = false;
        let handles_wake = matches!(input, Input::WakeDue);
        self.host_requests.extend(reply_to);
        self.remove_finished_call(&input);
        let is_model_reply = matches!(
            input,
            Input::Completed {
                result: Completion::Model(_),
                ..
            }
        );
        if is_model_reply && let Some(started_signal) = &self.started_signal {
            started_signal.notify();
        }
        if matches!(input, Input::Placed(_)) {
            self.incoming_reads.finish();
        }
        let is_message = matches!(
            input,
            Input::UserInput { .. } | Input::Placed(PlacedArrival::UserInput { .. })
        );
        // A process that has ended accepts no message: the sender gets an error.
        let mut durable_reply = match durable_reply {
            Some(durable_reply) if is_message && self.state.exit().is_some() => {
                // The requester has dropped its receiver if it no longer waits.
                let _ = durable_reply.send(Err(ProcessError::Ended(self.pid).into()));
                None
            }
            durable_reply => durable_reply,
        };
        let now_ms = now_ms();
        let (decision, label_usage) = self.decide(input, now_ms);
        let Decision {
            facts,
            state,
            reads,
            effects,
            reopening,
        } = decision;
        let reopening = reopening.map(|reopening| self.reopening_commit(reopening));
        self.state = state;
        self.cancel_answered_calls(&facts);
        self.trace_turn(&facts);
        let mut call_reads = Vec::new();
        for read in reads {
            match read.call() {
                Some(call) => call_reads.push((call, read)),
                // An arrival is acknowledged once its read has come back and is durable.
                None => self.incoming_reads.push(
                    read,
                    inbox_slot.take(),
                    durable_reply.take(),
                    turn_request.take(),
                ),
            }
        }
        let released = self.take_released_slots(inbox_slot, is_message);
        let first = self.last_fact.plus(1);
        let ended_turns = self
            .turn_waiters
            .apply(&facts, first, &self.state, turn_request);
        self.persist(
            (facts, reopening, label_usage),
            effects,
            durable_reply,
            ended_turns,
            released,
        );
        for (call, read) in call_reads {
            self.start_read(call, read);
        }
        self.start_next_incoming_read();
        if handles_wake {
            self.reported_waiting = self.state.waiting();
            self.cast_to_supervisor(WakeMessage::Handled {
                pid: self.pid(),
                waiting: self.reported_waiting,
            });
        }
    }

    /// Reports to the supervisor if what the process waits for has changed.
    fn report_waiting(&mut self) {
        let waiting = self.state.waiting();
        if waiting != self.reported_waiting {
            self.reported_waiting = waiting;
            self.cast_to_supervisor(WakeMessage::Changed {
                pid: self.pid(),
                waiting,
            });
        }
    }

    /// Takes the inbox slots that this input releases. A message keeps its slot until its turn
    /// begins.
    fn take_released_slots(
        &mut self,
        inbox_slot: Option<OwnedSemaphorePermit>,
        is_message: bool,
    ) -> Vec<OwnedSemaphorePermit> {
        let mut released = Vec::new();
        if is_message {
            self.waiting_slots.extend(inbox_slot);
        } else {
            released.extend(inbox_slot);
        }
        if self.state.waiting_messages() == 0 {
            released.append(&mut self.waiting_slots);
        }
        released
    }

    /// Forgets the task of a call that has delivered its result. The end of a child is no result of
    /// a task: the read of the ends may run when an end comes again, and has to stay cancellable.
    fn remove_finished_call(&mut self, input: &Input) {
        if let Input::Completed { call, .. } = input {
            self.call_tasks.remove(call);
        }
    }

    /// If a call is answered by something other than its own task (for example a timeout), cancels
    /// the task and every effect of the call that has not started.
    fn cancel_answered_calls(&mut self, facts: &[Fact]) {
        for fact in facts {
            let Fact::Call(CallFact::ToolReturned { call, .. }) = fact else {
                continue;
            };
            if let Some(task) = self.call_tasks.remove(call) {
                task.abort();
            }
            let calls = std::slice::from_ref(call);
            self.pending_commits.iter_mut().for_each(|pending| {
                pending
                    .effects
                    .retain(|effect| !effect.starts_work_for(calls))
            });
        }
    }

    /// Appends the facts; their effects follow once the facts are durable, or at once if there is
    /// no store. A decision without facts waits for the commits before it, so that effects keep
    /// their order.
    fn persist(
        &mut self,
        (facts, reopening, label_usage): (Vec<Fact>, Option<ReopeningCommit>, Option<LogRecord>),
        effects: Vec<Effect>,
        durable_reply: Option<DurableReply>,
        ended_turns: EndedTurns,
        inbox_slots: Vec<OwnedSemaphorePermit>,
    ) {
        self.cancel_abandoned_calls(&effects);
        let facts: Arc<[Fact]> = facts.into();
        let first = self.last_fact.plus(1);
        let up_to = self.last_fact.plus(facts.len());
        let view = ProcessView::of(&self.state, up_to);
        self.last_fact = up_to;
        let pending = PendingCommit {
            up_to,
            facts: facts.clone(),
            effects,
            view,
            durable_reply,
            ended_turns,
            inbox_slots,
            copy: None,
        };
        let ends_hold =
            |effect: &Effect| matches!(effect, Effect::Report(Report::HeldAnswered { .. }));
        let verdict = pending
            .effects
            .iter()
            .any(ends_hold)
            .then_some(LogRecord::VerdictGiven);
        let is_durable = facts.is_empty() || !self.context.has_store;
        if let Some(LogRecord::Label(change)) = &label_usage
            && !self.context.has_store
        {
            self.context.labels.apply(change);
        }
        if is_durable && self.pending_commits.is_empty() {
            return self.finish_commit(pending);
        }
        self.pending_commits.push_back(pending);
        if !facts.is_empty() {
            let further = verdict.into_iter().chain(label_usage);
            self.append_facts(first, facts, reopening, further);
        }
    }

    /// Removes the pending effects of calls that are abandoned, so that they never start.
    fn cancel_abandoned_calls(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Abandon { calls } = effect {
                self.pending_commits.iter_mut().for_each(|pending| {
                    pending
                        .effects
                        .retain(|effect| !effect.starts_work_for(calls))
                });
            }
        }
    }

    /// Appends the facts, together with those that open a child again and with further records.
    fn append_facts(
        &mut self,
        first: FactNumber,
        facts: Arc<[Fact]>,
        reopening: Option<ReopeningCommit>,
        further: impl Iterator<Item = LogRecord>,
    ) {
        let pid = self.pid();
        let up_to = self.last_fact;
        self.journal_tail = self.journal_tail.with_facts(facts.len() as u64, 0);
        let mut records = vec![LogRecord::Facts { pid, first, facts }];
        let wait = StoredWait::of(&self.state);
        if wait != self.stored_wait && self.state.exit().is_none() {
            self.stored_wait = wait;
            records.push(wait.record(pid));
        }
        records.extend(further);
        if let Some(exit) = self.state.exit() {
            records.push(LogRecord::Ended {
                pid,
                exit: exit.clone(),
            });
        } else if let Some(max_bytes) = self.context.limits.snapshot_limit(self.journal_tail) {
            self.journal_tail = self.journal_tail.with_pending_image();
            records.push(LogRecord::Snapshot {
                pid,
                at: self.last_fact,
                image: Box::new(self.state.image()),
                max_bytes,
            });
        }
        let (of_child, finish_reopening) = reopening.map(ReopeningCommit::into_parts).unzip();
        records.extend(of_child.into_iter().flatten());
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result: Result<AppendSize, CommitError>| {
            if let Some(finish_reopening) = finish_reopening {
                finish_reopening(&result);
            }
            // If the actor has stopped, its successor reads the journal instead.
            let _ = myself.cast(ProcessMessage::Committed { up_to, result });
        });
        self.context.append_records(records, acknowledge);
    }

    /// The commit that opens a child again. Its requester is answered once it is durable, even if
    /// this actor stops before.
    fn reopening_commit(&mut self, reopening: Reopening) -> ReopeningCommit {
        let requester = self.host_requests.remove(&reopening.request_id);
        let reply = requester.map(|requester| requester.reply);
        ReopeningCommit::new(self.context.clone(), reopening, reply)
    }

    /// Finishes every pending commit up to fact `up_to`.
    fn on_committed(&mut self, up_to: FactNumber, size: AppendSize) {
        while let Some(pending) = self
            .pending_commits
            .pop_front_if(|pending| pending.up_to <= up_to)
        {
            self.finish_commit(pending);
        }
        self.journal_tail = match size.snapshot {
            SnapshotOutcome::None => self.journal_tail.with_facts(0, size.facts),
            SnapshotOutcome::Written(image) => self.journal_tail.after_image(image),
            SnapshotOutcome::Skipped => self
                .journal_tail
                .with_facts(0, size.facts)
                .without_pending_image(),
        };
    }

    /// Publishes the new state, answers the senders, and executes the effects of a durable commit.
    fn finish_commit(&mut self, pending: PendingCommit) {
        self.view.send_replace(Some(pending.view));
        let first = FactNumber(pending.up_to.0 + 1 - pending.facts.len() as u64);
        self.context
            .publish_facts(self.pid(), first, &pending.facts);
        if let Some(durable_reply) = pending.durable_reply {
            // The requester has dropped its receiver if it no longer waits.
            let _ = durable_reply.send(Ok(()));
        }
        for (reply, end) in pending.ended_turns {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(end);
        }
        if let Some((reply, process_copy)) = pending.copy {
            // The requester has dropped its receiver if it no longer waits.
            let _ = reply.send(process_copy);
        }
        drop(pending.inbox_slots);
        for effect in pending.effects {
            self.execute_effect(effect);
        }
    }

    /// Stops the process after a failed commit. It cannot continue, because its next effects could
    /// follow from facts that are not in its journal.
    fn stop_after_failed_commit(&mut self, error: &CommitError) {
        self.cast_to_supervisor(RunMessage::NotDurable {
            pid: self.pid(),
            error: error.clone(),
        });
        self.myself.kill();
    }
}
