//! Read-only access to the operating system's files, next to a writer. The caller throttles reads;
//! every change is refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::{Disk, DiskFile, OpenMode, OsDisk};
use crate::throttle::Throttle;

/// The most bytes that are read between two calls of the throttle.
const READ_BYTES: usize = 1 << 20;

/// The operating system's file system, for reading only.
#[derive(Debug, Default)]
pub(crate) struct ReadOnlyDisk {
    throttle: Throttle,
}

impl ReadOnlyDisk {
    /// A disk that calls `throttle` before each read.
    pub(crate) fn throttled(throttle: Throttle) -> Self {
        Self { throttle }
    }
}

/// A file that another program may be writing.
#[derive(Debug)]
struct ReadFile {
    file: File,
    throttle: Throttle,
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        match mode {
            OpenMode::Existing => Ok(Arc::new(ReadFile {
                file: File::open(path)?,
                throttle: self.throttle.clone(),
            })),
            OpenMode::CreateNew | OpenMode::Truncated => read_only_error(),
        }
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        OsDisk.names(folder)
    }

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        read_only_error()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only_error()
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        read_only_error()
    }
}

impl DiskFile for ReadFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for part in buffer.chunks_mut(READ_BYTES) {
            self.throttle.wait(part.len() as u64)?;
            self.file.read_exact_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[Bytes]) -> io::Result<()> {
        read_only_error()
    }

    fn sync(&self) -> io::Result<()> {
        read_only_error()
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        read_only_error()
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        read_only_error()
    }

    fn is_mappable(&self) -> bool {
        false
    }

    fn map(&self, _: u64) -> io::Result<Bytes> {
        read_only_error()
    }
}

fn read_only_error<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_longer_than_the_limit_is_split_and_complete() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..5 * READ_BYTES / 2)
            .map(|at| (at / 7 % 251) as u8)
            .collect();
        std::fs::write(folder.path().join("f"), &bytes).unwrap();
        let file = ReadOnlyDisk::default()
            .open(&folder.path().join("f"), OpenMode::Existing)
            .unwrap();
        let mut read = vec![0; bytes.len() - 9];
        file.read_at(9, &mut read).unwrap();
        assert!(read == bytes[9..], "every byte is read from its offset");
    }
}
