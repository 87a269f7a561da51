//! What operations use of the store. A garbage collection keeps it, whatever its retention rules
//! say:
//!
//! * A checkpoint that was created for an operation, until the operation has read it.
//! * A history that an operation reads, until what the operation makes of it is committed. That
//!   commit may refer to contents that only the past of the history refers to. If a collection
//!   deleted the past in between, it would free these contents, and the store would refuse the
//!   commit ([`StoreError::UnknownContent`](crate::ports::StoreError::UnknownContent)).
//!
//! A collection does not wait for an operation: it leaves the deletion to the next collection. An
//! operation waits for one deletion at most.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dormouse_proto::id::{CheckpointId, Pid};

/// The checkpoints and histories that operations use; the default is none.
#[derive(Debug, Default)]
pub struct InUse {
    checkpoints: Mutex<BTreeSet<CheckpointId>>,
    /// The processes of each guard. A guard that was dropped leaves its entry until the next
    /// access.
    histories: Mutex<Vec<Weak<BTreeSet<Pid>>>>,
}

impl InUse {
    /// Protects a new checkpoint until the returned guard is dropped. Must be called before the
    /// checkpoint is committed: a collection that starts in between would delete it.
    pub(crate) fn guard_checkpoint(self: &Arc<Self>, id: CheckpointId) -> CheckpointGuard {
        self.lock_checkpoints().insert(id);
        CheckpointGuard {
            id,
            in_use: self.clone(),
        }
    }

    /// All protected checkpoints. A collection must list the checkpoints of the store before it
    /// calls this; a checkpoint that is created in between is then not in the collection's list.
    pub(crate) fn checkpoints(&self) -> BTreeSet<CheckpointId> {
        self.lock_checkpoints().clone()
    }

    /// Protects processes and their histories until the returned guard is dropped. Must be called
    /// before the histories are read. Blocks while a collection commits a deletion.
    pub(crate) fn guard_histories(&self, pids: impl IntoIterator<Item = Pid>) -> HistoryGuard {
        let pids = Arc::new(pids.into_iter().collect());
        self.lock_histories().push(Arc::downgrade(&pids));
        HistoryGuard { _pids: pids }
    }

    /// Whether the history of one of these processes is protected.
    pub(crate) fn has_history_of(&self, pids: &BTreeSet<Pid>) -> bool {
        is_any_guarded(&self.lock_histories(), pids)
    }

    /// Calls `delete`, which deletes these processes or a part of their histories; `None` if one of
    /// them is protected. Until `delete` returns, no guard is created.
    pub(crate) fn delete_unless_used<T>(
        &self,
        pids: &BTreeSet<Pid>,
        delete: impl FnOnce() -> T,
    ) -> Option<T> {
        let guarded = self.lock_histories();
        (!is_any_guarded(&guarded, pids)).then(delete)
    }

    fn lock_checkpoints(&self) -> MutexGuard<'_, BTreeSet<CheckpointId>> {
        self.checkpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The processes of the guards that exist.
    fn lock_histories(&self) -> MutexGuard<'_, Vec<Weak<BTreeSet<Pid>>>> {
        let mut histories = self
            .histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        histories.retain(|pids| pids.strong_count() > 0);
        histories
    }
}

fn is_any_guarded(guarded: &[Weak<BTreeSet<Pid>>], pids: &BTreeSet<Pid>) -> bool {
    let mut guarded = guarded.iter().filter_map(Weak::upgrade);
    guarded.any(|of_guard| !of_guard.is_disjoint(pids))
}

/// Protects a checkpoint from garbage collection while it exists.
pub(crate) struct CheckpointGuard {
    pub(crate) id: CheckpointId,
    in_use: Arc<InUse>,
}

impl Drop for CheckpointGuard {
    fn drop(&mut self) {
        self.in_use.lock_checkpoints().remove(&self.id);
    }
}

/// Protects the histories of processes from garbage collection while it exists. Dropping it takes
/// no lock.
pub(crate) struct HistoryGuard {
    _pids: Arc<BTreeSet<Pid>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_deleted_of_a_history_that_a_guard_protects() {
        let in_use = InUse::default();
        let deletes = |pid| {
            let deleted = in_use.delete_unless_used(&BTreeSet::from([Pid(pid), Pid(9)]), || pid);
            assert_eq!(
                deleted.is_none(),
                in_use.has_history_of(&[Pid(pid)].into()),
                "{pid}"
            );
            deleted.is_some()
        };
        assert!(deletes(1));
        let first = in_use.guard_histories([Pid(1), Pid(2)]);
        let second = in_use.guard_histories([Pid(2), Pid(3)]);
        assert_eq!([1, 2, 3, 4].map(deletes), [false, false, false, true]);
        drop(first);
        assert_eq!([1, 2, 3, 4].map(deletes), [true, false, false, true]);
        drop(second);
        assert_eq!([1, 2, 3, 4].map(deletes), [true; 4]);
    }
}
