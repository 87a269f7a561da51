//! A process group: a program and everything it starts, ended as one (GROUP-1).
//!
//! The group is known by the number of its leader. The leader is not reaped before the group is killed, so that the
//! number cannot have passed to strangers by then. A program that leaves its group on purpose (setsid) leaves this hold.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// A running group. Dropping it kills every member; the runtime reaps the leader.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    leader: Pid,
    is_reaped: bool,
}

/// A started group, and what can be read from its leader.
pub(super) struct Started {
    pub(super) group: Group,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Group {
    /// Starts a program that was prepared to lead a group of its own.
    pub(super) fn start(command: &mut Command) -> io::Result<Started> {
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().expect("a prepared command pipes its output");
        let stderr = child.stderr.take().expect("a prepared command pipes its errors");
        let number = child.id().expect("a child that was not waited for has its number");
        let leader = i32::try_from(number).ok().and_then(Pid::from_raw).expect("process numbers are positive");
        Ok(Started { group: Self { child, leader, is_reaped: false }, stdout, stderr })
    }

    /// What can be written to the leader, once, where it was prepared to be written to.
    pub(super) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Resolves when the leader has ended. On Linux it is not reaped by this.
    #[cfg(target_os = "linux")]
    pub(super) async fn exited(&mut self) -> io::Result<()> {
        use rustix::process::{PidfdFlags, pidfd_open};
        let pidfd = pidfd_open(self.leader, PidfdFlags::NONBLOCK)?;
        watch(pidfd)?.readable().await.map(drop)
    }

    /// Resolves when the leader has ended.
    #[cfg(not(target_os = "linux"))]
    pub(super) async fn exited(&mut self) -> io::Result<()> {
        self.child.wait().await.map(drop)
    }

    /// Kills every member that is left.
    pub(super) fn kill(&self) {
        // It fails only where no member is left, which is what is wanted.
        let _ = kill_process_group(self.leader, Signal::KILL);
    }

    /// Kills every member that is left and says how the leader ended.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        let status = self.child.wait().await;
        self.is_reaped = true;
        status
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(deprecated, reason = "its successor is unsafe; what that asks for holds for every OwnedFd")]
fn watch(pidfd: std::os::fd::OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    tokio::io::unix::AsyncFd::new(pidfd)
}
