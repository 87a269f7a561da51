//! Arrivals that are too large to be read within a handler. They are read on the pool, one at a
//! time in the order in which they came, and then delivered to the process.

use std::collections::VecDeque;

use dormouse_kernel::process::Read;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::{Delivery, DurableReply, ProcessMessage, Running};

/// The arrivals of one process that are not read yet.
#[derive(Default)]
pub(super) struct IncomingReads {
    waiting: VecDeque<IncomingRead>,
    task: Option<JoinHandle<()>>,
}

struct IncomingRead {
    read: Read,
    /// Its place in the inbox, which it keeps until the process hears it.
    permit: Option<OwnedSemaphorePermit>,
    /// The acknowledgement: sent when it is durable.
    received: Option<DurableReply>,
}

impl IncomingReads {
    pub(super) fn push(
        &mut self,
        read: Read,
        permit: Option<OwnedSemaphorePermit>,
        received: Option<DurableReply>,
    ) {
        self.waiting.push_back(IncomingRead {
            read,
            permit,
            received,
        });
    }

    /// The read of one is done.
    pub(super) fn finish(&mut self) {
        self.task = None;
    }

    /// Drops all arrivals with their acknowledgements, so that each sender gets an error.
    pub(super) fn abort(&mut self) -> Option<JoinHandle<()>> {
        self.waiting.clear();
        self.task.take().inspect(JoinHandle::abort)
    }
}

impl Running {
    /// Starts the read of the next arrival, unless one is pending.
    pub(super) fn start_next_incoming_read(&mut self) {
        if self.incoming_reads.task.is_some() {
            return;
        }
        let Some(IncomingRead {
            read,
            permit,
            received,
        }) = self.incoming_reads.waiting.pop_front()
        else {
            return;
        };
        let (read_pool, myself) = (self.context.read_pool.clone(), self.myself.clone());
        self.incoming_reads.task = Some(tokio::spawn(async move {
            match read_pool.execute(read).await {
                Ok(input) => {
                    let delivery = Delivery {
                        input,
                        permit,
                        answer: None,
                        received,
                    };
                    // If the process is gone, the acknowledgement is dropped and the sender gets an
                    // error.
                    let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
                }
                // The read panicked: the process faults, as it does if a handler panics.
                Err(why) => {
                    let _ = myself.cast(ProcessMessage::ReadFailed { why });
                }
            }
        }));
    }
}
