//! Why a root process runs no further, and the wait for that.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse::process::Exit;
use dormouse::{
    Kernel, KernelError, LabelStatus, Process, ProcessError, ProcessStatus, ProcessView,
};

use super::WhenAsleep;
use super::awaited_decisions::{AwaitedDecisions, RestingTree, wait_until_asking};
use crate::failure::Failure;
use crate::sleepers::earliest;

/// How often a tree whose root waits for its children is looked at.
const TREE_CHECK: Duration = Duration::from_millis(200);

/// Why a root process runs no further.
pub(crate) enum RootOutcome {
    Ended(Exit),
    /// It waits for further input.
    Idle,
    /// It waits for its next alarm, or that of a process below it, due at this time: milliseconds
    /// since the epoch, UTC.
    Asleep(u64),
    /// It was stopped, and does not continue by itself.
    Stopped,
    /// Nothing goes on in its tree, and this waits for a person.
    Asking(AwaitedDecisions),
    /// Nothing goes on in its tree, since this label has used up its budget.
    AtLabel(Box<LabelStatus>),
    /// It has not ended, but cannot run here. The text says why.
    Held(String),
}

impl From<RestingTree> for RootOutcome {
    /// Of a tree in which something waits for a person, or for the budget of a label.
    fn from(tree: RestingTree) -> Self {
        let RestingTree { waiting, label, .. } = tree;
        match label {
            Some(label) if waiting.is_empty() => Self::AtLabel(Box::new(label)),
            _ => Self::Asking(waiting),
        }
    }
}

pub(super) async fn wait_for_outcome(
    kernel: &Kernel,
    root: &Process,
    when_asleep: WhenAsleep,
) -> Result<RootOutcome, Failure> {
    // A stopped process counts as an outcome: nothing continues it while this command runs.
    let idle_or_stopped = root.wait_for(|view: &ProcessView| {
        let waits_for_alarm = when_asleep == WhenAsleep::Wait && !view.alarms.is_empty();
        (view.is_idle() && !waits_for_alarm) || view.stopped
    });
    let tree_asleep = wait_until_tree_sleeps(kernel, root, when_asleep);
    tokio::select! {
        // The end comes first: a process that has ended is idle, too.
        biased;
        exit = root.wait() => match exit {
            Ok(exit) => Ok(RootOutcome::Ended(exit)),
            Err(KernelError::Process(ProcessError::Held { reason, .. })) => {
                Ok(RootOutcome::Held(reason.to_string()))
            }
            Err(error) => Err(error.into()),
        },
        view = idle_or_stopped => {
            let view = view?;
            Ok(match view.next_alarm_ms {
                _ if view.stopped => RootOutcome::Stopped,
                Some(next_alarm_ms) => RootOutcome::Asleep(next_alarm_ms),
                None => RootOutcome::Idle,
            })
        },
        next_alarm_ms = tree_asleep => Ok(RootOutcome::Asleep(next_alarm_ms?)),
        tree = wait_until_asking(kernel, root.pid(), when_asleep) => Ok(tree?.into()),
    }
}

/// Waits until a root rests and all of its background children only wait for alarms. Never ends in
/// a run that waits for alarms. Returns when the next one is due.
async fn wait_until_tree_sleeps(
    kernel: &Kernel,
    root: &Process,
    when_asleep: WhenAsleep,
) -> Result<u64, Failure> {
    if when_asleep == WhenAsleep::Wait {
        return std::future::pending().await;
    }
    loop {
        root.wait_for(|view: &ProcessView| view.status() == ProcessStatus::Waiting)
            .await?;
        let processes = kernel.processes().await?;
        let mut tree = BTreeSet::from([root.pid()]);
        let mut next_alarm_ms = None;
        let mut is_asleep = true;
        // A parent has a lower pid than its children, so it comes first.
        for info in processes.iter().filter(|info| info.row.exit.is_none()) {
            let is_child = info.row.parent.is_some_and(|parent| tree.contains(&parent));
            if is_child || info.row.pid == root.pid() {
                tree.insert(info.row.pid);
                is_asleep &= matches!(info.status, ProcessStatus::Asleep | ProcessStatus::Waiting);
                next_alarm_ms = earliest(next_alarm_ms, info.row.waiting.alarm_ms());
            }
        }
        if let Some(next_alarm_ms) = next_alarm_ms.filter(|_| is_asleep) {
            return Ok(next_alarm_ms);
        }
        tokio::time::sleep(TREE_CHECK).await;
    }
}
