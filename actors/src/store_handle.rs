//! The store while a kernel has it. Whoever reads or writes holds a store handle, in whatever thread; a
//! kernel that shuts down waits until all are given back, so that the next one can open the store.

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

/// A hold on the store. Cloning makes a second one; dropping gives it back.
#[derive(Clone)]
pub(crate) struct StoreHandle {
    // Let go of before the other field, by which the end of a store handle is heard.
    store: Arc<dyn Store>,
    _held: mpsc::Sender<Infallible>,
}

/// Hears when no store handle is held any more.
pub(crate) struct ShutdownBarrier(mpsc::Receiver<Infallible>);

impl StoreHandle {
    /// The first store handle of a store.
    pub(crate) fn of(store: Arc<dyn Store>) -> (Self, ShutdownBarrier) {
        let (held, returns) = mpsc::channel(1);
        (Self { store, _held: held }, ShutdownBarrier(returns))
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
    held: Mutex<Option<(StoreHandle, ShutdownBarrier)>>,
    unreadable: Arc<UnreadableContents>,
}

/// Contents that could not be read, and why, for the host. Each reader got the error itself.
#[derive(Default)]
struct UnreadableContents(Mutex<BTreeMap<ContentHash, String>>);

/// No more contents than this are listed.
const LISTED: usize = 100;

impl UnreadableContents {
    fn note(&self, hash: ContentHash, error: Unreadable) -> Unreadable {
        let mut listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.len() < LISTED && !listed.contains_key(&hash) {
            tracing::error!(%hash, %error, "a content cannot be read");
            listed.insert(hash, error.to_string());
        }
        error
    }
}

/// A content of the store. A read that fails is added to the list.
struct Watched {
    backing: Arc<dyn BlobReader>,
    hash: ContentHash,
    unreadable: Arc<UnreadableContents>,
}

impl BlobReader for Watched {
    fn length(&self) -> u64 {
        self.backing.length()
    }

    fn index(&self) -> Option<Bytes> {
        self.backing.index()
    }

    fn slice(&self, bytes: Range<u64>) -> Result<Bytes, Unreadable> {
        self.backing
            .slice(bytes)
            .map_err(|error| self.unreadable.note(self.hash, error))
    }
}

impl StoreSlot {
    /// None for a kernel without a store.
    pub(crate) fn new(held: Option<(StoreHandle, ShutdownBarrier)>) -> Self {
        Self {
            held: Mutex::new(held),
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
    pub(crate) fn store_handle(&self) -> Option<StoreHandle> {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|(store_handle, _)| store_handle.clone())
    }

    /// Whether the store is still lent.
    pub(crate) fn is_open(&self) -> bool {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Gives the store up, and awaits the end of the last store handle.
    pub(crate) async fn close(&self) {
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((store_handle, returns)) = held {
            drop(store_handle);
            // A thread may be reading a journal for someone who is gone by now.
            returns.all().await;
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
        let Some(store) = self.store_handle() else {
            return Err(Unreadable::new(
                "The content is in the store, and the kernel was shut down. It can be read when \
                 the store is opened again.",
            ));
        };
        let failed = |error: StoreError| {
            let why = Unreadable::new(format!(
                "The content cannot be read: {error}. Other descriptors can be."
            ));
            self.unreadable.note(reference.hash, why)
        };
        let backing = store.content(reference.hash).map_err(failed)?;
        Ok(Arc::new(Watched {
            backing,
            hash: reference.hash,
            unreadable: self.unreadable.clone(),
        }))
    }
}

impl ShutdownBarrier {
    /// Awaits the end of the last store handle: nothing of the kernel holds the store then.
    pub(crate) async fn all(mut self) {
        // Nothing is ever sent: this ends when the last sender is dropped.
        let _ = self.0.recv().await;
    }
}
