//! Appends bytes durably to a file. If that fails, the error says whether the file has its previous
//! content again, or an unknown one.

use std::io;

use bytes::Bytes;

/// A file that is only appended to.
pub(crate) trait AppendFile {
    /// Writes `parts` from byte `at` on.
    fn append(&self, at: u64, parts: &[Bytes]) -> io::Result<()>;
    /// Makes the written bytes durable.
    fn sync(&self) -> io::Result<()>;
    /// Drops the bytes past `end`.
    fn roll_back(&self, end: u64) -> io::Result<()>;
}

/// Why bytes were not made durable.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// The write failed and the file has its previous length again: a retry may succeed.
    RolledBack(io::Error),
    /// The content of the disk past the previous end is unknown: no later commit may be
    /// acknowledged.
    Unknown(io::Error),
}

/// Appends `parts` at `end`, the end of the acknowledged bytes.
///
/// # Errors
/// [`AppendError`]. The bytes are cut off again if possible.
pub(crate) fn append(file: &impl AppendFile, end: u64, parts: &[Bytes]) -> Result<(), AppendError> {
    file.append(end, parts)
        .map_err(|error| match file.roll_back(end) {
            Ok(()) => AppendError::RolledBack(error),
            Err(_) => AppendError::Unknown(error),
        })
}

/// Syncs the appended bytes.
///
/// A failed sync is never retried: the kernel may have dropped the dirty pages that it could not
/// write, and a second fsync would then report success without them.
///
/// # Errors
/// [`AppendError::Unknown`]. The bytes past `end` are cut off again if possible.
pub(crate) fn sync(file: &impl AppendFile, end: u64) -> Result<(), AppendError> {
    file.sync().map_err(|error| {
        // Cutting the bytes off saves the next opening from doing so. Whether it succeeds does not
        // change the error.
        let _ = file.roll_back(end);
        AppendError::Unknown(error)
    })
}

/// Drops the bytes past `end`, durably.
///
/// # Errors
/// [`AppendError`]: if the bytes cannot be dropped, nothing has changed.
pub(crate) fn truncate(file: &impl AppendFile, end: u64) -> Result<(), AppendError> {
    file.roll_back(end).map_err(AppendError::RolledBack)?;
    file.sync().map_err(AppendError::Unknown)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Fails the configured steps, and lists the steps that were performed.
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

    impl AppendFile for Disk {
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
    fn a_failed_write_is_rolled_back_and_a_failed_sync_is_never_retried() {
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
                Err(AppendError::RolledBack(_)) => "rolled back",
                Err(AppendError::Unknown(_)) => "unknown",
            };
            assert_eq!(
                (seen, &disk.steps.borrow()[..]),
                (outcome, steps),
                "failing: {failing:?}"
            );
        }
    }
}
