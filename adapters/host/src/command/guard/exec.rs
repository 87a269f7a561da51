//! Limits and confines the calling process, then executes the command in it. The process has a
//! session of its own, and is killed if its guard dies.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};

use super::super::confine::Processes;
use super::super::limits;
use super::{CARRIED_PREFIX, GuardArguments, NOT_STARTED_CODE, report_error};

/// Executes the command. Returns only if that fails, with the exit code.
pub(super) fn run(arguments: Vec<OsString>) -> i32 {
    match exec_command(arguments) {
        Ok(never) => match never {},
        Err(why) => {
            report_error(&why);
            NOT_STARTED_CODE
        }
    }
}

fn exec_command(arguments: Vec<OsString>) -> Result<std::convert::Infallible, String> {
    let (guard_arguments, command) =
        GuardArguments::parse(arguments).ok_or("the arguments of the guard are not valid")?;
    let (program, arguments) = command
        .split_first()
        .ok_or("the arguments of the guard name no command")?;
    let step_error = |doing: &str| {
        let doing = doing.to_owned();
        move |error: std::io::Error| format!("{} could not be {doing}: {error}", program.display())
    };
    let guard = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| step_error("guarded")(errno.into()))?;
    // If the guard ended before this process watched it, it is not the parent any more.
    if getppid() != guard || guard.is_none() {
        return Err(format!("{} lost its guard", program.display()));
    }
    setsid().map_err(|errno| step_error("given a session")(errno.into()))?;
    // If memory runs out, the system kills the command before its guard and the kernel. This is
    // best effort.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    // The confinement forbids to change limits, so they are set first.
    if let Some(limits) = &guard_arguments.limits {
        limits::apply_to(None, limits).map_err(step_error("limited"))?;
    }
    if let Some(confinement) = &guard_arguments.confinement {
        let protected = [Some(guard_arguments.kernel), guard.map(raw_pid)]
            .into_iter()
            .flatten()
            .collect();
        let processes = Processes {
            protected,
            command: Some(raw_pid(getpid())),
        };
        confinement
            .apply(guard_arguments.support, &processes)
            .map_err(step_error("confined"))?;
    }
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment())
        .exec();
    Err(step_error("started")(error))
}

fn raw_pid(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// The environment of the command, without the prefix under which the guard carried it.
fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| Some((original_name(&name)?, value)))
}

fn original_name(name: &OsStr) -> Option<OsString> {
    let name = name.as_bytes().strip_prefix(CARRIED_PREFIX.as_bytes())?;
    Some(OsString::from_vec(name.to_vec()))
}
