//! The file that an export is written to. It appears complete or not at all.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rustix::fs::Mode;

use crate::pending_file::{PendingFile, Replace};

/// A file that appears at its path when [`persist`](ExportFile::persist) is called. Only its owner
/// can read it, since it contains whole conversations. Without `persist` nothing is left. If the
/// program is killed meanwhile, nothing is left either, on file systems that support files without
/// a name.
#[derive(Debug)]
pub struct ExportFile {
    file: BufWriter<File>,
    pending: PendingFile<File>,
    folder: File,
    name: OsString,
    replace: Replace,
}

impl ExportFile {
    /// Creates the file. A file at `path` stays as it is until this one is kept, which replaces it.
    ///
    /// # Errors
    /// An error of the operating system, or `path` names no file.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::create_pending(path.as_ref(), Replace::Anything)
    }

    /// Creates the file, and never replaces another.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`io::ErrorKind::AlreadyExists`] if there is a file at `path`.
    /// One that appears later is found when this one is kept.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Self::create_pending(path, Replace::Nothing)
    }

    fn create_pending(path: &Path, replace: Replace) -> io::Result<Self> {
        let no_file_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
        let name = path.file_name().ok_or_else(no_file_name)?.to_owned();
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new(".")))?;
        let pending = PendingFile::create(folder.try_clone()?, Mode::RUSR | Mode::WUSR)?;
        Ok(Self {
            file: BufWriter::new(pending.file.try_clone()?),
            pending,
            folder,
            name,
            replace,
        })
    }

    /// Makes its bytes durable, then its name.
    ///
    /// # Errors
    /// An error of the operating system; [`io::ErrorKind::AlreadyExists`] if there is a file at the
    /// path and it must not be replaced. The file that was at the path is unchanged, unless only
    /// the last step, the sync of the folder, failed.
    pub fn persist(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.pending.file.sync_all()?;
        self.pending.persist(&self.name, self.replace)?;
        self.folder.sync_all()
    }
}

impl Write for ExportFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_appears_complete_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.dormouse");
        let names = || {
            fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        fs::write(&path, "old").unwrap();

        let mut dropped = ExportFile::create(&path).unwrap();
        dropped.write_all(b"half").unwrap();
        assert_eq!(names().len(), 1, "one that is killed here leaves nothing");
        drop(dropped);
        assert_eq!(
            (names(), fs::read(&path).unwrap()),
            (vec!["a.dormouse".into()], b"old".to_vec())
        );

        let mut kept = ExportFile::create(&path).unwrap();
        kept.write_all(b"whole").unwrap();
        kept.persist().unwrap();
        assert_eq!(
            (names(), fs::read(&path).unwrap()),
            (vec!["a.dormouse".into()], b"whole".to_vec())
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let exists = |error: io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        assert!(ExportFile::create_new(&path).is_err_and(exists));
        let late = folder.path().join("b.dormouse");
        let raced = ExportFile::create_new(&late).unwrap();
        fs::write(&late, "another").unwrap();
        assert!(raced.persist().is_err_and(exists));
        assert_eq!(
            (names().len(), fs::read(&late).unwrap()),
            (2, b"another".to_vec())
        );
        assert!(ExportFile::create(folder.path().join("..")).is_err());
        assert!(ExportFile::create(folder.path().join("none/a")).is_err());
    }
}
