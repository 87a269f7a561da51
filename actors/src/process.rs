//! The process actor: feeds inputs to the process machine, makes the resulting facts durable, then
//! executes the effects.
//!
//! The machine (`decide` of `dormouse_kernel::process`) returns facts, the state after them, reads
//! and effects. The checkpoint actor makes the facts durable (`process/commit.rs`); then
//! `process/effects.rs` starts the work of the effects in tasks. The supervisor creates this actor,
//! hands it all inputs from outside, and restarts it after a fault.
//!
//! Invariants:
//!
//! * A handler never blocks. Models, tools and files run in tasks, and reads above
//!   [`read::INLINE_BYTES`] run on a pool (`read.rs`, `incoming_reads.rs`). Results come back as
//!   messages, so a signal is handled in the middle of a call.
//! * An effect starts only after all facts up to and including its own commit are durable.
//! * A process that faults or ends leaves no task behind.

mod checkpoint;
mod commit;
mod copy;
mod delivery;
mod effects;
mod fetch;
mod hibernation;
mod incoming_reads;
mod labels;
mod model_call;
mod read;
mod send_message;
mod start_children;
mod started_signal;
mod temp_file_op;
pub(crate) mod tool_call;
mod tool_observer;
mod turn_end;
mod turn_span;
mod wake_timer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dormouse_kernel::journal::JournalTail;
use dormouse_kernel::process::{Child, Completion, Decision, Fact, Input, PlacedArrival, State};
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::label::Label;
use dormouse_proto::process::Waiting;
use dormouse_proto::record::CallFact;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::Span;

use crate::checkpoint::{AppendSize, CommitError};
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::environment::StartContextError;
use crate::error::ProcessError;
use crate::read_pool::ReadError;
use crate::recovery::StoredWait;
use crate::supervisor::{SupervisorMessage, WakeMessage, Watched};

use commit::PendingCommit;
pub(crate) use copy::{CopyReply, ProcessCopy};
pub(crate) use delivery::{Delivery, DurableReply, ReplyTo};
pub(crate) use hibernation::HibernationBlocker;
use incoming_reads::IncomingReads;
pub(crate) use started_signal::StartedSignal;
pub(crate) use turn_end::TurnRequest;
use turn_end::TurnWaiters;
use wake_timer::WakeTimer;

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
    pub(crate) watched: watch::Sender<Watched>,
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
    watched: watch::Sender<Watched>,
    started_signal: Option<StartedSignal>,
    /// The span of the current turn.
    turn_span: Option<Span>,
    turn_waiters: TurnWaiters,
    pending_commits: VecDeque<PendingCommit>,
    /// Inbox slots of messages that wait for the next turn.
    waiting_slots: Vec<OwnedSemaphorePermit>,
    /// The tasks of the calls in flight.
    call_tasks: BTreeMap<CallId, JoinHandle<()>>,
    /// Those of the calls in flight that do nothing but wait for their timeout.
    timeouts: BTreeSet<CallId>,
    /// The tasks of summaries that no call waits for, since the first one. Dropping the set aborts
    /// them.
    summary_tasks: Option<JoinSet<()>>,
    incoming_reads: IncomingReads,
    /// Whether the process has reported to the supervisor that nothing is pending.
    is_quiescent: bool,
    wake_timer: Option<WakeTimer>,
    /// How the process waits, as last appended to the journal.
    stored_wait: StoredWait,
    /// What the process waits for, as last reported to the supervisor. The supervisor knows of nothing
    /// when the actor starts.
    reported_waiting: Waiting,
    /// The senders of host calls and messages that wait for an answer, by request id.
    host_requests: BTreeMap<Arc<str>, ReplyTo>,
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
            watched,
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
            watched,
            started_signal,
            turn_span: None,
            turn_waiters: TurnWaiters::default(),
            pending_commits: VecDeque::new(),
            waiting_slots: Vec::new(),
            call_tasks: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            summary_tasks: None,
            incoming_reads: IncomingReads::default(),
            is_quiescent: false,
            wake_timer: None,
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
        running.free_empty_buffers();
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
            history,
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
            (released, history),
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

    /// Frees the memory of buffers that are empty. A process is idle for most of its life, and would
    /// keep two kilobytes that it needed for its last commit and its last calls.
    fn free_empty_buffers(&mut self) {
        if self.pending_commits.is_empty() {
            self.pending_commits = VecDeque::new();
        }
        if self.waiting_slots.is_empty() {
            self.waiting_slots = Vec::new();
        }
        if self.call_tasks.is_empty() {
            self.call_tasks = BTreeMap::new();
        }
        if self.host_requests.is_empty() {
            self.host_requests = BTreeMap::new();
        }
        self.incoming_reads.free_empty_queue();
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
}
