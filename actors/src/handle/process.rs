//! A handle on one process.

use std::future::{Future, ready};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dormouse_content::{Builder, CappedBytes};
use dormouse_kernel::process::{HostRequest, Input, Signal, State, copied};
use dormouse_proto::descriptor::MAX_CONTENT_BYTES;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::Sender;
use dormouse_proto::model::{ModelError, ModelErrorKind, TokenCount};
use dormouse_proto::process::{Exit, Origin};
use dormouse_proto::record::Phase;
use dormouse_proto::tool::{Answer, Progress};
use dormouse_proto::user_input::UserInput;
use futures_util::stream::{Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, oneshot, watch};

use super::events::Events;
use super::kernel::{Kernel, ProcessInfo};
use super::tree::Tree;
use crate::clock::now_ms;
use crate::error::{KernelError, ProcessError};
use crate::event::{Event, View};
use crate::ports::Watcher;
use crate::process::{Delivery, ProcessCopy, ReplyTo};
use crate::recovery::LoadPurpose;
use crate::supervisor::{
    Ended, HandleGuard, HandleParts, HibernationMessage, ListFilter, MailMessage, RunMessage,
    TreeMessage,
};

/// Counts the calls of hosts within one program; the opening of the store tells those of an earlier
/// one apart.
static NEXT_REQUEST: AtomicU64 = AtomicU64::new(0);

