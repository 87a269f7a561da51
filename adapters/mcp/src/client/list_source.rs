//! Decides where the lists of a server are read: from the server if it runs, otherwise from what it
//! last said. So nothing has to be started before one of its tools is called.
//!
//! A server that has never run is started for its lists. A caller waits for a bounded time, and
//! then goes on without them; the server is started again until it is ready. Whenever a server has
//! started, its lists are fetched and kept, and the downstream clients (the MCP clients that the
//! kernel itself serves) are notified of those that differ from what they were shown.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dormouse_actors::ports::{Host, ServerAnswer, ToolError};
use dormouse_proto::server::Server;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Connection, SessionResult};
use super::downstream_requests::{self, DownstreamClient};
use super::known_lists::{KnownLists, ListsName};
use super::protocol;
use super::server_lists::ServerLists;
use super::session::Session;

/// How often a server that has never run is started, if it fails.
const MAX_STARTS: usize = 10;

/// How long the end of a connection waits for the lists of its server.
const FETCH_TIMEOUT: Duration = Duration::from_secs(1);

/// The request by which a client says which log messages it wants. A server gets it when it starts.
const SET_LEVEL: &str = "logging/setLevel";

/// Where the lists of a server are read.
pub(super) enum ListSource {
    /// The server runs.
    Session(Arc<Session>),
    /// What it last said.
    Known(Arc<ServerLists>),
}

/// The lists that a connection has shown to clients before it started its server.
pub(super) struct ShownLists {
    known: Arc<KnownLists>,
    name: Option<ListsName>,
    /// Whether one client sees these lists, and is notified before it sees others.
    has_client: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is shown until the server runs, then what it said.
    shown: Option<Arc<ServerLists>>,
    /// Whether what the server last said is out of date, so that it is not shown.
    is_outdated: bool,
    /// Whether a list was requested when none was available, so that clients know no tool of the
    /// server.
    was_unavailable: bool,
    /// The attempt to start a server that has never run, as long as it is repeated.
    first_start: Option<FirstStart>,
    /// Which log messages the downstream client wants.
    log_level: Option<Value>,
    /// Fetches the lists of a server that has started.
    list_fetch: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct FirstStart {
    began: Instant,
    result: Shared<BoxFuture<'static, SessionResult>>,
}

impl ShownLists {
    /// The lists of a server for `client`; for every client if it has none of its own.
    pub(super) fn new(known: Arc<KnownLists>, server: &Server, client: &DownstreamClient) -> Self {
        let capabilities = json!(downstream_requests::capabilities(client.as_ref()));
        Self {
            known,
            name: ListsName::of(server, &capabilities),
            has_client: client.is_some(),
            state: Mutex::default(),
        }
    }

    /// What the server last said. A connection that serves one client keeps to it until the server
    /// runs.
    async fn shown(self: &Arc<Self>) -> Option<Arc<ServerLists>> {
        if let Some(shown) = self.state().shown.as_ref().filter(|_| self.has_client) {
            return Some(shown.clone());
        }
        let lists = self.clone();
        let read = tokio::task::spawn_blocking(move || lists.known.get(lists.name.as_ref()?));
        let read = read.await.ok().flatten()?;
        let mut state = self.state();
        // If a list was requested when none was available, clients have to be notified of it.
        if state.was_unavailable || state.is_outdated {
            return None;
        }
        state.shown = Some(read.clone());
        Some(read)
    }

    /// Records that no list was available to a request, unless the server has said something
    /// meanwhile.
    fn record_unavailable(&self) -> Option<Arc<ServerLists>> {
        let mut state = self.state();
        state.was_unavailable = state.shown.is_none();
        state.shown.clone()
    }

