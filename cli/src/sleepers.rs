//! The root processes of a run whose trees only waited for their next alarms when it began:
//! `resume` finds them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse::id::Pid;
use dormouse::schedule::{format_duration, format_time};
use dormouse::{Kernel, KernelError, ProcessError, ProcessInfo, ProcessStatus};
use futures_util::FutureExt;
use serde_json::json;
use tokio::task::unconstrained;

use crate::failure::Failure;
use crate::run_to_end::{RestingTree, RootOutcome, WhenAsleep, waking_alarm_ms};
use crate::store_address::is_cluster;
use crate::terminal::{self, OutputFormat, print_stderr};

/// The longest pause until the sleepers are looked at again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The shortest one: an alarm is due, and its turn is running.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// How many root processes are asleep, and until when.
#[derive(Default)]
pub(crate) struct Sleepers {
    pub(crate) count: usize,
    next_alarm_ms: Option<u64>,
}

/// What became of the sleeping roots of a run.
pub(crate) struct Slept {
    /// The roots that have come to an outcome.
    pub(crate) outcomes: Vec<(Pid, RootOutcome)>,
    /// The others: trees that are asleep, or in a turn that an alarm began.
    pub(crate) unfinished: Sleepers,
}

impl Sleepers {
    /// Adds a process that is asleep until this time.
    pub(crate) fn with(self, next_alarm_ms: u64) -> Self {
        Self {
            count: self.count + 1,
            next_alarm_ms: earliest(self.next_alarm_ms, Some(next_alarm_ms)),
        }
    }

    /// Says when the next alarm is due, and how to continue then.
    pub(crate) fn print(&self, format: OutputFormat, store: Option<&Path>) -> Result<(), Failure> {
        let Some(next_alarm_ms) = self.next_alarm_ms else {
            return Ok(());
        };
        let next_alarm = format_time(next_alarm_ms);
        if format == OutputFormat::Json {
            let event = json!({
                "event": "asleep", "processes": self.count, "next_alarm": next_alarm,
                "next_alarm_ms": next_alarm_ms,
            });
            return Ok(writeln!(
                terminal::stdout(),
                "{}",
                terminal::escaped_json(&event)
            )?);
        }
        let left = format_duration(next_alarm_ms.saturating_sub(now_ms()));
        let processes = match self.count {
            1 => "1 process is asleep".to_owned(),
            count => format!("{count} processes are asleep"),
        };
        let hint = match store {
            Some(store) if is_cluster(store) => ", when the cluster goes on".to_owned(),
            Some(store) => format!(
                ". Continue then with dormouse resume --store {}, or wait with --wait",
                store.display()
            ),
            None => String::new(),
        };
        print_stderr(&format!(
            "{processes}; the next alarm is due at {next_alarm}, in {left}{hint}"
        ));
        Ok(())
    }
}

/// With `--wait`, returns when each of these roots has come to an outcome: no alarm can wake its
/// tree any more, and nothing goes on in it. Otherwise returns at once, with the time of the next
/// alarm.
pub(crate) async fn wait_for_sleepers(
    kernel: &Kernel,
    roots: &[Pid],
    when_asleep: WhenAsleep,
) -> Result<Slept, Failure> {
    let mut slept = Slept {
        outcomes: Vec::new(),
        unfinished: Sleepers::default(),
    };
    if roots.is_empty() {
        return Ok(slept);
    }
    let mut root_of: BTreeMap<Pid, Pid> = roots.iter().map(|root| (*root, *root)).collect();
    let mut rested_before = BTreeMap::new();
    loop {
        let processes = kernel.processes().await?;
        let mut next_alarm_ms = next_alarm_of(&mut root_of, &processes);
        let mut rested = BTreeMap::new();
        slept.outcomes.clear();
        slept.unfinished = Sleepers::default();
        for (root, members) in members_of(&root_of, &processes) {
            if let Some(exit) = &root.row.exit {
                let ended = RootOutcome::Ended(exit.clone());
                slept.outcomes.push((root.row.pid, ended));
                continue;
            }
            let pid = root.row.pid;
            // In every run, a tree with an alarm is asleep.
            let tree = RestingTree::of(kernel, pid, &members, WhenAsleep::Wait).await?;
            // An input may be on its way from one process to another: so nothing may have happened
            // since the last look either.
            let was_resting = tree.is_some() && rested_before.get(&pid) == tree.as_ref();
            match tree {
                Some(tree) if was_resting || when_asleep == WhenAsleep::End => {
                    let outcome = outcome_at_rest(kernel, root, &members, &tree).await?;
                    slept.outcomes.push((pid, outcome));
                    rested.insert(pid, tree);
                }
                tree => {
                    if let Some(tree) = tree {
                        rested.insert(pid, tree);
                        // The next look is soon.
                        next_alarm_ms = None;
                    }
                    let due_ms = members.iter().filter_map(|info| waking_alarm_ms(info));
                    let due_ms = due_ms.min().unwrap_or_else(now_ms);
                    slept.unfinished = slept.unfinished.with(due_ms);
                }
            }
        }
        if slept.unfinished.count == 0 || when_asleep == WhenAsleep::End {
            return Ok(slept);
        }
        rested_before = rested;
        let left = next_alarm_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms()));
        let pause = Duration::from_millis(left).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// When the next alarm of these trees is due. `root_of` has their roots, and gets all processes
