//! What a command may do, and the operating system holds it to that (CONFINE-2).
//!
//! * Files: a command that reads writes nothing. Any other writes below the folders that are
//!   permitted to be written, and in a folder for temporary files of its own. Neither reads what
//!   the kernel has [sealed](crate::sealed), nor a terminal, nor a disk.
//! * The network, signals, devices: as [`Network`] says; no signal leaves the command; no device is
//!   made.
//! * Rights of root: those that reach around files and processes are given up for good.
//!
//! Three parts of Linux do it together: Landlock (`filesystem`), seccomp (`calls`) and the bounding
//! set of capabilities (`rights`). Landlock grew over the years: what an older one cannot refuse,
//! seccomp does. Where one of the two is missing nothing is confined, and a command is refused
//! unless the user wants it all the same.
//!
//! The confinement is laid on one thread, for good, and what that thread starts inherits it, and
//! all that this starts.

#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod landlock_rules;
#[cfg(target_os = "linux")]
mod seccomp_filter;
mod support;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

pub(super) use self::support::ConfinementSupport;
use crate::permissions::Network;
use crate::sealed::Identity;

/// What a command may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Confinement {
    pub(super) writes: Writes,
    pub(super) network: Network,
    /// Paths that no command reads or writes.
    pub(super) sealed: Vec<PathBuf>,
}

/// What a command may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// No file, and nothing of a file: neither its mode nor its times.
    Nothing,
    /// Files below these folders.
    Below(Vec<Folder>),
}

/// A folder as it was when it was permitted: another one that takes its place later is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
}

impl Folder {
    /// The folder at a path that the user wrote. The path is free of symbolic links from then on.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let path = std::fs::canonicalize(path)?;
        let identity = Identity::of(std::fs::File::open(&path)?)?;
        Ok(Self { path, identity })
    }
}

/// Processes that seccomp filters name by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    /// The kernel and the guard, which a command may not signal or schedule.
    pub(super) keepers: Vec<u32>,
    /// The command itself, where its number is known beforehand.
    pub(super) own: Option<u32>,
}

impl Confinement {
    /// Lays it on the calling thread, for good, as far as the system can.
    ///
    /// # Errors
    /// What the operating system says; a permitted folder that is another one by now.
    #[cfg(target_os = "linux")]
    pub(super) fn lay_on(
        &self,
        support: ConfinementSupport,
        processes: &Processes,
    ) -> io::Result<()> {
        capabilities::give_up()?;
        if support.has_landlock() {
            landlock_rules::restrict(self, support.abi())?;
        }
        if support.has_seccomp() {
            seccomp_filter::restrict(self, support.abi(), processes)?;
        }
        Ok(())
    }

    /// Nothing can be laid on.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn lay_on(
        &self,
        _support: ConfinementSupport,
        _processes: &Processes,
    ) -> io::Result<()> {
        Ok(())
    }

    /// A hint at what a failed program may lack, judged by its standard error; empty where nothing
    /// points to the confinement.
    pub(super) fn hint(&self, stderr: &str) -> String {
        let stderr = stderr.to_lowercase();
        let mentions = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
        let mut hint = String::new();
        // The guard says itself what is wrong.
        if mentions(&["dormouse: "]) {
            return hint;
        }
        let is_refused = mentions(&["permission denied", "operation not permitted", "read-only"]);
        let is_network = mentions(&[
            "socket",
            "network",
            "resolve",
            "resolution",
            "connect",
            "unreachable",
        ]);
        // A command that may not write often fails without saying that it tried to.
        if self.writes == Writes::Nothing || is_refused && !is_network {
            hint = format!(" {}", self.writes_hint());
        }
        if is_network && self.network != Network::Any {
            hint = format!("{hint} {}", self.network_hint());
        }
        hint
    }

    fn writes_hint(&self) -> String {
        match &self.writes {
            Writes::Nothing => "(declared access = \"read\": it may write nothing)".to_owned(),
            Writes::Below(folders) => {
                let folders: Vec<_> = folders
                    .iter()
                    .map(|folder| folder.path.display().to_string())
                    .collect();
                format!(
                    "(It may write below {} only; --allow-write permits more.)",
                    folders.join(", ")
                )
            }
        }
    }

    fn network_hint(&self) -> &'static str {
        match self.network {
            Network::None => "(It may not use the network: --allow-net permits it.)",
            Network::Ports(_) => {
                "(It may connect to the ports that --allow-net names, and use no other socket.)"
            }
            Network::Machines => {
                "(It may connect by IP, and use no other socket: --allow-net without names permits \
                 all.)"
            }
            Network::Any => "",
        }
    }
}

/// Calls `start` so that a program which it starts is confined. Costs the making of a thread, some
/// 20 microseconds, and the laying on, some hundred.
///
/// # Errors
/// As `start`, and where the confinement cannot be laid on.
pub(super) fn within<T: Send>(
    confinement: &Confinement,
    support: ConfinementSupport,
    start: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let processes = Processes {
        keepers: vec![std::process::id()],
        own: None,
    };
    on_a_thread(|| {
        let _runtime = runtime.enter();
        confinement.lay_on(support, &processes)?;
        start()
    })
}

/// On a thread of its own, which ends with it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("confined".to_owned())
            .spawn_scoped(scope, work)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("it panicked")))
    })
}
