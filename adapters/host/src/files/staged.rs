//! A file in the making: written beside its target and renamed onto it. Dropped before that, it leaves nothing (WHOLE-1).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_proto::file::{FileError, Presence};
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fchown, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::asked::Asked;
use super::beneath;
use super::folder::{Folder, Target};

/// The mode of a new file, before the umask.
const NEW_FILE: Mode = Mode::from_raw_mode(0o644);

/// A temporary file in the folder of its target.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    /// Where the bytes go.
    pub(super) file: File,
    folder: &'a Folder,
    asked: &'a Asked<'a>,
    name: OsString,
    is_renamed: bool,
}

impl<'a> Staged<'a> {
    /// Makes the temporary file: with the mode and owner of `old`, the file it will replace, as far as the operating
    /// system lets an owner be kept.
    pub(super) fn begin(folder: &'a Folder, old: Option<&Target>, asked: &'a Asked<'a>) -> Result<Self, FileError> {
        let mode = if old.is_some() { Mode::RUSR | Mode::WUSR } else { NEW_FILE };
        let (name, file) = create(folder, mode).map_err(|errno| asked.errno(errno))?;
        let staged = Self { file, folder, asked, name, is_renamed: false };
        if let Some(old) = old {
            // An owner that cannot be kept is no reason to refuse what the mode permits.
            let _ = fchown(&staged.file, Some(old.owner.0), Some(old.owner.1));
            fchmod(&staged.file, old.mode).map_err(|errno| asked.errno(errno))?;
        }
        Ok(staged)
    }

    /// Makes the bytes durable, then the name.
    ///
    /// # Errors
    /// `FileExists` where nothing may be there and something came to be. In all cases but one the target is as it was:
    /// where the last sync fails, the message says that it was replaced.
    pub(super) fn commit(mut self, target: &OsStr, presence: Presence) -> Result<(), FileError> {
        let asked = self.asked;
        fsync(&self.file).map_err(|errno| asked.errno(errno))?;
        self.rename(target, presence).map_err(|errno| asked.errno(errno))?;
        self.is_renamed = true;
        fsync(self.folder).map_err(|errno| {
            asked.unusable(format_args!(
                "it was replaced, but may not survive a power cut: the folder's sync failed, {errno}."
            ))
        })
    }

    fn rename(&self, target: &OsStr, presence: Presence) -> Result<(), Errno> {
        match presence {
            Presence::Absent | Presence::Neither => beneath::rename_new(self.folder.as_fd(), &self.name, target),
            Presence::Any | Presence::Present => renameat(self.folder, &self.name, self.folder, target),
        }
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

/// A name that nothing has: those left by a process that was killed, with the same number as this one, are stepped over.
fn create(folder: &Folder, mode: Mode) -> Result<(OsString, File), Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".dormouse-{}-{number}.tmp", std::process::id()));
        match openat(folder, &name, flags, mode) {
            Ok(handle) => return Ok((name, File::from(handle))),
            Err(Errno::EXIST | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use dormouse_proto::file::FileErrorKind;

    use super::super::asked::Purpose;
    use super::*;

    #[test]
    fn what_is_not_committed_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let asked = Asked::new(Purpose::Write, Path::new("f"));
        let root = File::open(dir.path()).unwrap();
        let folder = Folder::below(root.as_fd(), Path::new(""), &asked).unwrap().unwrap();
        let names = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();

        let mut dropped = Staged::begin(&folder, None, &asked).unwrap();
        dropped.file.write_all(b"half").unwrap();
        assert_eq!(names().len(), 1);
        drop(dropped);
        assert!(names().is_empty());

        fs::write(dir.path().join("f"), "old").unwrap();
        let late = Staged::begin(&folder, None, &asked).unwrap();
        assert_eq!(late.commit(OsStr::new("f"), Presence::Absent).unwrap_err().kind, FileErrorKind::FileExists);
        assert_eq!(names(), ["f"]);
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"old");
    }
}
