//! Landlock: which files may be read and written, which ports reached, who may be signalled.
//!
//! It knows what is allowed, never what is not: what is sealed is left out by allowing all that stands beside it and beside each folder
//! above it. So what comes to be directly in such a folder while a command runs is closed to that command.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::{Confinement, Folder, Writes};
use crate::permissions::Network;
use crate::sealed::{Identity, aliases, identities};

/// Devices that anything may read and write: none of them keeps anything, none is a terminal.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];
/// What belongs to the system: terminals, disks, its own settings. No permitted folder reaches into it.
const SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];
/// What else of `/dev` may be read.
const READABLE: [&str; 3] = ["/dev/random", "/dev/urandom", "/dev/shm"];

/// The version that this system has. Restricts the calling thread.
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

/// Keeps the signals of the calling thread among itself and what it starts.
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

/// Restricts the calling thread, as far as a Landlock of this version can.
pub(super) fn restrict(confinement: &Confinement, abi: ABI) -> io::Result<()> {
    let closed = Closed { names: aliases(&confinement.sealed)?, files: identities(&confinement.sealed) };
    let writing = writing(abi);
    let mut ruleset = ruleset(confinement, abi).map_err(io::Error::other)?;
    readable(&closed, &mut |handle| allow(&mut ruleset, &handle, AccessFs::ReadFile.into()))?;
    let mut to_write = |handle: OwnedFd| allow(&mut ruleset, &handle, writing | AccessFs::ReadFile);
    DEVICES.iter().filter_map(|device| open(Path::new(device))).try_for_each(&mut to_write)?;
    writable(&confinement.writes, &closed, &mut to_write)?;
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(io::Error::other("Landlock did not take hold")),
    }
}

/// All ways of writing, but the making of devices.
fn writing(abi: ABI) -> BitFlags<AccessFs> {
    // Later versions add sockets, which seccomp sees to.
    AccessFs::from_write(abi.min(ABI::V8)) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

fn ruleset(confinement: &Confinement, abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(abi.min(ABI::V8)) | AccessFs::ReadFile)?;
    let ports: &[u16] = match &confinement.network {
        Network::Ports(ports) => ports,
        Network::None | Network::Machines | Network::Any => &[],
    };
    if abi >= ABI::V4 {
        ruleset = match confinement.network {
            Network::None | Network::Ports(_) => ruleset.handle_access(AccessNet::from_all(ABI::V4))?,
            // Nobody is to be listened for.
            Network::Machines => ruleset.handle_access(AccessNet::BindTcp)?,
            Network::Any => ruleset,
        };
    }
    if abi >= ABI::V6 {
        ruleset = match confinement.network {
            Network::Any => ruleset.scope(Scope::Signal)?,
            Network::None | Network::Ports(_) | Network::Machines => ruleset.scope(Scope::from_all(ABI::V6))?,
        };
    }
    let created = ruleset.create()?;
    if abi < ABI::V4 {
        return Ok(created);
    }
    created.add_rules(ports.iter().map(|port| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp))))
}

/// Told of each thing that is open to a command.
type Each<'a> = &'a mut dyn FnMut(OwnedFd) -> io::Result<()>;

fn allow(ruleset: &mut RulesetCreated, handle: &OwnedFd, access: BitFlags<AccessFs>) -> io::Result<()> {
    let is_folder = FileType::from_raw_mode(fstat(handle)?.st_mode) == FileType::Directory;
    // What can only be done in a folder cannot be allowed for a file.
    let access = if is_folder { access } else { access & AccessFs::from_file(ABI::V5) };
    ruleset.add_rule(PathBeneath::new(handle, access)).map(drop).map_err(io::Error::other)
}

/// What is closed, by every name that it has, and by what it is.
#[derive(Clone)]
struct Closed {
    names: Vec<PathBuf>,
    files: BTreeSet<Identity>,
}

impl Closed {
    /// The same, and these folders.
    fn and(&self, folders: &[&str]) -> Self {
        let names = self.names.iter().cloned().chain(folders.iter().map(PathBuf::from)).collect();
        Self { names, files: self.files.clone() }
    }

    fn holds(&self, path: &Path) -> bool {
        self.names.iter().any(|closed| path.starts_with(closed))
    }

    fn is_below(&self, path: &Path) -> bool {
        self.names.iter().any(|closed| closed.starts_with(path))
    }
}

/// All that may be read.
fn readable(closed: &Closed, each: Each<'_>) -> io::Result<()> {
    around(Path::new("/"), &closed.and(&["/dev"]), each)?;
    READABLE.iter().filter_map(|path| open(Path::new(path))).try_for_each(each)
}

/// All that may be written.
fn writable(writes: &Writes, closed: &Closed, each: Each<'_>) -> io::Result<()> {
    let Writes::Below(folders) = writes else { return Ok(()) };
    let closed = closed.and(&SYSTEM);
    for folder in folders {
        let handle = reopened(folder)?;
        if closed.holds(&folder.path) {
            continue;
        }
        match closed.is_below(&folder.path) {
            true => around(&folder.path, &closed, each)?,
            false => each(handle)?,
        }
    }
    Ok(())
}

/// A permitted folder, which has to be the one that was permitted.
fn reopened(folder: &Folder) -> io::Result<OwnedFd> {
    let shown = folder.path.display();
    let handle = File::open(&folder.path).map_err(|error| io::Error::new(error.kind(), format!("{shown}: {error}")))?;
    match Identity::of(&handle)? == folder.identity {
        true => Ok(handle.into()),
        false => Err(io::Error::other(format!("{shown} is another folder than the one that was permitted"))),
    }
}

/// What stands in `folder`, and in folders of it, except what is closed and the folders that hold that.
fn around(folder: &Path, closed: &Closed, each: Each<'_>) -> io::Result<()> {
    // A folder that cannot be listed cannot be by the command either.
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        let path = entry.path();
        if closed.names.contains(&path) {
            continue;
        }
        if closed.is_below(&path) {
            around(&path, closed, each)?;
            continue;
        }
        // A link to a sealed file is that file, and a rule for it would hold for each of its names.
        let Some(handle) = open(&path) else { continue };
        if !closed.files.contains(&Identity::of(&handle)?) {
            each(handle)?;
        }
    }
    Ok(())
}

/// Opens what stands at a path to name it in a rule. A link is no name: what it leads to is allowed by its own, or not.
fn open(path: &Path) -> Option<OwnedFd> {
    let handle = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let kind = FileType::from_raw_mode(fstat(&handle).ok()?.st_mode);
    (kind != FileType::Symlink).then_some(handle)
}
