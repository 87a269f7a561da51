//! The process actor: feeds the machine, persists what it decides, then performs it.
//!
//! A handler never waits: models, tools and files run in tasks of their own, and reads of more than
//! a few pages run on a pool (`read.rs`, `arrivals.rs`). Their results come back as messages, so
//! that a signal is handled in the middle of a call. Effects wait until the facts before them are
//! durable.

mod alarm;
mod arrivals;
mod checkpoint;
mod copy;
mod fetch;
mod model_call;
mod perform;
mod post;
mod read;
mod rest;
mod started;
pub(crate) mod tool_call;
mod turn;

use dormouse_proto::record::CallFact;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use dormouse_kernel::journal::JournalTail;
use dormouse_kernel::process::{
    Child, ChildEvent, Completion, Decision, Effect, Fact, Input, PlacedArrival, Signal, State,
    decide,
};
use dormouse_proto::id::{CallId, FactNumber, Pid};
use dormouse_proto::tool::Answer;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::Span;

use crate::checkpoint::{CommitError, Imaged, LogRecord, Size};
use crate::clock::now_ms;
use crate::context::KernelContext;
use crate::error::{KernelError, ProcessError};
use crate::event::{Event, View};
use crate::ports::Watcher;
use crate::supervisor::{RunMessage, SupervisorMessage};

use alarm::Alarm;
use arrivals::Arrivals;
pub(crate) use copy::{Copied, CopyReply};
pub(crate) use rest::StaysAwake;
pub(crate) use started::StartedSignal;

pub(crate) enum ProcessMessage {
    /// Something happened to the process.
    Input(Box<Delivery>),
    /// Facts up to a number are durable, or cannot be made so.
    Committed {
        upto: FactNumber,
        result: Result<Size, CommitError>,
    },
    /// Children of a call know what they asked to be told of the environment, or cannot be born.
    Told {
        call: CallId,
        children: Result<Vec<Child>, String>,
    },
    /// Hand out the process as it stands.
    Copy { reply: CopyReply },
    /// Be only a journal, if nothing is pending. Nothing is delivered from here on until that is
    /// answered.
    Hibernate,
    /// The read of an arrival panicked.
    ReadFailed { why: String },
    /// The image that is to be slept on is written, or cannot be.
    Imaged { result: Result<Size, CommitError> },
}

/// Told once an input is durable, or why it was not taken.
pub(crate) type Received = oneshot::Sender<Result<(), KernelError>>;

/// An input on its way.
pub(crate) struct Delivery {
    pub(crate) input: Input,
    /// The place in the inbox that it takes until it is handled; a message, until its turn begins.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// Who is answered, by the request_id in `input`.
    pub(crate) answer: Option<(Arc<str>, Requester)>,
    /// Who wants to know that it is durable.
    pub(crate) received: Option<Received>,
}

/// Who waits for the answer to a call, or to a message.
pub(crate) struct Requester {
    pub(crate) reply: oneshot::Sender<Answer>,
    /// Told how far a tool has come.
    pub(crate) watcher: Option<Watcher>,
}

impl From<oneshot::Sender<Answer>> for Requester {
    fn from(reply: oneshot::Sender<Answer>) -> Self {
        Self {
            reply,
            watcher: None,
        }
    }
}

impl Delivery {
    /// An input from inside of the kernel: it takes no place in the inbox.
    pub(crate) fn internal(input: Input) -> Self {
        Self {
            input,
            permit: None,
            answer: None,
            received: None,
        }
    }

    /// Whether it ends or halts something rather than adding to it.
    pub(crate) fn is_signal(&self) -> bool {
        matches!(
            self.input,
            Input::Signal(Signal::Interrupt | Signal::Stop | Signal::Kill)
        )
    }

    /// Tells whoever sent it that it was not taken.
    pub(crate) fn refuse(self, error: KernelError) {
        if let Some(received) = self.received {
            // Who no longer waits has dropped its side.
            let _ = received.send(Err(error));
        }
    }
}

/// What a process actor starts from.
pub(crate) struct Begin {
    pub(crate) pid: Pid,
    pub(crate) context: Arc<KernelContext>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
    pub(crate) state: State,
    /// The process that its tree begins with.
    pub(crate) root: Pid,
    pub(crate) last: FactNumber,
    /// What follows its latest image.
    pub(crate) tail: JournalTail,
    pub(crate) view: watch::Sender<Option<View>>,
    /// Told when something has come of the process, where somebody waits for that.
    pub(crate) started: Option<StartedSignal>,
}

pub(crate) struct ProcessActor;

pub(crate) struct Running {
    /// Its number in the kernel; within its tree it goes by that of its state.
    pid: Pid,
    context: Arc<KernelContext>,
    supervisor: ActorRef<SupervisorMessage>,
    myself: ActorRef<ProcessMessage>,
    state: State,
    root: Pid,
    last: FactNumber,
    /// What follows its latest image; of what is not durable yet only how much it is.
    tail: JournalTail,
    view: watch::Sender<Option<View>>,
    started: Option<StartedSignal>,
    /// The span of the turn that it is in.
    turn: Option<Span>,
    undurable: VecDeque<Pending>,
    /// The places in the inbox of messages that wait for the next turn.
    waiting: Vec<OwnedSemaphorePermit>,
    in_flight: BTreeMap<CallId, JoinHandle<()>>,
    arrivals: Arrivals,
    /// The supervisor was told that it is at rest.
    is_resting: bool,
    alarm: Option<Alarm>,
    tickets: BTreeMap<Arc<str>, Requester>,
}

