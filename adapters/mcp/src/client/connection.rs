//! The connection to one server: it begins a session (`session.rs`) when one is first needed, and
//! another one after that has ended. A server that is a program runs for one session.
//! `server_connections.rs` decides which processes share a connection, and `list_source.rs` what is
//! shown of a server that does not run.
//!
//! A call is never repeated, even if the session ends in the middle of it. The host starts servers
//! that are programs in the same way as commands, and ends them with everything that they started.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use dormouse_actors::ports::{Host, ToolError};
use dormouse_proto::server::Server;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use serde_json::json;
use tokio::task::unconstrained;

use super::list_source::ShownLists;
use super::server_connections::DownstreamClients;
use super::session::{Session, SessionSettings};

/// The delay before the second attempt. Each further delay is twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(15);
/// A session that lasted this long counts as a success: the next one starts without a pause.
const STABLE_AFTER: Duration = Duration::from_secs(60);

pub(super) type SessionResult = Result<Arc<Session>, ToolError>;
type PendingSession = Shared<BoxFuture<'static, SessionResult>>;

/// The connection to one server, with at most one session at a time.
pub(super) struct Connection {
    server: Arc<Server>,
    settings: SessionSettings,
    /// All downstream clients, for a connection that belongs to none of them.
    downstream: DownstreamClients,
    /// What is shown of a server that is started only when it is called.
    shown_lists: Option<Arc<ShownLists>>,
    state: Mutex<ConnectionState>,
}

struct ConnectionState {
    /// The session, or the attempt to start one.
    current: Option<PendingSession>,
    /// Failed attempts and short sessions in a row.
    failures: u32,
    is_closed: bool,
}

impl Connection {
    pub(super) fn new(
        server: Arc<Server>,
        settings: SessionSettings,
        downstream: DownstreamClients,
        shown_lists: Option<ShownLists>,
    ) -> Self {
        let state = Mutex::new(ConnectionState {
            current: None,
            failures: 0,
            is_closed: false,
        });
        Self {
            server,
            settings,
            downstream,
            shown_lists: shown_lists.map(Arc::new),
            state,
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn shown_lists(&self) -> Option<&Arc<ShownLists>> {
        self.shown_lists.as_ref()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Sends a notification without parameters to the client of this connection. If all trees share
    /// the connection, sends it to each of their clients.
    pub(super) fn notify_downstream(&self, method: &str) {
        let clients = match &self.settings.client {
            Some(client) => vec![client.clone()],
            None => self.downstream.all(),
        };
        for client in clients.iter().filter_map(Weak::upgrade) {
            client.notify(&self.server.name, method, json!({}));
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.server.name
    }

    /// A live session. If the last session has ended, starts a new one after a pause that grows
    /// with each failure in a row.
    ///
    /// # Errors
    /// Why there is no session.
    pub(super) async fn session(self: &Arc<Self>, host: &Arc<dyn Host>) -> SessionResult {
        let current = self.current(host)?;
        let session = match current.clone().await {
            Ok(session) if session.is_alive().await => return Ok(session),
            Ok(session) => {
                let was_stable = session.began.elapsed() >= STABLE_AFTER;
                self.discard(
                    &current,
                    if was_stable {
                        AttemptEnd::Success
                    } else {
                        AttemptEnd::Failure
                    },
                );
                session
            }
            Err(why) => {
                self.discard(&current, AttemptEnd::Failure);
                return Err(why);
            }
        };
        session.end().await;
        let current = self.current(host)?;
        let result = current.clone().await;
        if result.is_err() {
            self.discard(&current, AttemptEnd::Failure);
        }
        result
    }

    /// The session, if there is one already.
    pub(super) fn running_session(&self) -> Option<Arc<Session>> {
        let current = self.state().current.clone();
        started(current?)
    }

    /// The session, if there is one already and the server has not closed it.
    pub(super) fn open_session(&self) -> Option<Arc<Session>> {
        self.running_session().filter(|session| session.is_open())
    }

    /// Ends the session, and starts no further one.
    pub(super) async fn close(&self) {
        let current = {
            let mut state = self.state();
            state.is_closed = true;
            state.current.take()
        };
        self.finish_list_fetch().await;
        // A session that is still being started is ended by the task that starts it.
        if let Some(session) = current.and_then(started) {
            session.end().await;
        }
    }

    /// The session, or the attempt to start one. Starts one if there is neither.
    fn current(self: &Arc<Self>, host: &Arc<dyn Host>) -> Result<PendingSession, ToolError> {
        let mut state = self.state();
        if state.is_closed {
            return Err("the kernel is shutting down.".into());
        }
        if let Some(current) = &state.current {
            return Ok(current.clone());
        }
        let pause = retry_delay(state.failures);
        let server = self.server.clone();
        let host = host.clone();
        let settings = self.settings.clone();
        let connection = Arc::downgrade(self);
        // In a task of its own, so that the attempt continues if its caller is cancelled.
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let result = Session::begin(&*host, &server, &settings)
                .await
                .map(Arc::new);
            let connection = connection
                .upgrade()
                .filter(|connection| !connection.is_closed());
            match (result, connection) {
                (Ok(session), None) => {
                    session.end().await;
                    Err("the kernel is shutting down.".into())
                }
                (Ok(session), Some(connection)) => {
                    connection.start_list_fetch(&session);
                    Ok(session)
                }
                (Err(why), _) => Err(why),
            }
        });
        let pending = async move {
            task.await
                .unwrap_or_else(|_| Err("the adapter failed inside.".into()))
        };
        let pending = pending.boxed().shared();
        state.current = Some(pending.clone());
        Ok(pending)
    }

    /// Discards a session or an attempt that has ended, unless another caller has replaced it
    /// already.
    fn discard(&self, ended: &PendingSession, end: AttemptEnd) {
        let mut state = self.state();
        if state
            .current
            .as_ref()
            .is_some_and(|current| current.ptr_eq(ended))
        {
            state.current = None;
            state.failures = match end {
                AttemptEnd::Success => 0,
                AttemptEnd::Failure => state.failures.saturating_add(1),
            };
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server.name)
            .finish_non_exhaustive()
    }
}

/// How a session or an attempt ended.
#[derive(Clone, Copy)]
enum AttemptEnd {
    Success,
    Failure,
}

/// The session, if it has started by now. A task that has used up its time is told that nothing is
/// ready, so that time does not count here.
fn started(pending: PendingSession) -> Option<Arc<Session>> {
    unconstrained(pending).now_or_never()?.ok()
}

/// The delay after a number of failures in a row: exponential backoff with a random factor between
/// a half and one.
fn retry_delay(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let longest = FIRST_DELAY
        .saturating_mul(1 << doublings.min(16))
        .min(MAX_DELAY);
    // Each `RandomState` has different keys, which is random enough for a delay.
    let permille =
        u32::try_from(RandomState::new().build_hasher().finish() % 1_000).unwrap_or_default();
    longest / 2 + longest / 2 * permille / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_grow_to_a_limit() {
        assert_eq!(retry_delay(0), Duration::ZERO);
        for (failures, longest) in [
            (1, 250),
            (2, 500),
            (5, 4_000),
            (40, 15_000),
            (u32::MAX, 15_000),
        ] {
            let longest = Duration::from_millis(longest);
            assert!(
                (longest / 2..=longest).contains(&retry_delay(failures)),
                "{failures}"
            );
        }
    }
}
