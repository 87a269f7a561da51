//! The HTTP client of a model: a codec and a server.
//!
//! A call goes through these files: `request_body.rs` assembles the body, an authenticator
//! (`authentication.rs`) may authenticate it, and `exchange.rs` notes what is sent and received,
//! for errors. `body.rs` tells whether the response is a stream or JSON, `events.rs` reads the
//! events of a stream, and the codec decodes. Then the reply is amended: ids of calls become unique
//! (`call_ids.rs`), nulls that stand for absent arguments go (`strict_args.rs`), and files that it
//! names are fetched (`files.rs`).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dormouse_actors::ports::Model;
use dormouse_proto::model::{Delta, ModelError, ModelErrorKind, Reply, Request, TokenCount};
use dormouse_proto::program::CacheTtl;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};

use super::address::Address;
use super::authentication::{Authenticator, CloudLocation, UnsignedRequest};
use super::body::{self, BYTE_ORDER_MARK, BodyError, BodyKind, BodyStream, limit_size};
use super::builder::Builder;
use super::call_ids;
use super::codec::{Codec, Completeness, Decoder, Delivery, Purpose};
use super::events::{Events, Framing};
use super::excerpt::{invalid, malformed, redact_secret};
use super::exchange::Exchange;
use super::failure;
use super::message_cache::MessageCache;
use super::request_body::{self, Body};
use super::strict_args::without_placeholder_nulls;
use super::surrogates::Surrogates;

/// How much of the body of an error response is read: far more than any explanation needs.
const FAILURE_CAP_BYTES: u64 = 64 << 10;
/// How long reading the body of an error response may take. The status is known already, and the
/// explanation is not worth a longer wait.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(10);

