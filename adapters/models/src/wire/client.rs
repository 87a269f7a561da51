//! The HTTP client of a model: a codec and a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dormouse_actors::ports::Model;
use dormouse_proto::model::{Delta, ModelError, ModelErrorKind, Reply, Request, TokenCount};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode, Url};
use sse_stream::SseByteStream;

use super::body::{self, BodyError, Form, Pieces, capped};
use super::builder::Builder;
use super::codec::{Caching, Codec, Decoder, Delivery, Progress, Purpose};
use super::excerpt::{beginning, invalid, malformed, without};
use super::failure;
use super::message_cache::MessageCache;
use super::request_body::{self, Body};
use super::surrogates::Surrogates;

/// How much of the body of an error response is read: far more than any explanation has.
const FAILURE_CAP_BYTES: u64 = 64 << 10;
/// How long reading that body may take: the status is known, and the explanation is not worth more.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(10);

/// A model on a server. Clones share connections and encoded messages.
pub struct Client<C> {
    pub(super) http: reqwest::Client,
    /// The base URL, to which paths are appended, without a `/` at its end.
    pub(super) base: Arc<str>,
    /// The key and the secret headers, which no error may show.
    pub(super) secrets: Arc<[String]>,
    pub(super) codec: C,
    pub(super) delivery: Delivery,
    pub(super) caching: Caching,
    pub(super) reply_cap_bytes: u64,
    pub(super) cache: Arc<MessageCache>,
}

impl<C: Codec> Client<C> {
    /// A client with the key, and the server if one is named, from the environment.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn from_env() -> Result<Self, ModelError> {
        Builder::from_env().build()
    }

    /// A builder for a client.
    #[must_use]
    pub fn builder() -> Builder<C> {
        Builder::default()
    }

    /// Encodes a request as it is sent. Costs a lookup for each message, and an encoding of each
    /// message that was not sent before.
    ///
    /// # Errors
    /// [`ModelErrorKind::InvalidRequest`] if the request cannot be encoded.
    pub fn encode(&self, request: &Request, purpose: Purpose) -> Result<Body, ModelError> {
        request_body::assemble(&self.codec, request, purpose, self.caching, &self.cache)
    }

    #[cfg(test)]
    pub(crate) fn has_key(&self) -> bool {
        !self.secrets.is_empty()
    }

    async fn ask(
        &self,
        request: &Request,
        deltas: &(dyn Fn(Delta) + Send + Sync),
    ) -> Result<Reply, ModelError> {
        let purpose = Purpose::Reply(self.delivery);
        let path = self.codec.path(request, purpose)?;
        let path = path.ok_or_else(|| invalid("this format has no replies"))?;
        let response = self.send(&path, request, purpose).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let is_event_stream = is_event_stream(response.headers());
        let pieces = capped(response, self.reply_cap_bytes);
        if is_event_stream {
            return self.read_events(pieces, deltas).await;
        }
        // The answer decides, not the request: some servers never stream, and some do not say that
        // they do.
        match body::form_of(pieces)
            .await
            .map_err(BodyError::before_the_end)?
        {
            (Form::Events, pieces) => self.read_events(pieces, deltas).await,
            (Form::Whole, pieces) => {
                let reply = body::whole(pieces).await?;
                self.codec.decode(&Surrogates::default().join(&reply))
            }
            (Form::Page, pieces) => Err(page_in_place_of_a_reply(&body::whole(pieces).await?)),
            (Form::Empty, _) => Err(ModelError::new(
                ModelErrorKind::Transport,
                "the server answered with status 200 and nothing else",
            )),
        }
    }

    async fn count(&self, request: &Request) -> Result<TokenCount, ModelError> {
        let estimated = TokenCount::Estimated(request.estimated_tokens());
        let Some(path) = self.codec.path(request, Purpose::Count)? else {
            return Ok(estimated);
        };
        let response = self.send(&path, request, Purpose::Count).await?;
        match response.status() {
            status if status.is_success() => {
                let json = body::whole(capped(response, self.reply_cap_bytes)).await?;
                let count = self.codec.decode_count(&json).map(TokenCount::Counted);
                count.ok_or_else(|| malformed(format!("no count of tokens: {}", beginning(&json))))
            }
            // Compatible servers cannot count tokens.
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED => Ok(estimated),
            _ => Err(self.refused(response).await),
        }
    }

    async fn send(
        &self,
        path: &str,
        request: &Request,
        purpose: Purpose,
    ) -> Result<Response, ModelError> {
        let url = Url::parse(&format!("{}{path}", self.base))
            .map_err(|_| invalid("the model's name is no path"))?;
        let body = reqwest::Body::wrap(self.encode(request, purpose)?);
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        request.send().await.map_err(failure::in_transport)
    }

    async fn refused(&self, response: Response) -> ModelError {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        let mut pieces = capped(response, FAILURE_CAP_BYTES);
        let reading = async {
            while let Some(Ok(piece)) = pieces.next().await {
                body.extend_from_slice(&piece);
            }
        };
        // If the body is incomplete, slow or endless, the status still classifies the failure.
        let _ = tokio::time::timeout(FAILURE_TIMEOUT, reading).await;
        failure::in_answer(status, &headers, &String::from_utf8_lossy(&body))
    }

    async fn read_events(
        &self,
        pieces: Pieces,
        deltas: &(dyn Fn(Delta) + Send + Sync),
    ) -> Result<Reply, ModelError> {
        let has_ended = AtomicBool::new(false);
        // Some servers end without the blank line that completes their last event.
        let last_line = stream::once(async {
            has_ended.store(true, Ordering::Relaxed);
            Ok(Bytes::from_static(b"\n\n"))
        });
        let mut events = SseByteStream::new(Box::pin(pieces.chain(last_line)));
        let mut surrogates = Surrogates::default();
        let mut decoder = C::Decoder::default();
        while let Some(event) = events.next().await {
            let event = match event.map_err(in_events) {
                // The usage may be missing, but the reply is complete.
                Err(_) if decoder.progress() == Progress::Ended && C::COST_FOLLOWS => break,
                event => event?,
            };
            // By the standard, an event without data is ignored. Some servers keep connections
            // alive with such events.
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                match decoder.feed(&surrogates.join(&data), deltas) {
                    // The stream was cut within this event.
                    Err(_) if has_ended.load(Ordering::Relaxed) && !is_json(&data) => break,
                    fed => fed?,
                }
            }
            if decoder.progress() == Progress::Complete {
                break;
            }
        }
        decoder.finish()
    }

    /// Removes the secrets from an error, since a provider may quote them, also if an excerpt ends
    /// within one.
    fn without_secrets(&self, mut error: ModelError) -> ModelError {
        for secret in self.secrets.iter() {
            error.message = without(&error.message, secret);
        }
        error
    }
}

