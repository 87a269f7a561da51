//! The Landlock rules: which files may be read and written, which ports may be reached, and which
//! processes may be signalled.
//!
//! Landlock rules only allow. A *sealed* path (one that no command may reach, such as the store) is
//! therefore left out by allowing each sibling of it, and each sibling of every folder above it. As
//! a consequence, an entry that is created directly in one of these folders while a command runs is
//! closed to that command.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    NetPort, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};

use super::{Confinement, Folder, Writes};
use crate::permissions::Network;
use crate::sealed::{Identity, Mounts, identities};

/// Devices that every command may read and write: none stores data, and none is a terminal.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];
/// Folders of the system: terminals, disks, settings. They stay closed even below a permitted
/// folder, and so do other mount points of these file systems.
const SYSTEM_FOLDERS: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The folder of devices.
const DEVICE_FOLDER: &str = "/dev";
/// Further devices that every command may read.
const READABLE_DEVICES: [&str; 2] = ["/dev/random", "/dev/urandom"];
/// Shared memory and named semaphores. This is the one folder of the system that every command may
/// read, and that can be permitted for writing by name.
const SHARED_MEMORY: &str = "/dev/shm";

/// Returns the version of Landlock on this system. The probe restricts the calling thread.
pub(super) fn version() -> io::Result<ABI> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(ABI::V1))
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Ok(ABI::Unsupported),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(effective_abi),
        (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => Ok(ABI::Unsupported),
    }
}

/// Restricts the signals of the calling thread to itself and to processes that it starts.
pub(super) fn scope_signals() -> io::Result<()> {
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err(io::Error::other("signals could not be scoped"))
        }
    }
}

/// Restricts the calling thread, as far as a Landlock of this version can. Costs a rule for each
/// entry of every folder above a sealed path, some three microseconds each.
pub(super) fn restrict(confinement: &Confinement, abi: ABI) -> io::Result<()> {
    let (sealed, mounts) = (&confinement.sealed, Mounts::read()?);
    let writing = write_accesses(abi);
    let mut ruleset = create_ruleset(confinement, abi).map_err(io::Error::other)?;
    each_readable(&ClosedPaths::to_readers(sealed, &mounts), &mut |handle| {
        allow(&mut ruleset, &handle, AccessFs::ReadFile.into())
    })?;
    let mut to_write = |handle: OwnedFd| allow(&mut ruleset, &handle, writing | AccessFs::ReadFile);
    DEVICES
        .iter()
        .filter_map(|device| open(CWD, device))
        .try_for_each(&mut to_write)?;
    each_writable(
        &confinement.writes,
        &ClosedPaths::to_writers(sealed, &mounts),
        &mut to_write,
    )?;
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(io::Error::other("Landlock did not take hold")),
    }
}

/// All write accesses except the creation of devices.
fn write_accesses(abi: ABI) -> BitFlags<AccessFs> {
    // Later versions add sockets, which the seccomp filter handles.
    AccessFs::from_write(abi.min(ABI::V8)) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

fn create_ruleset(confinement: &Confinement, abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(abi.min(ABI::V8)) | AccessFs::ReadFile)?;
    let ports: &[u16] = match &confinement.network {
        Network::Ports(ports) => ports,
        Network::None | Network::Machines | Network::Any => &[],
    };
    if abi >= ABI::V4 {
        ruleset = match confinement.network {
            Network::None | Network::Ports(_) => {
                ruleset.handle_access(AccessNet::from_all(ABI::V4))?
            }
            // A command may connect, and may not listen.
            Network::Machines => ruleset.handle_access(AccessNet::BindTcp)?,
            Network::Any => ruleset,
        };
    }
    if abi >= ABI::V6 {
        ruleset = match confinement.network {
            Network::Any => ruleset.scope(Scope::Signal)?,
            Network::None | Network::Ports(_) | Network::Machines => {
                ruleset.scope(Scope::from_all(ABI::V6))?
            }
        };
    }
    let created = ruleset.create()?;
    if abi < ABI::V4 {
        return Ok(created);
    }
    created.add_rules(
        ports
            .iter()
            .map(|port| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp))),
    )
}

/// Adds a rule for an open file or folder.
type AddRule<'a> = &'a mut dyn FnMut(OwnedFd) -> io::Result<()>;

fn allow(
    ruleset: &mut RulesetCreated,
    handle: &OwnedFd,
    access: BitFlags<AccessFs>,
) -> io::Result<()> {
    let is_folder = FileType::from_raw_mode(fstat(handle)?.st_mode) == FileType::Directory;
    // Landlock rejects rules that give a file the accesses of a folder.
    let access = if is_folder {
        access
    } else {
        access & AccessFs::from_file(ABI::V5)
    };
    ruleset
        .add_rule(PathBeneath::new(handle, access))
        .map(drop)
        .map_err(io::Error::other)
}

/// The paths that no rule may cover.
struct ClosedPaths<'a> {
    /// Every name of the sealed paths.
    sealed_names: Vec<PathBuf>,
    /// Every name of the folders of the system.
    system_names: Vec<PathBuf>,
    sealed: &'a [PathBuf],
    /// The inodes of the sealed paths. They are collected only when a file with several names is
    /// found.
    sealed_inodes: OnceCell<BTreeSet<Identity>>,
}

