//! Sessions over streamable HTTP, at `/mcp`.
//!
//! Each connection takes one of a bounded number of slots (`connections.rs`). A request passes the
//! gate (path, token, number of sessions), is read under a bound and deadlines, and is then handled
//! by the protocol, which checks `Host` and `Origin` and keeps the sessions.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
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

use crate::connections::{Connections, Slot};
use crate::gate::{Hosts, HttpSettings, Token, is_origin_let_in};
use crate::handler::{Handler, Sessions};
use crate::seat::Seat;
use crate::server::{McpServer, ServeError};

/// Where the protocol is spoken.
const PATH: &str = "/mcp";

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// From this version on there are no sessions over HTTP.
const WITHOUT_SESSIONS: &str = "2026-07-28";

/// What a client may say at once.
const MAX_BODY_BYTES: usize = 64 << 20;

/// In which it must have said it.
const BODY_DEADLINE: Duration = Duration::from_secs(60);

/// How long a client may pause in the middle of a body.
const BODY_PAUSE: Duration = Duration::from_secs(5);

/// In which the headers of a request must have come, counted from the moment when they could. A
/// connection that is kept alive is closed after it, too, where no further request comes.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// Connections at once: a few for each session.
const MAX_CONNECTIONS: usize = 512;

type Body = BoxBody<Bytes, Infallible>;

/// What stands behind all connections.
struct Endpoint {
    protocol: StreamableHttpService<Handler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    max_sessions: usize,
    token: Option<Token>,
    /// The origins whose pages may call, in addition to those of this machine.
    origins: Vec<String>,
}

impl McpServer {
    /// Serves clients over HTTP, until `until` resolves. Each session has a process; clients of
    /// versions without sessions share one.
    ///
    /// # Errors
    /// [`ServeError::Settings`] where any host is let in without a token, [`ServeError::Listener`].
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
        let (tasks, connections) = (TaskTracker::new(), Connections::new(MAX_CONNECTIONS));
        let accepting = async {
            loop {
                let stream = accept(&listener).await?;
                let slot = connections.admit().await;
                let (endpoint, stop) = (endpoint.clone(), stop.clone());
                tasks.spawn(async move {
                    let slot = Arc::new(slot);
                    let speaking = slot.evicted().run_until_cancelled_owned(speak(
                        stream,
                        endpoint,
                        slot.clone(),
                    ));
                    stop.run_until_cancelled(speaking).await;
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
        let (processes, places) = (
            self.processes.clone(),
            Arc::new(Semaphore::new(max_sessions)),
        );
        let handler = move || {
            let seat = Arc::new(Seat::new(processes.clone(), places.clone()));
            Ok(Handler::new(seat, Sessions::OfOldVersions))
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

/// The next connection. One that fails as it comes is its client's business; where the system has
/// no room, it is given time.
async fn accept(listener: &TcpListener) -> Result<TcpStream, ServeError> {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, InvalidInput};
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Ok(stream),
            Err(error)
                if matches!(
                    error.kind(),
                    ConnectionAborted | ConnectionReset | Interrupted
                ) => {}
            Err(error) if error.kind() == InvalidInput => return Err(ServeError::Listener(error)),
            Err(error) => {
                tracing::warn!("no connection can be taken: {error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn speak(stream: TcpStream, endpoint: Arc<Endpoint>, slot: Arc<Slot>) {
    // Small messages are not held back; where that cannot be said, they are.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let (endpoint, slot) = (endpoint.clone(), slot.clone());
        async move { Ok::<_, Infallible>(endpoint.answer(request, &slot).await) }
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
    async fn answer(&self, request: Request<Incoming>, slot: &Arc<Slot>) -> Response<Body> {
        if let Some(refusal) = self.refuse(&request).await {
            return refusal;
        }
        let (head, body) = request.into_parts();
        let body = match read(body).await {
            Ok(body) => body,
            Err((status, why)) => return said(status, &why),
        };
        // The connection is not evicted before the end of the answer, which may be a stream of
        // events.
        let guard = slot.serve();
        let is_end = head.method == Method::DELETE;
        let mut response = self
            .protocol
            .handle(Request::from_parts(head, Full::new(body)))
            .await;
        if is_end && response.status() == StatusCode::ACCEPTED {
            // The session is over by now, and some clients believe that of nothing but this.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response.map(|body| guard.held_by(body))
    }

    /// Why this is no request for the protocol, if it is none.
    async fn refuse(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let headers = request.headers();
        if request.uri().path() != PATH {
            return Some(said(
                StatusCode::NOT_FOUND,
                &format!("this server speaks at {PATH} and nowhere else"),
            ));
        }
        // Before any of the body is taken: every page of the web can send one here.
        let is_let_in =
            |origin: &http::HeaderValue| is_origin_let_in(origin.as_bytes(), &self.origins);
        if !headers.get_all(header::ORIGIN).iter().all(is_let_in) {
            return Some(said(
                StatusCode::FORBIDDEN,
                "pages of this origin may not call: serve with --allow-origin",
            ));
        }
        let authorization = headers
            .get(header::AUTHORIZATION)
            .map(http::HeaderValue::as_bytes);
        if self
            .token
            .as_ref()
            .is_some_and(|token| !token.is_shown_in(authorization))
        {
            let mut refusal = said(
                StatusCode::UNAUTHORIZED,
                "send the token: Authorization: Bearer …",
            );
            refusal.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                http::HeaderValue::from_static("Bearer"),
            );
            return Some(refusal);
        }
        let version = headers.get(VERSION).map(http::HeaderValue::as_bytes);
        let is_sessionless = version.is_some_and(|version| version >= WITHOUT_SESSIONS.as_bytes());
        let may_begin =
            request.method() == Method::POST && !headers.contains_key(SESSION) && !is_sessionless;
        if may_begin && self.sessions.sessions.read().await.len() >= self.max_sessions {
            let mut refusal = said(
                StatusCode::SERVICE_UNAVAILABLE,
                "there are as many sessions as this server serves",
            );
            refusal
                .headers_mut()
                .insert(header::RETRY_AFTER, http::HeaderValue::from_static("60"));
            return Some(refusal);
        }
        None
    }
}

/// A whole body, or why it is not taken.
async fn read(body: Incoming) -> Result<Bytes, (StatusCode, String)> {
    let too_late = || {
        (
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time".to_owned(),
        )
    };
    let mut body = Limited::new(body, MAX_BODY_BYTES);
    let gathering = async {
        let mut gathered = BytesMut::new();
        while let Some(frame) = tokio::time::timeout(BODY_PAUSE, body.frame())
            .await
            .map_err(|_| too_late())?
        {
            let frame =
                frame.map_err(
                    |error| match error.is::<http_body_util::LengthLimitError>() {
                        true => (
                            StatusCode::PAYLOAD_TOO_LARGE,
                            format!("a body has {MAX_BODY_BYTES} bytes at most"),
                        ),
                        false => (
                            StatusCode::BAD_REQUEST,
                            "the body cannot be read".to_owned(),
                        ),
                    },
                )?;
            if let Ok(data) = frame.into_data() {
                gathered.extend_from_slice(&data);
            }
        }
        Ok(gathered.freeze())
    };
    tokio::time::timeout(BODY_DEADLINE, gathering)
        .await
        .unwrap_or_else(|_| Err(too_late()))
}

fn said(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        http::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}
