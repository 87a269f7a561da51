//! Confines a command with means of the operating system (CONFINE-2).
//!
//! * Files: a command with read access writes nothing. Any other command writes below the folders
//!   that are permitted for writing, and in a folder of its own for temporary files. No command
//!   reads what the kernel has [sealed](crate::sealed), a terminal, or a disk.
//! * Network: as [`Network`] says. Signals reach no process outside of the command. No device node
//!   can be created.
//! * Capabilities of root that bypass permissions of files or processes are dropped for good.
//!
//! Three mechanisms of Linux work together: Landlock (`landlock_rules`), seccomp (`seccomp_filter`)
//! and the capability bounding set (`capabilities`); `support` says which of them this system has,
//! in which version. What an older version of Landlock cannot refuse, the seccomp filter refuses.
//! Without Landlock or without seccomp nothing is confined: commands are then refused, unless the
//! user permits them to run anyway.
//!
//! The confinement applies to one thread, can never be lifted, and is inherited by everything that
//! the thread starts.

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

/// A permitted folder, identified by its inode: another folder that is put in its place later is
/// not permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
}

impl Folder {
    /// Finds the folder at a path that the user wrote, and resolves symbolic links in the path.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let path = std::fs::canonicalize(path)?;
        let identity = Identity::from_handle(std::fs::File::open(&path)?)?;
        Ok(Self { path, identity })
    }
}

/// Processes that seccomp filters refer to by pid.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    /// The kernel and the guard, which a command may not signal or schedule.
    pub(super) protected: Vec<u32>,
    /// The command itself, if its pid is known beforehand.
    pub(super) command: Option<u32>,
}

impl Confinement {
    /// Confines the calling thread for good, as far as the system supports it.
    ///
    /// # Errors
    /// An error of the operating system, or a permitted folder that was replaced by another one.
    #[cfg(target_os = "linux")]
    pub(super) fn apply(
        &self,
        support: ConfinementSupport,
        processes: &Processes,
    ) -> io::Result<()> {
        capabilities::drop_capabilities()?;
        if support.has_landlock() {
            landlock_rules::restrict(self, support.abi())?;
        }
        if support.has_seccomp() {
            seccomp_filter::restrict(self, support.abi(), processes)?;
        }
        Ok(())
    }

    /// This system cannot confine anything.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn apply(
        &self,
        _support: ConfinementSupport,
        _processes: &Processes,
    ) -> io::Result<()> {
        Ok(())
    }

    /// Derives from the standard error of a failed program which permission it may lack. Empty if
    /// nothing points to the confinement.
    pub(super) fn permission_hint(&self, stderr: &str) -> String {
        let stderr = stderr.to_lowercase();
        let mentions = |words: &[&str]| words.iter().any(|word| stderr.contains(word));
        let mut hint = String::new();
        // This is a message of the guard, which already says what is wrong.
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

/// Calls `start` on a new thread that is confined, so that a program which it starts inherits the
/// confinement. The thread takes some 20 microseconds, the confinement some hundred.
///
/// # Errors
/// As `start`, and if the confinement cannot be applied.
pub(super) fn run_confined<T: Send>(
    confinement: &Confinement,
    support: ConfinementSupport,
    start: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let processes = Processes {
        protected: vec![std::process::id()],
        command: None,
    };
    run_on_new_thread(|| {
        let _runtime = runtime.enter();
        confinement.apply(support, &processes)?;
        start()
    })
}

/// Runs `work` on a new thread and waits for its result. The thread ends with the work.
fn run_on_new_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("confined".to_owned())
            .spawn_scoped(scope, work)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("it panicked")))
    })
}
