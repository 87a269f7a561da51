//! A folder that is held open, and the operations in it: inspect an entry, open a file, create a
//! folder, list the entries.
//!
//! Every name in this module is a single path component.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use dormouse_proto::file::{DirEntry, EntryKind, FileError, Listing};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, Stat, Uid, fstat, fsync, mkdirat, statat};
use rustix::io::Errno;

use super::file_request::FileRequest;
use super::open_beneath::{self, OpenFor};
use crate::sealed::Sealed;

/// The most entries of a folder that are listed.
const MAX_ENTRIES: usize = 100_000;

/// A folder below a permitted root, or the root.
#[derive(Debug)]
pub(super) struct Folder {
    handle: OwnedFd,
}

/// An open regular file, with the attributes that a replacement keeps.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) file: File,
    /// Size in bytes when it was opened.
    pub(super) size: u64,
    /// Permission bits, without set-uid and set-gid: those are not passed on to content that a
    /// model wrote.
    pub(super) mode: Mode,
    pub(super) owner: (Uid, Gid),
}

impl Folder {
    /// Opens the folder at `path` below `root`; none if a component of the path is absent.
    pub(super) fn below(
        root: BorrowedFd<'_>,
        path: &Path,
        request: &FileRequest<'_>,
    ) -> Result<Option<Self>, FileError> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        match open_beneath::open(root, path, OpenFor::Folder) {
            Ok(handle) => Self::check_file_system(handle, request).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(request.errno(errno)),
        }
    }

    fn check_file_system(handle: OwnedFd, request: &FileRequest<'_>) -> Result<Self, FileError> {
        match open_beneath::is_system_file_system(handle.as_fd()) {
            Ok(false) => Ok(Self { handle }),
            Ok(true) => Err(request.denied(
                "it belongs to a file system of the operating system itself, such as /proc.",
            )),
            Err(errno) => Err(request.errno(errno)),
        }
    }

    /// Returns this folder, unless it is sealed, under any of its names.
    pub(super) fn refuse_sealed(
        self,
        sealed: &Sealed,
        request: &FileRequest<'_>,
    ) -> Result<Self, FileError> {
        match sealed.contains_folder(&self) {
            Ok(false) => Ok(self),
            Ok(true) => Err(request.sealed_elsewhere()),
            Err(errno) => Err(request.errno(errno)),
        }
    }

    /// Opens the folder `name` in this one, and creates it if it is absent. A folder that is created
    /// meanwhile, by this call or by another one, is durable when this returns.
    pub(super) fn make(&self, name: &OsStr, request: &FileRequest<'_>) -> Result<Self, FileError> {
        if let Some(existing) = Self::below(self.as_fd(), Path::new(name), request)? {
            return Ok(existing);
        }
        match mkdirat(self, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => fsync(self).map_err(|errno| request.errno(errno))?,
            Err(errno) => return Err(request.errno(errno)),
        }
        Self::below(self.as_fd(), Path::new(name), request)?.ok_or_else(|| request.not_found())
    }

    /// Whether a regular file of this name exists. Its type is determined without opening it for
    /// reading or writing.
    pub(super) fn has_regular_file(
        &self,
        name: &OsStr,
        request: &FileRequest<'_>,
    ) -> Result<bool, FileError> {
        match open_beneath::open(self.as_fd(), Path::new(name), OpenFor::Look) {
            Ok(handle) => check_target(&handle, request).map(|_| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(request.errno(errno)),
        }
    }

    /// The entries, sorted by name. Entries are not opened. An entry that is deleted meanwhile is
    /// left out.
    pub(super) fn list(&self, request: &FileRequest<'_>) -> Result<Listing, FileError> {
        let refused = |errno| request.errno(errno);
        let (mut entries, mut left_out) = (Vec::new(), 0);
        for entry in Dir::read_from(self).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                _ if entries.len() == MAX_ENTRIES => left_out += 1,
                name => entries.extend(self.entry(OsStr::from_bytes(name))),
            }
        }
        entries.sort_unstable();
        Ok(Listing { entries, left_out })
    }

    fn entry(&self, name: &OsStr) -> Option<DirEntry> {
        let kind = match statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => EntryKind::File {
                    bytes: u64::try_from(stat.st_size).unwrap_or(0),
                },
                FileType::Directory => EntryKind::Directory,
                FileType::Symlink => EntryKind::Link,
                _ => EntryKind::Other,
            },
            Err(Errno::NOENT) => return None,
            // A mount of another user refuses even root, and a faulty disk may hide one entry.
            Err(_) => EntryKind::Unknown,
        };
        Some(DirEntry {
            name: name.to_string_lossy().into_owned(),
            kind,
        })
    }

    /// Opens a file; none if it is absent. Its type is checked before, so that a device is never
    /// opened, and again after, since the entry may have been replaced in between.
    pub(super) fn open_target(
        &self,
        name: &OsStr,
        open_for: OpenFor,
        request: &FileRequest<'_>,
    ) -> Result<Option<Target>, FileError> {
        if !self.has_regular_file(name, request)? {
            return Ok(None);
        }
        match open_beneath::open(self.as_fd(), Path::new(name), open_for) {
            Ok(handle) => Target::new(handle, request).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(request.errno(errno)),
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Target {
    /// Returns this file, unless it is sealed, under any of its names.
    pub(super) fn refuse_sealed(
        self,
        sealed: &Sealed,
        request: &FileRequest<'_>,
    ) -> Result<Self, FileError> {
        match sealed.contains_file(&self.file) {
            Ok(false) => Ok(self),
            Ok(true) => Err(request.sealed_elsewhere()),
            Err(errno) => Err(request.errno(errno)),
        }
    }

    fn new(handle: OwnedFd, request: &FileRequest<'_>) -> Result<Self, FileError> {
        let stat = check_target(&handle, request)?;
        let mode = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        Ok(Self {
            file: File::from(handle),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode,
            owner,
        })
    }
}

fn check_target(handle: &OwnedFd, request: &FileRequest<'_>) -> Result<Stat, FileError> {
    let stat = fstat(handle).map_err(|errno| request.errno(errno))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(request.not_a_file("a directory")),
        FileType::Fifo => return Err(request.not_a_file("a FIFO")),
        FileType::Socket => return Err(request.not_a_file("a socket")),
        FileType::Symlink => return Err(request.errno(Errno::LOOP)),
        FileType::CharacterDevice | FileType::BlockDevice => {
            return Err(request.not_a_file("a device"));
        }
        _ => return Err(request.not_a_file("of an unknown type")),
    }
    if stat.st_nlink > 1 {
        let names = stat.st_nlink;
        return Err(request.denied(format_args!(
            "it has {names} names (hard links), some of which may lie outside."
        )));
    }
    Ok(stat)
}
