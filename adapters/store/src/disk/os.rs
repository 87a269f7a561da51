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

/// A folder of the store is accessible to its owner only.
const STORE_FOLDER_MODE: u32 = 0o700;
/// The folders above a store are made as `mkdir` makes them.
const PARENT_FOLDER_MODE: u32 = 0o777;

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
        make_durable_folder(folder, STORE_FOLDER_MODE)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

/// Creates a folder with this mode unless it exists, and its parents with the usual mode. Each name
/// is durable before anything is created below it.
fn make_durable_folder(folder: &Path, mode: u32) -> io::Result<()> {
    let parent = folder
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let create = || DirBuilder::new().mode(mode).create(folder);
    let created = match (create(), parent) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            make_durable_folder(parent, PARENT_FOLDER_MODE)?;
            create()
        }
        (created, _) => created,
    };
    let synced = || OsDisk.sync_folder(parent.unwrap_or(Path::new(".")));
    match created {
        Ok(()) => synced(),
        // Whoever created it may have ended before its name was durable.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match synced() {
            // The parent belongs to another user, such as the folder of all home folders.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        },
        Err(error) => Err(error),
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_is_made_with_its_parents_and_made_once() {
        let base = tempfile::tempdir().unwrap();
        let mode = |path: &str| {
            let metadata = fs::metadata(base.path().join(path)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        fs::create_dir(base.path().join("usual")).unwrap();
        for path in ["a/b/c", "a/b/c", "a/b/d", "a"] {
            OsDisk.make_folder(&base.path().join(path)).unwrap();
        }
        assert_eq!(
            ["a", "a/b", "a/b/c", "a/b/d"].map(mode),
            [mode("usual"), mode("usual"), 0o700, 0o700]
        );
        fs::write(base.path().join("file"), "").unwrap();
        let below_a_file = OsDisk.make_folder(&base.path().join("file/store"));
        assert!(below_a_file.is_err(), "{below_a_file:?}");
    }
}
