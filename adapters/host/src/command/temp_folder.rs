//! The temporary folder of a command. The kernel chooses its name. If there is a guard, the guard
//! creates and removes the folder, so that none is left if the kernel is killed before the guard
//! runs.
//!
//! A command can make the folder hard to remove: with folders nested thousands deep, or closed to
//! their owner. So nested folders are moved up one by one before they are removed, which takes two
//! handles and no recursion at any depth.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, access, chmodat, fstat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::confine::Folder;
use crate::sealed::Identity;

/// The folder of a command that is about to start.
#[derive(Debug)]
pub(super) enum CommandTempFolder {
    /// Only the name is chosen: the guard creates the folder.
    Named(PathBuf),
    /// The folder exists, since there is no guard.
    Created(TempFolder),
}

impl CommandTempFolder {
    /// A free name in `parent`, in which this user can make folders.
    ///
    /// # Errors
    /// There is no such folder, or this user cannot write there.
    pub(super) fn choose_name(parent: &Path) -> io::Result<Self> {
        let parent = parent.canonicalize()?;
        access(&parent, Access::WRITE_OK | Access::EXEC_OK)?;
        let temp_path = tempfile::Builder::new()
            .prefix("dormouse-")
            .make_in(parent, |path| Ok(path.to_owned()))?;
        Ok(Self::Named(temp_path.into_parts().0))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::Created(folder) => &folder.folder().path,
        }
    }

    /// The folder, if it exists.
    pub(super) fn created_folder(&self) -> Option<&Folder> {
        match self {
            Self::Named(_) => None,
            Self::Created(folder) => Some(folder.folder()),
        }
    }
}

/// Creates the folder of the command that this process guards.
///
/// # Errors
/// The name is taken, or the folder cannot be created.
pub(super) fn create_named(path: &Path) -> io::Result<Folder> {
    std::fs::DirBuilder::new().mode(0o700).create(path)?;
    check_just_created(path.to_owned())
}

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct TempFolder(Option<Folder>);

impl TempFolder {
    /// Makes a folder in `parent` that only this user can open.
    ///
    /// # Errors
    /// The folder cannot be made, or something else has taken its place.
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let temp_dir = tempfile::Builder::new()
            .prefix("dormouse-")
            .permissions(owner_only)
            .tempdir_in(parent.canonicalize()?)?;
        Ok(Self(Some(check_just_created(temp_dir.keep())?)))
    }

    fn folder(&self) -> &Folder {
        self.0
            .as_ref()
            .expect("it is taken only where this is dropped")
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let Some(folder) = self.0.take() else { return };
        // On a thread, since the caller must not block. If no thread can be started, the folder
        // stays behind.
        let _ = std::thread::Builder::new()
            .name("removing".to_owned())
            .spawn(move || remove(&folder.path));
    }
}

/// The folder at this path, after a check that nobody replaced it by a link or by another folder:
/// it must be empty and belong to this user.
fn check_just_created(path: PathBuf) -> io::Result<Folder> {
    let handle = open_folder(CWD, &path)?;
    let is_ours = fstat(&handle)?.st_uid == geteuid().as_raw();
    match is_ours && read_names(&handle)?.is_empty() {
        true => Ok(Folder {
            identity: Identity::from_handle(&handle)?,
            path,
        }),
        false => Err(io::Error::other("another folder was put in its place")),
    }
}

/// Removes a folder and everything below it. Costs a system call or two for each file, and a rename
/// for each folder.
///
/// # Errors
/// Something cannot be removed. Everything else is removed.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    let top = open_folder(CWD, folder)?;
    let mut names = (0..)
        .map(|number: u64| CString::new(format!("removing-{number}")).expect("it holds no zero"));
    let mut result = Ok(());
    loop {
        let mut folders = 0;
        for name in read_names(&top)? {
            match unlinkat(&top, &name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) if is_folder(&top, &name) => {
                    let removed = empty_into(&top, &name, &mut names)
                        .and_then(|()| Ok(unlinkat(&top, &name, AtFlags::REMOVEDIR)?));
                    folders += u32::from(removed.is_ok());
                    result = result.and(removed);
                }
                removed => result = result.and(removed.map_err(io::Error::from)),
            }
        }
        if folders == 0 {
            break;
        }
        // The failure may concern a folder that was moved up since, so it is tried again.
        result = Ok(());
    }
    result.and_then(|()| std::fs::remove_dir(folder))
}

