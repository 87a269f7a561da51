//! Sessions over streamable HTTP, at `/mcp`.
//!
//! Each connection takes one of a bounded number of slots. A request is admitted
//! by its path, origin, token and the number of sessions; its body is read with a size limit and
//! deadlines. Then `rmcp` checks the header `Host`, manages the session and handles the request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dormouse_http::server::{BodyError, Connections, Slot, accept, is_origin_allowed, read_body};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{Hosts, HttpSettings, Token};
use crate::handler::{Handler, Sessions};
use crate::server::{McpServer, ServeError};

/// The path at which the protocol is served.
const PATH: &str = "/mcp";

const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_HEADER: &str = "mcp-protocol-version";

/// From this version of the protocol on, there are no sessions over HTTP.
const FIRST_SESSIONLESS_VERSION: &str = "2026-07-28";

/// The largest body of a request.
const MAX_BODY_BYTES: usize = 64 << 20;

/// The headers of a request must arrive within this time. It also limits how long a connection is
/// kept alive without a request, so it is longer than common clients keep idle connections (4 to
/// 5 seconds in Node and Python): otherwise a client could send a request at the moment at which
/// the server closes the connection, and lose it.
const HEADER_DEADLINE: Duration = Duration::from_secs(15);

/// The most connections at once: a few for each session.
const MAX_CONNECTIONS: usize = 512;

type Body = BoxBody<Bytes, Infallible>;

/// The parts of the server that all connections share.
struct Endpoint {
    protocol: StreamableHttpService<Handler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    max_sessions: usize,
    token: Option<Token>,
    /// Origins whose pages may send requests, in addition to the origins of this machine.
    origins: Vec<String>,
}

impl McpServer {
    /// Serves clients over HTTP, until `until` resolves. Each session has its own process.
    /// Clients of protocol versions without sessions share one process.
    ///
    /// # Errors
    /// [`ServeError::Settings`] if any host name is allowed without a token,
    /// [`ServeError::Listener`].
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        settings: HttpSettings,
        until: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        if settings.hosts == Hosts::Any && settings.token.is_none() {
            return Err(ServeError::Settings(
                "serving other machines needs a token: set `HttpSettings::token`, or serve \
                 `Hosts::Loopback` only"
                    .to_owned(),
            ));
        }
        let stop = CancellationToken::new();
        let endpoint = Arc::new(self.endpoint(settings, stop.clone()));
        let tasks = TaskTracker::new();
        let connections = Connections::new(MAX_CONNECTIONS);
        let accepting = async {
            loop {
                let stream = accept(&listener).await.map_err(ServeError::Listener)?;
                let slot = connections.admit().await;
                let (endpoint, stop) = (endpoint.clone(), stop.clone());
                tasks.spawn(async move {
                    let slot = Arc::new(slot);
                    let serving = slot.evicted().run_until_cancelled_owned(serve_stream(
                        stream,
                        endpoint,
                        slot.clone(),
                    ));
                    stop.run_until_cancelled(serving).await;
                });
            }
        };
        let end = tokio::select! {
            end = accepting => end,
            () = until => Ok(()),
        };
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        end
    }

    fn endpoint(&self, settings: HttpSettings, stop: CancellationToken) -> Endpoint {
        let HttpSettings {
            hosts,
            origins,
            token,
            max_sessions,
            idle,
        } = settings;
        let mut sessions = LocalSessionManager::default();
        let mut session = SessionConfig::default();
        session.keep_alive = Some(idle);
        sessions.session_config = session;
        let sessions = Arc::new(sessions);
        let local = ["localhost", "127.0.0.1", "[::1]"].into_iter();
        let local =
            local.flat_map(|host| ["http", "https"].map(|scheme| format!("{scheme}://{host}:*")));
        let config = StreamableHttpServerConfig::default()
            .with_allowed_origins(local.chain(origins.iter().cloned()))
            .with_max_request_body_bytes(MAX_BODY_BYTES)
            .with_cancellation_token(stop);
        let config = match hosts {
            Hosts::Loopback => config,
            Hosts::Any => config.disable_allowed_hosts(),
        };
        let server = self.clone();
        let session_permits = Arc::new(Semaphore::new(max_sessions));
        let handler = move || {
            let session_process = Arc::new(server.new_session(session_permits.clone()));
            Ok(Handler::new(session_process, Sessions::OldVersionsOnly))
        };
        let protocol = StreamableHttpService::new(handler, sessions.clone(), config);
        Endpoint {
            protocol,
            sessions,
            max_sessions,
            token,
            origins,
        }
    }
}

