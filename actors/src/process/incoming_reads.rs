//! Arrivals whose contents are too large to be read in a handler: inputs of the host, messages of
//! other processes. The pool reads them one at a time, in the order in which they came; each is
//! then delivered to the process as an input
//! ([`Input::Placed`](dormouse_kernel::process::Input::Placed)).

use std::collections::VecDeque;

use dormouse_kernel::process::Read;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::{Delivery, DurableReply, ProcessMessage, RunningProcess, TurnRequest};

/// The arrivals of one process that are not read yet.
#[derive(Default)]
pub(super) struct IncomingReads {
    queue: VecDeque<IncomingRead>,
    task: Option<JoinHandle<()>>,
}

struct IncomingRead {
    read: Read,
    /// The inbox slot, kept until the process handles the arrival.
    inbox_slot: Option<OwnedSemaphorePermit>,
    /// Notified when the input is durable.
    durable_reply: Option<DurableReply>,
    /// The caller that waits for the end of the turn that handles this input.
    turn_request: Option<TurnRequest>,
}

impl IncomingReads {
    pub(super) fn push(
        &mut self,
        read: Read,
        inbox_slot: Option<OwnedSemaphorePermit>,
        durable_reply: Option<DurableReply>,
        turn_request: Option<TurnRequest>,
    ) {
        self.queue.push_back(IncomingRead {
            read,
            inbox_slot,
            durable_reply,
            turn_request,
        });
    }

    /// Marks the current read as done.
    pub(super) fn finish(&mut self) {
        self.task = None;
    }

    /// Frees the memory of the queue if it is empty.
    pub(super) fn free_empty_queue(&mut self) {
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Drops all arrivals with their acknowledgements, so that each sender gets an error. Returns
    /// the aborted task, which the caller may await.
    pub(super) fn abort(&mut self) -> Option<JoinHandle<()>> {
        self.queue.clear();
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
            inbox_slot,
            durable_reply,
            turn_request,
        }) = self.incoming_reads.queue.pop_front()
        else {
            return;
        };
        let read_pool = self.context.read_pool.clone();
        let myself = self.myself.clone();
        self.incoming_reads.task = Some(tokio::spawn(async move {
            match read_pool.execute_read(read).await {
                Ok(input) => {
                    let delivery = Delivery {
                        inbox_slot,
                        durable_reply,
                        turn_request,
                        ..Delivery::internal(input)
                    };
                    // If the process has stopped, the acknowledgement is dropped and the sender
                    // gets an error.
                    let _ = myself.cast(ProcessMessage::Input(Box::new(delivery)));
                }
                // The process stops: by a panic in the read, as by one in a handler, or since the
                // kernel shuts down.
                Err(error) => {
                    let _ = myself.cast(ProcessMessage::ReadFailed { error });
                }
            }
        }));
    }
}
