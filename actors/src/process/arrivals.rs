//! What arrived from outside and is too large to be read within a handler: it is read on the pool, one after the other in the order
//! of arrival, and taken in then.

use std::collections::VecDeque;

use dormouse_kernel::process::Read;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::{Delivery, ProcessMessage, Received, Running};

/// The arrivals of one process that are not read yet.
#[derive(Default)]
pub(super) struct Arrivals {
    waiting: VecDeque<Arrival>,
    task: Option<JoinHandle<()>>,
}

struct Arrival {
    read: Read,
    /// The place in the inbox that it keeps until it is taken in.
    permit: Option<OwnedSemaphorePermit>,
    /// Who wants to know that it is durable.
    received: Option<Received>,
}

impl Arrivals {
    pub(super) fn push(&mut self, read: Read, permit: Option<OwnedSemaphorePermit>, received: Option<Received>) {
        self.waiting.push_back(Arrival { read, permit, received });
    }

    /// The one that was being read is taken in.
    pub(super) fn finish(&mut self) {
        self.task = None;
    }

    /// Gives all of them up. Their senders hear that nobody took them.
    pub(super) fn abort(&mut self) -> Option<JoinHandle<()>> {
        self.waiting.clear();
        self.task.take().inspect(JoinHandle::abort)
    }
}

impl Running {
    /// Begins to read the arrival that is next, unless one is being read.
    pub(super) fn read_arrival(&mut self) {
        if self.arrivals.task.is_some() {
            return;
        }
        let Some(Arrival { read, permit, received }) = self.arrivals.waiting.pop_front() else { return };
        let (readers, myself) = (self.world.readers.clone(), self.myself.clone());
        self.arrivals.task = Some(tokio::spawn(async move {
            match readers.perform(read).await {
                Ok(input) => {
                    let delivery = Delivery { input, permit, answer: None, received };
                    // If the process is gone, the sender hears that nobody took it.
                    let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
                }
                // It panicked. The process faults, as it does if a handler panics.
                Err(why) => {
                    let _ = myself.cast(ProcessMessage::ReadFailed { why });
                }
            }
        }));
    }
}
