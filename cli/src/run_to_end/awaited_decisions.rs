//! What waits for a person in a tree: calls to approve or answer, and processes that are paused at
//! a limit; or else the label that holds the tree up.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse::api::view::find_used_up;
use dormouse::id::{FactNumber, Pid};
use dormouse::{Event, Events, HeldCall, Kernel, LabelStatus, Paused, ProcessInfo, ProcessStatus};
use futures_util::StreamExt;

use super::WhenAsleep;
use crate::failure::Failure;
use crate::process_trees::Trees;

/// What waits for a person in a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AwaitedDecisions {
    /// Calls to approve or answer.
    pub(crate) calls: Vec<HeldCall>,
    /// Processes that are paused at a limit.
    pub(crate) paused: Vec<(Pid, Paused)>,
}

impl AwaitedDecisions {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.paused.is_empty()
    }

    /// Adds what waits in one process. One that is not loaded is read from its journal.
    pub(crate) async fn add(&mut self, kernel: &Kernel, info: &ProcessInfo) -> Result<(), Failure> {
        let pid = info.row.pid;
        let mut info = info.clone();
        if info.view.is_none() && (info.row.is_paused || info.row.waiting.may_hold_calls()) {
            info.view = Some(Box::new(kernel.inspect(pid).await?));
        }
        self.calls.extend(info.held_calls());
        let paused = info.view.and_then(|view| view.paused);
        self.paused.extend(paused.map(|paused| (pid, paused)));
        Ok(())
    }
}

/// The pause between two looks at a tree in which something waits for a person.
const ASKING_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until nothing goes on in a tree, and something of it waits for a person, or for the budget
/// of a label. Returns what waits. In a run that waits for alarms, a tree with an open alarm goes
/// on, and so does one that a label holds up.
pub(super) async fn wait_until_asking(
    kernel: &Kernel,
    root: Pid,
    when_asleep: WhenAsleep,
) -> Result<RestingTree, Failure> {
    let mut events = kernel.events();
    let mut before = None;
    let mut has_asked = has_asked(kernel, root).await?;
    loop {
        if !has_asked {
            wait_for_question(&mut events).await;
            has_asked = true;
        }
        let now = RestingTree::find(kernel, root, when_asleep).await?;
        match now {
            // An input may be on its way from one process to another: so nothing may have happened
            // since the last look either.
            Some(tree) if before.as_ref() == Some(&tree) => return Ok(tree),
            Some(_) => tokio::time::sleep(ASKING_INTERVAL).await,
            None => wait_for_change(&mut events).await,
        }
        before = now;
    }
}

/// The label of a tree that is used up. `processes` has the root.
fn find_label_of_tree<'a>(
    kernel: &Kernel,
    processes: impl IntoIterator<Item = &'a ProcessInfo>,
    root: Pid,
) -> Option<LabelStatus> {
    let mut rows = processes.into_iter().map(|info| &info.row);
    let row = rows.find(|row| row.pid == root)?;
    find_used_up(&kernel.labels(), &row.labels)
}

/// Whether something of the tree waits for a person, or for the budget of a label.
async fn has_asked(kernel: &Kernel, root: Pid) -> Result<bool, Failure> {
    let processes = kernel.processes().await?;
    let members = Trees::new(processes.clone()).living_members(&[root]);
    // A process that begins may not have been told yet.
    if find_label_of_tree(kernel, &processes, root).is_some() {
        return Ok(true);
    }
    let asks = |info: &ProcessInfo| {
        let is_suspended = info.view.as_ref().is_some_and(|view| view.suspended);
        let asks = info.status == ProcessStatus::Asking || !info.held_calls().is_empty();
        info.row.is_paused || is_suspended || asks
    };
    let mut of_tree = processes
        .iter()
        .filter(|info| members.contains(&info.row.pid));
    Ok(of_tree.any(asks))
}

async fn wait_for_question(events: &mut Events) {
    while let Some(event) = events.next().await {
        if matches!(
            event,
            Event::CallHeld { .. }
                | Event::LimitReached { .. }
                | Event::LabelReached { .. }
                | Event::Lagged { .. }
        ) {
            return;
        }
    }
    // The kernel is shutting down.
    std::future::pending().await
}

