//! What waits for a person in a tree: calls to approve or answer, and processes that are paused at a
//! limit; or else the label that holds the tree up.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse::id::{FactNumber, Pid};
use dormouse::{Event, Events, HeldCall, Kernel, LabelStatus, Paused, ProcessInfo};
use futures_util::StreamExt;

use super::WhenAsleep;
use crate::failure::Failure;
use crate::label::find_used_up;
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

/// The label of a tree that is used up.
fn find_label_of_tree(
    kernel: &Kernel,
    processes: &[ProcessInfo],
    root: Pid,
) -> Option<LabelStatus> {
    let mut rows = processes.iter().map(|info| &info.row);
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
        let asks = info.status == "asking" || !info.held_calls().is_empty();
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

/// A tree in which nothing goes on, and something waits for a person or for the budget of a label.
#[derive(PartialEq)]
pub(super) struct RestingTree {
    /// The last fact of each process.
    facts: Vec<(Pid, FactNumber)>,
    pub(super) waiting: AwaitedDecisions,
    /// The label that holds processes of the tree up.
    pub(super) label: Option<LabelStatus>,
}

impl RestingTree {
    /// The tree of `root`; `None` if something goes on in it, or nothing waits.
    async fn find(
        kernel: &Kernel,
        root: Pid,
        when_asleep: WhenAsleep,
    ) -> Result<Option<Self>, Failure> {
        let processes = kernel.processes().await?;
        let trees = Trees::new(processes.clone());
        let members: BTreeSet<Pid> = trees.living_members(&[root]).into_iter().collect();
        let (mut facts, mut waiting) = (Vec::new(), AwaitedDecisions::default());
        let mut is_suspended = false;
        for info in processes
            .iter()
            .filter(|info| members.contains(&info.row.pid))
        {
            is_suspended |= info.view.as_ref().is_some_and(|view| view.suspended);
            if when_asleep == WhenAsleep::Wait && info.row.waiting.alarm_ms().is_some() {
                return Ok(None);
            }
            match &info.view {
                // A hibernated process has no view, and rests.
                None if matches!(
                    info.status,
                    "paused" | "stopped" | "suspended" | "asking" | "hibernated"
                ) => {}
                Some(view) if view.rests => facts.push((info.row.pid, view.fact)),
                Some(_) => return Ok(None),
                // It could not be resumed, or waits for its next alarm.
                None if matches!(info.status, "held" | "asleep") => {}
                None => return Ok(None),
            }
            waiting.add(kernel, info).await?;
        }
        let label = match is_suspended {
            true => find_label_of_tree(kernel, &processes, root),
            false => None,
        };
        if label.is_some() && when_asleep == WhenAsleep::Wait {
            return Ok(None);
        }
        let waits = label.is_some() || !waiting.is_empty();
        Ok(waits.then_some(Self {
            facts,
            waiting,
            label,
        }))
    }
}
