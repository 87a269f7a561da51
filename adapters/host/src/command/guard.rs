//! The guard of a command: a process between the kernel and the command. It ensures that nothing
//! the command started outlives the call, even if the kernel is killed by force (GROUP-1).
//!
//! The program starts itself twice. The first copy is the guard: it leads a session without a
//! terminal, becomes the parent of every descendant whose own parent ends, and watches the kernel.
//! The second copy confines itself and then executes the command. When the command has ended, when
//! the kernel sends SIGTERM, or when the kernel is gone, the guard kills what is left, removes the
//! command's temporary folder, and exits as the command did.
//!
//! A program that embeds the kernel calls [`enter`] at the start of `main` to have guards. Without
//! it, commands are confined in the same way, but a process that leaves its process group (a
//! daemon) is not ended, and neither are commands that run when the kernel is killed by force.

mod descendants;
mod exec;
mod guard_arguments;
mod watch;

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) use self::guard_arguments::GuardArguments;

/// The first argument of a guard, and of the copy that executes the command.
const GUARD: &str = "__dormouse_guard";
const COMMAND: &str = "__dormouse_command";
/// The prefix of the command's environment variables in the environment of its guard. Without it, a
/// variable such as LD_PRELOAD would affect the guard itself.
const CARRIED_PREFIX: &str = "DORMOUSE_CARRIED_PREFIX_";
/// This program, even if its file was replaced or deleted since.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The exit code of a command that could not be started.
const NOT_STARTED_CODE: i32 = 125;

static ENTERED: AtomicBool = AtomicBool::new(false);

/// Runs the guard of a command if this program was started as one, and does not return then.
/// Otherwise returns at once, and every [`LocalHost`](crate::LocalHost) of this program uses guards
/// from then on.
///
/// Call it first in `main`, before anything is read, written or started.
///
/// ```no_run
/// // The first line of `main`:
/// dormouse_host::guard::enter();
/// ```
pub fn enter() {
    if !cfg!(target_os = "linux") {
        return;
    }
    close_inherited_files_on_exec();
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == GUARD => std::process::exit(watch::run(arguments.collect())),
        Some(first) if first == COMMAND => std::process::exit(exec::run(arguments.collect())),
        _ => ENTERED.store(true, Ordering::Release),
    }
}

/// Marks every open file except the standard streams as not inherited by programs that are started.
fn close_inherited_files_on_exec() {
    #[cfg(target_os = "linux")]
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

/// Whether this program can be started as a guard.
pub(super) fn is_available() -> bool {
    ENTERED.load(Ordering::Acquire)
}

/// The program and the arguments that start a guard. The command has to follow.
pub(super) fn command_line(guard_arguments: &GuardArguments) -> (&'static str, Vec<OsString>) {
    let arguments = [OsString::from(GUARD)]
        .into_iter()
        .chain(guard_arguments.to_arguments())
        .chain([OsString::from("--")]);
    (THIS_PROGRAM, arguments.collect())
}

/// The name of a variable in the environment of a guard.
pub(super) fn prefixed_name(name: &std::ffi::OsStr) -> OsString {
    let mut prefixed_name = OsString::from(CARRIED_PREFIX);
    prefixed_name.push(name);
    prefixed_name
}

/// Writes an error to the standard error of the command.
fn report_error(why: &str) {
    use std::io::Write;
    // If nobody reads the standard error, the message is lost.
    let _ = writeln!(std::io::stderr(), "dormouse: {why}");
}
