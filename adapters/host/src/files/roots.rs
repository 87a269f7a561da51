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
    canonical: PathBuf,
    /// As the user spelled it, made absolute: a model that was told this spelling may use it.
    spelled: PathBuf,
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
        let named = |folder: &Path, error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{}={}: {error}", purpose.flag(), folder.display()),
            )
        };
        let roots = folders.map(|folder| {
            let path = working_dir.join(folder);
            let made = if purpose == Purpose::Write {
                create_if_absent(&path, &sealed)
            } else {
                Ok(())
            };
            made.and_then(|()| Root::open(&path))
                .map_err(|error| named(folder, error))
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
            self.below(&absolute, absolute.parent().unwrap_or(&absolute), request)?;
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
    pub(super) fn folder(
        &self,
        request: &FileRequest<'_>,
    ) -> Result<(&OwnedFd, PathBuf), FileError> {
        let absolute = location::absolute_folder(request, &self.working_dir)?;
        self.below(&absolute, &absolute, request)
    }

    /// The nearest root of a path. An error names `folder` as the one that has to be permitted.
    fn below(
        &self,
        absolute: &Path,
        folder: &Path,
        request: &FileRequest<'_>,
    ) -> Result<(&OwnedFd, PathBuf), FileError> {
        let nearest = self
            .roots
            .iter()
            .filter_map(|root| Some((root, root.below(absolute)?)));
        let Some((root, below)) = nearest.min_by_key(|(_, below)| below.as_os_str().len()) else {
            return Err(request.outside(
                folder,
                self.roots.iter().map(|root| root.canonical.as_path()),
            ));
        };
        // Exact, since no part of the way below a root may be a link.
        let whole = root.canonical.join(below);
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
    fn open(spelled: &Path) -> io::Result<Self> {
        let canonical = fs::canonicalize(spelled)?;
        if !fs::metadata(&canonical)?.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotADirectory,
                "not a folder. Permit the folder that holds it",
            ));
        }
        let handle = File::open(&canonical)?.into();
        Ok(Self {
            handle,
            canonical,
            spelled: spelled.to_owned(),
        })
    }

    fn below<'a>(&self, absolute: &'a Path) -> Option<&'a Path> {
        [&self.canonical, &self.spelled]
            .into_iter()
            .find_map(|root| absolute.strip_prefix(root).ok())
    }
}
