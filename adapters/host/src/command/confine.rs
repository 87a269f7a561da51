//! Where a command may write: the operating system holds it to that (CONFINE-2).
//!
//! A tool that reads writes nothing. Any other writes below the folders that are permitted to be written, and below the folder
//! for temporary files. Reading and running are not confined here: a program needs its libraries, its configuration, its caches.
//!
//! Linux confines with Landlock, from 5.13 on; where there is none, commands run as they are, which is logged once. The
//! confinement is laid on a thread that then starts the program and ends: what is started inherits it, and so does all that
//! this starts.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use dormouse_proto::tool::Access;

/// Where a command may write.
#[derive(Clone, Debug)]
pub(super) struct Confinement {
    /// Held open from the start: what their paths lead to later does not matter.
    folders: Arc<[(PathBuf, OwnedFd)]>,
}

impl Confinement {
    /// Below these folders, those that are there.
    pub(super) fn to(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        let open = |folder: PathBuf| Some((folder.clone(), File::open(folder).ok()?.into()));
        Self { folders: folders.into_iter().filter_map(open).collect() }
    }

    /// The same for a tool that needs this access.
    pub(super) fn of(&self, access: Access) -> Self {
        match access {
            Access::Read => Self::to([]),
            Access::Write | Access::Admin => self.clone(),
        }
    }

    /// What a program may lack that failed under it, for whoever wonders why.
    pub(super) fn hint(&self) -> String {
        if !is_confining() {
            return String::new();
        }
        if self.folders.is_empty() {
            return " (It is declared with access = \"read\", and could write no file.)".to_owned();
        }
        let folders: Vec<_> = self.folders.iter().map(|(folder, _)| folder.display().to_string()).collect();
        format!(" (It could write below {} only; --allow-write permits more.)", folders.join(", "))
    }
}

/// Whether this machine confines.
#[cfg(target_os = "linux")]
pub(super) fn is_confining() -> bool {
    use std::sync::OnceLock;

    static CONFINING: OnceLock<bool> = OnceLock::new();
    *CONFINING.get_or_init(|| {
        let confining = on_a_thread(|| linux::restrict(&[])).unwrap_or(false);
        if !confining {
            tracing::warn!("this system has no Landlock: commands are not confined in what they write");
        }
        confining
    })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_confining() -> bool {
    false
}

/// Calls `start` so that a program which it starts is confined.
///
/// # Errors
/// As `start`, and where the confinement cannot be laid on.
#[cfg(target_os = "linux")]
pub(super) fn within<T: Send>(
    confinement: &Confinement,
    start: impl FnOnce() -> std::io::Result<T> + Send,
) -> std::io::Result<T> {
    if !is_confining() {
        return start();
    }
    let runtime = tokio::runtime::Handle::try_current().map_err(std::io::Error::other)?;
    on_a_thread(|| {
        let _runtime = runtime.enter();
        match linux::restrict(&confinement.folders)? {
            true => start(),
            false => Err(std::io::Error::other("what it may write could not be confined")),
        }
    })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn within<T: Send>(
    _confinement: &Confinement,
    start: impl FnOnce() -> std::io::Result<T> + Send,
) -> std::io::Result<T> {
    start()
}

/// On a thread of its own, which ends with it. Costs the making of a thread: some 20 microseconds.
#[cfg(target_os = "linux")]
fn on_a_thread<T: Send>(work: impl FnOnce() -> std::io::Result<T> + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("confined".to_owned()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("it panicked")))
    })
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::PathBuf;

    use landlock::{
        ABI, AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
        RulesetStatus, path_beneath_rules,
    };

    /// What is asked for: all ways of writing that the newest version of it knows that is everywhere by now; an older system
    /// confines what it can.
    const VERSION: ABI = ABI::V3;
    /// What anything may write to.
    const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx"];

    /// Lays on the calling thread that it writes below these folders only, and says whether it holds.
    pub(super) fn restrict(folders: &[(PathBuf, OwnedFd)]) -> io::Result<bool> {
        let writing = AccessFs::from_write(VERSION);
        let folders =
            folders.iter().map(|(_, folder)| Ok::<_, RulesetError>(PathBeneath::new(folder.as_fd(), writing)));
        let restricted = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(writing)
            .and_then(Ruleset::create)
            .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(DEVICES, writing)))
            .and_then(|ruleset| ruleset.add_rules(folders))
            .and_then(|ruleset| ruleset.restrict_self());
        Ok(restricted.map_err(io::Error::other)?.ruleset != RulesetStatus::NotEnforced)
    }
}
