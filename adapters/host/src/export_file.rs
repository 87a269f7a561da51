//! The file that an export is written to: there whole, or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file beside the one that is to be, which takes its place when it is [kept](ExportFile::keep). Only its owner can read it: it
/// says all that was said. What is not kept is removed.
#[derive(Debug)]
pub struct ExportFile {
    file: BufWriter<File>,
    beside: PathBuf,
    path: PathBuf,
    is_kept: bool,
}

impl ExportFile {
    /// Begins it. What is at `path` stays until this one is kept.
    ///
    /// # Errors
    /// What the operating system says; where `path` names no file.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let none = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
        let mut name = OsString::from(".");
        name.push(path.file_name().ok_or_else(none)?);
        loop {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let mut beside = name.clone();
            beside.push(format!("-{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
            let beside = path.with_file_name(beside);
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside) {
                Ok(file) => return Ok(Self { file: BufWriter::new(file), beside, path, is_kept: false }),
                // One that was killed had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes its bytes durable, then its name.
    ///
    /// # Errors
    /// What the operating system says. What was at the path is there still, unless only the last sync, that of the folder, failed.
    pub fn keep(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.beside, &self.path)?;
        self.is_kept = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
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

impl Drop for ExportFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // Nobody is left to be told, and it is under a name that nobody asked for.
            let _ = fs::remove_file(&self.beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.dormouse");
        let names = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        fs::write(&path, "old").unwrap();

        let mut dropped = ExportFile::create(&path).unwrap();
        dropped.write_all(b"half").unwrap();
        assert_eq!(names().len(), 2);
        drop(dropped);
        assert_eq!((names(), fs::read(&path).unwrap()), (vec!["a.dormouse".into()], b"old".to_vec()));

        let mut kept = ExportFile::create(&path).unwrap();
        kept.write_all(b"whole").unwrap();
        kept.keep().unwrap();
        assert_eq!((names(), fs::read(&path).unwrap()), (vec!["a.dormouse".into()], b"whole".to_vec()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(ExportFile::create(folder.path().join("..")).is_err());
        assert!(ExportFile::create(folder.path().join("none/a")).is_err());
    }
}
