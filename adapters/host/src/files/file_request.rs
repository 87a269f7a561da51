//! A request to read or write a path, and the texts of all errors that can refuse it. Models read
//! these texts. A [`Presence`] says whether the file must exist: it is made of the arguments
//! `create` and `exist_ok` of a call, and `Presence::Neither` permits nothing.

use std::fmt::Display;
use std::io;
use std::path::Path;

use dormouse_proto::file::{FileError, FileErrorKind, Presence};
use rustix::io::Errno;

/// What a path is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
}

impl Purpose {
    /// The flag of the command line that permits it.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Read => "--allow-read",
            Self::Write => "--allow-write",
        }
    }

    fn builder_method(self) -> &'static str {
        match self {
            Self::Read => "allow_read",
            Self::Write => "allow_write",
        }
    }

    fn participle(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "written",
        }
    }
}

/// A path as the request spelled it, and the purpose of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileRequest<'a> {
    pub(super) purpose: Purpose,
    pub(super) path: &'a Path,
}

impl<'a> FileRequest<'a> {
    pub(super) fn new(purpose: Purpose, path: &'a Path) -> Self {
        Self { purpose, path }
    }

    fn error(&self, kind: FileErrorKind, why: impl Display) -> FileError {
        let message = format!(
            "{} cannot be {}: {why}",
            self.path.display(),
            self.purpose.participle()
        );
        FileError { kind, message }
    }

    /// The error for a path that cannot name a usable file.
    pub(super) fn unusable(&self, why: impl Display) -> FileError {
        self.error(FileErrorKind::WriteError, why)
    }

