//! The operating system's files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use super::{Disk, DiskFile, OpenMode};
use crate::mmap;

/// The most buffers that are passed to one `writev` call; IOV_MAX is 1024 on Linux.
const PARTS_AT_ONCE: usize = 512;

/// The operating system's file system.
#[derive(Debug)]
pub(crate) struct OsDisk;

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        match mode {
            OpenMode::Existing => {}
            OpenMode::CreateNew => drop(options.create_new(true)),
            OpenMode::Truncated => drop(options.create(true).truncate(true)),
        }
        Ok(Arc::new(options.open(path)?))
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        // A file name that is not UTF-8 does not belong to a store.
        entries
            .filter_map(|entry| {
                entry
                    .map(|entry| entry.file_name().into_string().ok())
                    .transpose()
            })
            .collect()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder.parent().unwrap_or(folder))?;
                DirBuilder::new().mode(0o700).create(folder)?;
            }
            other => other?,
        }
        match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.sync_folder(parent),
            _ => self.sync_folder(Path::new(".")),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        for parts in parts.chunks(PARTS_AT_ONCE) {
            let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                match file.write_vectored(left) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => IoSlice::advance_slices(&mut left, written),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(
            self,
            FallocateFlags::empty(),
            0,
            length,
        )?)
    }

    fn map(&self, length: u64) -> io::Result<Bytes> {
        mmap::map(self, length)
    }
}
