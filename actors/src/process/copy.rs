//! Copies of a running process, as the starting point of another one.

use std::sync::Arc;

use dormouse_kernel::process::Image;
use dormouse_kernel::program::Program;
use dormouse_proto::id::FactNumber;
use tokio::sync::oneshot;

use super::{PendingCommit, RunningProcess};
use crate::event::ProcessView;

/// A process as of a durable fact.
pub(crate) struct ProcessCopy {
    pub(crate) program: Program,
    pub(crate) image: Box<Image>,
    pub(crate) at: FactNumber,
}

/// Receives the copy.
pub(crate) type CopyReply = oneshot::Sender<ProcessCopy>;

impl RunningProcess {
    /// Sends a copy of the current process once all of its facts are durable. Costs pointers; no
    /// content is copied.
    pub(super) fn copy(&mut self, reply: CopyReply) {
        let program = self.state.program().clone();
        let image = Box::new(self.state.image());
        let process_copy = ProcessCopy {
            program,
            image,
            at: self.last_fact,
        };
        let pending = PendingCommit {
            up_to: self.last_fact,
            facts: Arc::new([]),
            effects: Vec::new(),
            view: ProcessView::of(&self.state, self.last_fact),
            durable_reply: None,
            ended_turns: Vec::new(),
            inbox_slots: Vec::new(),
            history: None,
            copy: Some((reply, process_copy)),
        };
        if self.pending_commits.is_empty() {
            self.finish_commit(pending)
        } else {
            self.pending_commits.push_back(pending)
        }
    }
}
