//! Bounds how many reads of contents run at once on tokio's blocking threads, so that large
//! searches do not block other work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dormouse_content::{Content, ReadQuota};
use dormouse_kernel::process::{Input, Read};
use tokio::sync::{AcquireError, Semaphore};
use tokio::task::JoinError;

/// Why a read has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the read was cancelled")]
    Cancelled,
    #[error(transparent)]
    Closed(#[from] AcquireError),
    #[error(transparent)]
    Task(#[from] JoinError),
    /// The task that waited for the read panicked.
    #[error("{0}")]
    Panicked(String),
}

/// The permits of the reads. Clones share them.
#[derive(Clone)]
pub(crate) struct ReadPool {
    permits: Arc<Semaphore>,
}

impl ReadPool {
    /// As many reads run at once as there are processors.
    pub(crate) fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            permits: Arc::new(Semaphore::new(threads)),
        }
    }

    /// Executes a read. Reads start in the order of the requests. Dropping the future cancels the
    /// read: a search ends within about a millisecond, or at its next match if its pattern can match
    /// across lines; a step that cannot be divided (reformatting JSON, outlining code, comparing,
    /// indexing, extracting the groups of one match) runs to its end first.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) async fn execute_read(self, read: Read) -> Result<Input, ReadError> {
        let permit = self.permits.acquire_owned().await?;
        let cancel = CancelOnDrop(Arc::new(AtomicBool::new(false)));
        let quota = ReadQuota::until(cancel.0.clone());
        let executed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read.perform(&quota)
        });
        executed.await?.ok_or(ReadError::Cancelled)
    }

    /// The bytes of several contents, by their keys. A content that cannot be read is left out.
    pub(crate) async fn read_bytes<K: Ord + Send + 'static>(
        &self,
        contents: BTreeMap<K, Content>,
    ) -> BTreeMap<K, Bytes> {
        if contents.is_empty() {
            return BTreeMap::new();
        }
        let Ok(permit) = self.permits.clone().acquire_owned().await else {
            return BTreeMap::new();
        };
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            contents
                .into_iter()
                .filter_map(|(key, content)| Some((key, content.unlimited_reader().bytes().ok()?)))
                .collect()
        });
        read.await.unwrap_or_default()
    }
}

/// Cancels the read when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
