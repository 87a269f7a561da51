//! A session with one server: begun, asked, ended.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dormouse_actors::ports::{Host, OutputSink, ServerChild};
use dormouse_proto::server::{Server, Transport};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientRequest, ErrorCode, ProgressToken,
    ProtocolVersion, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions,
    RequestHandle, RoleClient, RunningService,
};
use tokio::sync::watch;
use tokio::time::timeout;

use super::fault::{self, Fault};
use super::inbound::{Inbound, Left};
use super::lines::Lines;
use super::manners::Manners;
use super::trust::{CallEnd, CallNumber, Standing, Trust};
use super::{http, listing, stderr};

/// How long a server may take to say that it lives, where that is in doubt.
const PONG: Duration = Duration::from_secs(5);
/// How long a server may take to end by itself.
pub(super) const END: Duration = Duration::from_secs(2);

/// A running session. Dropping it ends the server.
pub(super) struct Session {
    server: Arc<Server>,
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Manners>>>,
    /// What keeps a server running that was started.
    held: Mutex<Option<Box<dyn Send + Sync>>>,
    pub(super) began: Instant,
    trust: Mutex<Trust>,
    changes: watch::Receiver<u64>,
    watched: Watched,
    left: Left,
    /// The tools that the server has itself, as of so many changes.
    own: Mutex<Option<(u64, Arc<BTreeSet<String>>)>>,
}

/// Where it goes what the server says of the progress of calls.
pub(super) type Watched = Arc<Mutex<HashMap<ProgressToken, OutputSink>>>;