/// below them; alarms of other trees, which may be held, fire in another run. `processes` are in
/// the order of their pids, so that parents come before their children.
fn next_alarm_of(root_of: &mut BTreeMap<Pid, Pid>, processes: &[ProcessInfo]) -> Option<u64> {
    let mut next_alarm_ms = None;
    for info in processes {
        let root_of_parent = info.row.parent.and_then(|parent| root_of.get(&parent));
        if let Some(root) = root_of_parent.copied() {
            root_of.insert(info.row.pid, root);
        }
        if root_of.contains_key(&info.row.pid) {
            next_alarm_ms = earliest(next_alarm_ms, waking_alarm_ms(info));
        }
    }
    next_alarm_ms
}

/// Each root of these trees with the members of its tree that have not ended.
fn members_of<'a>(
    root_of: &BTreeMap<Pid, Pid>,
    processes: &'a [ProcessInfo],
) -> Vec<(&'a ProcessInfo, Vec<&'a ProcessInfo>)> {
    let mut trees: BTreeMap<Pid, (&ProcessInfo, Vec<&ProcessInfo>)> = BTreeMap::new();
    for info in processes {
        let pid = info.row.pid;
        let Some(root) = root_of.get(&pid) else {
            continue;
        };
        if *root == pid {
            trees.insert(pid, (info, Vec::new()));
        }
        if info.row.exit.is_none()
            && let Some((_, members)) = trees.get_mut(root)
        {
            members.push(info);
        }
    }
    trees.into_values().collect()
}

/// The outcome of a root in whose tree nothing goes on. What pauses, holds or stops the root itself
/// comes first.
async fn outcome_at_rest(
    kernel: &Kernel,
    root: &ProcessInfo,
    members: &[&ProcessInfo],
    tree: &RestingTree,
) -> Result<RootOutcome, Failure> {
    if root.row.is_paused && tree.waits() {
        return Ok(tree.clone().into());
    }
    if root.status == ProcessStatus::Held {
        return Ok(RootOutcome::Held(why_held(kernel, root.row.pid).await?));
    }
    if root.status == ProcessStatus::Stopped {
        return Ok(RootOutcome::Stopped);
    }
    if tree.waits() {
        return Ok(tree.clone().into());
    }
    // The root may wait for the end of a child that cannot run.
    let Some(child) = members
        .iter()
        .find(|info| info.status == ProcessStatus::Held)
    else {
        return Ok(RootOutcome::Idle);
    };
    let pid = child.row.pid;
    let why = why_held(kernel, pid).await?;
    Ok(RootOutcome::Held(format!(
        "process {pid} below it is held: {why}"
    )))
}

/// Why a process is held.
async fn why_held(kernel: &Kernel, pid: Pid) -> Result<String, Failure> {
    // One that this run could not load has its reason already. A task that has used up its time
    // is told that nothing is ready, so that time does not count here.
    let process = kernel.process(pid).await?;
    match unconstrained(process.wait()).now_or_never() {
        Some(Err(KernelError::Process(ProcessError::Held { reason, .. }))) => {
            Ok(reason.to_string())
        }
        _ => Ok("it was not resumed".to_owned()),
    }
}

/// The earlier of two times that may be absent.
pub(crate) fn earliest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Milliseconds since the epoch, UTC.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use dormouse::process::{ProcessRow, Waiting};

    use super::*;

    #[test]
    fn an_alarm_of_another_tree_is_not_waited_for() {
        let process = |pid: u64, parent: Option<u64>, due_ms: u64| ProcessInfo {
            row: ProcessRow {
                parent: parent.map(Pid),
                waiting: Waiting::Alarm { due_ms },
                ..ProcessRow::started(Pid(pid), "p")
            },
            status: ProcessStatus::Held,
            view: None,
        };
        let processes = [
            process(1, None, 5),
            process(2, None, 70),
            process(3, Some(2), 50),
            process(4, Some(1), 6),
            process(5, Some(3), 60),
        ];
        let mut root_of = BTreeMap::from([(Pid(2), Pid(2))]);
        assert_eq!(next_alarm_of(&mut root_of, &processes), Some(50));
        let members = [2, 3, 5].map(|pid| (Pid(pid), Pid(2)));
        assert_eq!(root_of, BTreeMap::from(members));
    }
}
