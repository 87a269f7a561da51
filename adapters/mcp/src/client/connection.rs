//! The connection to one server: begun when it is needed, shared by all who need it, begun anew
//! when it ended.
//!
//! A call is never repeated, also where the connection ends in the middle of it. The host starts
//! servers that are programs, as it starts commands, and they end with their group.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_actors::ports::Host;
use dormouse_proto::server::Server;
use futures_util::future::{BoxFuture, FutureExt, Shared};

use super::session::Session;

/// The pause before a second try; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A session that lasted so long was good: what follows it begins without a pause.
const LASTING: Duration = Duration::from_secs(60);

type Begun = Result<Arc<Session>, String>;
type Beginning = Shared<BoxFuture<'static, Begun>>;

/// What leads to one server.
pub(super) struct Connection {
    server: Arc<Server>,
    most_bytes: usize,
    standing: Mutex<Standing>,
}

/// How it stands.
struct Standing {
    /// The session, or the try to begin one.
    current: Option<Beginning>,
    /// Tries and short sessions in a row that came to nothing.
    failures: u32,
    is_closed: bool,
}

impl Connection {
    pub(super) fn new(server: Arc<Server>, most_bytes: usize) -> Self {
        let standing = Mutex::new(Standing {
            current: None,
            failures: 0,
            is_closed: false,
        });
        Self {
            server,
            most_bytes,
            standing,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.server.name
    }

    /// A session that lives. One that ended is begun anew, after a pause that grows with each
    /// failure in a row.
    ///
    /// # Errors
    /// A text: why there is none.
    pub(super) async fn session(self: &Arc<Self>, host: &Arc<dyn Host>) -> Begun {
        let current = self.current(host)?;
        let session = match current.clone().await {
            Ok(session) if session.is_alive().await => return Ok(session),
            Ok(session) => {
                let lasted = session.began.elapsed() >= LASTING;
                self.leave(&current, if lasted { Ended::Well } else { Ended::Badly });
                session
            }
            Err(why) => {
                self.leave(&current, Ended::Badly);
                return Err(why);
            }
        };
        session.end().await;
        let current = self.current(host)?;
        let begun = current.clone().await;
        if begun.is_err() {
            self.leave(&current, Ended::Badly);
        }
        begun
    }

    /// Ends the session, and begins none from here on.
    pub(super) async fn close(&self) {
        let current = {
            let mut standing = self.standing();
            standing.is_closed = true;
            standing.current.take()
        };
        // One that is only beginning ends with its task.
        if let Some(Some(Ok(session))) = current.map(FutureExt::now_or_never) {
            session.end().await;
        }
    }

    /// The session, or the try to begin one; where there is neither, one is begun.
    fn current(self: &Arc<Self>, host: &Arc<dyn Host>) -> Result<Beginning, String> {
        let mut standing = self.standing();
        if standing.is_closed {
            return Err("the kernel is shutting down.".to_owned());
        }
        if let Some(current) = &standing.current {
            return Ok(current.clone());
        }
        let pause = pause(standing.failures);
        let (server, host, most_bytes, connection) = (
            self.server.clone(),
            host.clone(),
            self.most_bytes,
            Arc::downgrade(self),
        );
        // In a task of its own: it goes on while who asked for it has gone.
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let begun = Session::begin(&*host, &server, most_bytes)
                .await
                .map(Arc::new);
            let is_wanted = connection
                .upgrade()
                .is_some_and(|connection| !connection.standing().is_closed);
            match begun {
                Ok(session) if !is_wanted => {
                    session.end().await;
                    Err("the kernel is shutting down.".to_owned())
                }
                begun => begun,
            }
        });
        let begun = async move {
            task.await
                .unwrap_or_else(|_| Err("the adapter failed inside.".to_owned()))
        };
        let begun = begun.boxed().shared();
        standing.current = Some(begun.clone());
        Ok(begun)
    }

    /// Forgets a session or a try that is of no use any more, unless somebody did so before.
    fn leave(&self, left: &Beginning, ended: Ended) {
        let mut standing = self.standing();
        if standing
            .current
            .as_ref()
            .is_some_and(|current| current.ptr_eq(left))
        {
            standing.current = None;
            standing.failures = match ended {
                Ended::Well => 0,
                Ended::Badly => standing.failures.saturating_add(1),
            };
        }
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server.name)
            .finish_non_exhaustive()
    }
}

/// How something ended that was begun.
#[derive(Clone, Copy)]
enum Ended {
    Well,
    Badly,
}

/// How long to wait after so many failures in a row: between half and all of a time that doubles.
fn pause(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return Duration::ZERO;
    };
    let longest = FIRST_PAUSE
        .saturating_mul(1 << doublings.min(16))
        .min(LONGEST_PAUSE);
    // What differs between any two of these is enough of chance here.
    let chance =
        u32::try_from(RandomState::new().build_hasher().finish() % 1_000).unwrap_or_default();
    longest / 2 + longest / 2 * chance / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!(pause(0), Duration::ZERO);
        for (failures, longest) in [
            (1, 250),
            (2, 500),
            (5, 4_000),
            (40, 15_000),
            (u32::MAX, 15_000),
        ] {
            let longest = Duration::from_millis(longest);
            assert!(
                (longest / 2..=longest).contains(&pause(failures)),
                "{failures}"
            );
        }
    }
}