impl<C: Codec> Model for Client<C> {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move {
            self.ask(&request, deltas)
                .await
                .map_err(|error| self.without_secrets(error))
        }
        .boxed()
    }

    fn count_tokens<'a>(
        &'a self,
        request: &Request,
    ) -> BoxFuture<'a, Result<TokenCount, ModelError>> {
        let request = request.clone();
        async move {
            self.count(&request)
                .await
                .map_err(|error| self.without_secrets(error))
        }
        .boxed()
    }
}

impl<C: Clone> Clone for Client<C> {
    fn clone(&self) -> Self {
        let Self {
            http,
            base,
            secrets,
            codec,
            delivery,
            caching,
            reply_cap_bytes,
            cache,
        } = self;
        Self {
            http: http.clone(),
            base: base.clone(),
            secrets: secrets.clone(),
            codec: codec.clone(),
            delivery: *delivery,
            caching: *caching,
            reply_cap_bytes: *reply_cap_bytes,
            cache: cache.clone(),
        }
    }
}

impl<C: Codec> std::fmt::Debug for Client<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Host and port only: the user, the path or the query could hold a secret.
        let url = Url::parse(&self.base).ok();
        let host = url
            .as_ref()
            .map(|url| (url.host_str(), url.port_or_known_default()));
        f.debug_struct(C::SERVICE.name)
            .field("host", &host)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

fn is_json(data: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
}

/// A gateway that is busy or has failed answers with a page. So does a server that is none of
/// models, which the message says.
fn page_in_place_of_a_reply(page: &str) -> ModelError {
    ModelError::new(
        ModelErrorKind::Transport,
        format!(
            "the server answered with status 200 and a page in place of a reply: {}. If it always \
             does, the base URL names another server",
            beginning(page.trim())
        ),
    )
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| {
        kind.trim_start()
            .to_ascii_lowercase()
            .starts_with("text/event-stream")
    })
}

fn in_events(error: sse_stream::Error) -> ModelError {
    match error {
        sse_stream::Error::Body(body) => match body.downcast::<BodyError>() {
            Ok(error) => error.before_the_end(),
            Err(error) => failure::cut(failure::chain(&*error)),
        },
        other => malformed(format!(
            "the stream cannot be read: {}",
            failure::chain(&other)
        )),
    }
}
