//! A handle on one process.

mod sending;

use std::sync::{Arc, Mutex, PoisonError};

use dormouse_kernel::process::{HostRequest, Input, Signal, State, image_of_copy};
use dormouse_proto::effect::EffectPolicy;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::Sender;
use dormouse_proto::model::{ModelError, ModelErrorKind, TokenCount};
use dormouse_proto::process::Exit;
use dormouse_proto::tool::Answer;
use dormouse_proto::user_input::UserInput;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, broadcast, oneshot, watch};

use super::events::Events;
use super::kernel::{Kernel, ProcessInfo};
use super::tree::Tree;
use crate::clock::now_ms;
use crate::error::{KernelError, ProcessError};
use crate::event::{Event, ProcessView};
use crate::process::ProcessCopy;
use crate::recovery::LoadPurpose;
use crate::supervisor::{
    HandleGuard, HandleParts, HibernationMessage, ListFilter, NewRoot, RunMessage, Watched,
};

/// A handle on a process. Clones refer to the same process; dropping a handle ends nothing.
///
/// The program of a process is fixed when it is created: its system prompt, tools, parameters and
/// limits are those of the files as compiled then, also after a resume and in forked or restored
/// processes, even if the files change. The program of a living process cannot be changed, because
/// its model has already been sent it. To continue with another program, start a process of that
/// program and pass it the data that it needs.
#[derive(Clone)]
pub struct Process {
    pub(super) kernel: Kernel,
    pid: Pid,
    watched: watch::Receiver<Watched>,
    inbox_slots: Arc<Semaphore>,
    /// Declared after the subscription `watched`, so that it is dropped first: the supervisor then
    /// counts no subscriber when the guard notifies it.
    _guard: Arc<HandleGuard>,
    events: Arc<Mutex<Option<broadcast::Receiver<Event>>>>,
}

impl Process {
    pub(super) fn new(
        kernel: Kernel,
        parts: HandleParts,
        events: broadcast::Receiver<Event>,
    ) -> Self {
        let HandleParts {
            pid,
            watched,
            inbox_slots,
            guard,
        } = parts;
        Self {
            kernel,
            pid,
            watched,
            inbox_slots,
            _guard: guard,
            events: Arc::new(Mutex::new(Some(events))),
        }
    }

    /// The pid of the process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends user input to the process: a text, or several parts in order; each large part becomes
    /// a descriptor. A process in a turn receives it at the end of the turn; a hibernated process
    /// wakes. The input is durable when this returns; [`turn`](Self::turn) also waits for the end
    /// of its turn.
    ///
    /// # Errors
    /// [`ProcessError::EmptyInput`](crate::ProcessError::EmptyInput) if nothing is said in it,
    /// [`ProcessError::Busy`](crate::ProcessError::Busy) if its inbox is full,
    /// [`ProcessError::Ended`](crate::ProcessError::Ended),
    /// [`ProcessError::Unanswered`](crate::ProcessError::Unanswered).
    pub async fn input(&self, user_input: impl Into<UserInput>) -> Result<(), KernelError> {
        let input = self.checked_input(Sender::Host, user_input.into())?;
        self.deliver(input).await
    }

