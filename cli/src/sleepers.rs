//! The root processes of a run that only wait for their next alarm.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse::id::Pid;
use dormouse::process::Exit;
use dormouse::schedule::{format_duration, format_time};
use dormouse::{Kernel, ProcessInfo};
use serde_json::json;

use crate::failure::Failure;
use crate::run_to_end::{AwaitedDecisions, WhenAsleep};
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
    pub(crate) ended: Vec<(Pid, Exit)>,
    /// They have no alarm any more, and wait for input.
    pub(crate) idle: Vec<Pid>,
    /// A turn that an alarm began holds these calls, which wait for a person.
    pub(crate) asking: Vec<(Pid, AwaitedDecisions)>,
    pub(crate) still_asleep: Sleepers,
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

/// In a run that waits for alarms: waits until none of these roots has an alarm any more that can
/// wake it. Otherwise only looks when they are due.
pub(crate) async fn wait_for_sleepers(
    kernel: &Kernel,
    roots: &[Pid],
    when_asleep: WhenAsleep,
) -> Result<Slept, Failure> {
    let roots: BTreeSet<Pid> = roots.iter().copied().collect();
    let mut members = roots.clone();
    loop {
        let mut ended = Vec::new();
        let mut idle = Vec::new();
        let mut asking = Vec::new();
        let mut still_asleep = Sleepers::default();
        let mut next_alarm_ms = None;
        if !roots.is_empty() {
            let processes = kernel.processes().await?;
            next_alarm_ms = next_alarm_of(&mut members, &processes);
            for info in processes {
                if !roots.contains(&info.row.pid) {
                    continue;
                }
                match &info.row.exit {
                    Some(exit) => ended.push((info.row.pid, exit.clone())),
                    None if info.row.is_paused || info.status == "asking" => {
                        let mut waiting = AwaitedDecisions::default();
                        waiting.add(kernel, &info).await?;
                        asking.push((info.row.pid, waiting));
                    }
                    None if is_idle(&info) => idle.push(info.row.pid),
                    None => {
                        let next_alarm_ms = info.row.waiting.alarm_ms().unwrap_or_else(now_ms);
                        still_asleep = still_asleep.with(next_alarm_ms);
                    }
                }
            }
        }
        if still_asleep.count == 0 || when_asleep == WhenAsleep::End {
            return Ok(Slept {
                ended,
                idle,
                asking,
                still_asleep,
            });
        }
        let left = next_alarm_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms()));
        let pause = Duration::from_millis(left).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// When the next alarm of these trees is due. `members` has their roots, and gets all processes
/// below them; alarms of other trees, which may be held, fire in another run. `processes` are in the
/// order of their pids, so that parents come before their children.
fn next_alarm_of(members: &mut BTreeSet<Pid>, processes: &[ProcessInfo]) -> Option<u64> {
    let mut next_alarm_ms = None;
    for ProcessInfo { row, .. } in processes {
        if row.parent.is_some_and(|parent| members.contains(&parent)) {
            members.insert(row.pid);
        }
        if members.contains(&row.pid) {
            next_alarm_ms = earliest(next_alarm_ms, row.waiting.alarm_ms());
        }
    }
    next_alarm_ms
}

/// Whether nothing will happen for a process without an input.
fn is_idle(info: &ProcessInfo) -> bool {
    let is_resting = matches!(info.status, "idle" | "hibernated" | "stopped" | "held");
    is_resting && info.row.waiting.alarm_ms().is_none()
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
            status: "held",
            view: None,
        };
        let processes = [
            process(1, None, 5),
            process(2, None, 70),
            process(3, Some(2), 50),
            process(4, Some(1), 6),
            process(5, Some(3), 60),
        ];
        let mut members = BTreeSet::from([Pid(2)]);
        assert_eq!(next_alarm_of(&mut members, &processes), Some(50));
        assert_eq!(members, BTreeSet::from([Pid(2), Pid(3), Pid(5)]));
    }
}
