//! What only a loaded or watched process needs in addition to its row.

use std::sync::Arc;

use dormouse_proto::process::Exit;
use ractor::ActorRef;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;

use super::RunState;
use crate::error::KernelError;
use crate::event::ProcessView;
use crate::process::{Delivery, ProcessMessage};
use crate::supervisor::HandleReply;

/// The exit of a process, or the reason why it is held and will not end now.
type WaitOutcome = Result<Box<Exit>, Arc<str>>;

/// What the handles of a process watch. A channel takes about 350 bytes, so there is one for both.
#[derive(Default)]
pub(crate) struct Watched {
    /// The exit of the process, or the reason why it is held; `None` while neither applies.
    pub(crate) outcome: Option<WaitOutcome>,
    /// The state of the process; `None` if it was not loaded since it is watched.
    pub(crate) view: Option<ProcessView>,
}

/// The state of a process that is loaded, is being loaded, or is watched.
pub(in crate::supervisor) struct LiveState {
    pub(in crate::supervisor) actor: Option<ActorRef<ProcessMessage>>,
    pub(in crate::supervisor) watched: watch::Sender<Watched>,
    /// The free places for inputs. Each input holds a permit until the process has taken it.
    pub(in crate::supervisor) inbox_slots: Arc<Semaphore>,
    /// Inputs that wait until the process runs.
    pub(in crate::supervisor) waiting_inputs: Vec<Delivery>,
    /// The times of the recent faults.
    pub(in crate::supervisor) faults: Vec<Instant>,
    /// Callers that wait until the process runs.
    pub(in crate::supervisor) run_waiters: Vec<HandleReply>,
    /// Callers that requested hibernation.
    pub(in crate::supervisor) hibernate_replies: Vec<oneshot::Sender<Result<(), KernelError>>>,
    /// The number of the process in the queue of quiescent processes, and the time when it became
    /// quiescent.
    pub(in crate::supervisor) quiescent: Option<(u64, Instant)>,
    /// The process is being loaded because it was woken from hibernation.
    pub(in crate::supervisor) is_waking: bool,
}

impl LiveState {
    /// The live state of a process that is not loaded yet. `exit` and `last_view` are those of an
    /// ended process.
    pub(super) fn new(
        exit: Option<Exit>,
        last_view: Option<ProcessView>,
        inbox_capacity: usize,
    ) -> Self {
        Self {
            actor: None,
            watched: watch::Sender::new(Watched {
                outcome: exit.map(|exit| Ok(Box::new(exit))),
                view: last_view,
            }),
            inbox_slots: Arc::new(Semaphore::new(inbox_capacity)),
            waiting_inputs: Vec::new(),
            faults: Vec::new(),
            run_waiters: Vec::new(),
            hibernate_replies: Vec::new(),
            quiescent: None,
            is_waking: false,
        }
    }

    /// Whether no handle and no caller needs the state of a process that is not loaded.
    pub(super) fn is_unused(&self, run_state: RunState) -> bool {
        let has_subscribers = self.watched.receiver_count() > 0;
        // A process that had to stop keeps the reason for callers that wait for its end.
        let has_failed = run_state == RunState::Held && self.watched.borrow().outcome.is_some();
        !has_subscribers
            && !has_failed
            && self.waiting_inputs.is_empty()
            && self.run_waiters.is_empty()
    }
}
