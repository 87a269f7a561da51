//! What one piece of work may read of contents, and whether anybody still wants it.
//!
//! All bytes of a content pass through a [`Reader`](super::Reader), which is charged here. Work
//! within a handler of the process actor has a small quota and never opens the disk. Work on the
//! pool has no limit, and ends when it is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Unreadable;

/// How much may be read, and until when.
///
/// What was read under a quota that is [used up](Self::is_used_up) is worth nothing: an error that
/// says so may have been taken for a content that is lost.
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
    /// Everything may be read, also from disk. For a host or a test, never for a handler of an
    /// actor.
    #[must_use]
    pub fn unlimited() -> &'static Self {
        &UNLIMITED
    }

    /// Everything may be read, also from disk, as long as this is false.
    #[must_use]
    pub fn until(cancelled: Arc<AtomicBool>) -> Self {
        Self(Quota::Cancellable(cancelled))
    }

    /// So many bytes of what is in memory, and nothing from disk. Work that is more than a pass
    /// over the bytes is charged for more of them.
    #[must_use]
    pub fn inline(bytes: u64) -> Self {
        Self(Quota::Inline {
            bytes_left: AtomicU64::new(bytes),
            is_used_up: AtomicBool::new(false),
        })
    }

    /// Whether more was asked for than may be read, or the work was cancelled.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        match &self.0 {
            Quota::Unlimited => false,
            Quota::Cancellable(cancelled) => cancelled.load(Ordering::Relaxed),
            Quota::Inline { is_used_up, .. } => is_used_up.load(Ordering::Relaxed),
        }
    }

    /// Takes the bytes that are about to be read, or the work of as many, off the quota.
    ///
    /// # Errors
    /// The quota is used up, or the read was cancelled.
    pub fn charge(&self, bytes: usize) -> Result<(), Unreadable> {
        match &self.0 {
            Quota::Inline {
                bytes_left,
                is_used_up,
            } => {
                let left = bytes_left.load(Ordering::Relaxed);
                match left.checked_sub(bytes as u64) {
                    Some(left) => bytes_left.store(left, Ordering::Relaxed),
                    None => is_used_up.store(true, Ordering::Relaxed),
                }
            }
            Quota::Unlimited | Quota::Cancellable(_) => {}
        }
        self.check()
    }

    /// Refuses work that no handler does: a read from disk, or work whose cost is not in proportion
    /// to the bytes, such as a search by a pattern.
    ///
    /// # Errors
    /// This is a read within a handler.
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
