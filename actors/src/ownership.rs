//! Whether a kernel may still act, and why it closed.
//!
//! A kernel that may have lost its store to another owner begins no effect and commits nothing. It
//! learns that from its [`Lease`], or from a commit that the store refuses for good. Then it *closes*:
//! every process stops, which cancels its calls and ends its commands, and none is loaded any more.
//! What remains is to shut it down.
//!
//! Invariant kept here: OWNER-1, no effect begins after the lease was found lost, or after a commit
//! was refused because the store has another owner.

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::watch;

use crate::ports::{Lease, StoreError, ToolServers};
use crate::supervisor::{RunMessage, SupervisorMessage};

/// How often the lease is looked at while nothing begins, so that commands that run long end when it
/// is lost.
const LEASE_CHECK: Duration = Duration::from_millis(500);

/// Why a kernel stopped for good.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// It was shut down.
    #[error("the kernel was shut down")]
    ShutDown,
    /// Its lease on the store is lost ([`KernelBuilder::lease`](crate::handle::KernelBuilder::lease)).
    #[error(
        "the lease on the store is lost, and another kernel may run its processes: nothing is begun \
         or written here any more"
    )]
    LeaseLost,
    /// The store takes no more commits of this kernel: another owner has claimed it
    /// ([`StoreError::Stale`]), or it has failed ([`StoreError::Failed`]).
    #[error("{0}")]
    Store(Arc<StoreError>),
}

/// Whether this kernel may still act.
pub(crate) struct Ownership {
    lease: Option<Arc<dyn Lease>>,
    closed: watch::Sender<Option<CloseReason>>,
}

impl Ownership {
    pub(crate) fn new(lease: Option<Arc<dyn Lease>>) -> Self {
        Self {
            lease,
            closed: watch::Sender::new(None),
        }
    }

    /// Whether an effect or a commit may begin now. Closes the kernel if its lease is lost.
    pub(crate) fn may_act(&self) -> bool {
        if self.closed.borrow().is_some() {
            return false;
        }
        let is_held = self.lease.as_ref().is_none_or(|lease| lease.is_held());
        if !is_held {
            self.close(CloseReason::LeaseLost);
        }
        is_held
    }

    /// Closes the kernel. The first reason stays.
    pub(crate) fn close(&self, reason: CloseReason) {
        self.closed.send_if_modified(|closed| {
            let is_first = closed.is_none();
            if is_first {
                *closed = Some(reason);
            }
            is_first
        });
    }

    /// Why the kernel closed; `None` while it may act.
    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.closed.borrow().clone()
    }

    /// Resolves when the kernel closes.
    pub(crate) fn closed(&self) -> impl Future<Output = CloseReason> + Send + use<> {
        let mut closed = self.closed.subscribe();
        async move {
            match closed.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or(CloseReason::ShutDown),
                // The last part of the kernel is gone.
                Err(_) => CloseReason::ShutDown,
            }
        }
    }
}

/// Waits until the kernel closes, and stops its processes and tool servers if it was not shut down.
pub(crate) async fn stop_when_closed(
    ownership: Arc<Ownership>,
    supervisor: ActorRef<SupervisorMessage>,
    servers: Option<Arc<dyn ToolServers>>,
) {
    let mut closed = std::pin::pin!(ownership.closed());
    let reason = loop {
        tokio::select! {
            reason = &mut closed => break reason,
            () = tokio::time::sleep(LEASE_CHECK), if ownership.lease.is_some() => {
                // Closes the kernel if the lease is lost.
                ownership.may_act();
            }
        }
    };
    if matches!(reason, CloseReason::ShutDown) {
        return;
    }
    tracing::error!(%reason, "the kernel closed");
    // If the supervisor has stopped, the kernel is shutting down.
    let _ = supervisor.cast(RunMessage::KernelClosed { reason }.into());
    if let Some(servers) = servers {
        servers.close().await;
    }
}
