//! The guard process: starts the command (`exec.rs`), waits until the command or the kernel ends or
//! a signal arrives, and kills all processes that are left (`descendants.rs`).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use dormouse_proto::command::CommandLimits;
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitStatus, getpid, getppid, kill_process,
    pidfd_open, set_child_subreaper, set_dumpable_behavior, setsid, test_kill_process,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::super::confine::{Confinement, ConfinementSupport, Writes};
use super::super::limits::count_tasks;
use super::super::process_group::watch_pidfd;
use super::super::temp_folder;
use super::descendants::{Descendants, SignalScope, find_descendants};
use super::{COMMAND, GuardArguments, NOT_STARTED_CODE, THIS_PROGRAM, report_error};

/// How long descendants of a command may continue to write after its end.
const GRACE: Duration = Duration::from_millis(200);
/// How often the number of processes is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// After this many checks, processes are counted even if their number has not grown.
const COUNT_EVERY: u32 = 20;

/// Why the guard stops waiting for the command.
enum StopReason {
    CommandEnded,
    /// The kernel sent SIGTERM, or is gone.
    Cancelled,
    /// The command has more processes than this limit.
    TooManyProcesses(u32),
}

/// Runs the command under guard, and returns the exit code.
pub(super) fn run(arguments: Vec<OsString>) -> i32 {
    let Some((guard_arguments, command)) = GuardArguments::parse(arguments) else {
        report_error("the arguments of the guard are not valid");
        return NOT_STARTED_CODE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let mut temp_folder = None;
    let result = runtime.and_then(|runtime| {
        runtime.block_on(guard_command(guard_arguments, &command, &mut temp_folder))
    });
    if let Some(folder) = temp_folder {
        // A failure is not reported: nobody could act on it.
        let _ = temp_folder::remove(&folder);
    }
    match result {
        Ok(status) => exit_like(status),
        Err(error) => {
            report_error(&format!("the command could not be guarded: {error}"));
            NOT_STARTED_CODE
        }
    }
}

/// Guards the command. The caller must remove the folder in `created_folder`, whatever the result.
async fn guard_command(
    mut guard_arguments: GuardArguments,
    command: &[OsString],
    created_folder: &mut Option<PathBuf>,
) -> io::Result<Option<WaitStatus>> {
    let mut terminated = signal(SignalKind::terminate())?;
    setsid()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_child_subreaper(Some(getpid()))?;
    let kernel = to_pid(guard_arguments.kernel)?;
    let kernel_fd = pidfd_open(kernel, PidfdFlags::NONBLOCK)?;
    // If the kernel ended before the guard watched it, it is not the parent any more.
    if getppid() != Some(kernel) {
        return Ok(None);
    }
    let scope = match guard_arguments.confinement {
        Some(_) => scope_signals(guard_arguments.support, kernel),
        None => SignalScope::Everybody,
    };
    // The guard notices the end of the kernel and SIGTERM from here on. Only now it creates the
    // folder, so that the folder is removed in every case.
    if let Some(path) = &guard_arguments.temporary {
        let folder = temp_folder::create_named(path)?;
        *created_folder = Some(path.clone());
        if let Some(Confinement {
            writes: Writes::Below(folders),
            ..
        }) = &mut guard_arguments.confinement
        {
            folders.push(folder);
        }
    }
    let tasks_at_start = count_tasks().unwrap_or(0);
    guard_arguments.guard = Some(std::process::id());
    let mut command_line = Command::new(THIS_PROGRAM);
    command_line
        .arg(COMMAND)
        .args(guard_arguments.to_arguments())
        .arg("--")
        .args(command);
    let child = to_pid(command_line.spawn()?.id())?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;

    let (kernel_ended, command_ended) = (
        watch_pidfd(kernel_fd)?,
        watch_pidfd(pidfd_open(child, PidfdFlags::NONBLOCK)?)?,
    );
    let mut descendants = Descendants::new(child, scope);
    let reason = tokio::select! {
        _ = command_ended.readable() => StopReason::CommandEnded,
        _ = kernel_ended.readable() => StopReason::Cancelled,
        _ = terminated.recv() => StopReason::Cancelled,
        limit = exceeds_process_limit(guard_arguments.limits, tasks_at_start) => StopReason::TooManyProcesses(limit),
    };
    match reason {
        StopReason::CommandEnded => wait_for_descendants(&mut descendants).await,
        StopReason::Cancelled => {}
        StopReason::TooManyProcesses(limit) => {
            report_error(&format!(
                "ended, since it had more than {limit} processes at once (command_processes in \
                 [limits])"
            ));
        }
    }
    descendants.kill_all();
    Ok(descendants.command_status)
}

/// Restricts the signals of the guard to its descendants, if the system supports it. The
/// restriction is verified with a signal to the kernel, which is not a descendant:
/// [`Descendants::kill_all`] signals every process in scope.
fn scope_signals(support: ConfinementSupport, kernel: Pid) -> SignalScope {
    let is_restricted = support.scope_signals().is_ok();
    match is_restricted && test_kill_process(kernel) == Err(Errno::PERM) {
        true => SignalScope::Descendants,
        false => SignalScope::Everybody,
    }
}

/// Gives the descendants of the command a short time to end by themselves.
async fn wait_for_descendants(descendants: &mut Descendants) {
    let start = Instant::now();
    while descendants.reap() && start.elapsed() < GRACE {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Resolves with the limit when the command has more processes than that. Without a limit it never
/// resolves. Counting reads an entry for every process of the system, so it is done every two
/// seconds, and when the number of tasks in the system has grown by half the limit.
async fn exceeds_process_limit(limits: Option<CommandLimits>, tasks_at_start: u64) -> u32 {
    let Some(CommandLimits {
        processes: limit, ..
    }) = limits
    else {
        return std::future::pending().await;
    };
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0_u32;
    loop {
        checks.tick().await;
        count = count.wrapping_add(1);
        let has_grown =
            count_tasks().is_none_or(|tasks| tasks > tasks_at_start + u64::from(limit / 2));
        if (has_grown || count.is_multiple_of(COUNT_EVERY))
            && find_descendants().len() as u64 > u64::from(limit)
        {
            return limit;
        }
    }
}

fn to_pid(number: u32) -> io::Result<Pid> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other(format!("{number} is not a valid pid")))
}

/// Ends this process as the command ended: by the same signal, or by returning its exit code.
fn exit_like(status: Option<WaitStatus>) -> i32 {
    const SIGNALLED: i32 = 128;
    let Some(status) = status else {
        return SIGNALLED + Signal::KILL.as_raw();
    };
    if let Some(code) = status.exit_status() {
        return code;
    }
    let number = status.terminating_signal().unwrap_or(Signal::KILL.as_raw());
    if let Some(signal) = Signal::from_named_raw(number) {
        // If the signal does not end this process, the exit code says which one it was.
        let _ = kill_process(getpid(), signal);
    }
    SIGNALLED + number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 137 is the exit code with which a shell reports a killed command.
    #[test]
    fn a_command_with_unknown_status_counts_as_killed() {
        assert_eq!(exit_like(None), 137);
    }
}
