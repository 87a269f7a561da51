//! Follows processes of a cluster until each has ended or can do nothing more by itself, then
//! prints the results: the last part of every command after which processes run. The processes do
//! not depend on it.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use dormouse::id::{FactNumber, Pid};
use dormouse::{Kernel, ProcessInfo};
use dormouse_cluster::{Cluster, ClusterError, ClusterProcess, ClusterProcessInfo, Refusal};

use super::database::connect;
use super::events::EventPrinter;
use super::labels::find_reached;
use crate::args::RunFlags;
use crate::failure::Failure;
use crate::process_table::{ProcessLine, process_lines};
use crate::read_only::open_read_only_at;
use crate::run_to_end::{RestingTree, RootOutcome, WhenAsleep, print_results};
use crate::sleepers::{Sleepers, earliest};
use crate::stop_signals::StopSignals;
use crate::store_key::Key;
use crate::terminal::{OutputFormat, print_stderr};

/// The pause between two looks at a tree.
const EVERY: Duration = Duration::from_millis(500);

/// A cluster that a command uses, and how it shows what happens there.
pub(super) struct Follower<'a> {
    pub(super) cluster: Cluster,
    store: &'a Path,
    key: &'a Key,
    format: OutputFormat,
    when_asleep: WhenAsleep,
    is_detached: bool,
}

impl<'a> Follower<'a> {
    /// For a command with these flags.
    ///
    /// # Errors
    /// A flag is for processes that run in the command itself.
    pub(super) async fn of_run(
        store: &'a Path,
        key: &'a Key,
        flags: &RunFlags,
    ) -> Result<Self, Failure> {
        let is_local = !flags.permissions.is_empty() || !flags.models.is_empty();
        if is_local || flags.unattended {
            return Err(Failure::Usage(
                "permissions, models and --unattended are for processes that run in this command. In a \
                 cluster they run in nodes, which have flags of their own: dormouse node --help"
                    .to_owned(),
            ));
        }
        let follower = Self::new(store, key, flags.json, flags.wait).await?;
        Ok(Self {
            is_detached: flags.detach,
            ..follower
        })
    }

