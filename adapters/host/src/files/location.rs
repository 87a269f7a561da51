//! The location of a file: a root that is held open, the folder below it, and a name. It is derived
//! from the text of a path alone; nothing is opened.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use dormouse_proto::file::FileError;
use rustix::io::Errno;

use super::file_request::FileRequest;
use super::folder::Folder;
use crate::sealed::Sealed;

/// The location of a file below a permitted root.
#[derive(Debug)]
pub(super) struct FileLocation<'r> {
    pub(super) root: &'r OwnedFd,
    /// The components between the root and the name: plain names only.
    pub(super) folder_path: PathBuf,
    pub(super) name: OsString,
    pub(super) sealed: &'r Sealed,
}

impl FileLocation<'_> {
    /// Opens the folder of the file; none if it is absent.
    pub(super) fn folder(&self, request: &FileRequest<'_>) -> Result<Option<Folder>, FileError> {
        let folder = Folder::below(self.root.as_fd(), &self.folder_path, request)?;
        folder
            .map(|folder| folder.refuse_sealed(self.sealed, request))
            .transpose()
    }

    /// Opens the folder of the file, and creates it and its parents if they are absent.
    pub(super) fn make_folder(&self, request: &FileRequest<'_>) -> Result<Folder, FileError> {
        let root = Folder::below(self.root.as_fd(), Path::new(""), request)?
            .ok_or_else(|| request.not_found())?;
        // Each folder is checked before anything is created in it.
        self.folder_path.iter().try_fold(root, |folder, part| {
            folder
                .refuse_sealed(self.sealed, request)?
                .make(part, request)
        })
    }
}

/// The absolute form of a path, without `.` and `..`.
///
/// Removing `..` from the text is exact, because no component that is opened later may be a link.
pub(super) fn absolute(
    request: &FileRequest<'_>,
    working_dir: &Path,
) -> Result<PathBuf, FileError> {
    check_text(request)?;
    if is_folder_spelling(request.path.as_os_str().as_bytes()) {
        return Err(request.not_a_file("a directory by its spelling"));
    }
    Ok(without_dots(request.path, working_dir))
}

/// The absolute form of the path of a folder, which may end with a slash or a dot.
pub(super) fn absolute_folder(
    request: &FileRequest<'_>,
    working_dir: &Path,
) -> Result<PathBuf, FileError> {
    check_text(request)?;
    Ok(without_dots(request.path, working_dir))
}

fn without_dots(path: &Path, working_dir: &Path) -> PathBuf {
    let mut absolute = PathBuf::new();
    for component in working_dir.join(path).components() {
        match component {
            Component::ParentDir => drop(absolute.pop()),
            Component::CurDir => {}
            part => absolute.push(part),
        }
    }
    absolute
}

fn check_text(request: &FileRequest<'_>) -> Result<(), FileError> {
    /// PATH_MAX and NAME_MAX, without the closing NUL.
    const LONGEST: (usize, usize) = (4095, 255);
    let text = request.path.as_os_str().as_bytes();
    if text.is_empty() {
        return Err(request.unusable("the path is empty. Name a file."));
    }
    if text.contains(&0) {
        return Err(request.unusable("the path holds a NUL character, which no file name can."));
    }
    if text.len() > LONGEST.0 || request.path.iter().any(|part| part.len() > LONGEST.1) {
        return Err(request.errno(Errno::NAMETOOLONG));
    }
    Ok(())
}

/// Whether the spelling means a directory: it ends with a slash or a dot, which `Path` drops.
fn is_folder_spelling(text: &[u8]) -> bool {
    let last = text.rsplit(|byte| *byte == b'/').next().unwrap_or(text);
    matches!(last, b"" | b"." | b"..")
}

/// Splits a path below a root into the folder and the name.
pub(super) fn split(below: &Path) -> Option<(&Path, &OsStr)> {
    Some((below.parent()?, below.file_name()?))
}

#[cfg(test)]
mod tests {
    use dormouse_proto::file::FileErrorKind;

    use super::super::file_request::Purpose;
    use super::*;

    #[test]
    fn dots_are_removed_from_paths() {
        let cases = [
            ("a", "/base/here/a"),
            ("./a/./b", "/base/here/a/b"),
            ("a//b", "/base/here/a/b"),
            ("a/../b", "/base/here/b"),
            ("../b", "/base/b"),
            ("../../../../b", "/b"),
            ("/x/../../y", "/y"),
            ("a/.../b", "/base/here/a/.../b"),
        ];
        for (path, expected) in cases {
            let request = FileRequest::new(Purpose::Read, Path::new(path));
            assert_eq!(
                absolute(&request, Path::new("/base/here")).unwrap(),
                Path::new(expected),
                "{path}"
            );
        }
    }

    #[test]
    fn text_that_names_no_file_is_refused() {
        let long_part = "x".repeat(256);
        let long_path = "x/".repeat(2048) + "x";
        for path in [
            "", "a\0b", ".", "..", "a/", "a/.", "a/..", "/", &long_part, &long_path,
        ] {
            let request = FileRequest::new(Purpose::Read, Path::new(path));
            let error = absolute(&request, Path::new("/base")).expect_err(path);
            assert_eq!(error.kind, FileErrorKind::WriteError, "{path}");
        }
    }
}
