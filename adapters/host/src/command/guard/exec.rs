//! What becomes the command: limited and confined by itself, in a session of its own, and killed
//! when its guard is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};

use super::super::confine::Processes;
use super::super::limits;
use super::{CARRIED, GuardArguments, NOT_BEGUN, complain};

/// Begins the command. Returns only where that fails: with the code to end with.
pub(super) fn run(arguments: Vec<OsString>) -> i32 {
    match begin(arguments) {
        Ok(never) => match never {},
        Err(why) => {
            complain(&why);
            NOT_BEGUN
        }
    }
}

fn begin(arguments: Vec<OsString>) -> Result<std::convert::Infallible, String> {
    let (guard_arguments, command) =
        GuardArguments::read(arguments).ok_or("the guard was told nothing that it understands")?;
    let (program, arguments) = command
        .split_first()
        .ok_or("the guard was told no command")?;
    let cannot = |doing: &str| {
        let doing = doing.to_owned();
        move |error: std::io::Error| format!("{} could not be {doing}: {error}", program.display())
    };
    let guard = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| cannot("guarded")(errno.into()))?;
    // One that ended before it was watched is not the parent any more.
    if getppid() != guard || guard.is_none() {
        return Err(format!("{} lost its guard", program.display()));
    }
    setsid().map_err(|errno| cannot("given a session")(errno.into()))?;
    // Where memory runs out, the command goes before its guard and the kernel. What it cannot have
    // it does without.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    // Before it is confined: it may not change them then.
    if let Some(limits) = &guard_arguments.limits {
        limits::set_for(None, limits).map_err(cannot("limited"))?;
    }
    if let Some(confinement) = &guard_arguments.confinement {
        let keepers = [Some(guard_arguments.kernel), guard.map(number)]
            .into_iter()
            .flatten()
            .collect();
        let processes = Processes {
            keepers,
            own: Some(number(getpid())),
        };
        confinement
            .lay_on(guard_arguments.support, &processes)
            .map_err(cannot("confined"))?;
    }
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment())
        .exec();
    Err(cannot("started")(error))
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The command's environment, as the guard carried it.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| Some((uncarried(&name)?, value)))
}

fn uncarried(name: &OsStr) -> Option<OsString> {
    let name = name.as_bytes().strip_prefix(CARRIED.as_bytes())?;
    Some(OsString::from_vec(name.to_vec()))
}
