//! Applies the resource limits of a command. The operating system enforces them for each process
//! of the command, not for the command as a whole; the limit of processes is per user.

use std::io;

use dormouse_proto::command::CommandLimits;
use rustix::process::{Pid, Resource, Rlimit, geteuid, getrlimit, prlimit};

/// Limits a process and everything that it starts. `None` means the calling process.
pub(super) fn apply_to(process: Option<Pid>, limits: &CommandLimits) -> io::Result<()> {
    let resource_limits = [
        // One byte, not zero: a system that pipes core files to a program takes zero for no limit.
        (Resource::Core, 1),
        (Resource::Data, limits.memory_bytes),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, u64::from(limits.open_files)),
    ];
    for (resource, limit) in resource_limits
        .into_iter()
        .chain(process_limit(limits.processes))
    {
        // A stricter limit that is already set stays.
        let limit = getrlimit(resource)
            .maximum
            .map_or(limit, |maximum| limit.min(maximum));
        prlimit(
            process,
            resource,
            Rlimit {
                current: Some(limit),
                maximum: Some(limit),
            },
        )?;
    }
    // The system does not count the stack as data, so it has a limit of its own. The soft limit is
    // the default size of thread stacks, so it is lowered only if it must be.
    let Rlimit { current, maximum } = getrlimit(Resource::Stack);
    let limit = maximum.map_or(limits.memory_bytes, |maximum| {
        maximum.min(limits.memory_bytes)
    });
    let current = current.map_or(limit, |current| current.min(limit));
    prlimit(
        process,
        Resource::Stack,
        Rlimit {
            current: Some(current),
            maximum: Some(limit),
        },
    )?;
    Ok(())
}

/// The limit of processes. The system compares it with all tasks of the user, so the tasks of the
/// whole system are added, as an upper bound of those that run already.
/// Root is not limited by it.
fn process_limit(limit: u32) -> Option<(Resource, u64)> {
    (!geteuid().is_root()).then_some((Resource::Nproc, count_tasks()? + u64::from(limit)))
}

/// The number of tasks in the system. Costs some microseconds.
pub(super) fn count_tasks() -> Option<u64> {
    let load = std::fs::read_to_string("/proc/loadavg").ok()?;
    load.split_whitespace()
        .nth(3)?
        .split_once('/')?
        .1
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_of_the_system_are_counted() {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count() as u64;
        assert!(count_tasks().is_some_and(|tasks| tasks >= threads && tasks < u64::from(u32::MAX)));
    }
}
