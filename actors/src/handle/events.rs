//! The stream of events that an embedder subscribes to.

use std::pin::Pin;
use std::task::{Context, Poll};

use dormouse_proto::id::Pid;
use futures_util::{Stream, StreamExt};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use crate::event::Event;

/// The events of all processes or of one, as they happen. Those of one process include events that
/// belong to no process, such as [`Event::ServerAsks`]. The buffer is bounded: a slow subscriber gets
/// [`Event::Lagged`] in place of the events that it missed, which counts those of all processes. The
/// stream ends when the kernel
/// shuts down.
#[derive(Debug)]
pub struct Events {
    stream: BroadcastStream<Event>,
    only_pid: Option<Pid>,
}

impl Events {
    pub(super) fn new(receiver: broadcast::Receiver<Event>, only_pid: Option<Pid>) -> Self {
        Self {
            stream: BroadcastStream::new(receiver),
            only_pid,
        }
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let event = match std::task::ready!(self.stream.poll_next_unpin(context)) {
                None => return Poll::Ready(None),
                Some(Ok(event)) => event,
                Some(Err(BroadcastStreamRecvError::Lagged(missed))) => Event::Lagged { missed },
            };
            if self.only_pid.is_none() || event.pid().is_none() || event.pid() == self.only_pid {
                return Poll::Ready(Some(event));
            }
        }
    }
}
