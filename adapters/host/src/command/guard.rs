//! The guard of a command: a process between the kernel and the command, which sees to it that
//! nothing the command started outlives its call, even where the kernel is killed by force
//! (GROUP-1).
//!
//! The program starts itself twice over. The first copy is the guard: it leads a session without a
//! terminal, becomes the parent of every process below it whose own parent ends, and watches the
//! kernel. The second confines itself, then becomes the command. When the command has ended, when
//! the kernel asks for it (SIGTERM), or when the kernel is gone, the guard kills what is left,
//! removes the command's folder for temporary files, and ends as the command did.
//!
//! A program that embeds the kernel and wants this calls [`enter`] first of all. Where it does not,
//! a command is confined just the same, but what leaves its process group on purpose (a daemon),
//! and what runs when the kernel is killed by force, is not ended.

mod descendants;
mod exec;
mod guard_arguments;
mod watch;

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) use self::guard_arguments::GuardArguments;

/// The first argument of a guard, and of what is to become a command.
const GUARD: &str = "__dormouse_guard";
const COMMAND: &str = "__dormouse_command";
/// What stands before the name of a variable of a command's environment, while the guard holds it:
/// the loader of the guard's own program is not to follow what the command's is told.
const CARRIED: &str = "DORMOUSE_CARRIED_";
/// This program, whatever became of its file since.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The code that says that a command was not begun.
const NOT_BEGUN: i32 = 125;

static ENTERED: AtomicBool = AtomicBool::new(false);

/// Becomes the guard of a command where this program was started as one, and never returns then.
/// Otherwise it returns at once, and the commands of every [`LocalHost`](crate::LocalHost) of this
/// program have a guard from then on.
///
/// To be called first in `main`, before anything is read, written or started.
///
/// ```no_run
/// // The first line of `main`:
/// dormouse_host::guard::enter();
/// ```
pub fn enter() {
    if !cfg!(target_os = "linux") {
        return;
    }
    keep_what_was_inherited();
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == GUARD => std::process::exit(watch::run(arguments.collect())),
        Some(first) if first == COMMAND => std::process::exit(exec::run(arguments.collect())),
        _ => ENTERED.store(true, Ordering::Release),
    }
}

/// Whatever this program was started with, beside its standard streams, is not for what it starts.
fn keep_what_was_inherited() {
    #[cfg(target_os = "linux")]
    close_fds::set_fds_cloexec_threadsafe(3, &[]);
}

/// Whether this program can be started as a guard.
pub(super) fn is_there() -> bool {
    ENTERED.load(Ordering::Acquire)
}

/// The program that is a guard, and what it is told; the command follows.
pub(super) fn command_line(guard_arguments: &GuardArguments) -> (&'static str, Vec<OsString>) {
    let told = [OsString::from(GUARD)]
        .into_iter()
        .chain(guard_arguments.written())
        .chain([OsString::from("--")]);
    (THIS_PROGRAM, told.collect())
}

/// A variable as a guard carries it.
pub(super) fn carried(name: &std::ffi::OsStr) -> OsString {
    let mut carried = OsString::from(CARRIED);
    carried.push(name);
    carried
}

/// What is told to whoever reads the errors of the command.
fn complain(why: &str) {
    use std::io::Write;
    // Where nobody reads it there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "dormouse: {why}");
}
