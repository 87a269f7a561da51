//! Access to the store while a kernel runs. Every reader and writer holds a [`StoreHandle`]. A
//! shutdown waits until the last handle is dropped, so that the next kernel can open the store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dormouse_content::{BlobReader, BlobStore, Unreadable};
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;
use tokio::sync::mpsc;

use crate::ports::{Store, StoreError};

/// Keeps the store open. Clones are counted by the [`ShutdownBarrier`].
#[derive(Clone)]
pub(crate) struct StoreHandle {
    // Declared first, so that the store is dropped before the sender, whose drop signals the end of
    // this handle.
    store: Arc<dyn Store>,
    _barrier_sender: mpsc::Sender<Infallible>,
}

/// Resolves when the last store handle is dropped.
pub(crate) struct ShutdownBarrier(mpsc::Receiver<Infallible>);

impl StoreHandle {
    /// The first handle on a store, and the barrier that waits for all handles.
    pub(crate) fn with_barrier(store: Arc<dyn Store>) -> (Self, ShutdownBarrier) {
        let (barrier_sender, barrier) = mpsc::channel(1);
        (
            Self {
                store,
                _barrier_sender: barrier_sender,
            },
            ShutdownBarrier(barrier),
        )
    }
}

impl Deref for StoreHandle {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

/// The store of a kernel until it shuts down. Contents are read through this slot, so that they do
/// not keep the store open. After the shutdown they cannot be read.
pub(crate) struct StoreSlot {
    handle: Mutex<Option<(StoreHandle, ShutdownBarrier)>>,
    unreadable: Arc<UnreadableContents>,
}

/// Contents that could not be read, with the reason, for
/// [`Kernel::unreadable`](crate::handle::Kernel::unreadable). The caller that reads such a content
/// also gets the error.
#[derive(Default)]
struct UnreadableContents(Mutex<BTreeMap<ContentHash, String>>);

/// The most contents in the list.
const MAX_LISTED: usize = 100;

impl UnreadableContents {
    fn record(&self, hash: ContentHash, error: Unreadable) -> Unreadable {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < MAX_LISTED && !errors.contains_key(&hash) {
            tracing::error!(%hash, %error, "a content cannot be read");
            errors.insert(hash, error.to_string());
        }
        error
    }
}

/// A content of the store that adds failed reads to the list.
struct ReportingReader {
    reader: Arc<dyn BlobReader>,
    hash: ContentHash,
    unreadable: Arc<UnreadableContents>,
}

impl BlobReader for ReportingReader {
    fn length(&self) -> u64 {
        self.reader.length()
    }

    fn index(&self) -> Option<Bytes> {
        self.reader.index()
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        self.reader
            .slice(bytes)
            .map_err(|error| self.unreadable.record(self.hash, error))
    }
}

impl StoreSlot {
    /// `None` for a kernel without a store.
    pub(crate) fn new(handle: Option<(StoreHandle, ShutdownBarrier)>) -> Self {
        Self {
            handle: Mutex::new(handle),
            unreadable: Arc::default(),
        }
    }

    /// Descriptions of the contents that could not be read so far; the first hundred.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let errors = self
            .unreadable
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        errors
            .iter()
            .map(|(hash, why)| format!("content {hash}: {why}"))
            .collect()
    }

    /// A store handle; `None` after the shutdown, or for a kernel without a store.
    pub(crate) fn handle(&self) -> Option<StoreHandle> {
        self.handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|(store_handle, _)| store_handle.clone())
    }

    /// Whether the store is still available.
    pub(crate) fn is_open(&self) -> bool {
        self.handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Removes the store from the slot and waits until all handles are dropped.
    pub(crate) async fn close(&self) {
        let handle = self
            .handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((store_handle, barrier)) = handle {
            drop(store_handle);
            // A blocking thread may still read a journal for a caller that has gone away.
            barrier.wait().await;
        }
    }
}

impl fmt::Debug for StoreSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSlot")
    }
}

impl BlobStore for StoreSlot {
    fn open(&self, reference: ContentRef) -> Result<Arc<dyn BlobReader>, Unreadable> {
        let Some(store) = self.handle() else {
            return Err(Unreadable::new(
                "The content is in the store, and the kernel was shut down. It can be read when \
                 the store is opened again.",
            ));
        };
        let to_unreadable = |error: StoreError| {
            let why = Unreadable::new(format!(
                "The content cannot be read: {error}. Other descriptors can be."
            ));
            self.unreadable.record(reference.hash, why)
        };
        let reader = store.content(reference.hash).map_err(to_unreadable)?;
        Ok(Arc::new(ReportingReader {
            reader,
            hash: reference.hash,
            unreadable: self.unreadable.clone(),
        }))
    }
}

impl ShutdownBarrier {
    /// Waits until the last store handle is dropped. After that, no part of the kernel uses the
    /// store.
    pub(crate) async fn wait(mut self) {
        // Nothing is ever sent: `recv` returns when the last sender is dropped.
        let _ = self.0.recv().await;
    }
}
