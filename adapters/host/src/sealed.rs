//! Files and folders that no file tool, command or server may read or write: the store, the file
//! with its key, a recording.
//!
//! A sealed file is recognized by its path and, if it exists, by device and inode. So it cannot be
//! reached by another name either: a bind mount, a hard link, another spelling.

mod mounts;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{Mode, OFlags, fstat, openat};

pub(crate) use self::mounts::Mounts;

/// The most steps from a folder up to the root. Deeper folders count as sealed.
const MAX_STEPS: usize = 4_096;

/// The most symbolic links that the operating system follows in one path.
const MAX_LINKS: usize = 40;

/// Identifies a file or folder independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Of an open file or folder.
    pub(crate) fn from_handle(handle: impl AsFd) -> rustix::io::Result<Self> {
        let stat = fstat(handle)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    fn from_metadata(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// The sealed files and folders of one host. More can be sealed at any time.
#[derive(Debug, Default)]
pub(crate) struct Sealed(RwLock<Vec<PathBuf>>);

impl Sealed {
    /// Seals these paths, which are relative to `working_dir` unless absolute.
    pub(crate) fn new<'p>(paths: impl Iterator<Item = &'p Path>, working_dir: &Path) -> Self {
        let sealed = Self::default();
        paths.for_each(|path| sealed.add(&working_dir.join(path)));
        sealed
    }

    /// Seals an absolute path, which need not exist yet.
    pub(crate) fn add(&self, path: &Path) {
        // The symbolic links on the way are sealed too: if one was replaced, the next program that
        // uses the path would reach another folder.
        let resolved: Vec<_> = [canonical_existing_part(path)]
            .into_iter()
            .chain(links_on_the_way(path))
            .collect();
        let mut paths = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for path in resolved {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }

    /// The sealed paths, with symbolic links resolved in the parts that exist.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The sealed path that is or contains `path`, which is absolute and has no symbolic links.
    pub(crate) fn find_containing(&self, path: &Path) -> Option<PathBuf> {
        self.paths()
            .into_iter()
            .find(|sealed| path.starts_with(sealed))
    }

    /// Whether an open folder is sealed or is inside a sealed folder, by whatever name it was
    /// opened. Costs a walk of everything that is sealed, and some microseconds for each folder
    /// above it.
    pub(crate) fn contains_folder(&self, folder: impl AsFd) -> rustix::io::Result<bool> {
        let sealed = self.identities(EntryKinds::Folders);
        if sealed.is_empty() {
            return Ok(false);
        }
        let mut at: Option<OwnedFd> = None;
        for _ in 0..MAX_STEPS {
            let current = at.as_ref().map_or_else(|| folder.as_fd(), AsFd::as_fd);
            let identity = Identity::from_handle(current)?;
            if sealed.contains(&identity) {
                return Ok(true);
            }
            let parent = openat(
                current,
                "..",
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            if Identity::from_handle(&parent)? == identity {
                return Ok(false);
            }
            at = Some(parent);
        }
        Ok(true)
    }

    /// Whether an open file is sealed, by whatever name it was opened. Costs a `stat` of each
    /// sealed file.
    pub(crate) fn contains_file(&self, file: impl AsFd) -> rustix::io::Result<bool> {
        let identity = Identity::from_handle(file)?;
        Ok(self.identities(EntryKinds::All).contains(&identity))
    }

    /// The sealed files and folders that exist. One that this program cannot stat is left out: its
    /// tools cannot reach it either.
    fn identities(&self, kinds: EntryKinds) -> BTreeSet<Identity> {
        collect_identities(&self.paths(), kinds)
    }
}

/// The files and folders at these paths and below them. Costs a `stat` of each.
pub(crate) fn identities(paths: &[PathBuf]) -> BTreeSet<Identity> {
    collect_identities(paths, EntryKinds::All)
}

fn collect_identities(paths: &[PathBuf], kinds: EntryKinds) -> BTreeSet<Identity> {
    let mut found = BTreeSet::new();
    for path in paths {
        let _ = collect_below(path, kinds, &mut found);
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryKinds {
    Folders,
    All,
}

fn collect_below(path: &Path, kinds: EntryKinds, found: &mut BTreeSet<Identity>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        found.insert(Identity::from_metadata(&metadata));
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if kinds == EntryKinds::All || entry.file_type()?.is_dir() {
                // An entry may be deleted meanwhile.
                let _ = collect_below(&entry.path(), kinds, found);
            }
        }
    } else if kinds == EntryKinds::All {
        found.insert(Identity::from_metadata(&metadata));
    }
    Ok(())
}

/// A path with symbolic links resolved in the part that exists; the absent rest is kept as it is.
pub(crate) fn canonical_existing_part(path: &Path) -> PathBuf {
    let absent = |_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical_existing_part(parent).join(name),
        _ => path.to_owned(),
    };
    fs::canonicalize(path).unwrap_or_else(absent)
}

/// The symbolic links that are followed from an absolute path to what it names: those in the path,
/// and those in the targets of links. Each is a name in a folder without symbolic links.
pub(crate) fn links_on_the_way(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut reached = PathBuf::new();
    let mut ahead = components_from_last(path);
    while let Some(component) = ahead.pop() {
        match Path::new(&component).components().next() {
            Some(Component::Normal(name)) => match fs::read_link(reached.join(name)) {
                Ok(_) if links.len() == MAX_LINKS => break,
                Ok(target) => {
                    links.push(reached.join(name));
                    ahead.extend(components_from_last(&target));
                }
                Err(_) => reached.push(name),
            },
            Some(Component::ParentDir) => {
                reached.pop();
            }
            Some(Component::RootDir | Component::Prefix(_)) => reached = PathBuf::from(&component),
            Some(Component::CurDir) | None => {}
        }
    }
    links
}

fn components_from_last(path: &Path) -> Vec<OsString> {
    let components = path.components().rev();
    components
        .map(|component| component.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn sealed_files_are_recognized_by_path_and_by_identity() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("store/log")).unwrap();
        fs::create_dir_all(base.join("beside")).unwrap();
        for file in ["store/log/1", "key", "beside/f"] {
            fs::write(base.join(file), "x").unwrap();
        }
        let sealed = Sealed::new(
            [Path::new("store"), Path::new("key"), Path::new("later")].into_iter(),
            &base,
        );
        for (path, holding) in [
            ("store/log/1", Some("store")),
            ("later/x", Some("later")),
            ("beside/f", None),
        ] {
            assert_eq!(
                sealed.find_containing(&base.join(path)),
                holding.map(|path| base.join(path)),
                "{path}"
            );
        }
        for (folder, expected) in [
            ("store", true),
            ("store/log", true),
            ("beside", false),
            ("", false),
        ] {
            let handle = File::open(base.join(folder)).unwrap();
            assert_eq!(sealed.contains_folder(&handle), Ok(expected), "{folder}");
        }
        std::os::unix::fs::symlink("beside", base.join("to")).unwrap();
        let behind_a_link = Sealed::new([Path::new("to/inner/later")].into_iter(), &base);
        for (path, holding) in [("beside/inner/later", "beside/inner/later"), ("to", "to")] {
            assert_eq!(
                behind_a_link.find_containing(&base.join(path)),
                Some(base.join(holding)),
                "{path}"
            );
        }
        fs::hard_link(base.join("store/log/1"), base.join("beside/linked")).unwrap();
        for (file, expected) in [
            ("store/log/1", true),
            ("key", true),
            ("beside/linked", true),
            ("beside/f", false),
        ] {
            let handle = File::open(base.join(file)).unwrap();
            assert_eq!(sealed.contains_file(&handle), Ok(expected), "{file}");
        }
    }

    #[test]
    fn each_link_on_the_way_to_a_sealed_path_is_sealed() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for folder in ["store", "a/deep", "b"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        // first -> a/second/x, a/second -> deep/third, a/deep/third -> BASE/b, b/x -> ../store
        symlink("a/second/x", base.join("first")).unwrap();
        symlink("deep/third", base.join("a/second")).unwrap();
        symlink(base.join("b"), base.join("a/deep/third")).unwrap();
        symlink("../store", base.join("b/x")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let links = ["first", "a/second", "a/deep/third", "b/x"];
        for (path, links) in [
            ("first", &links[..]),
            ("first/log", &links),
            ("store", &[]),
            ("b/../first", &links),
            ("a/second/y", &links[1..3]),
            ("absent/first", &[]),
        ] {
            let links: Vec<_> = links.iter().map(|link| base.join(link)).collect();
            assert_eq!(links_on_the_way(&base.join(path)), links, "{path}");
        }
        assert_eq!(links_on_the_way(&base.join("loop")).len(), MAX_LINKS);
        let sealed = Sealed::new([Path::new("first")].into_iter(), &base);
        for path in links.into_iter().chain(["store"]) {
            let path = base.join(path);
            assert_eq!(sealed.find_containing(&path), Some(path.clone()));
        }
        for path in ["a", "a/deep", "b"] {
            assert_eq!(sealed.find_containing(&base.join(path)), None, "{path}");
        }
    }
}
