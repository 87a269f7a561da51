//! The calls that depend on the operating system: open a path below a folder, rename without
//! replacing, and determine the type of a file system.
//!
//! Opening never leaves the folder, follows no links, never blocks, and truncates nothing.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::{Errno, Result};

/// What something is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenFor {
    /// A directory, to open or create entries in, and to sync.
    Folder,
    /// Only to determine its type: opening has no effect, not even on a device.
    Look,
    Read,
    Write,
    ReadWrite,
}

/// Opens `path` below `folder`.
///
/// # Errors
/// `LOOP` at a symbolic link, `XDEV` on the way out, `NOSYS` where the system has no such call, and
/// what open(2) says.
#[cfg(target_os = "linux")]
pub(super) fn open(folder: BorrowedFd<'_>, path: &Path, open_for: OpenFor) -> Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

    /// Linux returns EAGAIN if a component is renamed meanwhile.
    const TRIES: u32 = 64;
    let access = match open_for {
        OpenFor::Folder => OFlags::RDONLY | OFlags::DIRECTORY,
        OpenFor::Look => OFlags::PATH,
        OpenFor::Read => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
        OpenFor::Write => OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
        OpenFor::ReadWrite => OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY,
    };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 1..TRIES {
        match openat2(
            folder,
            path,
            access | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open(_folder: BorrowedFd<'_>, _path: &Path, _open_for: OpenFor) -> Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// Renames an entry of `folder` to a name that must be free.
///
/// # Errors
/// `EXIST` if the name is taken, even if that happened only just before.
pub(crate) fn rename_new(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> Result<()> {
    match rename_noreplace(folder, from, to) {
        Err(Errno::INVAL | Errno::NOSYS) => link_then_unlink(folder, from, to),
        result => result,
    }
}

#[cfg(target_os = "linux")]
fn rename_noreplace(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> Result<()> {
    rustix::fs::renameat_with(folder, from, folder, to, rustix::fs::RenameFlags::NOREPLACE)
}

#[cfg(not(target_os = "linux"))]
fn rename_noreplace(_folder: BorrowedFd<'_>, _from: &OsStr, _to: &OsStr) -> Result<()> {
    Err(Errno::NOSYS)
}

/// The same result on file systems without this kind of rename.
fn link_then_unlink(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> Result<()> {
    use rustix::fs::{AtFlags, linkat, unlinkat};
    linkat(folder, from, folder, to, AtFlags::empty())?;
    unlinkat(folder, from, AtFlags::empty())
}

/// Whether a folder belongs to a file system that shows the state of the operating system: such
/// files may hold secrets of this process (`/proc/self/environ`), or have effects when they are
/// written.
#[cfg(target_os = "linux")]
pub(super) fn is_system_file_system(folder: BorrowedFd<'_>) -> Result<bool> {
    /// proc, sysfs, debugfs, tracefs, securityfs, cgroup, cgroup2, bpf, configfs, selinux, efivars
    /// (linux/magic.h).
    const MAGIC: [u32; 11] = [
        0x9fa0,
        0x6265_6572,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x0027_e0eb,
        0x6367_7270,
        0xcafe_4a11,
        0x6265_6570,
        0xf97c_ff8c,
        0xde5e_81e4,
    ];
    let stat = rustix::fs::fstatfs(folder)?;
    // The magic numbers are 32 bits wide; the field is as wide as a word.
    Ok(MAGIC.contains(&(stat.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_system_file_system(_folder: BorrowedFd<'_>) -> Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn renaming_onto_an_existing_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let handle = std::fs::File::open(dir.path()).unwrap();
        for rename in [rename_new, link_then_unlink] {
            std::fs::write(dir.path().join("from"), "new").unwrap();
            std::fs::write(dir.path().join("there"), "old").unwrap();
            assert_eq!(
                rename(handle.as_fd(), "from".as_ref(), "there".as_ref()),
                Err(Errno::EXIST)
            );
            assert_eq!(std::fs::read(dir.path().join("there")).unwrap(), b"old");
            assert_eq!(
                rename(handle.as_fd(), "from".as_ref(), "free".as_ref()),
                Ok(())
            );
            assert_eq!(std::fs::read(dir.path().join("free")).unwrap(), b"new");
            assert!(!dir.path().join("from").exists());
            std::fs::remove_file(dir.path().join("free")).unwrap();
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn file_systems_of_the_operating_system_are_recognized() {
        for (path, expected) in [
            ("/proc", true),
            ("/proc/self", true),
            ("/sys", true),
            ("/", false),
        ] {
            let handle = std::fs::File::open(path).unwrap();
            assert_eq!(
                is_system_file_system(handle.as_fd()),
                Ok(expected),
                "{path}"
            );
        }
    }
}
