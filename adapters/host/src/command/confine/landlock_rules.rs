//! The Landlock rules: which files may be read and written, which ports may be reached, and which
//! processes may be signalled.
//!
//! Landlock rules only allow. A *sealed* path (one that no command may reach, such as the store) is
//! therefore left out by allowing each sibling of it, and each sibling of every folder above it. As
//! a consequence, an entry that is created directly in one of these folders while a command runs is
//! closed to that command.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    NetPort, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

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
/// Further entries of `/dev` that may be read.
const READABLE_DEVICES: [&str; 3] = ["/dev/random", "/dev/urandom", SHARED_MEMORY];
/// Shared memory and named semaphores. This is the one folder of the system that can be permitted
/// by name.
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
        .filter_map(|device| open(Path::new(device)))
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
    /// Every name of the sealed paths, and of folders of the system.
    names: Vec<PathBuf>,
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
        let names = mounts
            .aliases(sealed.iter().map(|path| &**path))
            .into_iter()
            .chain(mounts.aliases(folders))
            .collect();
        Self {
            names,
            sealed,
            sealed_inodes: OnceCell::new(),
        }
    }

    /// Whether `path` is closed or lies in a closed folder.
    fn covers(&self, path: &Path) -> bool {
        self.names.iter().any(|closed| path.starts_with(closed))
    }

    /// Whether a closed path lies in the folder `path`.
    fn has_closed_below(&self, path: &Path) -> bool {
        self.names.iter().any(|closed| closed.starts_with(path))
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
    each_open_entry(Path::new("/"), closed, add_rule)?;
    READABLE_DEVICES
        .iter()
        .filter_map(|path| open(Path::new(path)))
        .try_for_each(add_rule)
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
        if closed.covers(&folder.path) && folder.path != Path::new(SHARED_MEMORY) {
            continue;
        }
        match closed.has_closed_below(&folder.path) {
            true => each_open_entry(&folder.path, closed, add_rule)?,
            false => add_rule(handle)?,
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

/// Passes each entry of `folder` to `add_rule`, except closed paths. An entry that contains a
/// closed path is not passed; its own entries are passed in the same way.
fn each_open_entry(
    folder: &Path,
    closed: &ClosedPaths<'_>,
    add_rule: AddRule<'_>,
) -> io::Result<()> {
    // A folder that this process cannot list is closed to the command, too.
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if closed.names.contains(&path) {
            continue;
        }
        if closed.has_closed_below(&path) {
            each_open_entry(&path, closed, add_rule)?;
            continue;
        }
        if let Some(handle) = open(&path)
            && !closed.is_link_to_sealed(&handle)?
        {
            add_rule(handle)?;
        }
    }
    Ok(())
}

/// Opens a path for use in a rule. Symbolic links are skipped: their targets have rules of their
/// own.
fn open(path: &Path) -> Option<OwnedFd> {
    let handle = openat(
        CWD,
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let kind = FileType::from_raw_mode(fstat(&handle).ok()?.st_mode);
    (kind != FileType::Symlink).then_some(handle)
}
