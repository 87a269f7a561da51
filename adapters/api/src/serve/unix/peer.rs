//! Who is at the other end of a socket: refuses other users, and processes that this one started.
//!
//! The operating system names the process that connected. Its ancestors are looked up; the guard of a
//! command adopts what the command leaves behind, so that a command does not get away from being
//! below the kernel. Where there is no guard, a process whose parent has ended is adopted elsewhere
//! and is not recognized: the token is what keeps it out.

use rustix::process::geteuid;
use tokio::net::UnixStream;

/// How many ancestors are looked up: more than any system has.
#[cfg(target_os = "linux")]
const MAX_ANCESTORS: usize = 4096;

/// How often the ancestors are looked up again after one of them ended meanwhile.
#[cfg(target_os = "linux")]
const ATTEMPTS: usize = 5;

/// Why the process at the other end is not admitted; `None` if it is.
pub(super) fn refusal(stream: &UnixStream) -> Option<String> {
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(error) => return Some(format!("it is not known who connects: {error}")),
    };
    if peer.uid() != geteuid().as_raw() {
        return Some("only the user of the kernel may use its control socket".to_owned());
    }
    refusal_by_pid(peer.pid())
}

#[cfg(target_os = "linux")]
fn refusal_by_pid(pid: Option<i32>) -> Option<String> {
    match pid {
        // The peer is in another namespace of pids, which does not see this process: none that this
        // process started is there.
        Some(0) => None,
        Some(pid) => match is_below(pid, std::process::id().cast_signed()) {
            Some(false) => None,
            Some(true) => Some(
                "this process was started by the kernel that it connects to: no command or tool \
                 server controls the kernel that runs it"
                    .to_owned(),
            ),
            None => Some("it cannot be told which process connects: /proc does not say".to_owned()),
        },
        None => Some("it is not known which process connects".to_owned()),
    }
}

#[cfg(not(target_os = "linux"))]
fn refusal_by_pid(_pid: Option<i32>) -> Option<String> {
    None
}

/// Whether `pid` is a process below `ancestor`; `None` if that cannot be found out.
#[cfg(target_os = "linux")]
fn is_below(pid: i32, ancestor: i32) -> Option<bool> {
    (0..ATTEMPTS).find_map(|_| {
        let mut current = pid;
        for _ in 0..MAX_ANCESTORS {
            if current == ancestor {
                return Some(current != pid);
            }
            if current <= 1 {
                return Some(false);
            }
            // If it has just ended, its children have another parent now.
            current = parent(current)?;
        }
        None
    })
}

/// The parent of a process, from the fourth field of its line in `/proc`. The second field is its
/// name in parentheses, which may hold anything.
#[cfg(target_os = "linux")]
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = str::from_utf8(&stat[name_end + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_below_its_parent_and_not_below_itself() {
        let own = std::process::id().cast_signed();
        let above = parent(own).unwrap();
        assert_eq!(is_below(own, own), Some(false));
        assert_eq!(is_below(own, above), Some(true));
        assert_eq!(is_below(above, own), Some(false));
        assert_eq!(is_below(1, own), Some(false));
        // No process has this number.
        assert_eq!(is_below(i32::MAX, own), None);
    }
}
