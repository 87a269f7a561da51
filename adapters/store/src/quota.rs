//! How much a log may hold.
//!
//! It only compares numbers; what is refused, and what becomes of it, is said by the port.

use dormouse_actors::ports::{Entry, StoreError};

/// The most bytes of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quota(Option<u64>);

impl Quota {
    /// So many.
    pub(crate) fn of(bytes: u64) -> Self {
        Self(Some(bytes))
    }

    /// Whether so much of it is used that garbage is worth more than the work of moving what is
    /// live.
    pub(crate) fn is_tight(self, used: u64) -> bool {
        self.0.is_some_and(|quota| used > quota - quota / 4)
    }

    /// Refuses a commit that does not fit. What ends a process or gives something up may use the
    /// reserve: a store that is full must be able to become less so.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub(crate) fn check(self, used: u64, needed: u64, entries: &[Entry]) -> Result<(), StoreError> {
        let Some(quota) = self.0 else { return Ok(()) };
        let reserve = if entries.iter().any(lessens) {
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

fn lessens(entry: &Entry) -> bool {
    match entry {
        Entry::Ended { .. }
        | Entry::CheckpointDropped { .. }
        | Entry::Forgotten { .. }
        | Entry::Shortened { .. } => true,
        Entry::Content { .. }
        | Entry::Held { .. }
        | Entry::Born { .. }
        | Entry::Facts { .. }
        | Entry::Snapshot { .. }
        | Entry::TempFile { .. }
        | Entry::Checkpoint { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::Pid;

    use super::*;

    #[test]
    fn the_reserve_is_for_what_makes_room() {
        let (small, forgets) = (
            Entry::Facts {
                pid: Pid(1),
                first: Default::default(),
                facts: vec![],
            },
            Entry::Forgotten { pid: Pid(1) },
        );
        let quota = Quota::of(6400);
        let cases = [
            (6300, 100, true, true),
            (6300, 101, false, true),
            (6400, 100, false, true),
            (6400, 101, false, false),
        ];
        for (used, needed, plain, lessening) in cases {
            let fits = |entry: &Entry| {
                quota
                    .check(used, needed, std::slice::from_ref(entry))
                    .is_ok()
            };
            assert_eq!(
                (fits(&small), fits(&forgets)),
                (plain, lessening),
                "{needed} bytes to {used}"
            );
        }
        assert!(Quota::default().check(u64::MAX, u64::MAX, &[]).is_ok());
        assert_eq!([4800, 4801].map(|used| quota.is_tight(used)), [false, true]);
        assert!(!Quota::default().is_tight(u64::MAX));
    }
}
