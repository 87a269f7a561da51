//! The LOCK file: only one program at a time has the store open for writing.
//!
//! The operating system releases the lock when the program that holds it ends, even by a crash. The
//! text in the file names that program, for error messages only.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use dormouse_actors::ports::StoreError;

use crate::error::io;

/// The lock, held until the value is dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
}

impl Drop for StoreLock {
    /// Releases the lock. Closing the file would not be enough: a child process that another thread
    /// is starting holds a copy of the file descriptor, and with it the lock, until it calls exec.
    fn drop(&mut self) {
        // If unlocking fails, closing the file releases the lock a moment later.
        let _ = self.file.unlock();
    }
}

impl StoreLock {
    /// Takes the lock of the store in `dir`, without waiting.
    ///
    /// # Errors
    /// [`StoreError::InUse`] with the holder's process number, [`StoreError::Io`].
    pub(crate) fn acquire(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("LOCK");
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options
            .open(&path)
            .map_err(io(format!("open {}", path.display())))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse {
                    path: dir.display().to_string(),
                    holder: read_holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => {
                return Err(io(format!("lock {}", path.display()))(source));
            }
        }
        write_holder(&mut file).map_err(io(format!("write {}", path.display())))?;
        Ok(Self { file })
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "process {}", std::process::id())
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(64).read_to_string(&mut text);
    let name = text.trim();
    if read.is_ok() && !name.is_empty() {
        name.to_owned()
    } else {
        "another process".to_owned()
    }
}
