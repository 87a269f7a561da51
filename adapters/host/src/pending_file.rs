//! A file that is being written. It gets its name when it is complete, so a program that is killed
//! leaves nothing behind (WHOLE-1).
//!
//! On a file system without nameless files, it has a temporary name next to its target until then,
//! which a killed program leaves behind. A complete file that replaces another one also has a
//! temporary name, for a moment.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::files::rename_new;

/// What a file that is to be placed may find under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    Nothing,
    Anything,
}

/// A file that is being written. Dropped before it is placed, it leaves nothing.
#[derive(Debug)]
pub(crate) struct PendingFile<F: AsFd> {
    /// Where the bytes go.
    pub(crate) file: File,
    folder: F,
    /// The name of its own, if it has one.
    name: Option<OsString>,
}

impl<F: AsFd> PendingFile<F> {
    /// Begins a file that is to be in `folder`, with this mode, before the umask.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn begin(folder: F, mode: Mode) -> Result<Self, Errno> {
        match unnamed(&folder, mode) {
            Ok(file) => Ok(Self {
                file,
                folder,
                name: None,
            }),
            // What is wrong with the folder, if anything, is said by the attempt to make a name in
            // it.
            Err(_) => Self::begin_named(folder, mode),
        }
    }

    fn begin_named(folder: F, mode: Mode) -> Result<Self, Errno> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, handle) = with_free_name(|name| openat(&folder, name, flags, mode))?;
        Ok(Self {
            file: File::from(handle),
            folder,
            name: Some(name),
        })
    }

    /// Gives it this name in its folder. What was there is there still if this fails.
    ///
    /// # Errors
    /// `EXIST` where nothing is to be replaced and something is there; what the operating system
    /// says.
    pub(crate) fn place(mut self, target: &OsStr, replace: Replace) -> Result<(), Errno> {
        if self.name.is_none() {
            match self.link(target) {
                Err(Errno::EXIST) if replace == Replace::Anything => {}
                done => return done,
            }
            self.name = Some(with_free_name(|name| self.link(name))?.0);
        }
        if let Some(name) = &self.name {
            match replace {
                Replace::Nothing => rename_new(self.folder.as_fd(), name, target)?,
                Replace::Anything => renameat(&self.folder, name, &self.folder, target)?,
            }
        }
        self.name = None;
        Ok(())
    }

    /// A further name for its bytes.
    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        linkat(
            CWD,
            handle_path(&self.file),
            &self.folder,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )
    }
}

impl<F: AsFd> Drop for PendingFile<F> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The caller is gone, and the temporary name means nothing to anybody else.
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

/// A file without a name, which can be given one: not without `/proc`.
#[cfg(target_os = "linux")]
fn unnamed(folder: &impl AsFd, mode: Mode) -> Result<File, Errno> {
    let file = File::from(openat(
        folder,
        c".",
        OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC,
        mode,
    )?);
    rustix::fs::stat(handle_path(&file)).map(|_| file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &impl AsFd, _: Mode) -> Result<File, Errno> {
    Err(Errno::NOSYS)
}

fn handle_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// What `make` makes under a name that nothing has: those left by a process that was killed, with
/// the same number as this one, are stepped over.
fn with_free_name<T>(
    mut make: impl FnMut(&OsStr) -> Result<T, Errno>,
) -> Result<(OsString, T), Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".dormouse-{}-{number}.tmp", std::process::id()));
        match make(&name) {
            Ok(made) => return Ok((name, made)),
            Err(Errno::EXIST | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// With a name of its own and without, it is placed or not, and nothing else is ever left.
    #[test]
    fn it_is_placed_whole_or_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = File::open(dir.path()).unwrap();
        let names = || {
            fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        let mode = Mode::RUSR | Mode::WUSR;
        type Begin = fn(File, Mode) -> Result<PendingFile<File>, Errno>;
        let ways: [(Begin, usize); 2] = [(PendingFile::begin_named, 1), (PendingFile::begin, 0)];
        for (begin, names_while_written) in ways {
            let begun = |bytes: &[u8]| {
                let mut pending = begin(folder.try_clone().unwrap(), mode).unwrap();
                pending.file.write_all(bytes).unwrap();
                let inherited = rustix::io::fcntl_getfd(&pending.file).unwrap();
                assert!(
                    inherited.contains(rustix::io::FdFlags::CLOEXEC),
                    "no command is to have it"
                );
                pending
            };
            let dropped = begun(b"half");
            assert_eq!(
                names().len(),
                names_while_written,
                "a kill would leave as many"
            );
            drop(dropped);
            assert!(names().is_empty());
            for (bytes, replace) in [(b"one", Replace::Nothing), (b"two", Replace::Anything)] {
                begun(bytes).place("f".as_ref(), replace).unwrap();
                assert_eq!(
                    (names(), fs::read(dir.path().join("f")).unwrap()),
                    (vec!["f".into()], bytes.to_vec())
                );
            }
            assert_eq!(
                begun(b"late").place("f".as_ref(), Replace::Nothing),
                Err(Errno::EXIST)
            );
            assert_eq!(
                (names(), fs::read(dir.path().join("f")).unwrap()),
                (vec!["f".into()], b"two".to_vec())
            );
            fs::remove_file(dir.path().join("f")).unwrap();
            begun(b"new")
                .place("f".as_ref(), Replace::Anything)
                .unwrap();
            fs::remove_file(dir.path().join("f")).unwrap();
        }
    }
}
