//! The calls of a process that concern others: sends a message, lists the processes that it can
//! write to, and ends a wait for messages or children after its timeout. All run in tasks, so that
//! abandoning the call cancels them; only the first sending of a message comes before its task.

use std::time::Duration;

use dormouse_kernel::process::Completion;
use dormouse_kernel::syscall::PendingMessage;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::tool::Answer;
use futures_util::future::FutureExt;
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::RunningProcess;
use crate::supervisor::{
    LookupMessage, MailMessage, ReachableProcesses, SendRequest, SupervisorMessage,
};

/// How often a message is sent to a receiver that stops before it answers. The supervisor may have
/// restarted the receiver from its journal in the meantime.
const MAX_ATTEMPTS: u32 = 6;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);

impl RunningProcess {
    /// Sends a message. It is sent at once, so that messages of one reply keep their order; only
    /// the receipt is awaited in a task.
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
        self.spawn_work(work, call, Completion::MessageSent, delivery_unknown);
    }

    pub(super) fn list_processes(&mut self, call: CallId) {
        let (reply, process_list) = oneshot::channel();
        self.cast_to_supervisor(LookupMessage::ListReachable {
            pid: self.pid(),
            reply,
        });
        let work = async { process_list.await.unwrap_or_default() }.boxed();
        let completion = |ReachableProcesses {
                              processes,
                              unlisted_count,
                          }| Completion::Listed {
            known: processes,
            hidden: unlisted_count,
        };
        self.spawn_work(work, call, completion, |_| ReachableProcesses::default());
    }

    pub(super) fn await_timeout(&mut self, call: CallId, timeout_ms: u64) {
        let work = tokio::time::sleep(Duration::from_millis(timeout_ms)).boxed();
        self.spawn_work(work, call, |()| Completion::TimedOut, drop);
        let call_tasks = &self.call_tasks;
        self.timeouts.retain(|call| call_tasks.contains_key(call));
        self.timeouts.insert(call);
    }
}

/// A message whose receipt has not arrived.
struct OutgoingMessage {
    supervisor: ActorRef<SupervisorMessage>,
    from: Pid,
    call: CallId,
    /// The sender has received the acknowledgement of every message below this sequence number.
    acked_below: u32,
    pending: PendingMessage,
}

impl OutgoingMessage {
    /// Sends the message to the supervisor. The returned channel closes without a receipt if the
    /// receiver or the kernel stops first.
    fn send(&self) -> oneshot::Receiver<Answer> {
        let (receipt, receipt_receiver) = oneshot::channel();
        let PendingMessage { to, envelope } = self.pending.clone();
        let request = SendRequest {
            from: self.from,
            call: self.call,
            acked_below: self.acked_below,
            to,
            envelope,
            receipt,
        };
        // If the supervisor has stopped, the receipt channel is dropped with the message.
        let _ = self
            .supervisor
            .cast(MailMessage::Send(Box::new(request)).into());
        receipt_receiver
    }

    /// Sends the message again until the receiver answers. The receiver recognizes a duplicate by
    /// its call. A repeated message may arrive after messages that were sent later.
    async fn retry_until_receipt(self, mut receipt_receiver: oneshot::Receiver<Answer>) -> Answer {
        for attempt in 1..MAX_ATTEMPTS {
            if let Ok(answer) = receipt_receiver.await {
                return answer;
            }
            tokio::time::sleep(FIRST_RETRY_DELAY * 2_u32.pow(attempt - 1)).await;
            receipt_receiver = self.send();
        }
        let why = || {
            format!(
                "it did not answer {MAX_ATTEMPTS} times, since it stopped or its journal cannot be \
                 read"
            )
        };
        receipt_receiver
            .await
            .unwrap_or_else(|_| delivery_unknown(why()))
    }
}

fn delivery_unknown(why: String) -> Answer {
    Answer::failed(format!(
        "Whether the other process got the message is unknown: {why}."
    ))
}