impl<'a> ClosedPaths<'a> {
    /// The paths that are closed for reading: the sealed paths, and devices.
    fn to_readers(sealed: &'a [PathBuf], mounts: &Mounts) -> Self {
        let devices = mounts
            .device_mount_points()
            .chain([Path::new(DEVICE_FOLDER)]);
        Self::new(sealed, mounts, devices)
    }

    /// The paths that are closed for writing: the sealed paths, and the folders of the system.
    fn to_writers(sealed: &'a [PathBuf], mounts: &Mounts) -> Self {
        Self::new(
            sealed,
            mounts,
            mounts
                .system_mount_points()
                .chain(SYSTEM_FOLDERS.map(Path::new)),
        )
    }

    fn new<'p>(
        sealed: &'a [PathBuf],
        mounts: &Mounts,
        folders: impl Iterator<Item = &'p Path>,
    ) -> Self {
        Self {
            sealed_names: mounts.aliases(sealed.iter().map(|path| &**path)),
            system_names: mounts.aliases(folders),
            sealed,
            sealed_inodes: OnceCell::new(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &PathBuf> {
        self.sealed_names.iter().chain(&self.system_names)
    }

    /// Whether `path` is closed.
    fn contains(&self, path: &Path) -> bool {
        self.names().any(|closed| path == closed)
    }

    /// Whether `path` is closed or lies in a closed folder. [`SHARED_MEMORY`] is open although it
    /// lies in a folder of the system, unless it is sealed.
    fn covers(&self, path: &Path) -> bool {
        let is_below = |closed: &PathBuf| path.starts_with(closed);
        let is_exempt = path == Path::new(SHARED_MEMORY);
        self.sealed_names.iter().any(is_below)
            || !is_exempt && self.system_names.iter().any(is_below)
    }

    /// Whether a closed path lies in the folder `path`.
    fn has_closed_below(&self, path: &Path) -> bool {
        self.names().any(|closed| closed.starts_with(path))
    }

    /// Whether an open file is a hard link to a sealed file. A Landlock rule applies to the inode,
    /// and so to all of its names.
    fn is_link_to_sealed(&self, file: &OwnedFd) -> io::Result<bool> {
        let stat = fstat(file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory || stat.st_nlink < 2 {
            return Ok(false);
        }
        let sealed_inodes = self.sealed_inodes.get_or_init(|| identities(self.sealed));
        Ok(sealed_inodes.contains(&Identity::from_handle(file)?))
    }
}

/// Passes everything that may be read to `add_rule`.
fn each_readable(closed: &ClosedPaths<'_>, add_rule: AddRule<'_>) -> io::Result<()> {
    if let Some(root) = open(CWD, "/") {
        each_open_part(Path::new("/"), root, closed, add_rule)?;
    }
    for device in READABLE_DEVICES {
        if let Some(handle) = open(CWD, device) {
            add_rule(handle)?;
        }
    }
    let shared_memory = Path::new(SHARED_MEMORY);
    match open(CWD, SHARED_MEMORY).filter(|_| !closed.covers(shared_memory)) {
        Some(handle) => each_open_part(shared_memory, handle, closed, add_rule),
        None => Ok(()),
    }
}

/// Passes everything that may be written to `add_rule`.
fn each_writable(
    writes: &Writes,
    closed: &ClosedPaths<'_>,
    add_rule: AddRule<'_>,
) -> io::Result<()> {
    let Writes::Below(folders) = writes else {
        return Ok(());
    };
    for folder in folders {
        let handle = reopen(folder)?;
        if !closed.covers(&folder.path) {
            each_open_part(&folder.path, handle, closed, add_rule)?;
        }
    }
    Ok(())
}

/// Opens a permitted folder, and checks that it is still the same folder.
fn reopen(folder: &Folder) -> io::Result<OwnedFd> {
    let path = folder.path.display();
    let handle = File::open(&folder.path)
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    match Identity::from_handle(&handle)? == folder.identity {
        true => Ok(handle.into()),
        false => Err(io::Error::other(format!(
            "{path} is another folder than the one that was permitted"
        ))),
    }
}

/// Passes an open file or folder to `add_rule`, unless it is a link to a sealed file. If the folder
/// contains a closed path, its entries are passed in its place, in the same way, except closed ones.
/// Each entry is opened from the handle of its folder: a folder that is replaced meanwhile is not
/// entered.
fn each_open_part(
    path: &Path,
    handle: OwnedFd,
    closed: &ClosedPaths<'_>,
    add_rule: AddRule<'_>,
) -> io::Result<()> {
    if !closed.has_closed_below(path) {
        return match closed.is_link_to_sealed(&handle)? {
            true => Ok(()),
            false => add_rule(handle),
        };
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A folder that this process cannot list is closed to the command, too.
    let Ok(entries) = openat(&handle, ".", flags, Mode::empty()).and_then(Dir::new) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let path = path.join(name);
        if name == "." || name == ".." || closed.contains(&path) {
            continue;
        }
        if let Some(handle) = open(&handle, name) {
            each_open_part(&path, handle, closed, add_rule)?;
        }
    }
    Ok(())
}

/// Opens a path for use in a rule. Symbolic links are skipped: their targets have rules of their
/// own.
fn open(folder: impl AsFd, path: impl AsRef<Path>) -> Option<OwnedFd> {
    let handle = openat(
        folder,
        path.as_ref(),
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let kind = FileType::from_raw_mode(fstat(&handle).ok()?.st_mode);
    (kind != FileType::Symlink).then_some(handle)
}
