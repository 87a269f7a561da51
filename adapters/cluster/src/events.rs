//! The events of a process, wherever it runs.

use std::sync::Arc;
use std::time::Duration;

use dormouse::id::{FactNumber, Pid};
use dormouse::process::{Exit, ProcessRow};
use dormouse::{Event, Kernel, KernelError, NotFound};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::call::CallError;
use crate::caller::Caller;
use crate::shard::shard_of;

/// The path of events at a node.
pub(crate) const EVENTS_PATH: &str = "/v1/events";

/// How many events wait for a watcher before the node waits for it.
const BUFFERED: usize = 256;

/// The longest line of an event.
const MAX_LINE_BYTES: usize = 16 << 20;

const PAUSE: Duration = Duration::from_millis(100);

/// Something that happened in a process, for those who watch it. What a process has done is in its
/// journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClusterEvent {
    /// It began to run.
    Started,
    /// A part of the text of a reply.
    Text(String),
    /// A tool call begins.
    ToolCalled {
        /// The name that the program uses for the tool.
        tool: Arc<str>,
        /// The arguments: JSON text.
        args: Arc<str>,
    },
    /// A fact is durable.
    Fact {
        /// Its number.
        number: FactNumber,
        /// Its name, such as `turn_began`.
        name: String,
    },
    /// A turn ended, and the process waits for input.
    TurnEnded(Exit),
    /// It left memory until an input wakes it.
    Hibernated,
    /// It runs again.
    Woke,
    /// It was opened again by a message.
    Reopened,
    /// It ended. No event follows.
    Exited(Exit),
    /// Events may be missing: the watcher was too slow, or the process moved to another node.
    Lagged,
}

impl ClusterEvent {
    /// The event as others see it; `None` for one that stays in its kernel.
    fn of(event: Event) -> Option<Self> {
        Some(match event {
            Event::Started { .. } => Self::Started,
            Event::Text { text, .. } => Self::Text(text),
            Event::ToolCalled { tool, args, .. } => Self::ToolCalled { tool, args },
            Event::Fact { number, fact, .. } => Self::Fact {
                number,
                name: fact.name().to_owned(),
            },
            Event::TurnEnded { outcome, .. } => Self::TurnEnded(outcome),
            Event::Hibernated { .. } => Self::Hibernated,
            Event::Woke { .. } => Self::Woke,
            Event::Reopened { .. } => Self::Reopened,
            Event::Exited { exit, .. } => Self::Exited(exit),
            Event::Lagged { .. } => Self::Lagged,
            _ => return None,
        })
    }
}

/// The events of a process of this kernel from now on, up to its end. If it has ended, its end is
/// the only one.
pub(crate) async fn local_events(
    kernel: &Kernel,
    pid: Pid,
) -> Result<impl Stream<Item = ClusterEvent> + Send + use<>, CallError> {
    let process = kernel.process(pid).await?;
    // Events from now on, before the row is read: an end is in one or the other.
    let events = process.events();
    let ended = row_of(kernel, pid).await?.exit.map(ClusterEvent::Exited);
    let is_ended = ended.is_some();
    let events = events
        .filter_map(|event| std::future::ready(ClusterEvent::of(event)))
        .take_while(move |_| std::future::ready(!is_ended));
    Ok(futures_util::stream::iter(ended).chain(events))
}

async fn row_of(kernel: &Kernel, pid: Pid) -> Result<ProcessRow, KernelError> {
    let before = pid.0.checked_sub(1).map(Pid);
    let page = kernel.process_page(before, 1).await?;
    let found = page.into_iter().map(|info| info.row);
    let mut found = found.filter(|row| row.pid == pid);
    Ok(found.next().ok_or(NotFound::Process(pid))?)
}

/// The events of a process, wherever it runs and wherever it moves, up to its end. Ends early if
/// the process does not exist.
pub(crate) fn events(caller: Arc<Caller>, pid: Pid) -> impl Stream<Item = ClusterEvent> + Send {
    let (sender, receiver) = mpsc::channel(BUFFERED);
    let mut pid = pid;
    tokio::spawn(async move {
        let mut is_first = true;
        loop {
            let source = match source(&caller, pid).await {
                Ok(source) => source,
                Err(CallError::Refused { .. } | CallError::WrongToken) => return,
                Err(CallError::Moved { to }) => {
                    pid = to;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(%pid, %error, "events are asked for again");
                    caller.forget_route(shard_of(pid));
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => continue,
                        () = sender.closed() => return,
                    }
                }
            };
            let gap = (!is_first).then_some(ClusterEvent::Lagged);
            is_first = false;
            let mut source = futures_util::stream::iter(gap).chain(source);
            while let Some(event) = source.next().await {
                let is_last = matches!(event, ClusterEvent::Exited(_));
                if sender.send(event).await.is_err() || is_last {
                    return;
                }
            }
            caller.forget_route(shard_of(pid));
        }
    });
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|event| (event, receiver))
    })
}

async fn source(caller: &Caller, pid: Pid) -> Result<BoxStream<'static, ClusterEvent>, CallError> {
    let shard = shard_of(pid);
    if let Some(held) = caller.held.get(shard) {
        if let Some(to) = held.moved.get(&pid) {
            return Err(CallError::Moved { to: *to });
        }
        let opening = || CallError::NotOwner(format!("{shard} is being opened"));
        let kernel = held.kernel.ok_or_else(opening)?;
        return Ok(local_events(&kernel, pid).await?.boxed());
    }
    let address = caller.address(shard).await?;
    let request = caller
        .http
        .get(format!("http://{address}{EVENTS_PATH}/{pid}"))
        .bearer_auth(&caller.token);
    let response = request.send().await.map_err(crate::caller::request_error)?;
    match response.status().as_u16() {
        200 => Ok(lines(response.bytes_stream().boxed()).boxed()),
        401 => Err(CallError::WrongToken),
        404 => Err(response
            .json()
            .await
            .map_err(crate::caller::request_error)?),
        status => Err(CallError::NotOwner(format!("status {status}"))),
    }
}

/// Reads events from lines. Ends with the first thing that is none.
fn lines(
    bytes: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
) -> impl Stream<Item = ClusterEvent> + Send {
    let state = (bytes, Vec::new());
    futures_util::stream::unfold(state, |(mut bytes, mut buffer)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let rest = buffer.split_off(end + 1);
                let event = serde_json::from_slice(&buffer).ok()?;
                return Some((event, (bytes, rest)));
            }
            if buffer.len() > MAX_LINE_BYTES {
                return None;
            }
            buffer.extend_from_slice(&bytes.next().await?.ok()?);
        }
    })
}
