//! The table `[limits]`: limits of child processes, of messages, and of the resources of commands.

use super::{Keyword, Reader, Section};
use crate::command::CommandLimits;

/// `[limits]`: how far a process may multiply, and what its commands may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Section)]
#[section(check = raise_max_children)]
pub struct Limits {
    /// The most children of one `fork` call.
    #[key(default = 8, range = 1..=1_000)]
    pub max_fork_children: u32,
    /// The most children of one process that run at the same time, whatever calls made them. Where
    /// it is not given and `max_fork_children` is larger, that number holds.
    #[key(default = 32, range = 1..=1_000)]
    pub max_children: u32,
    /// The most levels of processes below a root.
    #[key(default = 3, range = 1..=64)]
    pub max_depth: u32,
    /// The most messages that wait for one process; a further one from another process is refused.
    #[key(default = 256, range = 1..=10_000)]
    pub max_mailbox: u32,
    /// The most alarms of one process that are open at the same time.
    #[key(default = 32, range = 1..=1_000)]
    pub max_alarms: u32,
    /// How often a process may restore itself to a checkpoint.
    #[key(default = 8, range = 1..=1_000)]
    pub max_restores: u32,
    /// When the children of a fork begin to run.
    pub fork_release: ForkRelease,
    /// What one run of a command, or a tool server, may use of the machine.
    #[key(flatten)]
    pub commands: CommandLimits,
}

/// When the children of a fork begin to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Keyword)]
pub enum ForkRelease {
    /// The first child at once, the others after its first answer: what it has sent is then in the
    /// provider's cache.
    #[default]
    First,
    /// All children at once.
    All,
}

/// Raises `max_children` to `max_fork_children` if only the latter is given. Otherwise a fork that
/// the program allows could fail by a limit that the program does not mention.
fn raise_max_children(mut limits: Limits, table: &mut Reader<'_>) -> Option<Limits> {
    if table.span_of("max_children").is_none() {
        limits.max_children = limits.max_children.max(limits.max_fork_children);
    }
    Some(limits)
}
