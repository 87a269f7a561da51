//! Read quotas: how many bytes of contents one operation may read, and whether it was cancelled.
//!
//! Every byte of a content is read through a [`Reader`](super::Reader), which charges the quota.
//! Work in the message handler of a process actor (*inline*) has a small quota and never reads from
//! disk. Work on the read pool is unlimited and stops when it is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Unreadable;

/// A limit for reading, with cancellation.
///
/// A result that was computed under a quota which is [used up](Self::is_used_up) must be discarded:
/// the computation may have treated a quota error as an unreadable content.
#[derive(Debug)]
pub struct ReadQuota(Quota);

#[derive(Debug)]
enum Quota {
    Unlimited,
    Cancellable(Arc<AtomicBool>),
    Inline {
        bytes_left: AtomicU64,
        is_used_up: AtomicBool,
    },
}

static UNLIMITED: ReadQuota = ReadQuota(Quota::Unlimited);

impl ReadQuota {
    /// No limit; reads from disk are permitted. For hosts and tests; never for the message handler
    /// of an actor.
    #[must_use]
    pub fn unlimited() -> &'static Self {
        &UNLIMITED
    }

    /// No limit until `cancelled` becomes true; reads from disk are permitted.
    #[must_use]
    pub fn until(cancelled: Arc<AtomicBool>) -> Self {
        Self(Quota::Cancellable(cancelled))
    }

    /// For work in the message handler of an actor: at most `bytes` bytes of resident contents, and
    /// nothing from disk. Work that costs more than one pass over the bytes counts as more bytes.
    #[must_use]
    pub fn inline(bytes: u64) -> Self {
        Self(Quota::Inline {
            bytes_left: AtomicU64::new(bytes),
            is_used_up: AtomicBool::new(false),
        })
    }

    /// Whether more bytes were requested than the quota permits, or the work was cancelled.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        match &self.0 {
            Quota::Unlimited => false,
            Quota::Cancellable(cancelled) => cancelled.load(Ordering::Relaxed),
            Quota::Inline { is_used_up, .. } => is_used_up.load(Ordering::Relaxed),
        }
    }

    /// Charges bytes that are about to be read, or equivalent work.
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is used up or the work was cancelled.
    pub fn charge(&self, bytes: usize) -> Result<(), Unreadable> {
        match &self.0 {
            Quota::Inline {
                bytes_left,
                is_used_up,
            } => {
                let remaining = bytes_left.load(Ordering::Relaxed);
                match remaining.checked_sub(bytes as u64) {
                    Some(remaining) => bytes_left.store(remaining, Ordering::Relaxed),
                    None => is_used_up.store(true, Ordering::Relaxed),
                }
            }
            Quota::Unlimited | Quota::Cancellable(_) => {}
        }
        self.check()
    }

    /// Fails for the [inline](Self::inline) quota of a handler: used for reads from disk and for
    /// work that is not proportional to the bytes, such as a pattern search.
    ///
    /// # Errors
    /// [`Unreadable`] if the quota is an inline one, or the work was cancelled.
    pub fn require_pool(&self) -> Result<(), Unreadable> {
        if let Quota::Inline { is_used_up, .. } = &self.0 {
            is_used_up.store(true, Ordering::Relaxed);
        }
        self.check()
    }

    fn check(&self) -> Result<(), Unreadable> {
        if self.is_used_up() {
            Err(Unreadable::new("Reading was given up."))
        } else {
            Ok(())
        }
    }
}
