//! Incoming contents that are too large to be read in a handler. The pool reads them one at a time,
//! in the order of their arrival; each is then delivered to the process as an input.

use std::collections::VecDeque;

use dormouse_kernel::process::Read;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::{Delivery, DurableReply, ProcessMessage, RunningProcess, TurnRequest};

/// The incoming contents of one process that are not read yet.
#[derive(Default)]
pub(super) struct IncomingReads {
    waiting: VecDeque<IncomingRead>,
    task: Option<JoinHandle<()>>,
}

struct IncomingRead {
    read: Read,
    /// The inbox slot, kept until the process handles the content.
    permit: Option<OwnedSemaphorePermit>,
    /// Notified when the input is durable.
    received: Option<DurableReply>,
    /// The caller that waits for the end of the turn with this input.
    turn: Option<TurnRequest>,
}

impl IncomingReads {
    pub(super) fn push(
        &mut self,
        read: Read,
        permit: Option<OwnedSemaphorePermit>,
        received: Option<DurableReply>,
        turn: Option<TurnRequest>,
    ) {
        self.waiting.push_back(IncomingRead {
            read,
            permit,
            received,
            turn,
        });
    }

    /// Marks the current read as done.
    pub(super) fn finish(&mut self) {
        self.task = None;
    }

    /// Drops all incoming contents with their acknowledgements, so that each sender gets an error.
    pub(super) fn abort(&mut self) -> Option<JoinHandle<()>> {
        self.waiting.clear();
        self.task.take().inspect(JoinHandle::abort)
    }
}

impl RunningProcess {
    /// Starts the next read unless one is running.
    pub(super) fn start_next_incoming_read(&mut self) {
        if self.incoming_reads.task.is_some() {
            return;
        }
        let Some(IncomingRead {
            read,
            permit,
            received,
            turn,
        }) = self.incoming_reads.waiting.pop_front()
        else {
            return;
        };
        let read_pool = self.context.read_pool.clone();
        let myself = self.myself.clone();
        self.incoming_reads.task = Some(tokio::spawn(async move {
            match read_pool.execute(read).await {
                Ok(input) => {
                    let delivery = Delivery {
                        input,
                        permit,
                        answer: None,
                        received,
                        turn,
                    };
                    // If the process has stopped, the acknowledgement is dropped and the sender
                    // gets an error.
                    let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
                }
                // A panic in the read faults the process, as a panic in a handler does.
                Err(error) => {
                    let _ = myself.cast(ProcessMessage::ReadFailed { error });
                }
            }
        }));
    }
}
