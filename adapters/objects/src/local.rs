//! A store in a folder of the local file system: what a server does by itself.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_actors::ports::StoreError;

/// When a file that is being written was left behind by a program that ended.
const PENDING_AT_MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder of a store.
#[derive(Clone, Debug)]
pub(crate) struct LocalFolder(PathBuf);

impl LocalFolder {
    /// Opens a folder, which is created durably if it is absent.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let absent = path.ancestors().take_while(|folder| !folder.exists());
        let absent: Vec<_> = absent.collect();
        let created = fs::create_dir_all(path).and_then(|()| {
            let parents = absent.iter().filter_map(|folder| folder.parent());
            parents.into_iter().try_for_each(sync)
        });
        created
            .and_then(|()| path.canonicalize())
            .map(Self)
            .map_err(|source| StoreError::Io {
                doing: format!("create the folder {} for contents", path.display()),
                source,
            })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Refuses a folder that is gone: it is not an empty store.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.0.is_dir() {
            return Ok(());
        }
        Err(StoreError::Io {
            doing: format!("find the folder {} of contents", self.0.display()),
            source: io::Error::from(io::ErrorKind::NotFound),
        })
    }

    /// Syncs a file and the folders that lead to it: another program or thread may have just written
    /// the file, or created its folder, and not have synced it yet.
    pub(crate) fn sync(&self, key: &str) -> Result<(), StoreError> {
        let file = self.0.join(key);
        let paths = file
            .ancestors()
            .take_while(|path| path.starts_with(&self.0));
        paths
            .into_iter()
            .try_for_each(sync)
            .map_err(|source| StoreError::Io {
                doing: format!("sync the content {}", file.display()),
                source,
            })
    }

    /// Deletes files that programs began to write a day ago, and did not finish. The client writes a
    /// file under its name with `#` and a number.
    pub(crate) fn remove_unfinished(&self) {
        let folders = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let files = folders
            .filter_map(|folder| fs::read_dir(folder.path()).ok())
            .flatten();
        for file in files.flatten() {
            let name = file.file_name();
            let is_pending = name
                .to_string_lossy()
                .split_once('#')
                .is_some_and(|(_, number)| number.parse::<u64>().is_ok());
            let written = file.metadata().and_then(|metadata| metadata.modified());
            let is_old =
                written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > PENDING_AT_MOST));
            if is_pending && is_old {
                let _deleted_by_another = fs::remove_file(file.path());
            }
        }
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn what_a_program_left_unfinished_is_deleted_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let local = LocalFolder::open(&folder.path().join("a/b")).unwrap();
        let inner = local.path().join("ab");
        fs::create_dir(&inner).unwrap();
        let old = SystemTime::now() - PENDING_AT_MOST - Duration::from_secs(60);
        for (name, time) in [
            ("abcd#1", old),
            ("abcd#2", SystemTime::now()),
            ("abcd", old),
            ("abcd#x", old),
        ] {
            let file = File::create(inner.join(name)).unwrap();
            file.set_modified(time).unwrap();
        }
        local.remove_unfinished();
        let kept = fs::read_dir(&inner)
            .unwrap()
            .map(|file| file.unwrap().file_name());
        let mut kept: Vec<_> = kept.collect();
        kept.sort();
        assert_eq!(kept, ["abcd", "abcd#2", "abcd#x"]);
    }
}