/// What waits for facts to become durable.
struct Pending {
    upto: FactNumber,
    facts: Arc<[Fact]>,
    effects: Vec<Effect>,
    view: View,
    received: Option<Received>,
    /// Places in the inbox that are free again once the facts are durable.
    permits: Vec<OwnedSemaphorePermit>,
    /// The process as it stood then, and who asked for it.
    copy: Option<(CopyReply, Copied)>,
}

impl Actor for ProcessActor {
    type Msg = ProcessMessage;
    type State = Running;
    type Arguments = Begin;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        begin: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let Begin {
            pid,
            context,
            supervisor,
            state,
            root,
            last,
            tail,
            view,
            started,
        } = begin;
        Ok(Running {
            pid,
            context,
            supervisor,
            myself,
            state,
            root,
            last,
            tail,
            view,
            started,
            turn: None,
            undurable: VecDeque::new(),
            waiting: Vec::new(),
            in_flight: BTreeMap::new(),
            arrivals: Arrivals::default(),
            is_resting: false,
            alarm: None,
            tickets: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        running: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProcessMessage::Input(delivery) => running.take(*delivery),
            ProcessMessage::Committed {
                upto,
                result: Ok(size),
            } => running.committed(upto, size),
            ProcessMessage::Committed {
                result: Err(error), ..
            } => running.stop_undurable(&error),
            ProcessMessage::Told { call, children } => running.start_told(call, children),
            ProcessMessage::Copy { reply } => running.copy(reply),
            ProcessMessage::Hibernate => running.hibernate(),
            ProcessMessage::ReadFailed { why } => return Err(why.into()),
            ProcessMessage::Imaged { result } => running.imaged(result),
        }
        running.report_rest();
        Ok(())
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        running: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        running.in_flight.values().for_each(JoinHandle::abort);
        // Awaited, so that nothing of it holds the store when the kernel has shut down.
        let tasks = std::mem::take(&mut running.in_flight).into_values();
        for task in tasks.chain(running.arrivals.abort()) {
            let _ = task.await;
        }
        Ok(())
    }
}

impl Drop for Running {
    /// A process that faults leaves nothing running behind: its successor starts the calls anew.
    fn drop(&mut self) {
        self.in_flight.values().for_each(JoinHandle::abort);
        self.arrivals.abort();
    }
}

impl Running {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn take(&mut self, delivery: Delivery) {
        let Delivery {
            input,
            permit,
            answer,
            received,
        } = delivery;
        self.is_resting = false;
        self.tickets.extend(answer);
        self.forget_finished(&input);
        if let (
            Input::Completed {
                result: Completion::Model(_),
                ..
            },
            Some(started),
        ) = (&input, &self.started)
        {
            started.speak();
        }
        if matches!(input, Input::Placed(_)) {
            self.arrivals.finish();
        }
        let is_message = matches!(
            input,
            Input::UserInput { .. } | Input::Placed(PlacedArrival::UserInput { .. })
        );
        // A process that has ended hears nothing more: the sender gets an error.
        let received = match received {
            Some(received) if is_message && self.state.exit().is_some() => {
                // Who no longer waits has dropped its side.
                let _ = received.send(Err(ProcessError::Ended(self.pid).into()));
                None
            }
            received => received,
        };
        let now_ms = now_ms();
        let decision = decide(&self.state, input, now_ms).read_inline(read::INLINE_BYTES, now_ms);
        let Decision {
            facts,
            state,
            reads,
            effects,
        } = decision;
        self.state = state;
        self.forget_answered(&facts);
        self.trace_turn(&facts);
        let (mut permit, mut received, mut of_calls) = (permit, received, Vec::new());
        for read in reads {
            match read.call() {
                Some(call) => of_calls.push((call, read)),
                // An arrival is acknowledged when the process hears it.
                None => self.arrivals.push(read, permit.take(), received.take()),
            }
        }
        let free = self.free_places(permit, is_message);
        self.persist(facts, effects, received, free);
        of_calls
            .into_iter()
            .for_each(|(call, read)| self.start_read(call, read));
        self.start_next_arrival();
    }

    /// A message keeps its place in the inbox until its turn begins.
    fn free_places(
        &mut self,
        permit: Option<OwnedSemaphorePermit>,
        is_message: bool,
    ) -> Vec<OwnedSemaphorePermit> {
        let (waits, done) = if is_message {
            (permit, None)
        } else {
            (None, permit)
        };
        self.waiting.extend(waits);
        let mut free: Vec<_> = done.into_iter().collect();
        if self.state.waiting_messages() == 0 {
            free.append(&mut self.waiting);
        }
        free
    }

