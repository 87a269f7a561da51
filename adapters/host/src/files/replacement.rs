//! The new version of a file while it is written. It gets the mode and owner of the file that it
//! replaces, and its errors name the requested path. `pending_file.rs` creates it, without a name
//! where the file system supports that, and gives it its name at the end.

use std::ffi::OsStr;
use std::fs::File;

use dormouse_proto::file::{FileError, Presence};
use rustix::fs::{Mode, fchmod, fchown, fsync};

use super::file_request::FileRequest;
use super::folder::{Folder, Target};
use crate::pending_file::{PendingFile, Replace};

/// The mode of a new file, before the umask.
const NEW_FILE_MODE: Mode = Mode::from_raw_mode(0o644);

/// A new file in the folder of its target, before it has the name of the target.
#[derive(Debug)]
pub(super) struct Replacement<'a> {
    pending: PendingFile<&'a Folder>,
    folder: &'a Folder,
    request: &'a FileRequest<'a>,
}

impl<'a> Replacement<'a> {
    /// Creates the file with the mode of `old`, the file that it replaces, and with its owner if
    /// the operating system permits that.
    pub(super) fn create(
        folder: &'a Folder,
        old: Option<&Target>,
        request: &'a FileRequest<'a>,
    ) -> Result<Self, FileError> {
        let mode = if old.is_some() {
            Mode::RUSR | Mode::WUSR
        } else {
            NEW_FILE_MODE
        };
        let pending = PendingFile::create(folder, mode).map_err(|errno| request.errno(errno))?;
        if let Some(old) = old {
            // A user who may write the file may not be allowed to give it away, so this may fail.
            let _ = fchown(&pending.file, Some(old.owner.0), Some(old.owner.1));
            fchmod(&pending.file, old.mode).map_err(|errno| request.errno(errno))?;
        }
        Ok(Self {
            pending,
            folder,
            request,
        })
    }

    /// The file to write the new bytes to.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.pending.file
    }

    /// Makes the bytes durable, then gives the file its name.
    ///
    /// # Errors
    /// `FileExists` if the file must be new and its name is taken by now. After an error the target
    /// is unchanged, with one exception: if the last sync fails, the message says that it was
    /// replaced.
    pub(super) fn commit(self, target: &OsStr, presence: Presence) -> Result<(), FileError> {
        let Self {
            pending,
            folder,
            request,
        } = self;
        let replace = match presence {
            Presence::Absent | Presence::Neither => Replace::Nothing,
            Presence::Any | Presence::Present => Replace::Anything,
        };
        fsync(&pending.file).map_err(|errno| request.errno(errno))?;
        pending
            .persist(target, replace)
            .map_err(|errno| request.errno(errno))?;
        fsync(folder).map_err(|errno| {
            request.unusable(format_args!(
                "it was replaced, but may not survive a power cut: the folder's sync failed, \
                 {errno}."
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::path::Path;

    use dormouse_proto::file::FileErrorKind;

    use super::super::file_request::Purpose;
    use super::*;

    #[test]
    fn a_replacement_that_is_not_committed_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let request = FileRequest::new(Purpose::Write, Path::new("f"));
        let root = File::open(dir.path()).unwrap();
        let folder = Folder::below(root.as_fd(), Path::new(""), &request)
            .unwrap()
            .unwrap();
        let names = || {
            fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };

        let mut dropped = Replacement::create(&folder, None, &request).unwrap();
        dropped.file().write_all(b"half").unwrap();
        assert!(names().is_empty(), "one that is killed here leaves nothing");
        drop(dropped);
        assert!(names().is_empty());

        fs::write(dir.path().join("f"), "old").unwrap();
        let late = Replacement::create(&folder, None, &request).unwrap();
        assert_eq!(
            late.commit(OsStr::new("f"), Presence::Absent)
                .unwrap_err()
                .kind,
            FileErrorKind::FileExists
        );
        assert_eq!(names(), ["f"]);
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"old");
    }
}
