//! Messages to processes of other kernels. Such a message is sent from a task until it is answered or
//! its call is abandoned.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dormouse_kernel::syscall::Envelope;
use dormouse_proto::id::Pid;
use dormouse_proto::mail::{Address, MAX_PEER_BYTES, PeerDescriptor, PeerMessage, Reach};
use dormouse_proto::tool::Answer;
use tokio::sync::oneshot;

use super::local_ids::NO_PROCESS;
use super::{SendRequest, Supervisor};
use crate::context::KernelContext;
use crate::ports::Peers;

/// The pause before a message without an answer is sent again. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// The process of another kernel that an address names; `None` if the sender may not write to it,
    /// or it is no such process.
    fn resolve_peer(&self, from: Pid, to: &Address) -> Option<(Arc<dyn Peers>, Pid)> {
        let (Address::Process(id) | Address::Correspondent(id)) = to else {
            return None;
        };
        let peers = self.context.peers.as_ref()?;
        let may_write =
            matches!(to, Address::Correspondent(_)) || self.context.limits.reach == Reach::Everyone;
        let pid = self.resolve(from, *id);
        let is_of_peer = pid != NO_PROCESS && self.table.get(pid).is_none() && peers.owns(pid);
        (may_write && is_of_peer).then(|| (peers.clone(), pid))
    }

    /// Sends a message that is for a process of another kernel. Returns any other message.
    pub(super) fn send_to_peer(&self, request: SendRequest) -> Option<SendRequest> {
        let Some((peers, to)) = self.resolve_peer(request.from, &request.to) else {
            return Some(request);
        };
        let bytes = request.envelope.bytes();
        if bytes > MAX_PEER_BYTES {
            let why = format!(
                "Process {to} belongs to another kernel, and a message to it holds at most \
                 {MAX_PEER_BYTES} bytes, descriptors included: this one has {bytes}. Nothing was \
                 sent: hand over parts, such as \"fd:1 lines 10-40\", or say where the content is."
            );
            // The requester has dropped its receiver if it no longer waits.
            let _ = request.receipt.send(Answer::failed(why));
            return None;
        }
        let context = self.context.clone();
        tokio::spawn(async move {
            let SendRequest {
                from,
                call,
                acked_below,
                to: address,
                envelope,
                receipt,
            } = request;
            let message = PeerMessage {
                from,
                to,
                call,
                acked_below,
                is_answer: matches!(address, Address::Correspondent(_)),
                program: envelope.program.clone(),
                text: envelope.text.clone(),
                descriptors: Vec::new(),
            };
            match read_descriptors(&context, envelope).await {
                Ok(descriptors) => {
                    let message = PeerMessage {
                        descriptors,
                        ..message
                    };
                    send_until_answered(&context, &*peers, message, receipt).await;
                }
                Err(refusal) => drop(receipt.send(refusal)),
            }
        });
        None
    }
}

/// The descriptors of a message, with their bytes.
async fn read_descriptors(
    context: &KernelContext,
    envelope: Envelope,
) -> Result<Vec<PeerDescriptor>, Answer> {
    let contents = envelope.descriptors.iter().enumerate();
    let contents: BTreeMap<usize, _> = contents
        .map(|(index, transferred)| (index, transferred.entry.content.clone()))
        .collect();
    let mut read = context.read_pool.read_bytes(contents).await;
    let mut descriptors = Vec::new();
    for (index, transferred) in envelope.descriptors.into_iter().enumerate() {
        let id = transferred.id;
        let content = read.remove(&index).ok_or_else(|| {
            Answer::failed(format!(
                "Nothing was sent: the content of {id} cannot be read. Leave it out, or try again."
            ))
        })?;
        let to_bytes = &mut |_| Ok::<_, Infallible>(content.clone());
        let Ok(entry) = transferred.entry.try_map(to_bytes);
        descriptors.push(PeerDescriptor {
            id,
            part: transferred.part,
            entry,
        });
    }
    Ok(descriptors)
}

/// Sends a message until it is answered. Ends without an answer if nobody waits for one any more, or
/// if the kernel closes.
async fn send_until_answered(
    context: &KernelContext,
    peers: &dyn Peers,
    message: PeerMessage,
    mut receipt: oneshot::Sender<Answer>,
) {
    let mut pause = FIRST_PAUSE;
    while context.ownership.may_act() {
        let result = tokio::select! {
            result = peers.send(message.clone()) => result,
            () = receipt.closed() => return,
        };
        match result {
            // The requester has dropped its receiver if it no longer waits.
            Ok(answer) => return drop(receipt.send(answer)),
            Err(error) => tracing::debug!(to = %message.to, %error, "a message has no answer yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = receipt.closed() => return,
        }
        pause = (2 * pause).min(MAX_PAUSE);
    }
}
