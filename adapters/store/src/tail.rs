//! Making bytes durable at the end of a file, and what is known when that fails.

use std::io;

use bytes::Bytes;

/// A file that is appended to.
pub(crate) trait Tail {
    /// Writes `parts` from byte `at` on.
    fn append(&self, at: u64, parts: &[Bytes]) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
    /// Drops what lies behind `end`.
    fn roll_back(&self, end: u64) -> io::Result<()>;
}

/// Why bytes were not made durable.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The write failed and the file is as it was before: a later try may succeed.
    RolledBack(io::Error),
    /// What the disk holds from here on is unknown: nothing more may be acknowledged.
    Unknown(io::Error),
}

/// Appends `parts` at `end`, the file's good length.
///
/// # Errors
/// [`Failure`]. The bytes are cut off again if possible.
pub(crate) fn append(tail: &impl Tail, end: u64, parts: &[Bytes]) -> Result<(), Failure> {
    tail.append(end, parts)
        .map_err(|error| match tail.roll_back(end) {
            Ok(()) => Failure::RolledBack(error),
            Err(_) => Failure::Unknown(error),
        })
}

/// Syncs what was appended.
///
/// A failed sync is never tried again: the system may have dropped the pages that it could not
/// write, and would then report success.
///
/// # Errors
/// [`Failure::Unknown`]. What lies behind `end` is cut off again if possible.
pub(crate) fn sync(tail: &impl Tail, end: u64) -> Result<(), Failure> {
    tail.sync().map_err(|error| {
        // The cut is a courtesy to the next one who opens the store; the error is the same without
        // it.
        let _ = tail.roll_back(end);
        Failure::Unknown(error)
    })
}

/// Drops what lies behind `end`, durably.
///
/// # Errors
/// [`Failure`]: where it cannot be dropped, nothing has changed.
pub(crate) fn cut(tail: &impl Tail, end: u64) -> Result<(), Failure> {
    tail.roll_back(end).map_err(Failure::RolledBack)?;
    tail.sync().map_err(Failure::Unknown)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Fails the steps that it is told to, and notes which were taken.
    struct Disk {
        failing: &'static [&'static str],
        steps: RefCell<Vec<&'static str>>,
    }

    impl Disk {
        fn step(&self, name: &'static str) -> io::Result<()> {
            self.steps.borrow_mut().push(name);
            if self.failing.contains(&name) {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(())
            }
        }
    }

    impl Tail for Disk {
        fn append(&self, _: u64, _: &[Bytes]) -> io::Result<()> {
            self.step("append")
        }
        fn sync(&self) -> io::Result<()> {
            self.step("sync")
        }
        fn roll_back(&self, _: u64) -> io::Result<()> {
            self.step("roll back")
        }
    }

    #[test]
    fn a_write_is_undone_and_a_sync_is_final() {
        let cases: [(&[&str], &str, &[&str]); 5] = [
            (&[], "durable", &["append", "sync"]),
            (&["append"], "rolled back", &["append", "roll back"]),
            (
                &["append", "roll back"],
                "unknown",
                &["append", "roll back"],
            ),
            (&["sync"], "unknown", &["append", "sync", "roll back"]),
            (
                &["sync", "roll back"],
                "unknown",
                &["append", "sync", "roll back"],
            ),
        ];
        for (failing, outcome, steps) in cases {
            let disk = Disk {
                failing,
                steps: RefCell::default(),
            };
            let seen = match append(&disk, 0, &[]).and_then(|()| sync(&disk, 0)) {
                Ok(()) => "durable",
                Err(Failure::RolledBack(_)) => "rolled back",
                Err(Failure::Unknown(_)) => "unknown",
            };
            assert_eq!(
                (seen, &disk.steps.borrow()[..]),
                (outcome, steps),
                "failing: {failing:?}"
            );
        }
    }
}
