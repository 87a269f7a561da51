//! A process handed out as a value, for another to start from.

use std::sync::Arc;

use dormouse_kernel::process::Image;
use dormouse_kernel::program::Program;
use dormouse_proto::id::FactNumber;
use tokio::sync::oneshot;

use super::{PendingCommit, Running};
use crate::event::View;

/// A process as it stood after a durable fact.
pub(crate) struct ProcessCopy {
    pub(crate) program: Program,
    pub(crate) image: Box<Image>,
    pub(crate) at: FactNumber,
}

/// Where a copy goes.
pub(crate) type CopyReply = oneshot::Sender<ProcessCopy>;

impl Running {
    /// Hands out the process as it stands, once all facts that made it so are durable. Costs
    /// pointers, and no content.
    pub(super) fn copy(&mut self, reply: CopyReply) {
        let (program, image) = (self.state.program().clone(), Box::new(self.state.image()));
        let process_copy = ProcessCopy {
            program,
            image,
            at: self.last,
        };
        let pending = PendingCommit {
            upto: self.last,
            facts: Arc::new([]),
            effects: Vec::new(),
            view: View::of(&self.state, self.last),
            received: None,
            permits: Vec::new(),
            copy: Some((reply, process_copy)),
        };
        if self.undurable.is_empty() {
            self.finish_commit(pending)
        } else {
            self.undurable.push_back(pending)
        }
    }
}
