//! Limits the size of the log. This module only compares numbers; the caller measures the log.

use dormouse_actors::ports::{StoreError, WriteOp};

/// The maximum size of the log in bytes; unlimited by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quota(Option<u64>);

impl Quota {
    /// A limit in bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Some(bytes))
    }

    /// Whether so much of the quota is used that compaction should reclaim even little garbage.
    pub(crate) fn is_nearly_full(self, used: u64) -> bool {
        self.0.is_some_and(|quota| used > quota - quota / 4)
    }

    /// Refuses a commit that does not fit. A commit with an end or a deletion may use a reserve,
    /// because a full store must be able to shrink. Its other operations may use the reserve too:
    /// those of a group commit are written together or not at all. If the group is refused, the
    /// kernel commits the appends one by one, so the ends and deletions among them still fit.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub(crate) fn check(self, used: u64, needed: u64, ops: &[WriteOp]) -> Result<(), StoreError> {
        let Some(quota) = self.0 else { return Ok(()) };
        let reserve = if ops.iter().any(frees_space) {
            quota / 64
        } else {
            0
        };
        let room = quota.saturating_add(reserve).saturating_sub(used);
        if needed <= room {
            Ok(())
        } else {
            Err(StoreError::Full {
                used,
                quota,
                needed,
            })
        }
    }
}

fn frees_space(op: &WriteOp) -> bool {
    match op {
        WriteOp::ProcessEnded { .. }
        | WriteOp::CheckpointDropped { .. }
        | WriteOp::ProcessDeleted { .. }
        | WriteOp::HistoryTruncated { .. } => true,
        WriteOp::Content { .. }
        | WriteOp::ContentReferenced { .. }
        | WriteOp::ProcessCreated { .. }
        | WriteOp::Facts { .. }
        | WriteOp::Snapshot { .. }
        | WriteOp::Waiting { .. }
        | WriteOp::ProcessReopened { .. }
        | WriteOp::TempFile { .. }
        | WriteOp::Label { .. }
        | WriteOp::Checkpoint { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::Pid;

    use super::*;

    #[test]
    fn only_ops_that_free_space_may_use_the_reserve() {
        let small = WriteOp::Facts {
            pid: Pid(1),
            first: Default::default(),
            facts: vec![],
        };
        let deletion = WriteOp::ProcessDeleted { pid: Pid(1) };
        let quota = Quota::new(6400);
        let cases = [
            (6300, 100, true, true),
            (6300, 101, false, true),
            (6400, 100, false, true),
            (6400, 101, false, false),
        ];
        for (used, needed, without_reserve, with_reserve) in cases {
            let fits = |op: &WriteOp| quota.check(used, needed, std::slice::from_ref(op)).is_ok();
            assert_eq!(
                (fits(&small), fits(&deletion)),
                (without_reserve, with_reserve),
                "{needed} bytes to {used}"
            );
        }
        assert!(Quota::default().check(u64::MAX, u64::MAX, &[]).is_ok());
        assert_eq!(
            [4800, 4801].map(|used| quota.is_nearly_full(used)),
            [false, true]
        );
        assert!(!Quota::default().is_nearly_full(u64::MAX));
    }
}