    /// Records what the server says now, and returns what clients have to be notified of.
    fn replace(&self, newer: &Arc<ServerLists>) -> Vec<&'static str> {
        let mut state = self.state();
        state.is_outdated = false;
        let was_unavailable = std::mem::take(&mut state.was_unavailable);
        match state.shown.replace(newer.clone()) {
            Some(shown) => shown.changes_to(newer),
            None if was_unavailable => ServerLists::default().changes_to(newer),
            None => Vec::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Where the lists of the server are read. If it has never run, it is started; `max_start_wait`
    /// is how long to wait for that, `None` as long as its declaration says.
    ///
    /// # Errors
    /// Why there are no lists.
    pub(super) async fn list_source(
        self: &Arc<Self>,
        host: &Arc<dyn Host>,
        max_start_wait: Option<Duration>,
    ) -> Result<ListSource, ToolError> {
        let Some(lists) = self.shown_lists() else {
            return self.session(host).await.map(ListSource::Session);
        };
        if let Some(session) = self.open_session() {
            return Ok(ListSource::Session(session));
        }
        if let Some(shown) = lists.shown().await {
            return Ok(ListSource::Known(shown));
        }
        let first_start = self.first_start(lists, host);
        let started = match max_start_wait {
            None => first_start.result.await,
            Some(max_start_wait) => {
                timeout_at(first_start.began + max_start_wait, first_start.result)
                    .await
                    .unwrap_or_else(|_| Err("it is not ready yet.".into()))
            }
        };
        match (self.open_session(), started) {
            (Some(session), _) => Ok(ListSource::Session(session)),
            (None, started) => {
                let why = started.err();
                let why = why.unwrap_or_else(|| "it ended after it had started.".into());
                lists.record_unavailable().map(ListSource::Known).ok_or(why)
            }
        }
    }

    /// Marks the known lists as outdated, unless the server runs. Returns whether they were marked.
    pub(super) fn forget_lists(&self) -> bool {
        let Some(lists) = self.shown_lists() else {
            return false;
        };
        let mut state = lists.state();
        let was_shown = state.shown.is_some() && self.open_session().is_none();
        if was_shown {
            state.shown = None;
            state.is_outdated = true;
        }
        was_shown
    }

    /// Passes on which log messages the downstream client wants: to a server that runs, otherwise
    /// when it starts. `None` if this request has to be sent as any other one.
    pub(super) fn keep_log_level(&self, method: &str, params: &Value) -> Option<ServerAnswer> {
        let lists = self.shown_lists().filter(|_| method == SET_LEVEL)?;
        lists.state().log_level = Some(params.clone());
        self.open_session().is_none().then(|| Ok(json!({})))
    }

    /// Begins to fetch the lists of a server that has started.
    pub(super) fn start_list_fetch(self: &Arc<Self>, session: &Arc<Session>) {
        if let Some(lists) = self.shown_lists() {
            let list_fetch = tokio::spawn(self.clone().fetch_and_notify(session.clone()));
            lists.state().list_fetch = Some(list_fetch);
        }
    }

    /// Waits until the lists of the server are kept, or for a moment: otherwise those of a server
    /// that is started for each call would never be.
    pub(super) async fn finish_list_fetch(&self) {
        let list_fetch = self
            .shown_lists()
            .and_then(|lists| lists.state().list_fetch.take());
        if let Some(list_fetch) = list_fetch {
            // What was not fetched in time is fetched after the next start.
            let _ = timeout(FETCH_TIMEOUT, list_fetch).await;
        }
    }

    /// Fetches what the server says of itself, keeps it, and notifies the clients of what differs
    /// from what they were shown.
    async fn fetch_and_notify(self: Arc<Self>, session: Arc<Session>) {
        let Some(lists) = self.shown_lists() else {
            return;
        };
        let log_level = lists.state().log_level.clone();
        if let Some(params) = log_level {
            // A server without log messages refuses it.
            let _ = protocol::request(&session, SET_LEVEL, params).await;
        }
        for changed in self.fetch_lists(lists, &session).await {
            self.notify_downstream(changed);
        }
    }

    /// Fetches the lists again, of which the server itself said that they have changed.
    pub(super) async fn fetch_changed_lists(self: Arc<Self>, session: Arc<Session>) {
        if let Some(lists) = self.shown_lists() {
            self.fetch_lists(lists, &session).await;
        }
    }

    /// Fetches and keeps what the server says of itself, and returns what clients have to be
    /// notified of.
    async fn fetch_lists(&self, lists: &Arc<ShownLists>, session: &Session) -> Vec<&'static str> {
        let newer = match ServerLists::fetch(session).await {
            Ok(newer) => Arc::new(newer),
            Err(error) => {
                tracing::warn!(server = self.name(), "its lists are not known: {error}");
                return Vec::new();
            }
        };
        let kept = (lists.clone(), newer.clone());
        let keeping = tokio::task::spawn_blocking(move || {
            let (lists, newer) = kept;
            if let Some(name) = &lists.name {
                lists.known.put(name, &newer);
            }
        });
        // What is not kept is fetched again after the next start.
        let _ = keeping.await;
        lists.replace(&newer)
    }

    /// The attempt to start a server that has never run. It is repeated in the background.
    fn first_start(self: &Arc<Self>, lists: &ShownLists, host: &Arc<dyn Host>) -> FirstStart {
        let begin = || {
            let (sender, receiver) = oneshot::channel();
            let (connection, host) = (Arc::downgrade(self), host.clone());
            tokio::spawn(async move {
                start_until_ready(&connection, host, sender).await;
                end_first_start(&connection);
            });
            let result = async move {
                let result = receiver.await;
                result.unwrap_or_else(|_| Err("the kernel is shutting down.".into()))
            };
            FirstStart {
                began: Instant::now(),
                result: result.boxed().shared(),
            }
        };
        lists.state().first_start.get_or_insert_with(begin).clone()
    }
}

/// Starts a server until it is ready or its connection is closed. Sends the result of the first
/// attempt.
async fn start_until_ready(
    connection: &Weak<Connection>,
    host: Arc<dyn Host>,
    first: oneshot::Sender<SessionResult>,
) {
    let mut first = Some(first);
    for _ in 0..MAX_STARTS {
        let Some(connection) = connection.upgrade().filter(|one| !one.is_closed()) else {
            return;
        };
        let result = connection.session(&host).await;
        let is_ready = result.is_ok();
        if let Err(why) = &result {
            tracing::warn!(server = connection.name(), "not ready: {why}");
        }
        if let Some(first) = first.take() {
            // Nobody waits if the session that asked is over.
            let _ = first.send(result);
        }
        if is_ready {
            return;
        }
    }
}

/// Forgets the attempt to start a server once nothing repeats it: a later request for a list that
/// needs the server starts it anew.
fn end_first_start(connection: &Weak<Connection>) {
    if let Some(connection) = connection.upgrade()
        && let Some(lists) = connection.shown_lists()
    {
        // It may hold the last reference to a session, which ends outside of the lock.
        let ended = lists.state().first_start.take();
        drop(ended);
    }
}
