//! What belongs to the kernel itself: the folder of its store, the file with its key, a recording that it writes.
//!
//! No file tool, command or server reads or writes it, wherever it lies. It is known by its path and, where it is there, by device and
//! inode, so that another name for it does not help: a bind mount, a hard link, another spelling.

mod mounts;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{Mode, OFlags, fstat, openat};

pub(crate) use self::mounts::Mounts;

/// The deepest folder that is looked at, as steps up to the root.
const MOST_STEPS: usize = 4_096;

/// A file or folder, whatever it is called: its device and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Of what is open.
    pub(crate) fn of(handle: impl AsFd) -> rustix::io::Result<Self> {
        let stat = fstat(handle)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }

    fn of_entry(metadata: &fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// The sealed files and folders of one host. More can be sealed while it is in use.
#[derive(Debug, Default)]
pub(crate) struct Sealed(RwLock<Vec<PathBuf>>);

impl Sealed {
    /// These, made absolute from `working_dir`.
    pub(crate) fn new<'p>(paths: impl Iterator<Item = &'p Path>, working_dir: &Path) -> Self {
        let sealed = Self::default();
        paths.for_each(|path| sealed.add(&working_dir.join(path)));
        sealed
    }

    /// Seals one more, whether it is there yet or not. `path` is absolute.
    pub(crate) fn add(&self, path: &Path) {
        // As it is spelled too: a link that leads to it is not to be exchanged.
        let spelled = canonical_as_far(path.parent().unwrap_or(path)).join(path.file_name().unwrap_or_default());
        let mut paths = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for path in [canonical_as_far(path), spelled] {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }

    /// The paths, without symbolic links as far as they are there.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The sealed path that holds `path`, which is absolute and free of symbolic links.
    pub(crate) fn holding(&self, path: &Path) -> Option<PathBuf> {
        self.paths().into_iter().find(|sealed| path.starts_with(sealed))
    }

    /// Whether an open folder is sealed or lies in a sealed folder, by whatever name it was opened. Costs some microseconds for
    /// each folder above it.
    pub(crate) fn holds_folder(&self, folder: impl AsFd) -> rustix::io::Result<bool> {
        let sealed = self.identities(Kinds::Folders);
        if sealed.is_empty() {
            return Ok(false);
        }
        let mut at: Option<OwnedFd> = None;
        for _ in 0..MOST_STEPS {
            let here = at.as_ref().map_or_else(|| folder.as_fd(), AsFd::as_fd);
            let identity = Identity::of(here)?;
            if sealed.contains(&identity) {
                return Ok(true);
            }
            let above = openat(here, "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            if Identity::of(&above)? == identity {
                return Ok(false);
            }
            at = Some(above);
        }
        Ok(true)
    }

    /// Whether an open file is sealed, by whatever name it was opened. Costs a look at each file that is sealed.
    pub(crate) fn holds_file(&self, file: impl AsFd) -> rustix::io::Result<bool> {
        let identity = Identity::of(file)?;
        Ok(self.identities(Kinds::All).contains(&identity))
    }

    /// What is sealed and there. What cannot be looked at by this program cannot be by its tools either.
    fn identities(&self, kinds: Kinds) -> BTreeSet<Identity> {
        gathered(&self.paths(), kinds)
    }
}

/// What these paths lead to, and all that is below them. Costs a look at each.
pub(crate) fn identities(paths: &[PathBuf]) -> BTreeSet<Identity> {
    gathered(paths, Kinds::All)
}

fn gathered(paths: &[PathBuf], kinds: Kinds) -> BTreeSet<Identity> {
    let mut found = BTreeSet::new();
    for path in paths {
        let _ = gather(path, kinds, &mut found);
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Folders,
    All,
}

fn gather(path: &Path, kinds: Kinds, found: &mut BTreeSet<Identity>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        found.insert(Identity::of_entry(&metadata));
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if kinds == Kinds::All || entry.file_type()?.is_dir() {
                // An entry that goes meanwhile is not there.
                let _ = gather(&entry.path(), kinds, found);
            }
        }
    } else if kinds == Kinds::All {
        found.insert(Identity::of_entry(&metadata));
    }
    Ok(())
}

/// A path without symbolic links where it leads to something, and with its last parts as they are where they are absent.
pub(crate) fn canonical_as_far(path: &Path) -> PathBuf {
    let absent = |_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical_as_far(parent).join(name),
        _ => path.to_owned(),
    };
    fs::canonicalize(path).unwrap_or_else(absent)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn it_is_known_by_name_and_by_identity() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("store/log")).unwrap();
        fs::create_dir_all(base.join("beside")).unwrap();
        for file in ["store/log/1", "key", "beside/f"] {
            fs::write(base.join(file), "x").unwrap();
        }
        let sealed = Sealed::new([Path::new("store"), Path::new("key"), Path::new("later")].into_iter(), &base);
        for (path, holding) in [("store/log/1", Some("store")), ("later/x", Some("later")), ("beside/f", None)] {
            assert_eq!(sealed.holding(&base.join(path)), holding.map(|path| base.join(path)), "{path}");
        }
        for (folder, expected) in [("store", true), ("store/log", true), ("beside", false), ("", false)] {
            let handle = File::open(base.join(folder)).unwrap();
            assert_eq!(sealed.holds_folder(&handle), Ok(expected), "{folder}");
        }
        fs::hard_link(base.join("store/log/1"), base.join("beside/linked")).unwrap();
        for (file, expected) in [("store/log/1", true), ("key", true), ("beside/linked", true), ("beside/f", false)] {
            let handle = File::open(base.join(file)).unwrap();
            assert_eq!(sealed.holds_file(&handle), Ok(expected), "{file}");
        }
    }
}
