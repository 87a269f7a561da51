//! A running command: a program and everything that it starts, ended together (GROUP-1).
//!
//! With a guard, the guard ends them when it gets a signal or when this program is gone. Without a
//! guard they are a process group, identified by the pid of its leader. The leader is not reaped
//! before the group is killed, so the pid cannot belong to another process by then. A program that
//! leaves its group on purpose (setsid) is not ended without a guard.

use std::io;
use std::process::ExitStatus;

use dormouse_proto::command::CommandLimits;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::confine;
use super::launcher::{PreparedCommand, StartMode};
use super::limits;
use super::temp_folder::CommandTempFolder;

/// A running command. Dropping it kills every member; the runtime reaps the leader.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    child: Child,
    leader: Pid,
    ended_by: EndedBy,
    is_reaped: bool,
    /// Removed when this is dropped, unless a guard removes it.
    _temporary: Option<CommandTempFolder>,
}

/// How the members are ended.
#[derive(Clone, Copy, Debug)]
enum EndedBy {
    /// The leader is a guard, which gets SIGTERM and ends the others.
    Guard,
    /// The process group of the leader is killed.
    ProcessGroup,
}

/// A started command, and the pipes from its leader.
pub(super) struct StartedCommand {
    pub(super) group: ProcessGroup,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl ProcessGroup {
    /// Starts a program that was prepared.
    pub(super) fn start(prepared: PreparedCommand) -> io::Result<StartedCommand> {
        let PreparedCommand {
            mut command,
            start,
            temporary,
            bounds,
            ..
        } = prepared;
        let (mut child, ended_by) = match (start, &bounds) {
            (StartMode::Guarded, _) => (command.spawn()?, EndedBy::Guard),
            (StartMode::Direct(_), None) => (command.spawn()?, EndedBy::ProcessGroup),
            (StartMode::Direct(support), Some(bounds)) => (
                confine::run_confined(&bounds.confinement, support, || command.spawn())?,
                EndedBy::ProcessGroup,
            ),
        };
        let stdout = child
            .stdout
            .take()
            .expect("a prepared command pipes its output");
        let stderr = child
            .stderr
            .take()
            .expect("a prepared command pipes its errors");
        let number = child
            .id()
            .expect("a child that was not waited for has its number");
        let leader = i32::try_from(number)
            .ok()
            .and_then(Pid::from_raw)
            .expect("process numbers are positive");
        let group = Self {
            child,
            leader,
            ended_by,
            is_reaped: false,
            _temporary: temporary,
        };
        match (ended_by, bounds) {
            // If this fails, the program is ended with its group.
            (EndedBy::ProcessGroup, Some(bounds)) => limit(leader, &bounds.limits)?,
            (EndedBy::Guard, _) | (EndedBy::ProcessGroup, None) => {}
        }
        Ok(StartedCommand {
            group,
            stdout,
            stderr,
        })
    }

    /// The standard input of the leader, if it was prepared with a pipe. It can be taken once.
    pub(super) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Resolves when the leader has ended. On Linux it is not reaped by this.
    #[cfg(target_os = "linux")]
    pub(super) async fn exited(&mut self) -> io::Result<()> {
        use rustix::process::{PidfdFlags, pidfd_open};
        let pidfd = pidfd_open(self.leader, PidfdFlags::NONBLOCK)?;
        watch_pidfd(pidfd)?.readable().await.map(drop)
    }

    /// Resolves when the leader has ended.
    #[cfg(not(target_os = "linux"))]
    pub(super) async fn exited(&mut self) -> io::Result<()> {
        self.child.wait().await.map(drop)
    }

    /// Ends every member that is left.
    pub(super) fn kill(&self) {
        // It fails only if no member is left, which is the goal.
        let _ = match self.ended_by {
            EndedBy::Guard => kill_process(self.leader, Signal::TERM),
            EndedBy::ProcessGroup => kill_process_group(self.leader, Signal::KILL),
        };
    }

    /// Ends every member that is left and says how the leader ended.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        self.kill();
        let status = self.child.wait().await;
        self.is_reaped = true;
        status
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
        }
    }
}

/// Applies limits to a process that was just started. A process that has ended already needs none.
fn limit(leader: Pid, limits: &CommandLimits) -> io::Result<()> {
    match limits::apply_to(Some(leader), limits) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(()),
        result => result,
    }
}

/// Readable when the process of `pidfd` has ended.
#[cfg(target_os = "linux")]
#[expect(
    deprecated,
    reason = "its successor is unsafe; what that asks for holds for every OwnedFd"
)]
pub(super) fn watch_pidfd(
    pidfd: std::os::fd::OwnedFd,
) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    tokio::io::unix::AsyncFd::new(pidfd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiting_a_process_that_has_ended_succeeds() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        child.wait().unwrap();
        limit(pid, &CommandLimits::default()).unwrap();
    }
}
