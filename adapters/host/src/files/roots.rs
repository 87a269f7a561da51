//! The permitted root folders for reading or for writing, each opened once.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_proto::file::FileError;

use super::file_request::{FileRequest, Purpose};
use super::location::{self, FileLocation};
use crate::sealed::{Sealed, canonical_existing_part};

/// Folders below which files may be read, or written.
#[derive(Debug)]
pub(super) struct Roots {
    roots: Vec<Root>,
    sealed: Arc<Sealed>,
    working_dir: PathBuf,
}

/// A folder that is held open: renaming or replacing its path later has no effect.
#[derive(Debug)]
struct Root {
    handle: OwnedFd,
    /// Without symbolic links.
    canonical_path: PathBuf,
    /// As the user spelled it, made absolute: a model that was told this spelling may use it.
    spelled_path: PathBuf,
}

impl Roots {
    /// Opens the folders. A folder for writing is created if it is absent, unless it would lie in a
    /// sealed one. `working_dir` is absolute and free of symbolic links.
    pub(super) fn open<'p>(
        purpose: Purpose,
        folders: impl Iterator<Item = &'p Path>,
        sealed: Arc<Sealed>,
        working_dir: &Path,
    ) -> io::Result<Self> {
        let name_root = |folder: &Path, error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{}={}: {error}", purpose.flag(), folder.display()),
            )
        };
        let roots = folders.map(|folder| {
            let path = working_dir.join(folder);
            let creation = if purpose == Purpose::Write {
                create_if_absent(&path, &sealed)
            } else {
                Ok(())
            };
            creation
                .and_then(|()| Root::open(&path))
                .map_err(|error| name_root(folder, error))
        });
        let roots = roots.collect::<io::Result<_>>()?;
        Ok(Self {
            roots,
            sealed,
            working_dir: working_dir.to_owned(),
        })
    }

    /// The location of a path below its nearest root.
    ///
    /// # Errors
    /// `AccessDenied` if the path is below no root.
    pub(super) fn locate(&self, request: &FileRequest<'_>) -> Result<FileLocation<'_>, FileError> {
        let absolute = location::absolute(request, &self.working_dir)?;
        let (root, below) =
            self.find_nearest(&absolute, absolute.parent().unwrap_or(&absolute), request)?;
        let (folder_path, name) =
            location::split(&below).ok_or_else(|| request.not_a_file("a directory"))?;
        Ok(FileLocation {
            root,
            folder_path: folder_path.to_owned(),
            name: name.to_owned(),
            sealed: &self.sealed,
        })
    }

    /// The root and the relative path of a folder, which may be a root itself.
    ///
    /// # Errors
    /// `AccessDenied` if the folder is below no root.
    pub(super) fn locate_folder(
        &self,
        request: &FileRequest<'_>,
    ) -> Result<(&OwnedFd, PathBuf), FileError> {
        let absolute = location::absolute_folder(request, &self.working_dir)?;
        self.find_nearest(&absolute, &absolute, request)
    }

    /// The nearest root of a path. An error names `folder` as the one that has to be permitted.
    fn find_nearest(
        &self,
        absolute: &Path,
        folder: &Path,
        request: &FileRequest<'_>,
    ) -> Result<(&OwnedFd, PathBuf), FileError> {
        let nearest = self
            .roots
            .iter()
            .filter_map(|root| Some((root, root.strip_root(absolute)?)));
        let Some((root, below)) = nearest.min_by_key(|(_, below)| below.as_os_str().len()) else {
            return Err(request.outside(
                folder,
                self.roots.iter().map(|root| root.canonical_path.as_path()),
            ));
        };
        // Exact, since no part of the way below a root may be a link.
        let whole = root.canonical_path.join(below);
        if let Some(sealed) = self.sealed.find_containing(&whole) {
            return Err(request.sealed(&sealed));
        }
        Ok((&root.handle, below.to_owned()))
    }
}

/// Creates a folder and its parents if they are absent. Nothing is created in a sealed folder.
fn create_if_absent(path: &Path, sealed: &Sealed) -> io::Result<()> {
    let is_sealed = sealed
        .find_containing(&canonical_existing_part(path))
        .is_some();
    if is_sealed || path.exists() {
        Ok(())
    } else {
        fs::create_dir_all(path)
    }
}

impl Root {
    fn open(spelled_path: &Path) -> io::Result<Self> {
        let canonical_path = fs::canonicalize(spelled_path)?;
        if !fs::metadata(&canonical_path)?.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                "not a folder. Permit the folder that holds it",
            ));
        }
        let handle = File::open(&canonical_path)?.into();
        Ok(Self {
            handle,
            canonical_path,
            spelled_path: spelled_path.to_owned(),
        })
    }

    fn strip_root<'a>(&self, absolute: &'a Path) -> Option<&'a Path> {
        [&self.canonical_path, &self.spelled_path]
            .into_iter()
            .find_map(|root| absolute.strip_prefix(root).ok())
    }
}
