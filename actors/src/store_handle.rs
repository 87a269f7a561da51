//! The store while a kernel has it. Whoever reads or writes holds a store handle, in whatever thread; a
//! kernel that shuts down waits until all are given back, so that the next one can open the store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dormouse_content::{Backing, Source, Unreadable};
use dormouse_proto::id::ContentHash;
use dormouse_proto::record::ContentRef;
use tokio::sync::mpsc;

use crate::ports::{Store, StoreError};

/// A hold on the store. Cloning makes a second one; dropping gives it back.
#[derive(Clone)]
pub(crate) struct StoreHandle {
    // Let go of before the other field, by which the end of a store handle is heard.
    store: Arc<dyn Store>,
    _barrier_sender: mpsc::Sender<Infallible>,
}

/// Hears when no store handle is held any more.
pub(crate) struct ShutdownBarrier(mpsc::Receiver<Infallible>);

impl StoreHandle {
    /// The first store handle of a store.
    pub(crate) fn with_barrier(store: Arc<dyn Store>) -> (Self, ShutdownBarrier) {
        let (handle, barrier) = mpsc::channel(1);
        (
            Self {
                store,
                _barrier_sender: handle,
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

/// The store of a kernel for as long as it runs. Contents are read through it: they keep no store
/// open, and cannot be read any more when the kernel was shut down.
pub(crate) struct StoreSlot {
    handle: Mutex<Option<(StoreHandle, ShutdownBarrier)>>,
    unreadable: Arc<UnreadableContents>,
}

/// Contents that could not be read, and why, for the host. Each reader got the error itself.
#[derive(Default)]
struct UnreadableContents(Mutex<BTreeMap<ContentHash, String>>);

/// No more contents than this are listed.
const MAX_LISTED: usize = 100;

impl UnreadableContents {
    fn record(&self, hash: ContentHash, error: Unreadable) -> Unreadable {
        let mut listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.len() < MAX_LISTED && !listed.contains_key(&hash) {
            tracing::error!(%hash, %error, "a content cannot be read");
            listed.insert(hash, error.to_string());
        }
        error
    }
}

/// A content of the store. A read that fails is added to the list.
struct ReportingBacking {
    backing: Arc<dyn Backing>,
    hash: ContentHash,
    unreadable: Arc<UnreadableContents>,
}

impl Backing for ReportingBacking {
    fn length(&self) -> u64 {
        self.backing.length()
    }

    fn index(&self) -> Option<Bytes> {
        self.backing.index()
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        self.backing
            .slice(bytes)
            .map_err(|error| self.unreadable.record(self.hash, error))
    }
}

impl StoreSlot {
    /// None for a kernel without a store.
    pub(crate) fn new(handle: Option<(StoreHandle, ShutdownBarrier)>) -> Self {
        Self {
            handle: Mutex::new(handle),
            unreadable: Arc::default(),
        }
    }

    /// Contents that could not be read so far, and why: the first hundred.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let listed = self
            .unreadable
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listed
            .iter()
            .map(|(hash, why)| format!("content {hash}: {why}"))
            .collect()
    }

    /// A store handle, while the kernel runs on a store.
    pub(crate) fn handle(&self) -> Option<StoreHandle> {
        self.handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|(store_handle, _)| store_handle.clone())
    }

    /// Whether the store is still lent.
    pub(crate) fn is_open(&self) -> bool {
        self.handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Gives the store up, and awaits the end of the last store handle.
    pub(crate) async fn close(&self) {
        let handle = self
            .handle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((store_handle, barrier)) = handle {
            drop(store_handle);
            // A thread may be reading a journal for someone who is gone by now.
            barrier.wait().await;
        }
    }
}

impl fmt::Debug for StoreSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSlot")
    }
}

impl Source for StoreSlot {
    fn open(&self, reference: ContentRef) -> Result<Arc<dyn Backing>, Unreadable> {
        let Some(store) = self.handle() else {
            return Err(Unreadable::new(
                "The content is in the store, and the kernel was shut down. It can be read when \
                 the store is opened again.",
            ));
        };
        let failed = |error: StoreError| {
            let why = Unreadable::new(format!(
                "The content cannot be read: {error}. Other descriptors can be."
            ));
            self.unreadable.record(reference.hash, why)
        };
        let backing = store.content(reference.hash).map_err(failed)?;
        Ok(Arc::new(ReportingBacking {
            backing,
            hash: reference.hash,
            unreadable: self.unreadable.clone(),
        }))
    }
}

impl ShutdownBarrier {
    /// Awaits the end of the last store handle: nothing of the kernel holds the store then.
    pub(crate) async fn wait(mut self) {
        // Nothing is ever sent: this ends when the last sender is dropped.
        let _ = self.0.recv().await;
    }
}
