//! Messages from processes of other kernels.

use std::convert::Infallible;

use dormouse_content::Content;
use dormouse_kernel::process::{Envelope, TransferredDescriptor};
use dormouse_proto::id::Pid;
use dormouse_proto::mail::{Address, PeerDescriptor, PeerMessage};
use dormouse_proto::tool::Answer;
use tokio::sync::oneshot;

use super::kernel::Kernel;
use crate::error::{KernelError, NotFound, ProcessError};
use crate::supervisor::{MailMessage, SendRequest};

impl Kernel {
    /// Delivers a message of a process of another kernel, which
    /// [`Peers::send`](crate::ports::Peers::send) brings here. The answer is for the sender: the
    /// receipt, once the message is durable, or the reason why the receiver does not take it. A message
    /// that comes again, also after a restart, gets its receipt and is not delivered twice (MAIL-1).
    ///
    /// As within a kernel, the receiver has to be one that all processes may write to
    /// ([`KernelBuilder::reach`](super::KernelBuilder::reach)), one with a name, or one that the sender
    /// answers; it is loaded if it is not, and an [isolated](Self::isolate) one refuses the message. A
    /// process that has ended is not opened again.
    ///
    /// # Errors
    /// The message has no answer, and may have been kept: bring it again.
    /// [`ProcessError::Unanswered`](crate::ProcessError::Unanswered) if the receiver stopped meanwhile;
    /// [`NotFound::Process`](crate::NotFound::Process) for a receiver that belongs to another kernel;
    /// [`KernelError::Closed`], or the reason why the kernel [closed](Self::closed).
    pub async fn deliver(&self, message: PeerMessage) -> Result<Answer, KernelError> {
        self.context.check_may_act()?;
        let to = message.to;
        let peers = self.context.peers.as_ref();
        if peers.is_some_and(|peers| peers.owns(to)) {
            return Err(NotFound::Process(to).into());
        }
        let (receipt, answer) = oneshot::channel();
        // Contents are indexed here, so this runs on a blocking thread.
        let request = tokio::task::spawn_blocking(move || send_request(message, receipt)).await?;
        self.cast(MailMessage::Receive(Box::new(request)))?;
        answer.await.map_err(|_| self.unanswered(to))
    }

    fn unanswered(&self, to: Pid) -> KernelError {
        match self.context.check_may_act() {
            Ok(()) => ProcessError::Unanswered(to).into(),
            Err(closed) => closed,
        }
    }
}

fn send_request(message: PeerMessage, receipt: oneshot::Sender<Answer>) -> SendRequest {
    let PeerMessage {
        from,
        to,
        call,
        acked_below,
        is_answer,
        program,
        text,
        descriptors,
    } = message;
    let transferred = |PeerDescriptor { id, part, entry }: PeerDescriptor| {
        let Ok(entry) = entry.try_map(&mut |bytes| Ok::<_, Infallible>(Content::new(bytes)));
        TransferredDescriptor { id, part, entry }
    };
    SendRequest {
        from,
        call,
        acked_below,
        to: match is_answer {
            true => Address::Correspondent(to),
            false => Address::Process(to),
        },
        envelope: Envelope {
            program,
            text,
            descriptors: descriptors.into_iter().map(transferred).collect(),
        },
        receipt,
    }
}
