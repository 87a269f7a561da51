//! Sending a message, and what else a call asks of the processes around: beside the actor, so that
//! giving up the call ends it.

use std::time::Duration;

use dormouse_kernel::process::Completion;
use dormouse_kernel::syscall::PendingMessage;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::tool::Answer;
use futures_util::future::FutureExt;
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::Running;
use crate::supervisor::{LookupMessage, MailMessage, Neighbours, SendRequest, SupervisorMessage};

/// How often a receiver that stops before it can say anything is tried: it may come back from its
/// journal.
const MAX_ATTEMPTS: u32 = 6;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);

impl Running {
    /// Posted at once, so that what one reply says to a process arrives in its order; only the
    /// receipt is waited for beside the actor.
    pub(super) fn send_message(&mut self, call: CallId, acked_below: u32, pending: PendingMessage) {
        let outgoing = OutgoingMessage {
            supervisor: self.supervisor.clone(),
            from: self.pid(),
            call,
            acked_below,
            pending,
        };
        let first = outgoing.send();
        let work = outgoing.retry_until_receipt(first).boxed();
        self.start(work, call, Completion::MessageSent, unknown);
    }

    pub(super) fn list_processes(&mut self, call: CallId) {
        let (reply, listed) = oneshot::channel();
        self.cast_to_supervisor(LookupMessage::ListNeighbours {
            of: self.pid(),
            reply,
        });
        let work = async { listed.await.unwrap_or_default() }.boxed();
        let completion = |Neighbours { known, hidden }| Completion::Listed { known, hidden };
        self.start(work, call, completion, |_| Neighbours::default());
    }

    pub(super) fn await_timeout(&mut self, call: CallId, timeout_ms: u64) {
        let work = tokio::time::sleep(Duration::from_millis(timeout_ms)).boxed();
        self.start(work, call, |()| Completion::TimedOut, drop);
    }
}

/// A message that no receipt has come for.
struct OutgoingMessage {
    supervisor: ActorRef<SupervisorMessage>,
    from: Pid,
    call: CallId,
    acked_below: u32,
    pending: PendingMessage,
}

impl OutgoingMessage {
    /// Takes it to the supervisor. What it yields ends without a receipt where the receiver, or the
    /// kernel, stops first.
    fn send(&self) -> oneshot::Receiver<Answer> {
        let (receipt, received) = oneshot::channel();
        let PendingMessage { to, letter } = self.pending.clone();
        let request = SendRequest {
            from: self.from,
            call: self.call,
            acked_below: self.acked_below,
            to,
            envelope: letter,
            receipt,
        };
        // If the supervisor has stopped, the receipt channel is dropped with the message.
        let _ = self
            .supervisor
            .cast(MailMessage::Send(Box::new(request)).into());
        received
    }

    /// Posts it again until the receiver has said something: it knows a message that it has by the
    /// call. What is posted again may arrive after what was posted later.
    async fn retry_until_receipt(self, mut received: oneshot::Receiver<Answer>) -> Answer {
        for attempt in 1..MAX_ATTEMPTS {
            if let Ok(answer) = received.await {
                return answer;
            }
            tokio::time::sleep(FIRST_RETRY_DELAY * 2_u32.pow(attempt - 1)).await;
            received = self.send();
        }
        let why = || format!("it stopped {MAX_ATTEMPTS} times before it could take the message");
        received.await.unwrap_or_else(|_| unknown(why()))
    }
}

fn unknown(why: String) -> Answer {
    Answer::failed(format!(
        "Whether the other process got the message is unknown: {why}."
    ))
}
