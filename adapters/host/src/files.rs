//! Reads and writes files below the permitted root folders. (A root is a folder here, not the root
//! process of a tree.)
//!
//! `roots.rs` finds the root of a path, `location.rs` the folder below it and the name, and
//! `folder.rs` opens them, by `open_beneath.rs`. `splice.rs` joins new bytes with an old file, and
//! `replacement.rs` puts the result in the place of the file. `file_request.rs` words the errors.
//!
//! Each access starts at the handle of a root that was opened when the host was created. The text
//! of a path only serves to find its root and its components; what the path leads to is determined
//! by opening it (CONFINE-1). A file is written next to its target and renamed onto it (WHOLE-1).
//! No access waits for a FIFO, a device or a terminal.
//!
//! The implementation needs openat2, which only Linux has. On other systems every access is
//! refused.

mod file_request;
mod folder;
mod location;
mod open_beneath;
mod replacement;
mod roots;
mod splice;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod matrix_tests;

use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dormouse_actors::ports::CappedBytes;
use dormouse_proto::file::{FileError, FileWrite, Listing, Presence, WriteMode};

use self::file_request::{FileRequest, Purpose};
use self::folder::{Folder, Target};
use self::open_beneath::OpenFor;
pub(crate) use self::open_beneath::rename_new;
use self::replacement::Replacement;
use self::roots::Roots;
use self::splice::Splice;
use crate::permissions::Permissions;
use crate::sealed::Sealed;

/// The largest file that is read, in bytes.
const READ_CAP_BYTES: u64 = 1 << 30;

/// How many writes of files with different names can run at once.
const WRITE_LOCKS: usize = 64;