    /// Like [`input`](Self::input), with another process as the sender.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub async fn message(
        &self,
        from: Pid,
        user_input: impl Into<UserInput>,
    ) -> Result<(), KernelError> {
        let input = self.checked_input(Sender::Process(from), user_input.into())?;
        self.deliver(input).await
    }

    /// An input, if something is said in it.
    pub(super) fn checked_input(
        &self,
        from: Sender,
        user_input: UserInput,
    ) -> Result<Input, KernelError> {
        match user_input.is_blank() {
            true => Err(ProcessError::EmptyInput(self.pid).into()),
            false => Ok(Input::UserInput { from, user_input }),
        }
    }

    /// Ends the current turn: calls in flight are abandoned, and the conversation stays valid. A
    /// task ends with it, together with its children; a session waits for further input, and its
    /// background children continue. Without a turn, nothing happens.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn interrupt(&self) -> Result<(), KernelError> {
        self.send_without_slot(Input::Signal(Signal::Interrupt))
            .await
    }

    /// Ends the process and its children.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn kill(&self) -> Result<(), KernelError> {
        self.send_without_slot(Input::Signal(Signal::Kill)).await
    }

    /// Stops the process: it begins no further model call, tool call or turn. Calls in flight
    /// finish and are recorded, inputs wait, and its children continue. It stays stopped when the
    /// kernel restarts.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn stop(&self) -> Result<(), KernelError> {
        self.send_without_slot(Input::Signal(Signal::Stop)).await
    }

    /// Continues the process after a [`stop`](Self::stop). No effect on a process that is not
    /// stopped.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn cont(&self) -> Result<(), KernelError> {
        self.send_without_slot(Input::Signal(Signal::Continue))
            .await
    }

    /// Hibernates the process: it leaves memory, except for a row in the process table, until a
    /// message, a signal, the end of a child, or a caller that waits for it wakes it under its pid.
    /// Handles on it stay valid. When this returns, the process is durable and can be loaded from
    /// its latest snapshot and the few facts after it; inputs that arrive in the meantime wake it
    /// again. A process that is not loaded is left unchanged.
    ///
    /// # Errors
    /// [`ProcessError::Pending`](crate::ProcessError::Pending) while something is pending: a turn,
    /// unless the process was stopped or its calls only wait for a person or for children; a call,
    /// or a message that waits.
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore), since without a store the process
    /// could not be loaded again. [`ProcessError::Ended`](crate::ProcessError::Ended),
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable),
    /// [`ProcessError::Unanswered`](crate::ProcessError::Unanswered).
    pub async fn hibernate(&self) -> Result<(), KernelError> {
        let (reply, hibernate_result) = oneshot::channel();
        self.kernel.cast(HibernationMessage::Hibernate {
            pid: self.pid,
            reply,
        })?;
        hibernate_result
            .await
            .unwrap_or_else(|_| Err(self.unanswered_error()))
    }

    /// Wakes a hibernated process, so that a caller that waits for it learns at once whether the
    /// process can be loaded.
    fn wake_if_hibernated(&self) -> Result<(), KernelError> {
        let is_awake = self
            .watched
            .borrow()
            .view
            .as_ref()
            .is_some_and(|view| !view.hibernated);
        if is_awake {
            Ok(())
        } else {
            self.kernel.cast(HibernationMessage::Wake { pid: self.pid })
        }
    }

    /// The process and its descendants, to send them signals.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree(self.clone())
    }

    /// Returns the process to an earlier message of its conversation: all messages after `position`
    /// (`msg:3`, counted from 1) are removed, `message` follows, and the model is called. Calls in
    /// flight are abandoned. Descriptors stay, and so do effects outside of the kernel. The answer
    /// reports the old and the new position; a `goto_error` of type `unknown_position`,
    /// `current_position` or `future_position` reports that nothing was changed.
    ///
    /// If the message at `position` is a reply with tool calls, the message with the results of
    /// these calls stays too. A model does the same with the tool `goto`.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn goto(
        &self,
        position: impl Into<String>,
        message: impl Into<String>,
    ) -> Result<Answer, KernelError> {
        let position = position.into();
        let message = message.into();
        self.request_answer(|request_id| Input::Host {
            request_id,
            request: HostRequest::Goto { position, message },
        })
        .await
    }

    /// Names what happens to later calls of this process that repeat what it did beyond a point that
    /// it went back to ([`goto`](Self::goto), [`restore`](Self::restore)), in place of the policies
    /// of its program and tools. `None` makes those hold again. Calls that are held stay so.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn set_effect_policy(&self, policy: Option<EffectPolicy>) -> Result<(), KernelError> {
        let request = |request_id| Input::Host {
            request_id,
            request: HostRequest::SetEffectPolicy(policy),
        };
        self.request_answer(request).await.map(drop)
    }

    /// Creates an independent process, without a parent, that continues from the present state of
    /// this one: with the same conversation and the same descriptors, whose contents are not
    /// copied. Calls in flight are answered in the copy as interrupted, unless they may be
    /// repeated; in the original they continue. A process that is not loaded is read from its
    /// journal. The copy runs even if the original is stopped.
    ///
    /// # Errors
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable);
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore) and
    /// [`StoreFailure::Load`](crate::StoreFailure::Load) for one that does not run.
    pub async fn fork(&self) -> Result<Self, KernelError> {
        match self.request_copy().await? {
            Some(ProcessCopy { program, image, at }) => {
                let image = image_of_copy(*image, now_ms());
                let root = NewRoot::copied(program, image, self.pid, at);
                self.kernel.create(root).await
            }
            None => self.kernel.copy(self.pid, None).await,
        }
    }

    /// A copy of the state in memory; `None` if the process does not run.
    async fn request_copy(&self) -> Result<Option<ProcessCopy>, KernelError> {
        let (reply, copy) = oneshot::channel();
        let message = RunMessage::Copy {
            pid: self.pid,
            reply,
        };
        self.kernel.cast(message)?;
        Ok(copy.await.ok())
    }

    /// Waits for the durable end of the process. A hibernated process wakes.
    ///
    /// # Errors
    /// [`ProcessError::Held`](crate::ProcessError::Held) for one that had to stop because its
    /// journal could not be read or written: it has not ended, and can be resumed.
    /// [`KernelError::Closed`] if the kernel shuts down first.
    pub async fn wait(&self) -> Result<Exit, KernelError> {
        let mut receiver = self.watched.clone();
        self.wake_if_hibernated()?;
        let watched = receiver
            .wait_for(|watched| watched.outcome.is_some())
            .await
            .map_err(|_| KernelError::Closed)?;
        match watched.outcome.clone().ok_or(KernelError::Closed)? {
            Ok(exit) => Ok(*exit),
            Err(reason) => Err(KernelError::Process(ProcessError::Held {
                pid: self.pid,
                reason,
            })),
        }
    }

    /// Waits for the durable end of the process, as [`wait`](Self::wait) does, and returns the result
    /// that it submitted as a value of `T`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ProcessError::Result`](crate::ProcessError::Result) if the process
    /// ended without a result, or if its result is no value of `T`.
    pub async fn wait_as<T: DeserializeOwned>(&self) -> Result<T, KernelError> {
        let exit = self.wait().await?;
        exit.result_as().map_err(|source| {
            KernelError::Process(ProcessError::Result {
                pid: self.pid,
                source,
            })
        })
    }

    /// Waits until `condition` holds for the view, and returns that view: `wait_for(View::is_idle)`
    /// waits for the end of the turns of a session. A hibernated process wakes, unless the
    /// condition holds for the last view before the hibernation and this handle existed then.
    ///
    /// # Errors
    /// [`KernelError::Closed`] if the kernel shuts down first.
    pub async fn wait_for(
        &self,
        condition: impl Fn(&ProcessView) -> bool,
    ) -> Result<ProcessView, KernelError> {
        let mut receiver = self.watched.clone();
        let is_met = receiver.borrow().view.as_ref().is_some_and(&condition);
        if !is_met {
            self.wake_if_hibernated()?;
        }
        let watched = receiver
            .wait_for(|watched| watched.view.as_ref().is_some_and(&condition))
            .await
            .map_err(|_| KernelError::Closed)?;
        watched.view.clone().ok_or(KernelError::Closed)
    }

    /// The processes that this one forked and spawned, sorted by pid, including those that have
    /// ended.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub async fn children(&self) -> Result<Vec<ProcessInfo>, KernelError> {
        self.kernel.list(ListFilter::Children(self.pid)).await
    }

    /// The number of input tokens that the model would read if it were called now: counted by its
    /// provider if that is possible, otherwise estimated. Messages in the mailbox are not included.
    /// Nothing is journalled; the cost is that of the request to the provider.
    ///
    /// # Errors
    /// [`KernelError::Model`] if the model cannot be reached,
    /// [`StoreFailure::Load`](crate::StoreFailure::Load), [`KernelError::Closed`].
    pub async fn count_tokens(&self) -> Result<TokenCount, KernelError> {
        let state = self.present_state().await?;
        let context = &self.kernel.context;
        let choice = state.model();
        let model = context.model(state.program(), choice)?;
        let mut request = state.request();
        request.media = context.read_pool.read_bytes(state.media()).await;
        let counting =
            tokio::time::timeout(context.model_deadline(choice), model.count_tokens(&request));
        let deadline_error = |_| {
            ModelError::new(
                ModelErrorKind::Deadline,
                "the tokens were not counted in time",
            )
        };
        Ok(counting.await.map_err(deadline_error)??)
    }

    /// The state of the process after its last durable fact: from memory if it runs, otherwise from
    /// its journal.
    pub(super) async fn present_state(&self) -> Result<State, KernelError> {
        match self.request_copy().await? {
            Some(ProcessCopy { program, image, .. }) => {
                let host_context = self.kernel.context.host_context.clone();
                let state = State::from_image(self.pid, program, host_context, *image);
                Ok(state.expect("the image of a process that runs is valid"))
            }
            None => {
                let loaded = self
                    .kernel
                    .load_process(self.pid, None, LoadPurpose::Inspect);
                Ok(loaded.await?.state)
            }
        }
    }

    /// Chooses a speculative process ([`Branch::speculative`](super::Branch::speculative)), with all
    /// processes of its tree: they are speculative no more. The calls that were held for that reason
    /// are judged by the fence and by the rules of the program, and run unless these hold them. A
    /// task that is done ends. Nothing happens to a process that is not speculative. A process that
    /// is not loaded is loaded and runs.
    ///
    /// # Errors
    /// [`NotFound::Process`](crate::NotFound::Process),
    /// [`ProcessError::Busy`](crate::ProcessError::Busy), and
    /// [`ProcessError::Unanswered`](crate::ProcessError::Unanswered) if it was not made durable in a
    /// process of the tree. It can be repeated.
    pub async fn choose(&self) -> Result<(), KernelError> {
        let root = self.kernel.process_tree(self.pid).await?.root;
        for row in self.kernel.process_tree(root).await?.rows {
            if row.exit.is_some() {
                continue;
            }
            let process = self.kernel.process(row.pid).await?;
            let request = |request_id| Input::Host {
                request_id,
                request: HostRequest::EndSpeculation,
            };
            match process.request_answer(request).await {
                // It ended meanwhile.
                Err(KernelError::Process(ProcessError::Ended(_))) => {}
                chosen => drop(chosen?),
            }
        }
        Ok(())
    }

    /// The subscription to the view and the exit of the process. It outlives the actor of the
    /// process.
    pub(super) fn watched(&self) -> watch::Receiver<Watched> {
        self.watched.clone()
    }

    /// The exit of the process, if it has ended.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        let outcome = self.watched.borrow().outcome.clone();
        outcome?.ok().map(|exit| *exit)
    }

    /// The state of the process; `None` while it is not loaded. If the process hibernated while
    /// this handle existed, this is the state before the hibernation, without descriptors.
    /// [`Kernel::inspect`] reads the state of any process. Costs the process nothing.
    #[must_use]
    pub fn view(&self) -> Option<ProcessView> {
        self.watched.borrow().view.clone()
    }

    /// The events of the process: the first call returns the events since this handle was created,
    /// a further call the events from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        let since_creation = self
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        Events::new(
            since_creation.unwrap_or_else(|| self.kernel.context.subscribe()),
            Some(self.pid),
        )
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}