/// Empties a folder of `top`: removes its files, and moves its folders up into `top`.
fn empty_into(
    top: &OwnedFd,
    name: &CString,
    names: &mut impl Iterator<Item = CString>,
) -> io::Result<()> {
    // The command may have closed the folder to its owner.
    chmodat(top, name, Mode::RWXU, AtFlags::empty())?;
    let folder = open_folder(top, name)?;
    for entry in read_names(&folder)? {
        match unlinkat(&folder, &entry, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) if is_folder(&folder, &entry) => {
                // To be moved, it has to be open for writing as well.
                chmodat(&folder, &entry, Mode::RWXU, AtFlags::empty())?;
                move_up(&folder, &entry, top, names)?;
            }
            removed => removed?,
        }
    }
    Ok(())
}

/// Moves a folder into `top` under a name that is free there.
fn move_up(
    folder: &OwnedFd,
    entry: &CString,
    top: &OwnedFd,
    names: &mut impl Iterator<Item = CString>,
) -> io::Result<()> {
    for name in names {
        match renameat(folder, entry, top, &name) {
            // The command has used this name.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            moved => return Ok(moved?),
        }
    }
    Ok(())
}

fn open_folder(folder: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

fn is_folder(folder: &OwnedFd, name: &CString) -> bool {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// All names in a folder. They are read at once, since the folder is changed while they are
/// handled.
fn read_names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_temp_folder_is_removed_on_drop_unless_the_guard_owns_it() {
        let parent = tempfile::tempdir().unwrap();
        let named = CommandTempFolder::choose_name(parent.path()).unwrap();
        assert!(
            !named.path().exists() && named.created_folder().is_none(),
            "a kernel that is killed here leaves nothing"
        );
        let made = create_named(named.path()).unwrap();
        assert_eq!(made.path, named.path());
        assert_eq!(
            fs::metadata(named.path()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(
            create_named(named.path()).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        remove(named.path()).unwrap();
        assert!(CommandTempFolder::choose_name(&parent.path().join("absent")).is_err());
        let dropped = TempFolder::create(parent.path()).unwrap();
        let path = dropped.folder().path.clone();
        fs::create_dir_all(path.join("a/b")).unwrap();
        drop(dropped);
        let began = std::time::Instant::now();
        while path.exists() {
            assert!(began.elapsed() < std::time::Duration::from_secs(10));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    #[test]
    fn remove_deletes_everything_in_the_folder_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("beside"), "x").unwrap();
        let folder = parent.path().join("folder");
        fs::create_dir_all(folder.join("removing-0")).unwrap();
        fs::create_dir_all(folder.join("closed/below")).unwrap();
        fs::write(folder.join("removing-1"), "a file").unwrap();
        fs::write(folder.join("removing-0/file"), "x").unwrap();
        fs::write(folder.join("closed/below/file"), "x").unwrap();
        symlink(parent.path(), folder.join("closed/link")).unwrap();
        symlink("nowhere", folder.join("dangling")).unwrap();
        for path in ["closed/below", "closed"] {
            fs::set_permissions(folder.join(path), fs::Permissions::from_mode(0o0)).unwrap();
        }
        // Deeper than a path may be long, and than there are handles.
        let mut deep = open_folder(CWD, &folder).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&deep, "removing-0-below", Mode::RWXU).unwrap();
            deep = open_folder(&deep, "removing-0-below").unwrap();
        }
        drop(deep);
        remove(&folder).unwrap();
        let left: Vec<_> = fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["beside"]);
    }

    #[test]
    fn a_replaced_temp_folder_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("victim")).unwrap();
        fs::write(parent.path().join("victim/file"), "x").unwrap();
        symlink("victim", parent.path().join("link")).unwrap();
        for path in ["link", "victim", "absent"] {
            assert!(
                check_just_created(parent.path().join(path)).is_err(),
                "{path}"
            );
        }
    }
}
