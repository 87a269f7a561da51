//! A session with one tool server: requests, and the end. `handshake.rs` begins it, and
//! `connection.rs` begins the next one. `liveness.rs` decides from the outcomes of requests whether
//! the server can still be expected to answer. The *downstream client* is the MCP client that the
//! kernel itself serves.

mod handshake;
mod pending_request;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dormouse_actors::ports::OutputSink;
use dormouse_proto::server::Server;
use rmcp::model::{
    ClientNotification, ClientRequest, ProgressToken, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, RunningService};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use self::pending_request::{PendingRequest, call_end};
use super::call_deadline::answer_within;
use super::downstream_requests::DownstreamClient;
use super::listing;
use super::liveness::{CallEnd, Liveness, SessionHealth};
use super::protocol_handler::ProtocolHandler;
use super::request_error::RequestError;
use super::unsolicited::CloseReason;
use crate::login::Logins;

/// How long a server may take to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take to end by itself.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(2);

/// A running session. Dropping it ends the server.
pub(super) struct Session {
    server: Arc<Server>,
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, ProtocolHandler>>>,
    /// Keeps the server running, if it was started as a program; dropping the guard ends the
    /// server.
    process_guard: Mutex<Option<Box<dyn Send + Sync>>>,
    pub(super) began: Instant,
    liveness: Mutex<Liveness>,
    tool_changes: watch::Receiver<u64>,
    /// How many requests of the server wait for the downstream client.
    open_downstream_requests: watch::Receiver<usize>,
    progress_sinks: ProgressSinks,
    close_reason: CloseReason,
    /// The names of the server's own tools (not those that `resources.rs` adds), and the number of
    /// changes after which they were listed.
    own_tools: Mutex<Option<(u64, Arc<BTreeSet<String>>)>>,
}

/// What the sessions of one connection have in common.
#[derive(Clone)]
pub(super) struct SessionSettings {
    /// The downstream client that the connection serves alone.
    pub(super) client: DownstreamClient,
    /// Answers requests of the server if there is no such client.
    pub(super) default_client: DownstreamClient,
    /// The longest message of the server.
    pub(super) max_message_bytes: usize,
    /// The tokens for servers over HTTP.
    pub(super) logins: Option<Logins>,
}

/// Where the progress of each call is reported.
pub(super) type ProgressSinks = Arc<Mutex<HashMap<ProgressToken, ProgressSink>>>;

/// Where the progress of one call is reported.
#[derive(Clone)]
pub(super) struct ProgressSink {
    pub(super) out: OutputSink,
    /// Counts the reports: each of them postpones the deadline of the call.
    pub(super) reported: Arc<watch::Sender<u64>>,
}

impl Session {
    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Whether the server offers resources.
    pub(super) fn has_resources(&self) -> bool {
        self.peer
            .peer_info()
            .is_some_and(|info| info.capabilities.resources.is_some())
    }

    /// What the server said of itself in the handshake.
    pub(super) fn introduction(&self) -> Value {
        let info = self.peer.peer_info();
        info.and_then(|info| serde_json::to_value(&*info).ok())
            .unwrap_or_default()
    }

    /// Sends a notification. A server that has ended misses it.
    pub(super) async fn notify(&self, notification: ClientNotification) {
        let _ = timeout(PING_TIMEOUT, self.peer.send_notification(notification)).await;
    }

    pub(super) fn has_tools(&self) -> bool {
        self.peer
            .peer_info()
            .is_some_and(|info| info.capabilities.tools.is_some())
    }

    /// Whether neither side has closed the connection.
    pub(super) fn is_open(&self) -> bool {
        !self.peer.is_transport_closed()
    }

    /// How often the tools of the server have changed since it started.
    pub(super) fn tool_changes(&self) -> u64 {
        *self.tool_changes.borrow()
    }

    /// Whether the server can be expected to answer. If that is in doubt, pings the server, unless
    /// calls wait that were sent before the doubt arose: ending the session would end them, and
    /// each of them has a deadline.
    pub(super) async fn is_alive(&self) -> bool {
        if self.peer.is_transport_closed() {
            return false;
        }
        let health = self.liveness().health();
        match health {
            SessionHealth::Healthy | SessionHealth::InUse => true,
            SessionHealth::Doubtful => self.is_ping_answered().await,
            SessionHealth::Expired => false,
        }
    }

