//! The numbers of new processes. A kernel numbers its processes upwards, within the range that it was
//! built with, and uses no number twice: not even that of a process whose record is lost or deleted.

use std::ops::RangeInclusive;

use dormouse_kernel::export::ExportError;
use dormouse_proto::id::Pid;

use crate::error::{StartError, StoreFailure};
use crate::ports::ProcessListing;

/// The next pid of a kernel, and the last one that it may assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PidCounter {
    next: u64,
    last: u64,
}

impl PidCounter {
    /// The counter for a store that lists these processes.
    ///
    /// # Errors
    /// [`StoreFailure::PidRange`] if the range is empty or holds what no pid can be;
    /// [`StoreFailure::PidOutOfRange`] if the store has assigned a pid outside of it.
    pub(crate) fn new(
        range: &RangeInclusive<Pid>,
        listing: &ProcessListing,
    ) -> Result<Self, StoreFailure> {
        let (first, last) = (*range.start(), *range.end());
        if first.0 == 0 || last > Pid::MAX || first > last {
            return Err(StoreFailure::PidRange { first, last });
        }
        let out_of_range = |pid| StoreFailure::PidOutOfRange { pid, first, last };
        if let Some(row) = listing.rows.iter().find(|row| !range.contains(&row.pid)) {
            return Err(out_of_range(row.pid));
        }
        let is_complete = listing.all_losses().next().is_none();
        let last_pid = Pid(listing.last_pid);
        let next = match last_pid {
            Pid(0) => first.0,
            // The processes of these pids were deleted.
            _ if is_complete && !range.contains(&last_pid) => return Err(out_of_range(last_pid)),
            // No row is left, so that the number only says how many records may be lost.
            Pid(lost) if last_pid < first => first.0.saturating_add(lost),
            Pid(assigned) => assigned.saturating_add(1),
        };
        Ok(Self { next, last: last.0 })
    }

    /// The pid of a new process.
    ///
    /// # Errors
    /// [`StartError::NoPidLeft`].
    pub(super) fn assign(&mut self) -> Result<Pid, StartError> {
        if self.next > self.last {
            return Err(StartError::NoPidLeft {
                last: Pid(self.last),
            });
        }
        let pid = Pid(self.next);
        self.next += 1;
        Ok(pid)
    }

    /// Makes all further pids greater than `id`, which is known in an imported tree. An id beyond the
    /// range needs nothing: no process of this kernel gets it.
    ///
    /// # Errors
    /// [`ExportError::Invalid`] if that would skip more than half of the pids that are left: a file
    /// must not use up the numbers of a store.
    pub(super) fn skip_up_to(&mut self, id: Pid) -> Result<(), ExportError> {
        if id.0 < self.next || id.0 > self.last {
            return Ok(());
        }
        let left = self.last - self.next;
        let left_after = self.last - id.0;
        if left_after < left / 2 {
            return Err(ExportError::Invalid {
                what: format!(
                    "its process numbers go up to {id}, and this kernel, which numbers up to {}, \
                     would have few left. Import it into a store with other numbers",
                    self.last
                ),
            });
        }
        self.next = id.0 + 1;
        Ok(())
    }

    /// The highest pid that was assigned, or the number before the first pid.
    pub(super) fn last_assigned(&self) -> Pid {
        Pid(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::process::ProcessRow;

    use super::*;

    /// The range of a kernel, the pids of its rows, and the last pid of its store.
    type Listed = ((u64, u64), &'static [u64], u64);

    fn listing(pids: &[u64], last_pid: u64, losses: &[&str]) -> ProcessListing {
        ProcessListing {
            rows: pids
                .iter()
                .map(|pid| ProcessRow::started(Pid(*pid), "p"))
                .collect(),
            last_pid,
            losses: losses.iter().map(|loss| (*loss).to_owned()).collect(),
            ..ProcessListing::default()
        }
    }

    fn first_pid(range: (u64, u64), listing: &ProcessListing) -> Result<u64, String> {
        let mut pids = PidCounter::new(&(Pid(range.0)..=Pid(range.1)), listing)
            .map_err(|error| error.to_string())?;
        pids.assign()
            .map(|pid| pid.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_store_is_numbered_on_within_its_range() {
        let cases: [(Listed, &[&str], u64); 6] = [
            (((1, 9), &[], 0), &[], 1),
            (((101, 200), &[], 0), &[], 101),
            (((101, 200), &[101, 104], 104), &[], 105),
            // The process with the highest pid was deleted.
            (((101, 200), &[101], 107), &[], 108),
            // As many records may be lost, with no row that says where the numbers began.
            (((101, 200), &[], 7), &["a segment"], 108),
            (((101, 200), &[103], 110), &["a segment"], 111),
        ];
        for ((range, pids, last_pid), losses, first) in cases {
            let listing = listing(pids, last_pid, losses);
            assert_eq!(first_pid(range, &listing), Ok(first), "{range:?} {pids:?}");
        }
    }

    #[test]
    fn pids_outside_of_the_range_are_refused() {
        let cases: [(Listed, &str); 7] = [
            (((101, 200), &[7], 7), "holds process 7"),
            (((101, 200), &[101, 201], 201), "holds process 201"),
            (((101, 200), &[], 7), "holds process 7"),
            (((101, 103), &[101, 103], 103), "no pid is left"),
            (((0, 9), &[], 0), "valid are 1 to 9007199254740991"),
            (((9, 8), &[], 0), "valid are"),
            (((1, 1 << 53), &[], 0), "valid are"),
        ];
        for ((range, pids, last_pid), part) in cases {
            let listing = listing(pids, last_pid, &[]);
            let error = first_pid(range, &listing).unwrap_err();
            assert!(error.contains(part), "{range:?} {pids:?}: {error}");
        }
    }

    #[test]
    fn an_import_skips_at_most_half_of_what_is_left() {
        let counter = PidCounter {
            next: 101,
            last: 200,
        };
        for (id, next) in [
            (50, Ok(101)),
            (100, Ok(101)),
            (101, Ok(102)),
            (150, Ok(151)),
            (160, Err(())),
            (200, Err(())),
            (201, Ok(101)),
            (u64::MAX, Ok(101)),
        ] {
            let mut pids = counter;
            let skipped = pids.skip_up_to(Pid(id)).map_err(drop);
            assert_eq!(skipped.map(|()| pids.next), next, "{id}");
        }
    }
}