/// A model on a server. Clones share connections and encoded messages.
pub struct Client<C> {
    pub(super) http: reqwest::Client,
    /// The base URL, to which paths are appended.
    pub(super) address: Address,
    /// The key and the secret headers, which no error may show.
    pub(super) secrets: Arc<[String]>,
    /// What authenticates requests, where no key in a header does.
    pub(super) authenticator: Option<Arc<dyn Authenticator>>,
    pub(super) location: CloudLocation,
    pub(super) codec: C,
    pub(super) delivery: Delivery,
    pub(super) cache_ttl: Option<CacheTtl>,
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
        request_body::assemble(&self.codec, request, purpose, self.cache_ttl, &self.cache)
    }

    #[cfg(test)]
    pub(crate) fn has_key(&self) -> bool {
        !self.secrets.is_empty() || self.authenticator.is_some()
    }

    /// Makes one call: sends the request and reads the reply.
    async fn request_reply(
        &self,
        request: &Request,
        deltas: &(dyn Fn(Delta) + Send + Sync),
    ) -> Result<Reply, ModelError> {
        let purpose = Purpose::Reply(self.delivery);
        let path = self.codec.path(request, purpose)?;
        let path = path.ok_or_else(|| invalid("this format has no replies"))?;
        // Boxed, so that a stream that stays open does not keep the room of what came before it.
        let (exchange, response) = Box::pin(self.send(&path, request, purpose)).await?;
        self.read_reply(&exchange, response, deltas)
            .await
            .map_err(|error| exchange.explain(error))
    }

    async fn read_reply(
        &self,
        exchange: &Exchange,
        response: Response,
        deltas: &(dyn Fn(Delta) + Send + Sync),
    ) -> Result<Reply, ModelError> {
        if !response.status().is_success() {
            return Err(Box::pin(self.read_failure(response)).await);
        }
        let framing = Framing::of_headers(response.headers());
        let body_stream = limit_size(response, self.reply_cap_bytes);
        let body_stream = exchange.record_beginning(body_stream);
        if let Some(framing) = framing {
            return self.read_events((body_stream, framing), deltas).await;
        }
        // The response decides, not the request: some servers never stream, and some stream without
        // the content type of a stream.
        match body::detect_kind(body_stream)
            .await
            .map_err(BodyError::into_model_error)?
        {
            (BodyKind::Events, body_stream) => {
                let events = (body_stream, Framing::ServerSent);
                self.read_events(events, deltas).await
            }
            (BodyKind::Json, body_stream) => {
                let reply = body::read_to_end(body_stream).await?;
                let reply = Surrogates::default().join(&reply);
                self.codec.decode(&reply).map_err(|error| {
                    if is_cut_json(&reply) {
                        failure::cut_stream(error.message)
                    } else {
                        error
                    }
                })
            }
            // A gateway that is busy or has failed answers with a page, and so does a web server
            // that serves no models: the messages name both causes.
            (BodyKind::Page, _) => Err(ModelError::new(
                ModelErrorKind::Transport,
                "the server answered with a page in place of a reply: it is busy or, if it always \
                 does so, the base URL names another server",
            )),
            (BodyKind::Empty, _) => Err(ModelError::new(
                ModelErrorKind::Transport,
                "the server answered without a reply: it or a gateway has failed or, if it always \
                 does so, the base URL names another server",
            )),
        }
    }

    async fn request_token_count(&self, request: &Request) -> Result<TokenCount, ModelError> {
        let estimated = TokenCount::Estimated(request.estimated_tokens());
        let Some(path) = self.codec.path(request, Purpose::Count)? else {
            return Ok(estimated);
        };
        let (exchange, response) = self.send(&path, request, Purpose::Count).await?;
        match response.status() {
            status if status.is_success() => self
                .read_count(&exchange, response)
                .await
                .map_err(|error| exchange.explain(error)),
            // Compatible servers cannot count tokens.
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED => Ok(estimated),
            _ => Err(exchange.explain(self.read_failure(response).await)),
        }
    }

    async fn read_count(
        &self,
        exchange: &Exchange,
        response: Response,
    ) -> Result<TokenCount, ModelError> {
        let body_stream = limit_size(response, self.reply_cap_bytes);
        let json = body::read_to_end(exchange.record_beginning(body_stream)).await?;
        let count = self.codec.decode_count(&json).map(TokenCount::Counted);
        count.ok_or_else(|| malformed("the reply has no count of tokens"))
    }

    async fn send(
        &self,
        path: &str,
        request: &Request,
        purpose: Purpose,
    ) -> Result<(Exchange, Response), ModelError> {
        let url = self.address.join(path)?;
        let mut exchange = Exchange::new(&url);
        let body = self.encode(request, purpose)?;
        let mut headers = HeaderMap::new();
        if let Some(authenticator) = &self.authenticator {
            let unsigned = UnsignedRequest {
                url: &url,
                region: self.location.region.as_deref(),
                body: &body,
                now: SystemTime::now(),
            };
            headers = authenticator.authenticate(unsigned).await?;
            exchange.record_secrets(&headers);
        }
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .headers(headers)
            .body(reqwest::Body::wrap(body));
        let response = request.send().await;
        let response =
            response.map_err(|error| exchange.explain(failure::from_transport(error)))?;
        exchange.record_head(&response);
        Ok((exchange, response))
    }

    /// The failure that an error response reports.
    async fn read_failure(&self, response: Response) -> ModelError {
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_redirection() {
            return failure::from_redirect(status, response.url(), &headers);
        }
        let mut body = Vec::new();
        let mut body_stream = limit_size(response, FAILURE_CAP_BYTES);
        let reading = async {
            while let Some(Ok(chunk)) = body_stream.next().await {
                body.extend_from_slice(&chunk);
            }
        };
        // If the body is incomplete, slow or endless, the status still classifies the failure.
        let _ = tokio::time::timeout(FAILURE_TIMEOUT, reading).await;
        let text = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&body);
        failure::from_response(status, &headers, &String::from_utf8_lossy(text))
    }

    async fn read_events(
        &self,
        (body_stream, framing): (BodyStream, Framing),
        deltas: &(dyn Fn(Delta) + Send + Sync),
    ) -> Result<Reply, ModelError> {
        let mut events = Events::new(body_stream, framing);
        let mut surrogates = Surrogates::default();
        let mut decoder = C::Decoder::default();
        while let Some(event) = events.next().await {
            let data = match event {
                // The usage may be missing, but the reply is complete.
                Err(_) if decoder.completeness() == Completeness::Ended && C::USAGE_FOLLOWS => {
                    break;
                }
                event => event?,
            };
            match decoder.feed(&surrogates.join(&data), deltas) {
                // The stream was cut within this event.
                Err(_) if events.has_ended() && !is_valid_json(&data) => break,
                result => result?,
            }
            if decoder.completeness() == Completeness::Complete {
                break;
            }
        }
        decoder.finish()
    }

    /// Removes the secrets from an error, since a provider may quote them. Also removes a secret of
    /// which an excerpt shows only the beginning.
    fn without_secrets(&self, mut error: ModelError) -> ModelError {
        for secret in self.secrets.iter() {
            error.message = redact_secret(&error.message, secret);
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
            let reply = self.request_reply(&request, deltas).await;
            let reply = reply.map_err(|error| self.without_secrets(error))?;
            let reply = call_ids::with_unique_ids(&self.codec, &request, reply);
            let reply = without_placeholder_nulls(&request, reply);
            // Boxed like the sending of the request: a stream needs no room for what follows it.
            Ok(Box::pin(self.with_files(reply)).await)
        }
        .boxed()
    }

    fn count_tokens<'a>(
        &'a self,
        request: &Request,
    ) -> BoxFuture<'a, Result<TokenCount, ModelError>> {
        let request = request.clone();
        async move {
            self.request_token_count(&request)
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
            address,
            secrets,
            authenticator,
            location,
            codec,
            delivery,
            cache_ttl,
            reply_cap_bytes,
            cache,
        } = self;
        Self {
            http: http.clone(),
            address: address.clone(),
            secrets: secrets.clone(),
            authenticator: authenticator.clone(),
            location: location.clone(),
            codec: codec.clone(),
            delivery: *delivery,
            cache_ttl: *cache_ttl,
            reply_cap_bytes: *reply_cap_bytes,
            cache: cache.clone(),
        }
    }
}

impl<C: Codec> std::fmt::Debug for Client<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Host and port only: the user, the path or the query could hold a secret.
        let url = self.address.url();
        let host = (url.host_str(), url.port_or_known_default());
        f.debug_struct(C::SERVICE.name)
            .field("host", &host)
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

fn is_valid_json(data: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
}

/// Whether JSON ends before it is complete.
fn is_cut_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_err_and(|error| error.is_eof())
}