/// The permitted files of one host.
#[derive(Debug)]
pub(crate) struct Files {
    read: Roots,
    write: Roots,
    sealed: Arc<Sealed>,
    write_locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Files {
    /// Opens the permitted roots. `working_dir` is absolute and free of symbolic links.
    pub(crate) fn open(
        permissions: &Permissions,
        sealed: &Arc<Sealed>,
        working_dir: &Path,
    ) -> io::Result<Self> {
        Ok(Self {
            read: Roots::open(
                Purpose::Read,
                permissions.read(),
                sealed.clone(),
                working_dir,
            )?,
            write: Roots::open(
                Purpose::Write,
                permissions.write(),
                sealed.clone(),
                working_dir,
            )?,
            sealed: sealed.clone(),
            write_locks: std::iter::repeat_with(Mutex::default)
                .take(WRITE_LOCKS)
                .collect(),
            hasher: RandomState::new(),
        })
    }

    /// Writes a file, whole or not at all. Costs a copy of the old file where the mode keeps it.
    ///
    /// Writes of one host to one file happen one after the other, so that two appends both arrive.
    pub(crate) fn write(&self, write: &FileWrite) -> Result<(), FileError> {
        let request = FileRequest::new(Purpose::Write, Path::new(&write.path));
        let location = self.write.locate(&request)?;
        let _lock = self.lock_file_name(&location.name);
        let existing_folder = location.folder(&request)?;
        let exists = existing_folder
            .as_ref()
            .map(|folder| folder.has_regular_file(&location.name, &request))
            .transpose()?
            .unwrap_or(false);
        check_presence(write.presence, exists, &request)?;
        let old = open_old(
            existing_folder.as_ref().filter(|_| exists),
            &location.name,
            write.mode,
            &request,
        )?;
        let mut old = old
            .map(|target| target.refuse_sealed(&self.sealed, &request))
            .transpose()?;
        let splice = Splice::find(
            write.mode,
            old.as_mut().map(|target| &mut target.file),
            &write.bytes,
            &request,
        )?;
        let folder = existing_folder.map_or_else(|| location.make_folder(&request), Ok)?;
        let mut replacement = Replacement::create(&folder, old.as_ref(), &request)?;
        let kept = old.as_mut().map(|target| &mut target.file);
        splice
            .compose(kept, &write.bytes, replacement.file())
            .map_err(|error| request.io("store", &error))?;
        replacement.commit(&location.name, write.presence)
    }

    /// Reads a file whole, up to a bound.
    pub(crate) fn read(&self, path: &Path) -> Result<Bytes, FileError> {
        let CappedBytes { bytes, cut_bytes } = self.read_capped(path, READ_CAP_BYTES)?;
        if cut_bytes > 0 {
            Err(FileRequest::new(Purpose::Read, path).too_large(READ_CAP_BYTES))
        } else {
            Ok(bytes)
        }
    }

    /// Reads the first `cap_bytes` of a file, and returns the number of bytes after them, which are
    /// not read.
    pub(crate) fn read_capped(
        &self,
        path: &Path,
        cap_bytes: u64,
    ) -> Result<CappedBytes, FileError> {
        let request = FileRequest::new(Purpose::Read, path);
        let location = self.read.locate(&request)?;
        let target = match location.folder(&request)? {
            Some(folder) => folder.open_target(&location.name, OpenFor::Read, &request)?,
            None => None,
        };
        let mut target = target
            .ok_or_else(|| request.not_found())?
            .refuse_sealed(&self.sealed, &request)?;
        let mut bytes =
            Vec::with_capacity(usize::try_from(target.size.min(cap_bytes)).unwrap_or(0));
        // One byte more detects that the file has grown since its size was read.
        let read = target
            .file
            .by_ref()
            .take(cap_bytes.saturating_add(1))
            .read_to_end(&mut bytes);
        let read = read.map_err(|error| request.io("read", &error))? as u64;
        let CappedBytes { bytes, cut_bytes } = CappedBytes::capped(bytes.into(), cap_bytes);
        let unread = target.size.saturating_sub(read);
        Ok(CappedBytes {
            bytes,
            cut_bytes: if cut_bytes > 0 { cut_bytes + unread } else { 0 },
        })
    }

    /// The entries of a folder: the first ones that the system returns, sorted, and the number of
    /// the others. Costs a `stat` of each entry.
    pub(crate) fn list(&self, path: &Path) -> Result<Listing, FileError> {
        let request = FileRequest::new(Purpose::Read, path);
        let (root, path_below) = self.read.locate_folder(&request)?;
        let folder = Folder::below(root.as_fd(), &path_below, &request)?
            .ok_or_else(|| request.not_found())?;
        folder.refuse_sealed(&self.sealed, &request)?.list(&request)
    }

    /// Locks a file against other writes, by a hash of its file name: since links are refused, two
    /// paths of one file end with the same name.
    fn lock_file_name(&self, name: &OsStr) -> MutexGuard<'_, ()> {
        let slot = usize::try_from(self.hasher.hash_one(name) % WRITE_LOCKS as u64)
            .expect("a remainder of 64 fits");
        self.write_locks[slot]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_presence(
    presence: Presence,
    exists: bool,
    request: &FileRequest<'_>,
) -> Result<(), FileError> {
    match (presence, exists) {
        (Presence::Absent | Presence::Neither, true) => Err(request.exists(presence)),
        (Presence::Present | Presence::Neither, false) => Err(request.absent(presence)),
        (Presence::Any | Presence::Present, true) | (Presence::Any | Presence::Absent, false) => {
            Ok(())
        }
    }
}

/// Opens the existing file with the access that the mode requires. So a file that its owner has
/// protected against writing is not replaced, although a rename would be permitted.
fn open_old(
    folder: Option<&Folder>,
    name: &OsStr,
    mode: WriteMode,
    request: &FileRequest<'_>,
) -> Result<Option<Target>, FileError> {
    let open_for = match mode {
        WriteMode::Write => OpenFor::Write,
        WriteMode::Append | WriteMode::Insert { .. } => OpenFor::ReadWrite,
    };
    folder.map_or(Ok(None), |folder| {
        folder.open_target(name, open_for, request)
    })
}
