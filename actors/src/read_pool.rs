//! The pool that reads contents: a bounded number of threads, so that searches of much text leave
//! room for everything else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dormouse_content::{Content, ReadQuota};
use dormouse_kernel::process::{Input, Read};
use dormouse_proto::id::FdId;
use tokio::sync::Semaphore;

/// Cloning shares the pool.
#[derive(Clone)]
pub(crate) struct ReadPool {
    permits: Arc<Semaphore>,
}

impl ReadPool {
    /// As many threads at once as there are processors.
    pub(crate) fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            permits: Arc::new(Semaphore::new(threads)),
        }
    }

    /// Performs a read; reads begin in the order in which they are asked for. Dropping the future
    /// cancels it: a search ends within about a millisecond, but a step that is one piece of work
    /// ends first, such as reformatting JSON, outlining code, comparing or indexing.
    ///
    /// # Errors
    /// It panicked, or was cancelled.
    pub(crate) async fn execute(self, read: Read) -> Result<Input, String> {
        let permit = self
            .permits
            .acquire_owned()
            .await
            .map_err(|closed| closed.to_string())?;
        let cancel = CancelOnDrop(Arc::new(AtomicBool::new(false)));
        let quota = ReadQuota::until(cancel.0.clone());
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read.perform(&quota)
        });
        let input = done.await.map_err(|error| error.to_string())?;
        input.ok_or_else(|| "it was cancelled".to_owned())
    }

    /// The bytes of some contents. One that cannot be read is not among them.
    pub(crate) async fn bytes(&self, contents: BTreeMap<FdId, Content>) -> BTreeMap<FdId, Bytes> {
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
                .filter_map(|(fd, content)| Some((fd, content.unbounded().bytes().ok()?)))
                .collect()
        });
        read.await.unwrap_or_default()
    }
}

/// Cancels when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
