//! An input on its way to a process, with the callers that wait for what comes of it.

use std::sync::Arc;

use dormouse_kernel::process::{Input, Signal};
use dormouse_proto::tool::Answer;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::TurnRequest;
use crate::error::KernelError;
use crate::in_use::HistoryGuard;
use crate::ports::SharedObserver;

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
    /// Keeps the contents of a state of the past, which `input` holds, until the facts that refer to
    /// them are durable.
    pub(crate) history: Option<HistoryGuard>,
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
            history: None,
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

    /// A signal that waited for a process which is being loaded, as it is handled before the process
    /// resumes. Any other input stays as it is.
    pub(crate) fn before_resume(self) -> Self {
        let input = match self.input {
            Input::Signal(signal) => Input::SignalBeforeResume(signal),
            input => input,
        };
        Self { input, ..self }
    }

    /// Reports to the sender that the input was refused.
    pub(crate) fn refuse(self, error: KernelError) {
        if let Some(durable_reply) = self.durable_reply {
            // The requester has dropped its receiver if it no longer waits.
            let _ = durable_reply.send(Err(error));
        }
    }
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
