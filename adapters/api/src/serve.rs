//! Serves connections: who is admitted, and what each connection may take.
//!
//! A connection takes one of a bounded number of slots. Each request is checked before anything of
//! its body is read: the header `Host`, the origin, and the token, which gives a scope. Without a
//! scope no route answers (`routes.rs`).

mod tcp;
#[cfg(unix)]
pub(crate) mod unix;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::response::IntoResponse;
use dormouse_http::server::{BodyError, Connections, Hosts, Listener, Slot, accept, read_body};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::tcp::TcpSettings;
use crate::api::ControlApi;
use crate::error::ApiError;
use crate::routes::AtRest;
use crate::scope::Tokens;

/// The most connections at once, over one way in.
const MAX_CONNECTIONS: usize = 256;

/// The largest body of a request: an input may hold files.
const MAX_BODY_BYTES: usize = 16 << 20;

/// The headers of a request must arrive within this time. It also limits how long a connection is
/// kept alive without a request.
const HEADER_DEADLINE: Duration = Duration::from_secs(15);

/// The most bytes of the headers of a request.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Why a server stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The settings admit nobody, or more than they should.
    #[error("{0}")]
    Settings(String),
    /// The listener accepts no connections any more.
    #[error("no connection can be accepted: {0}")]
    Listener(#[source] io::Error),
}

/// Whom a way in admits.
pub(crate) struct Admission {
    pub(crate) hosts: Hosts,
    /// Origins of pages that may send requests, in addition to the one that the request names as its
    /// host.
    pub(crate) origins: Vec<String>,
    pub(crate) tokens: Tokens,
}

/// Ends a connection, from within one of its answers.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionEnd(CancellationToken);

impl ConnectionEnd {
    pub(crate) fn end(&self) {
        self.0.cancel();
    }
}

/// What all connections of one way in share.
struct Endpoint {
    router: Router,
    admission: Admission,
    is_at_rest: bool,
}

impl Endpoint {
    fn new(api: &ControlApi, admission: Admission) -> Arc<Self> {
        Arc::new(Self {
            // Bodies are bounded where they are read.
            router: api.router().layer(DefaultBodyLimit::disable()),
            admission,
            is_at_rest: api.kernel().is_read_only(),
        })
    }

    /// Answers a request that is admitted, or says why it is not.
    async fn handle(
        &self,
        request: Request<Incoming>,
        slot: &Arc<Slot>,
        end: ConnectionEnd,
    ) -> Response<Body> {
        let scope = match self.admission.check(&request) {
            Ok(scope) => scope,
            Err(refusal) => return with_headers(refusal.into_response()),
        };
        let (head, body) = request.into_parts();
        let body = match read_body(body, MAX_BODY_BYTES).await {
            Ok(body) => body,
            Err(error) => return with_headers(body_refusal(&error).into_response()),
        };
        let mut request = Request::from_parts(head, Body::from(body));
        let extensions = request.extensions_mut();
        extensions.insert(scope);
        extensions.insert(end);
        if self.is_at_rest {
            extensions.insert(AtRest);
        }
        // The connection is not evicted before the end of the answer, which may be a stream.
        let guard = slot.serve();
        let service = TowerToHyperService::new(self.router.clone());
        let answered = hyper::service::Service::call(&service, request).await;
        let response = match answered {
            Ok(response) => response,
            Err(never) => match never {},
        };
        with_headers(response.map(|body| Body::new(guard.attach_to(body))))
    }
}

fn body_refusal(error: &BodyError) -> ApiError {
    match error {
        BodyError::TooLarge { .. } => ApiError::too_large(error.to_string()),
        BodyError::TooLate => ApiError::too_slow(StatusCode::REQUEST_TIMEOUT, error.to_string()),
        BodyError::Unreadable => ApiError::invalid(error.to_string()),
    }
}

impl Admission {
    /// The scope of a request.
    fn check<B>(&self, request: &Request<B>) -> Result<crate::scope::Scope, ApiError> {
        let headers = request.headers();
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let is_one = headers.get_all(header::HOST).iter().count() == 1;
        let host = host.filter(|host| is_one && self.hosts.allows(host));
        let Some(host) = host else {
            return Err(ApiError::forbidden(
                "the header Host names another machine: use the address that was printed",
            ));
        };
        // Checked before the token: a page of another origin must not even learn whether a token
        // is right.
        let is_allowed = |origin: &HeaderValue| self.allows_origin(origin.as_bytes(), host);
        if !headers.get_all(header::ORIGIN).iter().all(is_allowed) {
            return Err(ApiError::forbidden(
                "pages of this origin are not allowed: serve with --allow-origin",
            ));
        }
        let authorization = headers.get(header::AUTHORIZATION);
        self.tokens
            .scope(authorization.map(HeaderValue::as_bytes))
            .ok_or_else(|| {
                ApiError::unauthorized("send the token that was printed: Authorization: Bearer …")
            })
    }

    /// Whether a page of an origin may send requests: one that this server itself served, or one of
    /// the permitted ones.
    fn allows_origin(&self, origin: &[u8], host: &[u8]) -> bool {
        let same = [&b"http://"[..], b"https://"].iter().any(|scheme| {
            let rest = origin.strip_prefix(*scheme);
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        });
        same || self
            .origins
            .iter()
            .any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin))
    }
}

/// Nothing of an answer is kept by caches, or taken for something else than it says.
fn with_headers(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Serves the connections of a listener until `until` resolves. `refusal` says why a connection is
/// not admitted at all.
async fn serve<L: Listener>(
    api: &ControlApi,
    admission: Admission,
    listener: &L,
    refusal: impl Fn(&L::Stream) -> Option<String>,
    until: impl Future<Output = ()>,
) -> Result<(), ServeError>
where
    L::Stream: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let endpoint = Endpoint::new(api, admission);
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let connections = Connections::new(MAX_CONNECTIONS);
    let accepting = async {
        loop {
            let stream = accept(listener).await.map_err(ServeError::Listener)?;
            let refused = refusal(&stream);
            let slot = Arc::new(connections.admit().await);
            let (endpoint, stop) = (endpoint.clone(), stop.clone());
            tasks.spawn(async move {
                let evicted = slot.evicted();
                let serving = serve_stream(stream, endpoint, slot, refused);
                stop.run_until_cancelled(evicted.run_until_cancelled(serving))
                    .await;
            });
        }
    };
    let end = tokio::select! {
        end = accepting => end,
        () = until => Ok(()),
        // Nothing can be answered any more.
        _ = api.kernel().closed() => Ok(()),
    };
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    end
}

async fn serve_stream<S>(
    stream: S,
    endpoint: Arc<Endpoint>,
    slot: Arc<Slot>,
    refused: Option<String>,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let end = CancellationToken::new();
    let ended = end.clone();
    let service = service_fn(move |request| {
        let (endpoint, slot, refused) = (endpoint.clone(), slot.clone(), refused.clone());
        let end = ConnectionEnd(end.clone());
        async move {
            Ok::<_, Infallible>(match refused {
                Some(reason) => with_headers(ApiError::forbidden(reason).into_response()),
                None => endpoint.handle(request, &slot, end).await,
            })
        }
    });
    let mut connection = http1::Builder::new();
    let connection = connection
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Some(Err(error)) = ended.run_until_cancelled(connection).await {
        tracing::debug!("a connection ended: {error}");
    }
}