    async fn is_ping_answered(&self) -> bool {
        let ping = ClientRequest::PingRequest(Default::default());
        let answer = timeout(PING_TIMEOUT, self.request(ping)).await;
        // An error response also shows that the server is alive.
        answer.is_ok_and(|answer| call_end(&answer) == CallEnd::Answered)
    }

    /// Sends a request. Dropping the future notifies the server that the request is cancelled.
    ///
    /// # Errors
    /// [`RequestError`].
    pub(super) async fn request(
        &self,
        request: ClientRequest,
    ) -> Result<ServerResult, RequestError> {
        self.pending(request, PeerRequestOptions::no_options())
            .await?
            .answer()
            .await
    }

    /// Sends a call of a tool, with the metadata that `out` has for it, and reports its progress to
    /// `out`. Waits as long as the server's `deadline` for the answer or for progress, and then
    /// again after each progress, and after each request of the server that the downstream client
    /// has answered.
    ///
    /// # Errors
    /// [`RequestError`].
    pub(super) async fn call(
        &self,
        request: ClientRequest,
        out: &OutputSink,
    ) -> Result<ServerResult, RequestError> {
        let mut options = PeerRequestOptions::no_options();
        options.meta = out.request_meta().map(RequestMetaObject::from);
        let mut pending = self.pending(request, options).await?;
        let (reported, progress) = watch::channel(0);
        let sink = ProgressSink {
            out: out.clone(),
            reported: Arc::new(reported),
        };
        let token = pending.progress_token();
        self.progress_sinks().insert(token, sink);
        let downstream_requests = self.open_downstream_requests.clone();
        let idle_ms = self.server.deadline_ms;
        let idle = Duration::from_millis(idle_ms);
        answer_within(pending.answer(), progress, downstream_requests, idle)
            .await
            .unwrap_or(Err(RequestError::Idle(idle_ms)))
    }

    async fn pending(
        &self,
        request: ClientRequest,
        options: PeerRequestOptions,
    ) -> Result<PendingRequest<'_>, RequestError> {
        let handle = self.peer.send_cancellable_request(request, options).await;
        let handle =
            handle.map_err(|error| RequestError::from(error).or_closed(&self.close_reason))?;
        Ok(PendingRequest::new(self, handle))
    }

    /// Sends a request, and waits at most `ms` milliseconds for the answer.
    pub(super) async fn request_within(
        &self,
        request: ClientRequest,
        ms: u64,
    ) -> Result<ServerResult, RequestError> {
        timeout(Duration::from_millis(ms), self.request(request))
            .await
            .unwrap_or(Err(RequestError::TimedOut(ms)))
    }

    /// Whether the server itself has a tool of this name. Lists its tools if they were not listed
    /// since they changed. A server that does not answer counts as a server without tools.
    pub(super) async fn has_own_tool(&self, tool: &str) -> bool {
        let changes = self.tool_changes();
        let listed = self
            .own_tools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some((_, own)) = listed.filter(|(at, _)| *at == changes) {
            return own.contains(tool);
        }
        listing::list_tools(self)
            .await
            .is_ok_and(|tools| tools.iter().any(|own| own.name == tool))
    }

    /// Remembers the names of the server's own tools. `changes` is the number of changes before the
    /// listing began: a change during it may be missing from the names.
    pub(super) fn remember_own_tools(&self, changes: u64, names: BTreeSet<String>) {
        *self
            .own_tools
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((changes, Arc::new(names)));
    }

    fn liveness(&self) -> MutexGuard<'_, Liveness> {
        self.liveness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress_sinks(&self) -> MutexGuard<'_, HashMap<ProgressToken, ProgressSink>> {
        self.progress_sinks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session: asks the server to end, and kills it if it does not.
    pub(super) async fn end(&self) {
        let service = self
            .service
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut service) = service {
            // A server that does not end in time is killed below.
            let _ = service.close_with_timeout(END_TIMEOUT).await;
        }
        drop(
            self.process_guard
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("server", &self.server.name)
            .finish_non_exhaustive()
    }
}
