//! Sending a message, and what else a call asks of the processes around: beside the actor, so that giving up the call ends
//! it.

use std::time::Duration;

use dormouse_kernel::process::Input;
use dormouse_kernel::syscall::PendingMessage;
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::tool::Answer;
use futures_util::future::FutureExt;
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::Running;
use crate::supervisor::{Neighbours, Post, SupervisorMessage};

/// How often a receiver that stops before it can say anything is tried: it may come back from its journal.
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

impl Running {
    pub(super) fn send_message(&mut self, call: CallId, settled: u32, pending: PendingMessage) {
        let work = send(self.supervisor.clone(), self.pid(), call, settled, pending).boxed();
        self.start(work, call, move |receipt| Input::MessageSent { call, receipt }, unknown);
    }

    pub(super) fn list_processes(&mut self, call: CallId) {
        let (reply, listed) = oneshot::channel();
        self.tell_supervisor(SupervisorMessage::ListNeighbours { of: self.pid(), reply });
        let work = async { listed.await.unwrap_or(Neighbours { known: Vec::new(), hidden: 0 }) }.boxed();
        let input = move |Neighbours { known, hidden }| Input::Listed { call, known, hidden };
        self.start(work, call, input, |_| Neighbours { known: Vec::new(), hidden: 0 });
    }

    pub(super) fn await_timeout(&mut self, call: CallId, timeout_ms: u64) {
        let work = tokio::time::sleep(Duration::from_millis(timeout_ms)).boxed();
        self.start(work, call, move |()| Input::TimedOut { call }, drop);
    }
}

/// Sends until the receiver has said something: it knows a message that it has by the call.
async fn send(
    supervisor: ActorRef<SupervisorMessage>,
    from: Pid,
    call: CallId,
    settled: u32,
    PendingMessage { to, letter }: PendingMessage,
) -> Answer {
    for attempt in 0..ATTEMPTS {
        let (receipt, received) = oneshot::channel();
        let post = Post { from, call, settled, to: to.clone(), letter: letter.clone(), receipt };
        // Where the supervisor is gone the receipt is dropped with the message.
        let _ = supervisor.cast(SupervisorMessage::Post(Box::new(post)));
        if let Ok(answer) = received.await {
            return answer;
        }
        tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(attempt)).await;
    }
    unknown(format!("it stopped {ATTEMPTS} times before it could take the message"))
}

fn unknown(why: String) -> Answer {
    Answer::error(format!("Whether the other process got the message is unknown: {why}."))
}
