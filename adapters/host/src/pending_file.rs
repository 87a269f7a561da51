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

/// Whether a file may replace another one of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    Nothing,
    Anything,
}

/// A file that is being written. If it is dropped before it gets its name, nothing is left.
#[derive(Debug)]
pub(crate) struct PendingFile<F: AsFd> {
    /// The file to write to.
    pub(crate) file: File,
    folder: F,
    /// The temporary name, if the file has one.
    name: Option<OsString>,
}

impl<F: AsFd> PendingFile<F> {
    /// Creates a file in `folder` with this mode, before the umask.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn create(folder: F, mode: Mode) -> Result<Self, Errno> {
        match create_unnamed(&folder, mode) {
            Ok(file) => Ok(Self {
                file,
                folder,
                name: None,
            }),
            // If the folder is the problem, the attempt with a name reports it.
            Err(_) => Self::create_named(folder, mode),
        }
    }

    fn create_named(folder: F, mode: Mode) -> Result<Self, Errno> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, handle) = with_free_name(|name| openat(&folder, name, flags, mode))?;
        Ok(Self {
            file: File::from(handle),
            folder,
            name: Some(name),
        })
    }

    /// Gives the file its name. If this fails, a file of that name is unchanged.
    ///
    /// # Errors
    /// `EXIST` if nothing may be replaced and the name is taken; errors of the operating system.
    pub(crate) fn persist(mut self, target: &OsStr, replace: Replace) -> Result<(), Errno> {
        if self.name.is_none() {
            match self.link(target) {
                Err(Errno::EXIST) if replace == Replace::Anything => {}
                result => return result,
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

    /// Adds a name to the file.
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
            // Nobody could act on a failure.
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

/// Creates a file without a name. Giving it a name later needs `/proc`, so that is checked.
#[cfg(target_os = "linux")]
fn create_unnamed(folder: &impl AsFd, mode: Mode) -> Result<File, Errno> {
    let file = File::from(openat(
        folder,
        c".",
        OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC,
        mode,
    )?);
    rustix::fs::stat(handle_path(&file)).map(|_| file)
}

#[cfg(not(target_os = "linux"))]
fn create_unnamed(_: &impl AsFd, _: Mode) -> Result<File, Errno> {
    Err(Errno::NOSYS)
}

fn handle_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Calls `make` with temporary names until one is free. A killed process that had the same pid may
/// have left files under such names.
fn with_free_name<T>(
    mut make: impl FnMut(&OsStr) -> Result<T, Errno>,
) -> Result<(OsString, T), Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = OsString::from(format!(".dormouse-{}-{number}.tmp", std::process::id()));
        match make(&name) {
            Ok(file) => return Ok((name, file)),
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
    fn a_file_gets_its_name_when_complete_or_leaves_nothing() {
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
        let ways: [(Begin, usize); 2] = [(PendingFile::create_named, 1), (PendingFile::create, 0)];
        for (begin, names_while_written) in ways {
            let create_pending = |bytes: &[u8]| {
                let mut pending = begin(folder.try_clone().unwrap(), mode).unwrap();
                pending.file.write_all(bytes).unwrap();
                let inherited = rustix::io::fcntl_getfd(&pending.file).unwrap();
                assert!(
                    inherited.contains(rustix::io::FdFlags::CLOEXEC),
                    "no command is to have it"
                );
                pending
            };
            let dropped = create_pending(b"half");
            assert_eq!(
                names().len(),
                names_while_written,
                "a kill would leave as many"
            );
            drop(dropped);
            assert!(names().is_empty());
            for (bytes, replace) in [(b"one", Replace::Nothing), (b"two", Replace::Anything)] {
                create_pending(bytes)
                    .persist("f".as_ref(), replace)
                    .unwrap();
                assert_eq!(
                    (names(), fs::read(dir.path().join("f")).unwrap()),
                    (vec!["f".into()], bytes.to_vec())
                );
            }
            assert_eq!(
                create_pending(b"late").persist("f".as_ref(), Replace::Nothing),
                Err(Errno::EXIST)
            );
            assert_eq!(
                (names(), fs::read(dir.path().join("f")).unwrap()),
                (vec!["f".into()], b"two".to_vec())
            );
            fs::remove_file(dir.path().join("f")).unwrap();
            create_pending(b"new")
                .persist("f".as_ref(), Replace::Anything)
                .unwrap();
            fs::remove_file(dir.path().join("f")).unwrap();
        }
    }
}
