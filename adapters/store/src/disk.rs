//! What the log and HEAD ask of a file system. A test can put another one under them: one that
//! loses what was not synced, or fails at a chosen moment.
//!
//! The lock and the index are no part of it: the one is the operating system's, the other can be
//! thrown away.

mod held;
mod reading;
mod system;
#[cfg(test)]
pub(crate) mod volatile;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use held::Held;
pub(crate) use reading::Reading;
pub(crate) use system::System;

/// A file system. Files are for their owner alone.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn DiskFile>>;

    /// The names in a folder; none where there is no folder.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Makes a folder, and those above it, unless it is there. Its name is durable then.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// Puts a file in the place of another. Durable when the folder is synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It must be there.
    Existing,
    /// It must not be there. Its name is durable when the folder is synced.
    New,
    /// It is empty, whatever was there.
    Emptied,
}

/// An open file.
pub(crate) trait DiskFile: Debug + Send + Sync {
    /// Its bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on, wholly or not at all.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes `parts`, one behind the other, from `offset` on.
    fn write_at(&self, offset: u64, parts: &[Bytes]) -> io::Result<()>;

    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;

    /// Cuts it, or lengthens it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Has room for `length` bytes, zeros up to there: writes within it change neither length nor
    /// what belongs to the file, so that a sync has less to write.
    fn reserve(&self, length: u64) -> io::Result<()>;

    /// Whether nobody else changes it, so that it can be mapped.
    fn is_mappable(&self) -> bool {
        true
    }

    /// Its first `length` bytes as memory. They must not change any more.
    fn map(&self, length: u64) -> io::Result<Bytes>;
}

/// All bytes of a file; none where there is no such file.
pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, How::Existing) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = vec![0; file.length()? as usize];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Puts a file with these bytes in the place of `path`, durably. The one before stays whole until
/// then. Costs two syncs.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: Bytes) -> io::Result<()> {
    write_beside(disk, path, bytes)?;
    put_in_place(disk, path)
}

/// The first half of [`replace`]: until the second, `path` is what it was. What an earlier try left
/// beside it is lost.
pub(crate) fn write_beside(disk: &dyn Disk, path: &Path, bytes: Bytes) -> io::Result<()> {
    let file = disk.open(&beside(path), How::Emptied)?;
    file.write_at(0, &[bytes])?;
    file.sync()
}

/// The second half of [`replace`]. Where it fails, it is not known which of the two stands there.
pub(crate) fn put_in_place(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.rename(&beside(path), path)?;
    disk.sync_folder(path.parent().unwrap_or(Path::new(".")))
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}
