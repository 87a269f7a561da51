//! A kernel, as the API serves it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use dormouse_actors::handle::Kernel;
use dormouse_proto::id::Pid;
use dormouse_proto::model::Usage;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::routes;

/// The most streams of events at once, over all connections.
const MAX_STREAMS: usize = 128;

/// The most answers at once that read journals of many processes.
const MAX_LARGE_READS: usize = 4;

/// A kernel that is served. Clones share it.
#[derive(Clone)]
pub struct ControlApi {
    shared: Arc<Shared>,
}

struct Shared {
    kernel: Kernel,
    streams: Arc<Semaphore>,
    large_reads: Arc<Semaphore>,
    ended_usage: Mutex<HashMap<Pid, EndedUsage>>,
}

/// What a process that has ended had used. It stays so until the process is opened again.
#[derive(Clone)]
pub(crate) struct EndedUsage {
    pub(crate) reopenings: u32,
    pub(crate) usage: Usage,
    pub(crate) model: String,
}

impl ControlApi {
    /// Serves this kernel. Nothing listens before [`serve_tcp`](Self::serve_tcp) or
    /// [`serve_unix`](Self::serve_unix).
    #[must_use]
    pub fn new(kernel: Kernel) -> Self {
        Self {
            shared: Arc::new(Shared {
                kernel,
                streams: Arc::new(Semaphore::new(MAX_STREAMS)),
                large_reads: Arc::new(Semaphore::new(MAX_LARGE_READS)),
                ended_usage: Mutex::default(),
            }),
        }
    }

    /// The routes. They admit only requests that have a scope among their extensions.
    pub(crate) fn router(&self) -> Router {
        routes::router().0.with_state(self.clone())
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.shared.kernel
    }

    /// A place among the streams of events.
    ///
    /// # Errors
    /// If all are taken.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = self.shared.streams.clone().try_acquire_owned();
        permit.map_err(|_| {
            ApiError::busy(format!(
                "{MAX_STREAMS} streams of events are open, and no more are possible: close one, or \
                 try again later"
            ))
        })
    }

    /// A place among the answers that read many journals. Waits for it.
    pub(crate) async fn large_read(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.shared.large_reads.clone().acquire_owned().await.ok()
    }

    pub(crate) fn ended_usage(&self) -> MutexGuard<'_, HashMap<Pid, EndedUsage>> {
        let ended = self.shared.ended_usage.lock();
        ended.unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ControlApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlApi").finish_non_exhaustive()
    }
}