impl Session {
    /// Begins a session, within the time that the server has for it: by the handshake that most
    /// servers know, and where a server refuses that, by the one that has none.
    ///
    /// # Errors
    /// A text: what is not permitted, or went wrong.
    pub(super) async fn begin(
        host: &dyn Host,
        server: &Arc<Server>,
        most_bytes: usize,
    ) -> Result<Self, String> {
        let limit = Duration::from_millis(server.connect_ms);
        let begun = timeout(limit, async {
            match Self::begin_by(ClientLifecycleMode::Initialize, host, server, most_bytes).await {
                Err(refusal @ (Unbegun::Refused(_) | Unbegun::Unknown(_))) => {
                    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
                    let discover = ClientLifecycleMode::Discover { preferred_versions };
                    match Self::begin_by(discover, host, server, most_bytes).await {
                        // It knows the handshake that it refused.
                        Err(Unbegun::Unknown(_)) => Err(refusal),
                        begun => begun,
                    }
                }
                begun => begun,
            }
        });
        match begun.await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(Unbegun::Unknown(why) | Unbegun::Refused(why) | Unbegun::Failed(why))) => {
                Err(why)
            }
            Err(_) => Err(format!("it was not ready within {} ms.", server.connect_ms)),
        }
    }

    async fn begin_by(
        lifecycle: ClientLifecycleMode,
        host: &dyn Host,
        server: &Arc<Server>,
        most_bytes: usize,
    ) -> Result<Self, Unbegun> {
        let (changes, changed) = watch::channel(0);
        let (watched, left) = (Watched::default(), Left::default());
        let (begun, held) = match &server.transport {
            Transport::Stdio(command) => {
                let ServerChild {
                    stdin,
                    stdout,
                    stderr,
                    held,
                } = host
                    .serve(command)
                    .map_err(|why| Unbegun::Failed(why.to_string()))?;
                let following = tokio::spawn(stderr::follow(server.name.clone(), stderr));
                let lines = Lines::new(stdout, stdin, most_bytes, left.clone());
                let inbound =
                    Inbound::new(lines, &server.name, changes, watched.clone(), left.clone());
                let begun = Manners.serve_with_lifecycle(inbound, lifecycle).await;
                if begun.is_err() {
                    // It ends now, if it has not: what it writes has an end.
                    drop(held);
                    stderr::tell_last(&server.name, following).await;
                    (begun, None)
                } else {
                    (begun, Some(held))
                }
            }
            Transport::Http { url, headers } => {
                let connect = Duration::from_millis(server.connect_ms);
                let transport = http::transport(host, url, headers, (connect, most_bytes))
                    .map_err(Unbegun::Failed)?;
                let inbound = Inbound::new(
                    transport,
                    &server.name,
                    changes,
                    watched.clone(),
                    left.clone(),
                );
                (Manners.serve_with_lifecycle(inbound, lifecycle).await, None)
            }
        };
        let service = begun.map_err(|error| match error {
            ClientInitializeError::JsonRpcError(ref refusal)
                if refusal.code == ErrorCode::METHOD_NOT_FOUND =>
            {
                Unbegun::Unknown(fault::of_beginning(&error, &left))
            }
            ClientInitializeError::JsonRpcError(_)
            | ClientInitializeError::ExpectedInitResult(_) => {
                Unbegun::Refused(fault::of_beginning(&error, &left))
            }
            _ => Unbegun::Failed(fault::of_beginning(&error, &left)),
        })?;
        Ok(Self {
            server: server.clone(),
            peer: service.peer().clone(),
            service: Mutex::new(Some(service)),
            held: Mutex::new(held),
            began: Instant::now(),
            trust: Mutex::default(),
            changes: changed,
            watched,
            left,
            own: Mutex::default(),
        })
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Whether the server has resources to read.
    pub(super) fn has_resources(&self) -> bool {
        self.peer
            .peer_info()
            .is_some_and(|info| info.capabilities.resources.is_some())
    }

    pub(super) fn has_tools(&self) -> bool {
        self.peer
            .peer_info()
            .is_some_and(|info| info.capabilities.tools.is_some())
    }

    /// Whether the server can be asked. Where that is in doubt it is asked for a sign of life,
    /// unless calls wait that were asked before: to end the session would end them, and each has a
    /// deadline.
    pub(super) async fn is_alive(&self) -> bool {
        if self.peer.is_transport_closed() {
            return false;
        }
        let standing = self.trust().standing();
        match standing {
            Standing::Sound | Standing::Held => true,
            Standing::Doubtful => self.gives_a_sign().await,
            Standing::Lost => false,
        }
    }

    async fn gives_a_sign(&self) -> bool {
        let ping = ClientRequest::PingRequest(Default::default());
        let answer = timeout(PONG, self.ask(ping)).await;
        // An answer of any kind is a sign of life.
        answer.is_ok_and(|answer| end_of(&answer) == CallEnd::Answered)
    }

    /// Asks the server. Dropping the future tells the server that nobody waits any more.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) async fn ask(&self, request: ClientRequest) -> Result<ServerResult, Fault> {
        self.ask_for(request, None).await
    }

    /// The same; what the server says of its progress goes to who watches `out`.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) async fn ask_watched(
        &self,
        request: ClientRequest,
        out: &OutputSink,
    ) -> Result<ServerResult, Fault> {
        self.ask_for(request, Some(out)).await
    }

    async fn ask_for(
        &self,
        request: ClientRequest,
        out: Option<&OutputSink>,
    ) -> Result<ServerResult, Fault> {
        let faulty = |fault: Fault| fault.or_left(&self.left);
        let handle = self
            .peer
            .send_cancellable_request(request, PeerRequestOptions::no_options())
            .await;
        let handle = handle.map_err(|error| faulty(error.into()))?;
        self.watched()
            .extend(out.map(|out| (handle.progress_token.clone(), out.clone())));
        let number = self.trust().ask();
        let mut asked = Asked {
            session: self,
            handle,
            number,
            end: CallEnd::GivenUp,
        };
        let answer = (&mut asked.handle.rx).await;
        let answer = answer
            .map_err(|_| Fault::Gone)
            .and_then(|answer| answer.map_err(Fault::from))
            .map_err(faulty);
        asked.end = end_of(&answer);
        answer
    }

    /// The same, within so many milliseconds.
    pub(super) async fn ask_within(
        &self,
        request: ClientRequest,
        ms: u64,
    ) -> Result<ServerResult, Fault> {
        timeout(Duration::from_millis(ms), self.ask(request))
            .await
            .unwrap_or(Err(Fault::Late(ms)))
    }

    /// Whether a tool of this name is the server's own. Asks the server, if it was not asked yet;
    /// one that does not answer has none.
    pub(super) async fn has_own(&self, tool: &str) -> bool {
        let changes = *self.changes.borrow();
        let known = self
            .own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some((_, own)) = known.filter(|(at, _)| *at == changes) {
            return own.contains(tool);
        }
        listing::tools(self)
            .await
            .is_ok_and(|tools| tools.iter().any(|own| own.name == tool))
    }

    /// Notes the tools that the server has itself.
    pub(super) fn note_own(&self, names: BTreeSet<String>) {
        let changes = *self.changes.borrow();
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Some((changes, Arc::new(names)));
    }

    fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<ProgressToken, OutputSink>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session: the server is asked to end, and ended where it does not.
    pub(super) async fn end(&self) {
        let service = self
            .service
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut service) = service {
            // What does not end in time is ended below.
            let _ = service.close_with_timeout(END).await;
        }
        drop(
            self.held
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

/// Why a session did not begin.
enum Unbegun {
    /// The server knows no such handshake.
    Unknown(String),
    /// It refused.
    Refused(String),
    /// Anything else.
    Failed(String),
}

/// A request that waits for its answer.
struct Asked<'a> {
    session: &'a Session,
    handle: RequestHandle<RoleClient>,
    number: CallNumber,
    end: CallEnd,
}

fn end_of(answer: &Result<ServerResult, Fault>) -> CallEnd {
    answer
        .as_ref()
        .map_or_else(Fault::call_end, |_| CallEnd::Answered)
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.session.watched().remove(&self.handle.progress_token);
        self.session.trust().end(self.number, self.end);
        if self.end != CallEnd::GivenUp {
            return;
        }
        let (peer, id) = (self.session.peer.clone(), self.handle.id.clone());
        // Outside of a runtime there is no connection left to say it by.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let params =
                CancelledNotificationParam::new(Some(id), Some("the call was given up".to_owned()));
            let notification = CancelledNotification::new(params);
            // A server that cannot be told is told nothing.
            let _ = timeout(PONG, peer.send_notification(notification.into())).await;
        });
    }
}
