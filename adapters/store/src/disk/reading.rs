//! Files of the operating system, opened read-only next to a writer. The caller sets the pace of
//! reads; every change is refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::{Disk, DiskFile, How, System};
use crate::pace::Pace;

/// Read between two questions about the pace.
const PIECE_BYTES: usize = 1 << 20;

/// The operating system's file system, to be read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pace: Pace,
}

impl Reading {
    /// One that asks before it reads.
    pub(crate) fn paced(pace: Pace) -> Self {
        Self { pace }
    }
}

/// A file that someone else may write.
#[derive(Debug)]
struct ReadFile {
    file: File,
    pace: Pace,
}

impl Disk for Reading {
    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn DiskFile>> {
        match how {
            How::Existing => Ok(Arc::new(ReadFile {
                file: File::open(path)?,
                pace: self.pace.clone(),
            })),
            How::New | How::Emptied => refused(),
        }
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        System.names(folder)
    }

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        refused()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        refused()
    }
}

impl DiskFile for ReadFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in buffer.chunks_mut(PIECE_BYTES) {
            self.pace.ask(piece.len() as u64)?;
            self.file.read_exact_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[Bytes]) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn is_mappable(&self) -> bool {
        false
    }

    fn map(&self, _: u64) -> io::Result<Bytes> {
        refused()
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_read_is_made_of_pieces_that_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..5 * PIECE_BYTES / 2)
            .map(|at| (at / 7 % 251) as u8)
            .collect();
        std::fs::write(folder.path().join("f"), &bytes).unwrap();
        let file = Reading::default()
            .open(&folder.path().join("f"), How::Existing)
            .unwrap();
        let mut read = vec![0; bytes.len() - 9];
        file.read_at(9, &mut read).unwrap();
        assert!(read == bytes[9..], "no byte is another");
    }
}
