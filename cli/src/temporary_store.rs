//! The store of a program that was given none: a folder that is deleted at the end, so that large
//! contents are on the disk and not in memory.
//!
//! It is encrypted with a key that exists in the memory of this program only. If the program is
//! killed, the next one deletes the folder; until then, nobody can read what is in it.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use dormouse::store::{LogStore, StoreSecret};

use crate::failure::Failure;

/// The most bytes of a temporary store. A call whose output does not fit fails.
const QUOTA_BYTES: u64 = 16 << 30;

/// The file of a folder that is locked as long as the folder is in use.
const LOCK_FILE: &str = "in-use";

/// A folder for one store, which is deleted when this is dropped.
pub(crate) struct TemporaryStore {
    folder: tempfile::TempDir,
    /// The lock ends with the program, however the program ends.
    _lock: File,
}

impl TemporaryStore {
    /// Makes a folder below `parent`, which is created for this user alone. Deletes the folders of
    /// programs that were killed.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn create(parent: &Path) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
        delete_abandoned(parent)?;
        let folder = tempfile::tempdir_in(parent)?;
        let _lock = lock_new(folder.path())?;
        Ok(Self { folder, _lock })
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As `LogStore::open`, or if the system has no random bytes for the key.
    pub(crate) fn open(&self) -> Result<LogStore, Failure> {
        let mut key = [0; 32];
        getrandom::getrandom(&mut key)
            .map_err(|error| Failure::Run(format!("a key cannot be generated: {error}")))?;
        let store = LogStore::options()
            .key(StoreSecret::new(key))
            .quota_bytes(QUOTA_BYTES)
            .open(self.folder.path().join("store"))
            .map_err(dormouse::KernelError::from)?;
        Ok(store)
    }
}

/// The folder of what this user's programs can do without: `$XDG_CACHE_HOME/dormouse`, or
/// `~/.cache/dormouse`. `None` if the environment names no home.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    user_folder("XDG_CACHE_HOME", ".cache")
}

/// The folder of this program below the folder that this variable names, otherwise below `default`
/// in the home of the user. `None` if the environment names no home.
pub(crate) fn user_folder(variable: &str, default: &str) -> Option<PathBuf> {
    let path = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = path(variable).or_else(|| Some(path("HOME")?.join(default)))?;
    Some(folder.join("dormouse"))
}

/// Makes the lock file of a new folder. It gets its name once it is locked: a lock file without a
/// lock is that of a program that was killed.
fn lock_new(folder: &Path) -> io::Result<File> {
    let lock = tempfile::NamedTempFile::new_in(folder)?;
    lock.as_file().lock()?;
    Ok(lock.persist(folder.join(LOCK_FILE))?)
}

/// Deletes the folders that no program has locked. One that is being made has no lock file yet, and
/// stays.
fn delete_abandoned(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)?.filter_map(Result::ok) {
        let Ok(lock) = File::open(entry.path().join(LOCK_FILE)) else {
            continue;
        };
        match lock.try_lock() {
            // What cannot be deleted is tried again by the next program.
            Ok(()) => drop(fs::remove_dir_all(entry.path())),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_deleted_at_the_end_and_an_abandoned_one_by_the_next_program() {
        let parent = tempfile::tempdir().unwrap();
        let folders = || fs::read_dir(parent.path()).unwrap().count();
        let living = TemporaryStore::create(parent.path()).unwrap();
        drop(living.open().unwrap());
        let abandoned = parent.path().join("abandoned");
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK_FILE), "").unwrap();
        let second = TemporaryStore::create(parent.path()).unwrap();
        assert!(!abandoned.exists());
        assert_eq!(folders(), 2);
        drop((living, second));
        assert_eq!(folders(), 0);
    }

    #[test]
    fn programs_that_start_at_the_same_time_delete_no_folder_of_another() {
        let parent = tempfile::tempdir().unwrap();
        let start = || {
            for _ in 0..200 {
                let store = TemporaryStore::create(parent.path()).unwrap();
                assert!(store.folder.path().join(LOCK_FILE).exists());
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(start);
            }
        });
    }
}
