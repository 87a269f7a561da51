//! The guard itself: starts the command, waits for its end, for the kernel's, or to be told, and ends all that is left.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitStatus, getpid, getppid, kill_process, pidfd_open,
    set_child_subreaper, set_dumpable_behavior, setsid, test_kill_process,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::super::confine::System;
use super::super::group::watch;
use super::super::limits::tasks;
use super::super::temporary::removing;
use super::family::{Family, Reach, descendants};
use super::{COMMAND, NOT_BEGUN, Orders, THIS_PROGRAM, complain};

/// How long what a command left behind may go on writing after its end.
const GRACE: Duration = Duration::from_millis(200);
/// How often it is looked how many processes there are.
const LOOK: Duration = Duration::from_millis(100);
/// After so many looks processes are counted in any case.
const COUNT_EVERY: u32 = 20;

/// Why the command is not waited for any longer.
enum Over {
    Ended,
    /// The kernel asks for it, or is gone.
    Unwanted,
    TooMany,
}

/// Runs the command under guard. Answers with the code to end with.
pub(super) fn run(arguments: Vec<OsString>) -> i32 {
    let Some((orders, command)) = Orders::read(arguments) else {
        complain("the guard was told nothing that it understands");
        return NOT_BEGUN;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let guarded = runtime.and_then(|runtime| runtime.block_on(guarded(&orders, &command)));
    if let Some(folder) = &orders.temporary {
        let removing = removing(folder.clone());
        // It has nothing to say.
        let _ = removing.map(std::thread::JoinHandle::join);
    }
    match guarded {
        Ok(status) => end_as(status),
        Err(error) => {
            complain(&format!("the command could not be guarded: {error}"));
            NOT_BEGUN
        }
    }
}

async fn guarded(orders: &Orders, command: &[OsString]) -> io::Result<Option<WaitStatus>> {
    let mut told = signal(SignalKind::terminate())?;
    setsid()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_child_subreaper(Some(getpid()))?;
    let kernel = process(orders.kernel)?;
    let kernel_fd = pidfd_open(kernel, PidfdFlags::NONBLOCK)?;
    // A kernel that ended before it was watched is not the parent any more.
    if getppid() != Some(kernel) {
        return Ok(None);
    }
    let reach = match orders.confinement {
        Some(_) => reach_own_only(orders.system, kernel),
        None => Reach::Everybody,
    };
    let before = tasks().unwrap_or(0);
    let mut begun = Command::new(THIS_PROGRAM);
    begun.arg(COMMAND).args(orders.written()).arg("--").args(command);
    let begun = process(begun.spawn()?.id())?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;

    let (kernel_ended, ended) = (watch(kernel_fd)?, watch(pidfd_open(begun, PidfdFlags::NONBLOCK)?)?);
    let mut family = Family::new(begun, reach);
    let over = tokio::select! {
        _ = ended.readable() => Over::Ended,
        _ = kernel_ended.readable() => Over::Unwanted,
        _ = told.recv() => Over::Unwanted,
        () = too_many(orders.limits.processes, before) => Over::TooMany,
    };
    match over {
        Over::Ended => leave(&mut family).await,
        Over::Unwanted => {}
        Over::TooMany => complain(&format!(
            "ended, since it had more than {} processes at once (command_processes in [limits])",
            orders.limits.processes
        )),
    }
    family.end();
    Ok(family.ended)
}

/// Gives up the signals to others, where the system can hold this process to that, and says whether it does. It is tried out on the
/// kernel, which is somebody else.
fn reach_own_only(system: System, kernel: Pid) -> Reach {
    let is_laid = system.signals_own_only().is_ok();
    match is_laid && test_kill_process(kernel) == Err(Errno::PERM) {
        true => Reach::OwnOnly,
        false => Reach::Everybody,
    }
}

/// Waits a little for what the command left behind.
async fn leave(family: &mut Family) {
    let began = Instant::now();
    while family.reap() && began.elapsed() < GRACE {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Resolves when there are more processes than there may be. The system is asked how many it has in all; those of the command are
/// counted when that has grown by as much, and now and then.
async fn too_many(most: u32, before: u64) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (most, mut look) = (u64::from(most), 0_u32);
    loop {
        looks.tick().await;
        look = look.wrapping_add(1);
        let has_grown = tasks().is_none_or(|tasks| tasks > before + most / 2);
        if (has_grown || look.is_multiple_of(COUNT_EVERY)) && descendants().len() as u64 > most {
            return;
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
    let Some(status) = status else { return SIGNALLED + Signal::KILL.as_raw() };
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