    /// The error for a path outside of the permitted folders. `folder` is the one to permit.
    pub(super) fn outside<'r>(
        &self,
        folder: &Path,
        roots: impl Iterator<Item = &'r Path>,
    ) -> FileError {
        let roots: Vec<_> = roots.map(|root| root.display().to_string()).collect();
        let permitted = if roots.is_empty() {
            "none".to_owned()
        } else {
            roots.join(", ")
        };
        let folder = folder.display();
        let (flag, builder) = (self.purpose.flag(), self.purpose.builder_method());
        let why = format!(
            "it is outside the permitted folders ({permitted}). Name a file in one of them, or \
             have the user start with {flag}={folder}, or Permissions::{builder}(\"{folder}\")."
        );
        self.error(FileErrorKind::AccessDenied, why)
    }

    /// The error for a path that is inside a permitted folder and is refused for another reason.
    pub(super) fn denied(&self, why: impl Display) -> FileError {
        self.error(FileErrorKind::AccessDenied, why)
    }

    /// The error for a path in a sealed folder.
    pub(super) fn sealed(&self, sealed: &Path) -> FileError {
        let sealed = sealed.display();
        self.denied(format_args!(
            "it lies in {sealed}, where the kernel keeps what is its own."
        ))
    }

    /// The error for a path that is another name of a sealed file or folder.
    pub(super) fn sealed_elsewhere(&self) -> FileError {
        self.denied("it is another name for what the kernel keeps as its own.")
    }

    /// The error for a file that exists and must not.
    pub(super) fn exists(&self, presence: Presence) -> FileError {
        let why = match presence {
            Presence::Neither => {
                "the file exists, and neither create nor exist_ok is given. Give exist_ok=true."
            }
            _ => {
                "the file exists, and exist_ok is false. Give exist_ok=true to change it, or name \
                 another file."
            }
        };
        self.error(FileErrorKind::FileExists, why)
    }

    /// The error for a file that does not exist and must.
    pub(super) fn absent(&self, presence: Presence) -> FileError {
        let why = match presence {
            Presence::Neither => {
                "there is no such file, and neither create nor exist_ok is given. Give create=true."
            }
            _ => {
                "there is no such file, and create is false. Give create=true to make it, or name \
                 an existing file."
            }
        };
        self.error(FileErrorKind::FileNotFound, why)
    }

    /// The error for a file to read that does not exist.
    pub(super) fn not_found(&self) -> FileError {
        self.error(FileErrorKind::FileNotFound, "there is no such file.")
    }

    /// The error for a path that leads to a directory, a FIFO or a device.
    pub(super) fn not_a_file(&self, what: &str) -> FileError {
        self.unusable(format_args!(
            "it is {what}, not a regular file. Name a file."
        ))
    }

    /// The error for a file that is too large to be read.
    pub(super) fn too_large(&self, cap_bytes: u64) -> FileError {
        self.unusable(format_args!(
            "it is larger than {cap_bytes} bytes, the most that is read at once."
        ))
    }

    /// The error for a line that the file does not have.
    pub(super) fn no_such_line(&self, at_line: u64, lines: u64) -> FileError {
        let valid = lines + 1;
        let why = format!(
            "insert_at_line={at_line} is out of range: the file has {lines} lines. Valid range: \
             1-{valid}; {valid} appends."
        );
        self.error(FileErrorKind::InvalidRange, why)
    }

    /// The error for an I/O error that occurred while `doing` something with the file.
    pub(super) fn io(&self, doing: &str, error: &io::Error) -> FileError {
        match Errno::from_io_error(error) {
            Some(errno) => self.errno(errno),
            None => self.unusable(format_args!("the system could not {doing} it: {error}.")),
        }
    }

    /// The error for an error number of the operating system.
    pub(super) fn errno(&self, errno: Errno) -> FileError {
        match errno {
            Errno::NOENT => self.not_found(),
            Errno::EXIST => self.exists(Presence::Absent),
            Errno::LOOP => self.denied(
                "a symbolic link is on its way, and links are not followed. Name the file itself.",
            ),
            Errno::XDEV => self.denied("it leads out of the permitted folder."),
            Errno::NOSYS => self.denied(
                "this system cannot confine paths to a folder (openat2, Linux 5.6 or newer).",
            ),
            Errno::ACCESS | Errno::PERM | Errno::ROFS => self.error(
                FileErrorKind::PermissionError,
                format_args!("the operating system refuses: {errno}."),
            ),
            Errno::ISDIR => self.not_a_file("a directory"),
            Errno::NXIO | Errno::NODEV => self.not_a_file("a FIFO, socket or device"),
            Errno::NOTDIR => self.unusable("a part of its way is a file, not a directory."),
            Errno::NAMETOOLONG => {
                self.unusable("its name is too long: 255 bytes for each part, 4095 in all.")
            }
            Errno::NOSPC | Errno::DQUOT => {
                self.unusable(format_args!("the disk is full: {errno}."))
            }
            _ => self.unusable(format_args!("{errno}.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_maps_to_a_kind_of_error() {
        let cases = [
            (Errno::NOENT, FileErrorKind::FileNotFound),
            (Errno::EXIST, FileErrorKind::FileExists),
            (Errno::LOOP, FileErrorKind::AccessDenied),
            (Errno::XDEV, FileErrorKind::AccessDenied),
            (Errno::NOSYS, FileErrorKind::AccessDenied),
            (Errno::ACCESS, FileErrorKind::PermissionError),
            (Errno::PERM, FileErrorKind::PermissionError),
            (Errno::ROFS, FileErrorKind::PermissionError),
            (Errno::ISDIR, FileErrorKind::WriteError),
            (Errno::NXIO, FileErrorKind::WriteError),
            (Errno::NOTDIR, FileErrorKind::WriteError),
            (Errno::NAMETOOLONG, FileErrorKind::WriteError),
            (Errno::NOSPC, FileErrorKind::WriteError),
            (Errno::IO, FileErrorKind::WriteError),
        ];
        for (errno, kind) in cases {
            let request = FileRequest::new(Purpose::Write, Path::new("a/b"));
            let error = request.io("store", &io::Error::from(errno));
            assert_eq!(error.kind, kind, "{errno:?}");
            assert!(
                error.message.starts_with("a/b cannot be written: "),
                "{}",
                error.message
            );
        }
    }

    #[test]
    fn a_refusal_names_the_flag_and_what_is_permitted() {
        let request = FileRequest::new(Purpose::Read, Path::new("/etc/passwd"));
        let error = request.outside(
            Path::new("/etc"),
            [Path::new("/a"), Path::new("/b")].into_iter(),
        );
        for part in [
            "/etc/passwd",
            "(/a, /b)",
            "--allow-read=/etc,",
            "Permissions::allow_read(\"/etc\")",
        ] {
            assert!(error.message.contains(part), "{part}: {}", error.message);
        }
        assert!(
            request
                .outside(request.path, std::iter::empty())
                .message
                .contains("(none)")
        );
    }
}