/// A process of a kernel. Cloning the handle makes a second one; dropping it ends nothing.
///
/// Its program is frozen at its birth: system prompt, tools, parameters and limits are those of the
/// files as they were compiled then, after a resume and in what is forked or restored from it too,
/// whatever became of the files since. There is no way to change them in a living process, since
/// that would change what its model was sent. To go on with other ones, start a process of another
/// program and hand it what it needs.
#[derive(Clone)]
pub struct Process {
    pub(super) kernel: Kernel,
    pid: Pid,
    exit: watch::Receiver<Option<Ended>>,
    view: watch::Receiver<Option<View>>,
    inbox: Arc<Semaphore>,
    /// Behind the fields that watch: when it goes, they have gone.
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
            exit,
            view,
            inbox,
            guard,
        } = parts;
        Self {
            kernel,
            pid,
            exit,
            view,
            inbox,
            _guard: guard,
            events: Arc::new(Mutex::new(Some(events))),
        }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Says something to it: a text, or several parts in order, of which each that is large becomes
    /// a descriptor. One that is in the middle of a turn hears it at its end; one that sleeps
    /// wakes. What was said is durable when this returns.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy) where its inbox is full,
    /// [`ProcessError::Ended`](crate::ProcessError::Ended),
    /// [`ProcessError::Unanswered`](crate::ProcessError::Unanswered).
    pub async fn input(&self, user_input: impl Into<UserInput>) -> Result<(), KernelError> {
        self.deliver(
            Input::Spoke {
                from: Sender::Host,
                user_input: user_input.into(),
            },
            None,
        )
        .await
    }

    /// Tells it something in the name of another process, as [`input`](Self::input) does in the
    /// user's.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub async fn message(
        &self,
        from: Pid,
        user_input: impl Into<UserInput>,
    ) -> Result<(), KernelError> {
        self.deliver(
            Input::Spoke {
                from: Sender::Process(from),
                user_input: user_input.into(),
            },
            None,
        )
        .await
    }

    /// Runs one of its tools as its model would, outside of its conversation, and returns what the
    /// model would read. Several such calls run side by side, but not beside a turn of its model.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended). What the tool says is an [`Answer`],
    /// errors too.
    pub async fn call(
        &self,
        tool: impl Into<String>,
        args: impl Into<String>,
    ) -> Result<Answer, KernelError> {
        let (tool, args) = (tool.into(), args.into());
        self.request(|ticket| Input::Host {
            ticket,
            request: HostRequest::Call { tool, args },
        })
        .await
    }

    /// The same, until `given_up` resolves: then this call alone is abandoned, and answered as
    /// cancelled. Calls of a host run side by side, up to 64 of one process; dropping the future
    /// abandons none.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_until(
        &self,
        tool: impl Into<String>,
        args: impl Into<String>,
        given_up: impl Future<Output = ()>,
    ) -> Result<Answer, KernelError> {
        self.call_with_cancel((tool.into(), args.into()), given_up, None)
            .await
    }

    /// The same, and `watcher` is told how far a tool outside of the kernel has come, where it says
    /// so.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn call_watched(
        &self,
        tool: impl Into<String>,
        args: impl Into<String>,
        given_up: impl Future<Output = ()>,
        watcher: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Answer, KernelError> {
        self.call_with_cancel(
            (tool.into(), args.into()),
            given_up,
            Some(Arc::new(watcher)),
        )
        .await
    }

    async fn call_with_cancel(
        &self,
        (tool, args): (String, String),
        given_up: impl Future<Output = ()>,
        watcher: Option<Watcher>,
    ) -> Result<Answer, KernelError> {
        let ticket = self.new_request_id();
        let calling = self.request_with_id(
            ticket.clone(),
            Input::Host {
                ticket: ticket.clone(),
                request: HostRequest::Call { tool, args },
            },
            watcher,
        );
        let mut calling = std::pin::pin!(calling);
        tokio::select! {
            // First, so that the call is on its way before it is given up.
            biased;
            answer = &mut calling => answer,
            () = given_up => {
                self.signal(Input::Host { ticket, request: HostRequest::GiveUp }).await?;
                calling.await
            }
        }
    }

    /// Hands it a content as a descriptor; the answer names it and shows its first page.
    /// `page_chars` none: as its program says. The content is durable when this returns.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn open(
        &self,
        source: impl Into<String>,
        bytes: impl Into<Bytes>,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        self.open_content(
            source.into(),
            CappedBytes {
                bytes: bytes.into(),
                cut_bytes: 0,
            },
            page_chars,
        )
        .await
    }

    /// Hands it a file as a descriptor of source `file:PATH`, as far as the host permits to read
    /// it. What is beyond the program's `max_content_bytes` is cut off, and the answer says how
    /// much.
    ///
    /// # Errors
    /// [`KernelError::File`], and as [`open`](Self::open).
    pub async fn open_file(
        &self,
        path: impl AsRef<Path>,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        let path = path.as_ref().to_owned();
        let source = format!("file:{}", path.display());
        let host = self.kernel.context.host.clone();
        let collected = tokio::task::spawn_blocking(move || host.collect(&path, MAX_CONTENT_BYTES));
        let collected = collected.await.map_err(|_| KernelError::Closed)??;
        self.open_content(source, collected, page_chars).await
    }

    /// Hands it what a stream brings as a descriptor, once the stream has ended. No more is held in
    /// memory than a content may have; the rest is counted and cut off.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_stream(
        &self,
        source: impl Into<String>,
        chunks: impl Stream<Item = Bytes>,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        let builder = Builder::with_cap(MAX_CONTENT_BYTES);
        let builder = chunks.fold(builder, |mut builder, chunk| {
            builder.push(&chunk);
            ready(builder)
        });
        self.open_content(source.into(), builder.await.finish(), page_chars)
            .await
    }

    async fn open_content(
        &self,
        source: String,
        collected: CappedBytes,
        page_chars: Option<u32>,
    ) -> Result<Answer, KernelError> {
        self.request(|ticket| Input::Host {
            ticket,
            request: HostRequest::Open {
                collected,
                source,
                page_chars,
            },
        })
        .await
    }

    /// Ends its current turn cleanly: calls in flight are abandoned, the conversation stays valid.
    /// A task ends with it, and its children with the task; a session waits for further input, and
    /// children that no call waits for go on. Without a turn nothing happens.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn interrupt(&self) -> Result<(), KernelError> {
        self.signal(Input::Signal(Signal::Interrupt)).await
    }

    /// Ends it and its children.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn kill(&self) -> Result<(), KernelError> {
        self.signal(Input::Signal(Signal::Kill)).await
    }

    /// Stops it: it begins no further model call, tool call or turn. What is in flight comes back
    /// and is recorded, what is said to it waits, and its children go on. It stays stopped through
    /// a restart of the kernel.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn stop(&self) -> Result<(), KernelError> {
        self.signal(Input::Signal(Signal::Stop)).await
    }

    /// Lets it go on after a [`stop`](Self::stop). One that was not stopped does not notice.
    ///
    /// # Errors
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn cont(&self) -> Result<(), KernelError> {
        self.signal(Input::Signal(Signal::Continue)).await
    }

    /// Makes it only its journal and a line in the process table, until a message, a signal, the
    /// end of a child or somebody who waits for it wakes it, under its pid. Handles on it stay
    /// valid. It is durable when this returns, and read from its latest image and the few facts
    /// behind that; what arrives meanwhile wakes it again. One that does not run is left as it is.
    ///
    /// # Errors
    /// [`ProcessError::Pending`](crate::ProcessError::Pending) while it has something to do: a
    /// turn, unless it was stopped, a call, a message that waits, or the end of its wall time.
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore), since without a store there is
    /// nothing to wake it from. [`ProcessError::Ended`](crate::ProcessError::Ended),
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable),
    /// [`ProcessError::Unanswered`](crate::ProcessError::Unanswered).
    pub async fn hibernate(&self) -> Result<(), KernelError> {
        let (reply, hibernated) = oneshot::channel();
        self.kernel.cast(HibernationMessage::Hibernate {
            pid: self.pid,
            reply,
        })?;
        hibernated
            .await
            .unwrap_or_else(|_| Err(self.why_unanswered()))
    }

    /// Wakes it where it hibernates: whoever waits learns at once whether it can be read.
    fn wake_if_hibernated(&self) -> Result<(), KernelError> {
        let is_awake = self
            .view
            .borrow()
            .as_ref()
            .is_some_and(|view| !view.hibernated);
        if is_awake {
            Ok(())
        } else {
            self.kernel.cast(HibernationMessage::Wake { pid: self.pid })
        }
    }

    /// The process and all that descend from it, to send them a signal.
    #[must_use]
    pub fn tree(&self) -> Tree {
        Tree(self.clone())
    }

    /// Sends it back in its conversation: what came after the message `position` (`msg:3`, counted
    /// from 1) is gone from it, `message` follows, and its model is asked. Calls in flight are
    /// given up. Descriptors stay, and so does what was done outside. The answer says from where to
    /// where; a `goto_error` of type `unknown_position`, `current_position` or `future_position`
    /// says that nothing was changed.
    ///
    /// A reply that called tools stands for the message that answers them. With the tool `goto`,
    /// its model does the same.
    ///
    /// # Errors
    /// [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn goto(
        &self,
        position: impl Into<String>,
        message: impl Into<String>,
    ) -> Result<Answer, KernelError> {
        let (position, message) = (position.into(), message.into());
        self.request(|ticket| Input::Host {
            ticket,
            request: HostRequest::SendBack { position, message },
        })
        .await
    }

    /// Makes a process of its own, with no parent, that goes on from where this one stands: with
    /// the same conversation and the same descriptors, of which no content is copied. What was in
    /// flight is answered there as interrupted, unless it may be repeated; here it goes on. One
    /// that does not run is read from its journal. It runs, even if this one is stopped.
    ///
    /// # Errors
    /// [`StoreFailure::NotDurable`](crate::StoreFailure::NotDurable);
    /// [`StoreFailure::NoStore`](crate::StoreFailure::NoStore) and
    /// [`StoreFailure::Load`](crate::StoreFailure::Load) for one that does not run.
    pub async fn fork(&self) -> Result<Self, KernelError> {
        let (reply, copy) = oneshot::channel();
        let message = RunMessage::Copy {
            pid: self.pid,
            reply,
        };
        self.kernel.cast(message)?;
        match copy.await {
            Ok(ProcessCopy { program, image, at }) => {
                let origin = Origin::Copied { from: self.pid, at };
                self.kernel
                    .create(program, Box::new(copied(*image, now_ms())), origin, None)
                    .await
            }
            Err(_) => self.kernel.copy(self.pid, None).await,
        }
    }

    /// Waits for its end, which is durable then. One that hibernates wakes.
    ///
    /// # Errors
    /// [`ProcessError::Held`](crate::ProcessError::Held) for one that had to stop because its
    /// journal could not be read or written: it has not ended, and can be resumed.
    /// [`KernelError::Closed`] where the kernel shuts down before.
    pub async fn wait(&self) -> Result<Exit, KernelError> {
        let mut exit = self.exit.clone();
        self.wake_if_hibernated()?;
        let ended = exit
            .wait_for(Option::is_some)
            .await
            .map_err(|_| KernelError::Closed)?;
        let ended = ended.clone().ok_or(KernelError::Closed)?;
        ended.map_err(|reason| {
            KernelError::Process(ProcessError::Held {
                pid: self.pid,
                reason,
            })
        })
    }

    /// Waits until it stands as `stands` says, and returns its view then: `wait_for(View::is_idle)`
    /// is the end of a session's turns. One that hibernates wakes, unless the view that it fell
    /// asleep with is known here and stands so.
    ///
    /// # Errors
    /// [`KernelError::Closed`] where the kernel shuts down before.
    pub async fn wait_for(&self, condition: impl Fn(&View) -> bool) -> Result<View, KernelError> {
        let mut view = self.view.clone();
        let is_met = view.borrow().as_ref().is_some_and(&condition);
        if !is_met {
            self.wake_if_hibernated()?;
        }
        let seen = view
            .wait_for(|view| view.as_ref().is_some_and(&condition))
            .await
            .map_err(|_| KernelError::Closed)?;
        seen.clone().ok_or(KernelError::Closed)
    }

    /// The processes that it forked and spawned, by rising pid: those that run and those that have
    /// ended.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub async fn children(&self) -> Result<Vec<ProcessInfo>, KernelError> {
        self.kernel.list(ListFilter::Children(self.pid)).await
    }

    /// How many input tokens its model would read if it were asked now: its provider's count, where
    /// that counts, else an estimate. What waits in its mailbox is not in it. Nothing of it is
    /// journalled, and it costs what the provider asks for.
    ///
    /// # Errors
    /// [`KernelError::Model`] where its model cannot be reached,
    /// [`StoreFailure::Load`](crate::StoreFailure::Load), [`KernelError::Closed`].
    pub async fn count_tokens(&self) -> Result<TokenCount, KernelError> {
        let (reply, copy) = oneshot::channel();
        let message = RunMessage::Copy {
            pid: self.pid,
            reply,
        };
        self.kernel.cast(message)?;
        let context = &self.kernel.context;
        let state = match copy.await {
            Ok(ProcessCopy { program, image, .. }) => {
                State::from_image(self.pid, program, context.host_context.clone(), *image)
                    .expect("the image of a process that runs is valid")
            }
            Err(_) => {
                self.kernel
                    .read(self.pid, None, LoadPurpose::Inspect)
                    .await?
                    .state
            }
        };
        let choice = state.model();
        let model = context.model(state.program(), choice)?;
        let mut request = state.request();
        request.media = context.read_pool.bytes(state.media()).await;
        let counting =
            tokio::time::timeout(context.limits.model_deadline, model.count_tokens(&request));
        let late = |_| {
            ModelError::new(
                ModelErrorKind::Deadline,
                "the tokens were not counted in time",
            )
        };
        Ok(counting.await.map_err(late)??)
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        self.exit.borrow().as_ref()?.clone().ok()
    }

    /// How it stands; none while it is only its journal, unless it fell asleep while this handle
    /// was held: then how it stood, without its descriptors. [`Kernel::inspect`] reads it of any.
    /// Costs the process nothing.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.view.borrow().clone()
    }

    /// Its events: the first call gets them from the time that this handle was made, further calls
    /// from now on.
    #[must_use]
    pub fn events(&self) -> Events {
        let kept = self
            .events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        Events::new(
            kept.unwrap_or_else(|| self.kernel.context.subscribe()),
            Some(self.pid),
        )
    }

    pub(super) async fn request(
        &self,
        input: impl FnOnce(Arc<str>) -> Input,
    ) -> Result<Answer, KernelError> {
        let ticket = self.new_request_id();
        self.request_with_id(ticket.clone(), input(ticket), None)
            .await
    }

    fn new_request_id(&self) -> Arc<str> {
        let number = NEXT_REQUEST.fetch_add(1, Ordering::Relaxed);
        format!("host:{}.{number}", self.kernel.context.owner_token).into()
    }

    async fn request_with_id(
        &self,
        ticket: Arc<str>,
        input: Input,
        watcher: Option<Watcher>,
    ) -> Result<Answer, KernelError> {
        let (reply, answered) = oneshot::channel();
        self.deliver(input, Some((ticket, ReplyTo { reply, watcher })))
            .await?;
        answered.await.map_err(|_| self.why_unanswered())
    }

    /// Why something was dropped on its way: the process ended before it came to it, which its view
    /// says by then, or stopped.
    fn why_unanswered(&self) -> KernelError {
        match self.view.borrow().as_ref().map(|view| &view.phase) {
            Some(Phase::Ended { .. }) => KernelError::Process(ProcessError::Ended(self.pid)),
            _ => KernelError::Process(ProcessError::Unanswered(self.pid)),
        }
    }

    async fn deliver(
        &self,
        input: Input,
        answer: Option<(Arc<str>, ReplyTo)>,
    ) -> Result<(), KernelError> {
        let limit = self.kernel.context.limits.inbox;
        let permit = self.inbox.clone().try_acquire_owned();
        let permit = permit.map_err(|_| {
            KernelError::Process(ProcessError::Busy {
                pid: self.pid,
                limit,
            })
        })?;
        self.send(input, Some(permit), answer).await
    }

    /// A signal takes no place in the inbox: it reaches a process whose inbox is full.
    async fn signal(&self, input: Input) -> Result<(), KernelError> {
        self.send(input, None, None).await
    }

    pub(super) async fn signal_tree(&self, signal: Signal) -> Result<(), KernelError> {
        let (received, durable) = oneshot::channel();
        let message = TreeMessage::SignalTree {
            root: self.pid,
            signal,
            received,
        };
        self.kernel.cast(message)?;
        durable.await.unwrap_or(Err(KernelError::Closed))
    }

    async fn send(
        &self,
        input: Input,
        permit: Option<OwnedSemaphorePermit>,
        answer: Option<(Arc<str>, ReplyTo)>,
    ) -> Result<(), KernelError> {
        let (received, durable) = oneshot::channel();
        let delivery = Box::new(Delivery {
            input,
            permit,
            answer,
            received: Some(received),
        });
        let message = MailMessage::Deliver {
            pid: self.pid,
            delivery,
        };
        self.kernel.cast(message)?;
        durable.await.unwrap_or_else(|_| Err(self.why_unanswered()))
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}
