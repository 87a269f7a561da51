//! The port to other kernels, whose processes can be written to.

use dormouse_proto::id::Pid;
use dormouse_proto::mail::PeerMessage;
use dormouse_proto::tool::Answer;
use futures_util::future::BoxFuture;

/// Carries messages to processes of other kernels. The kernels have no pid in common
/// ([`KernelBuilder::pids`](crate::handle::KernelBuilder::pids)), and trust each other.
///
/// A message is kept nowhere on its way: the open call of its sender is the outbox, and it is sent
/// again until it is answered, also after a restart of the sender's kernel. The receiver's kernel
/// ([`Kernel::deliver`](crate::handle::Kernel::deliver)) keeps it once (MAIL-1).
pub trait Peers: Send + Sync + 'static {
    /// Whether a process with this pid is of another kernel, whether it exists or not. False for the
    /// pids of this kernel. Called in a message handler: it computes, and waits for nothing.
    fn owns(&self, pid: Pid) -> bool;

    /// Brings a message to the kernel of its receiver, and returns what `deliver` answered there. May
    /// take as long as it takes. Dropping the future abandons the message, which may have arrived.
    /// Messages that a process sends at once may arrive in another order.
    ///
    /// # Errors
    /// There is no answer. The message may have arrived; it is sent again after a pause.
    fn send(&self, message: PeerMessage) -> BoxFuture<'static, Result<Answer, PeerError>>;
}

/// Why there is no answer to a message. Only the log shows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PeerError(pub String);
