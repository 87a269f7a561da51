//! The file operations that the log and HEAD need; `lib.rs` lists the files of a store. Tests
//! substitute a disk that loses unsynced writes or fails at a chosen step.
//!
//! LOCK and the index always use the real file system: the lock belongs to the operating system,
//! and the index can be rebuilt.

mod memory_file;
mod os;
mod read_only;
#[cfg(test)]
pub(crate) mod volatile;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use memory_file::MemoryFile;
pub(crate) use os::OsDisk;
pub(crate) use read_only::ReadOnlyDisk;

/// A file system. Every file is accessible to its owner only.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// The file names in a folder; empty if the folder does not exist.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Creates a folder and its parents unless it exists. Its name is durable afterwards.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// Renames a file over another. The rename is durable once the folder is synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file must not exist. Its name is durable once the folder is synced.
    CreateNew,
    /// The file is created, or truncated if it exists.
    Truncated,
}

/// An open file.
pub(crate) trait DiskFile: Debug + Send + Sync {
    /// The length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on, completely or not at all.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes `parts` one after the other, from `offset` on.
    fn write_at(&self, offset: u64, parts: &[Bytes]) -> io::Result<()>;

    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Allocates `length` bytes, zero-filled. Later writes within them change neither the length
    /// nor the allocation, so that a sync has less metadata to write.
    fn reserve(&self, length: u64) -> io::Result<()>;

    /// Whether no other program changes the file, so that it can be mapped.
    fn is_mappable(&self) -> bool {
        true
    }

    /// Maps the first `length` bytes. They must not change any more.
    fn map(&self, length: u64) -> io::Result<Bytes>;
}

/// Reads a whole file; `None` if it does not exist.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, OpenMode::Existing) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = vec![0; file.length()? as usize];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces the file at `path` durably; until then the old file stays whole. Costs two syncs.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: Bytes) -> io::Result<()> {
    write_temp(disk, path, bytes)?;
    rename_into_place(disk, path)
}

/// The first half of [`replace`]: writes the temporary file next to `path`. Replaces a temporary
/// file of an earlier attempt.
pub(crate) fn write_temp(disk: &dyn Disk, path: &Path, bytes: Bytes) -> io::Result<()> {
    let file = disk.open(&temp_path(path), OpenMode::Truncated)?;
    file.write_at(0, &[bytes])?;
    file.sync()
}

/// The second half of [`replace`]. If it fails, either file may have the name.
pub(crate) fn rename_into_place(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.rename(&temp_path(path), path)?;
    disk.sync_folder(path.parent().unwrap_or(Path::new(".")))
}

fn temp_path(path: &Path) -> PathBuf {
    path.with_extension("new")
}
