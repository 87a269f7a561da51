//! What a command may use of the machine, as the operating system counts it: for each of its
//! processes.

use std::io;

use dormouse_proto::command::CommandLimits;
use rustix::process::{Pid, Resource, Rlimit, geteuid, getrlimit, prlimit};

/// Limits a process that was just started, or the calling one, and all that it starts.
pub(super) fn set_for(process: Option<Pid>, limits: &CommandLimits) -> io::Result<()> {
    let each = [
        // None at all: where cores go to a program, that takes zero for no limit.
        (Resource::Core, 1),
        (Resource::Data, limits.memory_bytes),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, u64::from(limits.open_files)),
    ];
    for (resource, most) in each.into_iter().chain(processes(limits.processes)) {
        // What is limited further already stays so.
        let most = getrlimit(resource)
            .maximum
            .map_or(most, |maximum| most.min(maximum));
        prlimit(
            process,
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )?;
    }
    // A stack is no data to the system. What a thread gets by default is as long as the limit now,
    // and stays so.
    let Rlimit { current, maximum } = getrlimit(Resource::Stack);
    let most = maximum.map_or(limits.memory_bytes, |maximum| {
        maximum.min(limits.memory_bytes)
    });
    let current = current.map_or(most, |current| current.min(most));
    prlimit(
        process,
        Resource::Stack,
        Rlimit {
            current: Some(current),
            maximum: Some(most),
        },
    )?;
    Ok(())
}

/// The system counts the tasks of a user: those of the command come on top of all that there are
/// now. Root is not limited by it.
fn processes(most: u32) -> Option<(Resource, u64)> {
    (!geteuid().is_root()).then_some((Resource::Nproc, tasks()? + u64::from(most)))
}

/// How many tasks the system has. Costs a read of some microseconds.
pub(super) fn tasks() -> Option<u64> {
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
        assert!(tasks().is_some_and(|tasks| tasks >= threads && tasks < u64::from(u32::MAX)));
    }
}
