//! Finds and kills the descendants of the guard. The guard is a subreaper: a process whose parent
//! ends becomes a child of the guard, so no descendant is lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, wait,
};

/// How long killed processes may take to end: some wait for a disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// The processes below the guard, and the exit status of the command among them.
pub(super) struct Descendants {
    command: Pid,
    scope: SignalScope,
    pub(super) command_status: Option<WaitStatus>,
}

/// Which processes the signals of the guard reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalScope {
    /// Descendants only: Landlock enforces it.
    Descendants,
    Everybody,
}

impl Descendants {
    pub(super) fn new(command: Pid, scope: SignalScope) -> Self {
        Self {
            command,
            scope,
            command_status: None,
        }
    }

    /// Reaps all children that have ended. Returns whether any child is left.
    pub(super) fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.command => {
                    self.command_status = Some(status)
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Kills all descendants, including those that are started meanwhile.
    pub(super) fn kill_all(&mut self) {
        let start = Instant::now();
        while start.elapsed() < KILL_TIMEOUT {
            if self.scope == SignalScope::Descendants {
                // kill(-1) reaches every process in scope in one step. No fork escapes it, and
                // neither does a process that /proc does not show.
                let _ = Pid::from_raw(1).map(|all| kill_process_group(all, Signal::KILL));
            }
            // The call fails if the group has no member left.
            let _ = kill_process_group(self.command, Signal::KILL);
            for pid in find_descendants() {
                let _ = kill_process(pid, Signal::KILL);
            }
            if !self.reap() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// All descendants of this process. Reads an entry for every process of the system, some ten
/// microseconds each.
pub(super) fn find_descendants() -> Vec<Pid> {
    let parents = read_parents();
    let own_pid = getpid().as_raw_nonzero().get();
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, parent) in parents {
        children.entry(parent).or_default().push(pid);
    }
    let (mut found, mut unvisited) = (Vec::new(), vec![own_pid]);
    while let Some(parent) = unvisited.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            unvisited.push(child);
            found.extend(Pid::from_raw(child));
        }
    }
    found
}

/// The pid and the parent of every process of the system.
fn read_parents() -> Vec<(i32, i32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        Some((
            pid,
            parse_parent(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?,
        ))
    })
    .collect()
}

/// The parent in a line of proc(5): number, name in parentheses, state, parent. A name may hold
/// anything, and need not be text.
fn parse_parent(stat: &[u8]) -> Option<i32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[end + 1..]).ok()?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_imitate_the_fields_after_it() {
        assert_eq!(parse_parent(b"7 (a) S 3 (b) R 9 1) S 42 7 7"), Some(42));
        assert_eq!(parse_parent(b"7 (\xff) \xfe) S 42 7 7"), Some(42));
        assert_eq!(parse_parent(b"nothing"), None);
    }

    #[test]
    fn grandchildren_are_descendants() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .spawn()
            .unwrap();
        let start = Instant::now();
        let pid = i32::try_from(child.id()).unwrap();
        let below = || {
            find_descendants()
                .into_iter()
                .map(|pid| pid.as_raw_nonzero().get())
                .collect::<Vec<_>>()
        };
        while !(below().contains(&pid) && read_parents().iter().any(|(_, parent)| *parent == pid)) {
            assert!(start.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(5));
        }
        let grandchild = read_parents()
            .into_iter()
            .find(|(_, parent)| *parent == pid)
            .unwrap()
            .0;
        assert!(below().contains(&grandchild));
        kill_process(Pid::from_raw(grandchild).unwrap(), Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
