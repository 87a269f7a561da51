//! The file that an export is written to. It appears complete or not at all.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rustix::fs::Mode;

use crate::pending_file::{PendingFile, Replace};

/// A file that gets its name when it is [kept](ExportFile::keep). Only its owner can read it, since
/// it contains whole conversations. Without `keep` nothing is left. If the program is killed
/// meanwhile, nothing is left either, on file systems that support files without a name.
#[derive(Debug)]
pub struct ExportFile {
    file: BufWriter<File>,
    pending: PendingFile<File>,
    folder: File,
    name: OsString,
}

impl ExportFile {
    /// Creates the file. A file at `path` stays as it is until this one is kept.
    ///
    /// # Errors
    /// An error of the operating system, or `path` names no file.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
        let name = path.file_name().ok_or_else(none)?.to_owned();
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new(".")))?;
        let pending = PendingFile::begin(folder.try_clone()?, Mode::RUSR | Mode::WUSR)?;
        Ok(Self {
            file: BufWriter::new(pending.file.try_clone()?),
            pending,
            folder,
            name,
        })
    }

    /// Makes its bytes durable, then its name.
    ///
    /// # Errors
    /// An error of the operating system. The file that was at the path is unchanged, unless only
    /// the last step, the sync of the folder, failed.
    pub fn keep(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.pending.file.sync_all()?;
        self.pending.place(&self.name, Replace::Anything)?;
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
    fn it_is_there_whole_or_not_at_all() {
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
        kept.keep().unwrap();
        assert_eq!(
            (names(), fs::read(&path).unwrap()),
            (vec!["a.dormouse".into()], b"whole".to_vec())
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(ExportFile::create(folder.path().join("..")).is_err());
        assert!(ExportFile::create(folder.path().join("none/a")).is_err());
    }
}
