//! Sends inputs to a process, and waits until they are durable, or for their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_kernel::process::{HostRequest, Input, Signal};
use dormouse_proto::record::Phase;
use dormouse_proto::tool::Answer;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Process;
use crate::error::{KernelError, ProcessError};
use crate::in_use::HistoryGuard;
use crate::ports::SharedObserver;
use crate::process::{Delivery, ReplyTo, TurnRequest};
use crate::supervisor::{MailMessage, TreeMessage};

/// Numbers the requests of this host program. The owner token of the store, which is also part of a
/// request id, distinguishes these requests from those of earlier programs.
static NEXT_REQUEST: AtomicU64 = AtomicU64::new(0);

impl Process {
    pub(in crate::handle) async fn request_answer(
        &self,
        input: impl FnOnce(Arc<str>) -> Input,
    ) -> Result<Answer, KernelError> {
        let request_id = self.new_request_id();
        self.request_with_id(request_id.clone(), input(request_id), None)
            .await
    }

    pub(in crate::handle) fn new_request_id(&self) -> Arc<str> {
        let number = NEXT_REQUEST.fetch_add(1, Ordering::Relaxed);
        format!("host:{}.{number}", self.kernel.context.owner_token).into()
    }

    pub(in crate::handle) async fn request_with_id(
        &self,
        request_id: Arc<str>,
        input: Input,
        observer: Option<SharedObserver>,
    ) -> Result<Answer, KernelError> {
        self.request(request_id, Delivery::internal(input), observer)
            .await
    }

    /// Makes a request with a state of the past. `history` protects the contents of that state until
    /// the facts of the request are durable, even if the caller stops waiting.
    pub(in crate::handle) async fn request_of_history(
        &self,
        request: HostRequest,
        history: HistoryGuard,
    ) -> Result<Answer, KernelError> {
        let request_id = self.new_request_id();
        let input = Input::Host {
            request_id: request_id.clone(),
            request,
        };
        let delivery = Delivery {
            history: Some(history),
            ..Delivery::internal(input)
        };
        self.request(request_id, delivery, None).await
    }

    /// Sends the request `request_id`, which is the input of `delivery`, and waits for its answer.
    async fn request(
        &self,
        request_id: Arc<str>,
        delivery: Delivery,
        observer: Option<SharedObserver>,
    ) -> Result<Answer, KernelError> {
        let (reply, answer_receiver) = oneshot::channel();
        self.send(Delivery {
            inbox_slot: Some(self.acquire_inbox_slot()?),
            reply_to: Some((request_id, ReplyTo { reply, observer })),
            ..delivery
        })
        .await?;
        answer_receiver.await.map_err(|_| self.unanswered_error())
    }

    /// The error for a request that was dropped without an answer. The view shows whether the
    /// process has ended; otherwise its actor stopped.
    pub(in crate::handle) fn unanswered_error(&self) -> KernelError {
        match self.watched.borrow().view.as_ref().map(|view| &view.phase) {
            Some(Phase::Ended { .. }) => KernelError::Process(ProcessError::Ended(self.pid)),
            _ => KernelError::Process(ProcessError::Unanswered(self.pid)),
        }
    }

    pub(super) async fn deliver(&self, input: Input) -> Result<(), KernelError> {
        let inbox_slot = Some(self.acquire_inbox_slot()?);
        self.send(Delivery {
            inbox_slot,
            ..Delivery::internal(input)
        })
        .await
    }

    pub(in crate::handle) async fn deliver_for_turn(
        &self,
        input: Input,
        turn_request: TurnRequest,
    ) -> Result<(), KernelError> {
        let inbox_slot = Some(self.acquire_inbox_slot()?);
        let turn_request = Some(turn_request);
        self.send(Delivery {
            inbox_slot,
            turn_request,
            ..Delivery::internal(input)
        })
        .await
    }

    fn acquire_inbox_slot(&self) -> Result<OwnedSemaphorePermit, KernelError> {
        let (pid, limit) = (self.pid, self.kernel.context.limits.inbox_capacity);
        let inbox_slot = self.inbox_slots.clone().try_acquire_owned();
        inbox_slot.map_err(|_| ProcessError::Busy { pid, limit }.into())
    }

    /// Sends a signal or a cancellation. It occupies no inbox slot, so it reaches a process whose
    /// inbox is full.
    pub(in crate::handle) async fn send_without_slot(
        &self,
        input: Input,
    ) -> Result<(), KernelError> {
        self.send(Delivery::internal(input)).await
    }

    pub(in crate::handle) async fn signal_tree(&self, signal: Signal) -> Result<(), KernelError> {
        let (durable_reply, durable_result) = oneshot::channel();
        let message = TreeMessage::SignalTree {
            root: self.pid,
            signal,
            durable_reply,
        };
        self.kernel.cast(message)?;
        durable_result.await.unwrap_or(Err(KernelError::Closed))
    }

    async fn send(&self, delivery: Delivery) -> Result<(), KernelError> {
        let (durable_reply, durable_result) = oneshot::channel();
        let delivery = Box::new(Delivery {
            durable_reply: Some(durable_reply),
            ..delivery
        });
        let message = MailMessage::Deliver {
            pid: self.pid,
            delivery,
        };
        self.kernel.cast(message)?;
        durable_result
            .await
            .unwrap_or_else(|_| Err(self.unanswered_error()))
    }
}
