//! The process that becomes the command: limits and confines itself (`limits.rs`, `confine.rs`),
//! then executes the command. Its guard has started it (`watch.rs`). It has a session of its own,
//! and is killed if the guard dies.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setsid};

use super::super::confine::Processes;
use super::super::limits;
use super::{CARRIED_PREFIX, GuardArguments, NOT_STARTED_CODE, report_error};

/// Why the command was not started.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("the arguments of the guard are not valid")]
    Arguments,
    #[error("the arguments of the guard name no command")]
    NoCommand,
    #[error("{} could not be {step}: {source}", program.display())]
    Step {
        program: OsString,
        /// What should have been done to the command, as a participle.
        step: &'static str,
        source: io::Error,
    },
    #[error("{} lost its guard", program.display())]
    LostGuard { program: OsString },
}

/// Executes the command. Returns only if that fails, with the exit code.
pub(super) fn run(arguments: Vec<OsString>) -> i32 {
    match exec_command(arguments) {
        Ok(never) => match never {},
        Err(error) => {
            report_error(&error.to_string());
            NOT_STARTED_CODE
        }
    }
}

fn exec_command(arguments: Vec<OsString>) -> Result<Infallible, ExecError> {
    let (guard_arguments, command) =
        GuardArguments::parse(arguments).ok_or(ExecError::Arguments)?;
    let (program, arguments) = command.split_first().ok_or(ExecError::NoCommand)?;
    let step_error = |step: &'static str| {
        let program = program.clone();
        move |source: io::Error| ExecError::Step {
            program,
            step,
            source,
        }
    };
    let guard = guard_arguments.guard.ok_or(ExecError::Arguments)?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| step_error("guarded")(errno.into()))?;
    // If the guard ended before this process watched it, it is not the parent any more.
    if getppid().map(raw_pid) != Some(guard) {
        let program = program.clone();
        return Err(ExecError::LostGuard { program });
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
        let processes = Processes {
            protected: vec![guard_arguments.kernel, guard],
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