async fn serve_stream(stream: TcpStream, endpoint: Arc<Endpoint>, slot: Arc<Slot>) {
    let service = service_fn(move |request| {
        let (endpoint, slot) = (endpoint.clone(), slot.clone());
        async move { Ok::<_, Infallible>(endpoint.handle(request, &slot).await) }
    });
    let mut connection = http1::Builder::new();
    let connection = connection
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE);
    if let Err(error) = connection
        .serve_connection(TokioIo::new(stream), service)
        .await
    {
        tracing::debug!("a connection ended: {error}");
    }
}

impl Endpoint {
    async fn handle(&self, request: Request<Incoming>, slot: &Arc<Slot>) -> Response<Body> {
        if let Some(refusal) = self.check_request(&request).await {
            return refusal;
        }
        let (head, body) = request.into_parts();
        let body = match read_body(body, MAX_BODY_BYTES).await {
            Ok(body) => body,
            Err(error) => return text_response(status_of(&error), &error.to_string()),
        };
        // The connection is not evicted before the end of the answer, which may be a stream of
        // events.
        let guard = slot.serve();
        let ends_session = head.method == Method::DELETE;
        let mut response = self
            .protocol
            .handle(Request::from_parts(head, Full::new(body)))
            .await;
        if ends_session && response.status() == StatusCode::ACCEPTED {
            // The session has ended. Some clients accept only the status 204 as confirmation.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response.map(|body| guard.attach_to(body).boxed())
    }

    /// Returns the response to a request that is not admitted; `None` if the request is admitted.
    async fn check_request(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let headers = request.headers();
        if request.uri().path() != PATH {
            return Some(text_response(
                StatusCode::NOT_FOUND,
                &format!("this server is at {PATH} only"),
            ));
        }
        // Checked before the body is read: any web page can make a browser send a body here.
        let is_allowed =
            |origin: &http::HeaderValue| is_origin_allowed(origin.as_bytes(), &self.origins);
        if !headers.get_all(header::ORIGIN).iter().all(is_allowed) {
            return Some(text_response(
                StatusCode::FORBIDDEN,
                "pages of this origin are not allowed: serve with --allow-origin",
            ));
        }
        let authorization = headers
            .get(header::AUTHORIZATION)
            .map(http::HeaderValue::as_bytes);
        if self
            .token
            .as_ref()
            .is_some_and(|token| !token.matches_header(authorization))
        {
            let mut refusal = text_response(
                StatusCode::UNAUTHORIZED,
                "send the token: Authorization: Bearer …",
            );
            refusal.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                http::HeaderValue::from_static("Bearer"),
            );
            return Some(refusal);
        }
        let version = headers.get(VERSION_HEADER).map(http::HeaderValue::as_bytes);
        let is_sessionless =
            version.is_some_and(|version| version >= FIRST_SESSIONLESS_VERSION.as_bytes());
        let may_begin_session = request.method() == Method::POST
            && !headers.contains_key(SESSION_HEADER)
            && !is_sessionless;
        if may_begin_session && self.sessions.sessions.read().await.len() >= self.max_sessions {
            let mut refusal = text_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "the limit of sessions is reached",
            );
            refusal
                .headers_mut()
                .insert(header::RETRY_AFTER, http::HeaderValue::from_static("60"));
            return Some(refusal);
        }
        None
    }
}

fn status_of(error: &BodyError) -> StatusCode {
    match error {
        BodyError::TooLate => StatusCode::REQUEST_TIMEOUT,
        BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BodyError::Unreadable => StatusCode::BAD_REQUEST,
    }
}

fn text_response(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