    pub(super) async fn new(
        store: &'a Path,
        key: &'a Key,
        json: bool,
        waits_for_alarms: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            cluster: connect(store).await?,
            store,
            key,
            format: OutputFormat::from_json_flag(json),
            when_asleep: match waits_for_alarms {
                true => WhenAsleep::Wait,
                false => WhenAsleep::End,
            },
            is_detached: false,
        })
    }

    /// Waits until each process has an outcome, and prints what happens and the results. A signal
    /// ends the wait, and nothing else.
    pub(super) async fn follow(self, roots: Vec<ClusterProcess>) -> Result<ExitCode, Failure> {
        if self.is_detached {
            return super::print_pids(&roots);
        }
        let mut stop = StopSignals::listen()?;
        let events = EventPrinter::spawn(&roots, self.format);
        let (mut results, mut lines) = (Vec::new(), Vec::new());
        for root in &roots {
            let outcome = tokio::select! {
                outcome = self.outcome_of(root) => outcome?,
                code = stop.next() => {
                    events.abort();
                    print_stderr(&self.how_to_follow(&roots));
                    return Ok(ExitCode::from(code));
                }
            };
            let tree = root.tree().await?;
            results.push((tree[0].row.pid, outcome));
            lines.extend(self.lines_of(&tree).await?);
        }
        let is_ended = |(_, outcome): &_| matches!(outcome, RootOutcome::Ended(_));
        match results.iter().all(is_ended) {
            true => events.finish().await,
            false => events.abort(),
        }
        let asleep = results.iter().filter_map(|(_, outcome)| match outcome {
            RootOutcome::Asleep(next_alarm_ms) => Some(*next_alarm_ms),
            _ => None,
        });
        let sleepers = asleep.fold(Sleepers::default(), Sleepers::with);
        print_results(&results, &lines, &sleepers, self.format, Some(self.store))
    }

    fn how_to_follow(&self, roots: &[ClusterProcess]) -> String {
        let pids: Vec<_> = roots.iter().map(|root| root.pid().to_string()).collect();
        format!(
            "The cluster goes on with it. Follow it again: dormouse wait {} --store {}",
            pids.join(" "),
            self.store.display()
        )
    }

    async fn outcome_of(&self, root: &ClusterProcess) -> Result<RootOutcome, Failure> {
        tokio::select! {
            // The end comes first: a process that has ended rests, too.
            biased;
            exit = root.wait() => match exit {
                Ok(exit) => Ok(RootOutcome::Ended(exit)),
                Err(ClusterError::Refused { kind: Refusal::Held, message }) => {
                    Ok(RootOutcome::Held(message))
                }
                Err(error) => Err(error.into()),
            },
            outcome = self.outcome_at_rest(root) => outcome,
        }
    }

    /// Waits until nothing goes on in a tree. An input may be on its way from one process to
    /// another: so nothing may have happened since the look before either.
    async fn outcome_at_rest(&self, root: &ClusterProcess) -> Result<RootOutcome, Failure> {
        let mut before = None;
        loop {
            let tree = root.tree().await?;
            let now = RestingLook::of(&tree);
            if now.is_some()
                && now == before
                && let Some(outcome) = self.find_outcome(&tree).await?
            {
                return Ok(outcome);
            }
            before = now;
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Why a tree goes no further in which nothing goes on; `None` if it will by itself.
    async fn find_outcome(
        &self,
        tree: &[ClusterProcessInfo],
    ) -> Result<Option<RootOutcome>, Failure> {
        let root = &tree[0];
        let living = || tree.iter().filter(|info| info.row.exit.is_none());
        let is = |info: &ClusterProcessInfo, word: &str| info.status == word;
        if root.row.exit.is_some() {
            return Ok(None);
        }
        if is(root, "stopped") {
            return Ok(Some(RootOutcome::Stopped));
        }
        if living().any(|info| {
            is(info, "asking") || info.row.is_paused || info.row.waiting.may_hold_calls()
        }) {
            return self.find_asking(root.row.pid).await;
        }
        if living().any(|info| is(info, "suspended")) {
            let reached = find_reached(&self.cluster, &root.row.labels).await?;
            let reached = reached.filter(|_| self.when_asleep == WhenAsleep::End);
            return Ok(reached.map(|label| RootOutcome::AtLabel(Box::new(label))));
        }
        let next_alarm_ms = living()
            .filter(|info| !is(info, "stopped"))
            .map(|info| info.row.waiting.alarm_ms())
            .fold(None, earliest);
        Ok(match next_alarm_ms {
            Some(_) if self.when_asleep == WhenAsleep::Wait => None,
            Some(next_alarm_ms) => Some(RootOutcome::Asleep(next_alarm_ms)),
            None if is(root, "held") => Some(RootOutcome::Held(
                "the node that has its shard could not load it".to_owned(),
            )),
            None => Some(RootOutcome::Idle),
        })
    }

    /// What waits for a person in a tree; `None` if nothing does any more.
    async fn find_asking(&self, root: Pid) -> Result<Option<RootOutcome>, Failure> {
        let kernel = open_read_only_at(self.store, self.key, root).await?;
        let tree = resting_tree(&kernel, root).await;
        kernel.shutdown().await?;
        let tree = tree?.filter(RestingTree::waits);
        Ok(tree.map(RootOutcome::from))
    }

    /// The lines of a tree, with the statuses that its node says.
    async fn lines_of(&self, tree: &[ClusterProcessInfo]) -> Result<Vec<ProcessLine>, Failure> {
        let root = tree[0].row.pid;
        let kernel = open_read_only_at(self.store, self.key, root).await?;
        let lines = process_lines(&kernel, &[root]).await;
        kernel.shutdown().await?;
        let statuses = tree.iter().map(|info| (info.row.pid, info.status.clone()));
        let statuses = statuses.collect();
        let mut lines = lines?;
        lines.iter_mut().for_each(|line| line.set_status(&statuses));
        Ok(lines)
    }
}

async fn resting_tree(kernel: &Kernel, root: Pid) -> Result<Option<RestingTree>, Failure> {
    let processes = kernel.processes().await?;
    let mut pids = std::collections::BTreeSet::from([root]);
    let mut members: Vec<&ProcessInfo> = Vec::new();
    // Parents come before their children.
    for info in &processes {
        let row = &info.row;
        if row.pid == root || row.parent.is_some_and(|parent| pids.contains(&parent)) {
            pids.insert(row.pid);
            members.extend(row.exit.is_none().then_some(info));
        }
    }
    RestingTree::of(kernel, root, &members, WhenAsleep::End).await
}

/// A tree in which nothing goes on, as one look has seen it.
#[derive(PartialEq)]
struct RestingLook(Vec<(Pid, String, Option<FactNumber>)>);

impl RestingLook {
    /// `None` if something goes on.
    fn of(tree: &[ClusterProcessInfo]) -> Option<Self> {
        let living = tree.iter().filter(|info| info.row.exit.is_none());
        let seen = living.map(|info| {
            let look = (info.row.pid, info.status.clone(), info.fact);
            info.rests.then_some(look)
        });
        seen.collect::<Option<_>>().map(Self)
    }
}
