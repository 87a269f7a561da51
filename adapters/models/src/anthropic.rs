//! A model behind Anthropic's Messages API, or any server that speaks it.
//!
//! One call is one HTTP request. This module repeats nothing, follows no redirect (the key would travel along), and
//! keeps nothing between calls but open connections. The key stands in one header and never in an error or in debug
//! output.
//!
//! A slow server is bounded by the time between two bytes ([`Builder::idle_timeout`]), an endless one by
//! [`Builder::reply_cap_bytes`]; how long a whole call may take is the kernel's to say.

mod builder;
mod decode;
mod encode;
mod error;
mod fields;
mod stream;

use std::time::Duration;

use bytes::Bytes;
use dormouse_actors::ports::Model;
use dormouse_proto::model::{Delta, ModelError, ModelErrorKind, Reply, Request};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, Url};
use sse_stream::SseByteStream;

pub use self::builder::Builder;
pub use self::decode::decode_message;
pub use self::encode::encode_request;
pub use self::stream::StreamDecoder;

/// The name of the wire format in [`Raw`](dormouse_proto::message::Raw) blocks.
pub const FORMAT: &str = "anthropic";

/// How a reply is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// As events, while the model writes.
    #[default]
    Stream,
    /// In one piece, when it is complete.
    Whole,
}

/// Whether the provider is asked to cache what it has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// The frozen part of a request, and the conversation as far as it goes.
    #[default]
    Automatic,
    /// Not asked: for servers that refuse `cache_control`.
    Off,
}

/// A model behind the Messages API. Cloning shares its connections.
///
/// ```no_run
/// use dormouse_models::Anthropic;
///
/// let hosted = Anthropic::from_env()?;
/// let local = Anthropic::builder().base_url("http://127.0.0.1:8082").build()?;
/// # Ok::<(), dormouse_proto::model::ModelError>(())
/// ```
#[derive(Clone)]
pub struct Anthropic {
    http: Client,
    url: Url,
    key: Option<String>,
    delivery: Delivery,
    caching: Caching,
    reply_cap_bytes: u64,
}

impl Anthropic {
    /// The model as the environment names it: the key in `ANTHROPIC_API_KEY`, another server in `ANTHROPIC_BASE_URL`.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn from_env() -> Result<Self, ModelError> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let mut builder = Self::builder();
        if let Some(key) = set("ANTHROPIC_API_KEY") {
            builder = builder.api_key(key);
        }
        if let Some(url) = set("ANTHROPIC_BASE_URL") {
            builder = builder.base_url(url);
        }
        builder.build()
    }

    /// A model put together by hand.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    async fn ask(&self, request: &Request, deltas: &(dyn Fn(Delta) + Send + Sync)) -> Result<Reply, ModelError> {
        let body = encode_request(request, self.delivery, self.caching)?;
        let request = self.http.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        let response = request.send().await.map_err(error::in_transport)?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        // What came decides, not what was asked for: some servers never stream.
        if is_event_stream(response.headers()) {
            self.read_events(response, deltas).await
        } else {
            decode_message(&self.read_whole(response).await?)
        }
    }

    async fn refused(&self, response: Response) -> ModelError {
        let (status, headers) = (response.status(), response.headers().clone());
        // An error body that is cut or endless explains nothing, but the status still stands.
        let body = self.read_whole(response).await.unwrap_or_default();
        error::in_answer(status, &headers, &body)
    }

    async fn read_whole(&self, response: Response) -> Result<String, ModelError> {
        let mut body = Vec::new();
        let mut pieces = std::pin::pin!(capped(response, self.reply_cap_bytes));
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(BodyError::before_the_end)?);
        }
        String::from_utf8(body).map_err(|error| decode::malformed(format!("the reply is no text: {error}")))
    }

    async fn read_events(
        &self,
        response: Response,
        deltas: &(dyn Fn(Delta) + Send + Sync),
    ) -> Result<Reply, ModelError> {
        let mut events = SseByteStream::new(Box::pin(capped(response, self.reply_cap_bytes)));
        let mut decoder = StreamDecoder::default();
        while let Some(event) = events.next().await {
            // An event with empty data is none, says the standard; some servers keep a connection alive by it.
            if let Some(data) = event.map_err(in_events)?.data.filter(|data| !data.is_empty()) {
                decoder.feed(&data, deltas)?;
            }
            if decoder.is_complete() {
                break;
            }
        }
        decoder.finish()
    }

    /// A provider may quote the key back; it goes no further, nor does the beginning of it that an excerpt ends in.
    fn without_key(&self, mut error: ModelError) -> ModelError {
        if let Some(key) = self.key.as_deref().filter(|key| !key.is_empty()) {
            error.message = error::without(&error.message, key);
        }
        error
    }
}

impl Model for Anthropic {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move { self.ask(&request, deltas).await.map_err(|error| self.without_key(error)) }.boxed()
    }
}

impl std::fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Host and port only: a path, a query or a user could hold a secret.
        let host = (self.url.host_str(), self.url.port_or_known_default());
        f.debug_struct("Anthropic").field("host", &host).field("delivery", &self.delivery).finish_non_exhaustive()
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// Why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error(transparent)]
    Cut(#[from] reqwest::Error),
    #[error("the reply is longer than {0} bytes")]
    TooLong(u64),
}

impl BodyError {
    fn before_the_end(self) -> ModelError {
        match self {
            Self::Cut(error) => ModelError { kind: ModelErrorKind::CutStream, ..error::in_transport(error) },
            Self::TooLong(_) => decode::malformed(self.to_string()),
        }
    }
}

fn in_events(error: sse_stream::Error) -> ModelError {
    match error {
        sse_stream::Error::Body(body) => match body.downcast::<BodyError>() {
            Ok(error) => error.before_the_end(),
            Err(error) => ModelError::new(ModelErrorKind::CutStream, error::chain(&*error)),
        },
        other => decode::malformed(format!("the stream cannot be read: {}", error::chain(&other))),
    }
}

/// The body in pieces, refused beyond `cap_bytes`.
fn capped(response: Response, cap_bytes: u64) -> impl Stream<Item = Result<Bytes, BodyError>> {
    let mut left = cap_bytes;
    response.bytes_stream().map(move |piece| {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or(BodyError::TooLong(cap_bytes))?;
        Ok(piece)
    })
}

/// How long a reply that comes whole may be in the making.
const WHOLE_IDLE: Duration = Duration::from_secs(600);
/// How long a stream may be silent: the provider sends a ping more often.
const STREAM_IDLE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests;
