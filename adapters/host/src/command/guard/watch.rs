//! The guard itself: starts the command, waits for its end, for the kernel's, or to be told, and
//! ends all that is left.

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
use super::super::limits::tasks;
use super::super::process_group::watch;
use super::super::temp_folder;
use super::descendants::{Descendants, SignalScope, descendants};
use super::{COMMAND, GuardArguments, NOT_BEGUN, THIS_PROGRAM, complain};

/// How long what a command left behind may go on writing after its end.
const GRACE: Duration = Duration::from_millis(200);
/// How often it is looked how many processes there are.
const LOOK: Duration = Duration::from_millis(100);
/// After so many looks processes are counted in any case.
const COUNT_EVERY: u32 = 20;

/// Why the command is not waited for any longer.
enum StopReason {
    Ended,
    /// The kernel asks for it, or is gone.
    Unwanted,
    /// It has more processes than this.
    TooMany(u32),
}

/// Runs the command under guard. Answers with the code to end with.
pub(super) fn run(arguments: Vec<OsString>) -> i32 {
    let Some((guard_arguments, command)) = GuardArguments::read(arguments) else {
        complain("the guard was told nothing that it understands");
        return NOT_BEGUN;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let mut made = None;
    let guarded =
        runtime.and_then(|runtime| runtime.block_on(guarded(guard_arguments, &command, &mut made)));
    if let Some(folder) = made {
        // A failure is not reported: nobody could act on it.
        let _ = temp_folder::remove(&folder);
    }
    match guarded {
        Ok(status) => end_as(status),
        Err(error) => {
            complain(&format!("the command could not be guarded: {error}"));
            NOT_BEGUN
        }
    }
}

/// Guards the command. What it made for it is to be removed, however this ends.
async fn guarded(
    mut guard_arguments: GuardArguments,
    command: &[OsString],
    made: &mut Option<PathBuf>,
) -> io::Result<Option<WaitStatus>> {
    let mut terminated = signal(SignalKind::terminate())?;
    setsid()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_child_subreaper(Some(getpid()))?;
    let kernel = process(guard_arguments.kernel)?;
    let kernel_fd = pidfd_open(kernel, PidfdFlags::NONBLOCK)?;
    // A kernel that ended before it was watched is not the parent any more.
    if getppid() != Some(kernel) {
        return Ok(None);
    }
    let scope = match guard_arguments.confinement {
        Some(_) => scope_signals(guard_arguments.support, kernel),
        None => SignalScope::Everybody,
    };
    // Not before it is known that the kernel's end and its word are heard: from here on it is
    // removed.
    if let Some(path) = &guard_arguments.temporary {
        let folder = temp_folder::make_named(path)?;
        *made = Some(path.clone());
        if let Some(Confinement {
            writes: Writes::Below(folders),
            ..
        }) = &mut guard_arguments.confinement
        {
            folders.push(folder);
        }
    }
    let before = tasks().unwrap_or(0);
    let mut begun = Command::new(THIS_PROGRAM);
    begun
        .arg(COMMAND)
        .args(guard_arguments.written())
        .arg("--")
        .args(command);
    let begun = process(begun.spawn()?.id())?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;

    let (kernel_ended, ended) = (
        watch(kernel_fd)?,
        watch(pidfd_open(begun, PidfdFlags::NONBLOCK)?)?,
    );
    let mut left = Descendants::new(begun, scope);
    let reason = tokio::select! {
        _ = ended.readable() => StopReason::Ended,
        _ = kernel_ended.readable() => StopReason::Unwanted,
        _ = terminated.recv() => StopReason::Unwanted,
        most = too_many(guard_arguments.limits, before) => StopReason::TooMany(most),
    };
    match reason {
        StopReason::Ended => leave(&mut left).await,
        StopReason::Unwanted => {}
        StopReason::TooMany(most) => {
            complain(&format!(
                "ended, since it had more than {most} processes at once (command_processes in \
                 [limits])"
            ));
        }
    }
    left.end();
    Ok(left.command_status)
}

/// Confines the signals of the guard to its descendants, where the system can. The scope is
/// believed only once a signal to the kernel, which is no descendant, has been refused:
/// [`Descendants::end`] signals everybody within it.
fn scope_signals(support: ConfinementSupport, kernel: Pid) -> SignalScope {
    let is_laid = support.scope_signals().is_ok();
    match is_laid && test_kill_process(kernel) == Err(Errno::PERM) {
        true => SignalScope::Descendants,
        false => SignalScope::Everybody,
    }
}

/// Waits a little for what the command left behind.
async fn leave(left: &mut Descendants) {
    let began = Instant::now();
    while left.reap() && began.elapsed() < GRACE {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Resolves with the limit when the command has more processes than that; never, without one.
/// Counting them costs a look at every process of the system, so they are counted when the number
/// of tasks in the system has grown by half the limit, and every two seconds.
async fn too_many(limits: Option<CommandLimits>, before: u64) -> u32 {
    let Some(CommandLimits {
        processes: most, ..
    }) = limits
    else {
        return std::future::pending().await;
    };
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = 0_u32;
    loop {
        looks.tick().await;
        look = look.wrapping_add(1);
        let has_grown = tasks().is_none_or(|tasks| tasks > before + u64::from(most / 2));
        if (has_grown || look.is_multiple_of(COUNT_EVERY))
            && descendants().len() as u64 > u64::from(most)
        {
            return most;
        }
    }
}

fn process(number: u32) -> io::Result<Pid> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other(format!("{number} is no number of a process")))
}

/// Ends as the command did: by its signal, or with the code to end with.
fn end_as(status: Option<WaitStatus>) -> i32 {
    const SIGNALLED: i32 = 128;
    let Some(status) = status else {
        return SIGNALLED + Signal::KILL.as_raw();
    };
    if let Some(code) = status.exit_status() {
        return code;
    }
    let number = status.terminating_signal().unwrap_or(Signal::KILL.as_raw());
    if let Some(signal) = Signal::from_named_raw(number) {
        // One that this program does not end by leaves the code.
        let _ = kill_process(getpid(), signal);
    }
    SIGNALLED + number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a shell says that its command was killed.
    #[test]
    fn a_command_whose_end_is_not_known_counts_as_killed() {
        assert_eq!(end_as(None), 137);
    }
}
