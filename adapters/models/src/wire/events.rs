//! The events of a streamed reply, however the server frames them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dormouse_proto::model::ModelError;
use futures_util::{Stream, StreamExt, stream};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use sse_stream::SseByteStream;

use super::body::{BodyError, BodyStream};
use super::excerpt::malformed;
use super::failure;

/// How events are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// As lines of text: `text/event-stream`.
    ServerSent,
    /// As binary messages with checksums: `application/vnd.amazon.eventstream`.
    #[cfg(feature = "bedrock")]
    Amazon,
}

impl Framing {
    /// The framing that the content type of a response states; `None` if it is no stream.
    pub(super) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.trim_start().to_ascii_lowercase();
        if kind.starts_with("text/event-stream") {
            return Some(Self::ServerSent);
        }
        #[cfg(feature = "bedrock")]
        if kind.starts_with("application/vnd.amazon.eventstream") {
            return Some(Self::Amazon);
        }
        None
    }
}

/// The data of the events of a reply, one text for each.
pub(super) struct Events {
    data: Pin<Box<dyn Stream<Item = Result<String, ModelError>> + Send>>,
    /// Whether the body has ended.
    has_ended: Arc<AtomicBool>,
}

impl Events {
    /// Reads the events of a body.
    pub(super) fn new(body_stream: BodyStream, framing: Framing) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let data = match framing {
            Framing::ServerSent => server_sent(body_stream, has_ended.clone()),
            #[cfg(feature = "bedrock")]
            Framing::Amazon => crate::bedrock::event_stream::messages(body_stream),
        };
        Self { data, has_ended }
    }

    /// The data of the next event, which is not empty.
    pub(super) async fn next(&mut self) -> Option<Result<String, ModelError>> {
        self.data.next().await
    }

    /// Whether the body ended with or within the event that was read last.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

fn server_sent(
    body_stream: BodyStream,
    has_ended: Arc<AtomicBool>,
) -> Pin<Box<dyn Stream<Item = Result<String, ModelError>> + Send>> {
    // Some servers end without the blank line that completes their last event.
    let last_line = stream::once(async move {
        has_ended.store(true, Ordering::Relaxed);
        Ok(Bytes::from_static(b"\n\n"))
    });
    let events = SseByteStream::new(Box::pin(body_stream.chain(last_line)));
    // The standard says that an event without data is ignored. Some servers send such events to
    // keep a connection alive.
    Box::pin(events.filter_map(async |event| match event {
        Ok(event) => event.data.filter(|data| !data.is_empty()).map(Ok),
        Err(error) => Some(Err(stream_error(error))),
    }))
}

fn stream_error(error: sse_stream::Error) -> ModelError {
    match error {
        sse_stream::Error::Body(body) => match body.downcast::<BodyError>() {
            Ok(error) => error.into_model_error(),
            Err(error) => failure::cut_stream(failure::error_chain(&*error)),
        },
        other => malformed(format!(
            "the stream cannot be read: {}",
            failure::error_chain(&other)
        )),
    }
}