    fn forget_finished(&mut self, input: &Input) {
        if let Input::Completed { call, .. }
        | Input::Child {
            call,
            event: ChildEvent::NotBorn { .. } | ChildEvent::Ended { .. },
        } = input
        {
            self.in_flight.remove(call);
        }
    }

    /// What was begun for a call that is answered by something else, such as the time that a call
    /// waits for mail, is given up, and what was not yet begun for it is never begun.
    fn forget_answered(&mut self, facts: &[Fact]) {
        for fact in facts {
            let Fact::Call(CallFact::ToolReturned { call, .. }) = fact else {
                continue;
            };
            if let Some(task) = self.in_flight.remove(call) {
                task.abort();
            }
            let calls = std::slice::from_ref(call);
            self.undurable
                .iter_mut()
                .for_each(|pending| pending.effects.retain(|effect| !effect.begins(calls)));
        }
    }

    /// Sends the facts on their way; the effects follow once they are durable, which they are at
    /// once where nothing is kept. A decision without facts waits for those before it, so that
    /// effects keep their order.
    fn persist(
        &mut self,
        facts: Vec<Fact>,
        effects: Vec<Effect>,
        received: Option<Received>,
        permits: Vec<OwnedSemaphorePermit>,
    ) {
        self.forget_abandoned(&effects);
        let facts: Arc<[Fact]> = facts.into();
        let first = self.last.plus(1);
        let upto = self.last.plus(facts.len());
        let view = View::of(&self.state, upto);
        self.last = upto;
        let pending = Pending {
            upto,
            facts: facts.clone(),
            effects,
            view,
            received,
            permits,
            copy: None,
        };
        let is_durable = facts.is_empty() || !self.context.is_kept;
        if is_durable && self.undurable.is_empty() {
            return self.settle(pending);
        }
        self.undurable.push_back(pending);
        if !facts.is_empty() {
            self.append(first, facts);
        }
    }

    /// What was decided but not yet begun for a call that is given up is never begun.
    fn forget_abandoned(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Abandon { calls } = effect {
                self.undurable
                    .iter_mut()
                    .for_each(|pending| pending.effects.retain(|effect| !effect.begins(calls)));
            }
        }
    }

    fn append(&mut self, first: FactNumber, facts: Arc<[Fact]>) {
        let (pid, upto) = (self.pid(), self.last);
        self.tail = self.tail.with_facts(facts.len() as u64, 0);
        let mut entries = vec![LogRecord::Facts { pid, first, facts }];
        if let Some(exit) = self.state.exit() {
            entries.push(LogRecord::Ended {
                pid,
                exit: exit.clone(),
            });
        } else if let Some(worth) = self.context.limits.image_due(self.tail) {
            self.tail = self.tail.with_pending_image();
            entries.push(LogRecord::Snapshot {
                pid,
                at: self.last,
                image: Box::new(self.state.image()),
                worth,
            });
        }
        let myself = self.myself.clone();
        let acknowledge = Box::new(move |result| {
            // Where the process is gone, its successor reads the journal.
            let _ = myself.cast(ProcessMessage::Committed { upto, result });
        });
        self.context.append(entries, acknowledge);
    }

    /// Reports and performs what waited for facts up to `upto`.
    fn committed(&mut self, upto: FactNumber, size: Size) {
        while let Some(pending) = self.undurable.pop_front_if(|pending| pending.upto <= upto) {
            self.settle(pending);
        }
        self.tail = match size.image {
            Imaged::None => self.tail.with_facts(0, size.facts),
            Imaged::Kept(image) => self.tail.after_image(image),
            Imaged::TooLong => self.tail.with_facts(0, size.facts).without_pending_image(),
        };
    }

    fn settle(&mut self, pending: Pending) {
        self.view.send_replace(Some(pending.view));
        self.report(pending.upto, &pending.facts);
        if let Some(received) = pending.received {
            // Who no longer waits has dropped its side.
            let _ = received.send(Ok(()));
        }
        if let Some((reply, copied)) = pending.copy {
            // Who no longer waits has dropped its side.
            let _ = reply.send(copied);
        }
        drop(pending.permits);
        pending
            .effects
            .into_iter()
            .for_each(|effect| self.perform(effect));
    }

    /// The process cannot go on, since what it would do next might be lost: it stops, and its
    /// journal stays as it is.
    fn stop_undurable(&mut self, error: &CommitError) {
        self.tell_supervisor(RunMessage::Undurable {
            pid: self.pid(),
            error: error.clone(),
        });
        self.myself.kill();
    }

    fn report(&self, upto: FactNumber, facts: &[Fact]) {
        let pid = self.pid();
        if !self.context.is_watched() {
            return;
        }
        let first = upto.0 + 1 - facts.len() as u64;
        for (number, fact) in (first..).zip(facts.iter()) {
            let Ok(fact) = fact
                .clone()
                .try_map(&mut |content| Ok::<_, Infallible>(content.reference()));
            self.context.report(Event::Fact {
                pid,
                number: FactNumber(number),
                fact: Arc::new(fact),
            });
        }
    }
}