/// Waits for the next event after which a tree may rest.
async fn wait_for_change(events: &mut Events) {
    while let Some(event) = events.next().await {
        if !matches!(event, Event::Text { .. } | Event::Thinking { .. }) {
            // Events come in groups, so some time is left before the next look.
            return tokio::time::sleep(ASKING_INTERVAL).await;
        }
    }
    // The kernel is shutting down.
    std::future::pending().await
}

/// When the next alarm of a process is due that can begin a turn. One that is stopped, paused at a
/// limit, or asks a person begins none, whatever is due.
pub(crate) fn waking_alarm_ms(info: &ProcessInfo) -> Option<u64> {
    match info.status {
        ProcessStatus::Stopped | ProcessStatus::Asking | ProcessStatus::Paused => None,
        _ if info.row.is_paused => None,
        _ => info.row.waiting.alarm_ms(),
    }
}

/// Whether something goes on in a process, or will by itself: in a run that waits for alarms, an
/// alarm wakes it.
fn goes_on(info: &ProcessInfo, when_asleep: WhenAsleep) -> bool {
    if when_asleep == WhenAsleep::Wait && waking_alarm_ms(info).is_some() {
        return true;
    }
    match &info.view {
        // Messages that have arrived wait for the person as well.
        Some(_) if info.status == ProcessStatus::Asking => false,
        Some(view) => !view.rests,
        // A hibernated process has no view, and rests. One that is held could not be resumed.
        None => !matches!(
            info.status,
            ProcessStatus::Paused
                | ProcessStatus::Stopped
                | ProcessStatus::Suspended
                | ProcessStatus::Asking
                | ProcessStatus::Hibernated
                | ProcessStatus::Held
                | ProcessStatus::Asleep
        ),
    }
}

/// A tree in which nothing goes on.
#[derive(Clone, PartialEq)]
pub(crate) struct RestingTree {
    /// The last fact of each process that is loaded.
    facts: Vec<(Pid, FactNumber)>,
    pub(super) waiting: AwaitedDecisions,
    /// The label that holds processes of the tree up.
    pub(super) label: Option<LabelStatus>,
}

impl RestingTree {
    /// The tree of `root`; `None` if something goes on in it, or nothing waits for a person or for
    /// the budget of a label.
    async fn find(
        kernel: &Kernel,
        root: Pid,
        when_asleep: WhenAsleep,
    ) -> Result<Option<Self>, Failure> {
        let processes = kernel.processes().await?;
        let trees = Trees::new(processes.clone());
        let pids: BTreeSet<Pid> = trees.living_members(&[root]).into_iter().collect();
        let is_member = |info: &&ProcessInfo| pids.contains(&info.row.pid);
        let members: Vec<&ProcessInfo> = processes.iter().filter(is_member).collect();
        let tree = Self::of(kernel, root, &members, when_asleep).await?;
        Ok(tree.filter(Self::waits))
    }

    /// Whether something waits for a person, or for the budget of a label.
    pub(crate) fn waits(&self) -> bool {
        self.label.is_some() || !self.waiting.is_empty()
    }

    /// The tree of `root`, which has these living members; `None` if something goes on in it.
    pub(crate) async fn of(
        kernel: &Kernel,
        root: Pid,
        members: &[&ProcessInfo],
        when_asleep: WhenAsleep,
    ) -> Result<Option<Self>, Failure> {
        if members.iter().any(|info| goes_on(info, when_asleep)) {
            return Ok(None);
        }
        let (mut facts, mut waiting) = (Vec::new(), AwaitedDecisions::default());
        let mut is_suspended = false;
        for &info in members {
            if let Some(view) = &info.view {
                is_suspended |= view.suspended;
                facts.push((info.row.pid, view.fact));
            }
            match waiting.add(kernel, info).await {
                // Its journal may be the reason why it is held.
                Err(_) if info.status == ProcessStatus::Held => {}
                added => added?,
            }
        }
        let label = match is_suspended {
            true => find_label_of_tree(kernel, members.iter().copied(), root),
            false => None,
        };
        if label.is_some() && when_asleep == WhenAsleep::Wait {
            return Ok(None);
        }
        Ok(Some(Self {
            facts,
            waiting,
            label,
        }))
    }
}
