//! Retention rules: which processes, histories and checkpoints are deleted.
//!
//! The rules are a pure function of the stored processes and checkpoints and of the time. A living
//! process is never deleted; only a part of its history may be, if a rule says so.
//!
//! * A tree of processes is deleted as a whole after all of its processes have ended, since a
//!   living process may refer to any other process of its tree.
//! * The processes and facts that a kept checkpoint needs are kept. If a kept process is a copy or
//!   a branch, the tree of the original is kept.
//! * A checkpoint of an ended tree is deleted with the tree, unless its label is pinned or the
//!   checkpoint is young. Otherwise a model could keep its tree forever by making a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;
use serde::{Deserialize, Serialize};

/// The retention rules. By default, everything is kept forever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Rules for checkpoints.
    pub checkpoints: CheckpointRules,
    /// Rule for ended processes.
    pub ended: EndedRule,
    /// Rule for the histories of kept processes.
    pub history: HistoryRule,
}

/// Which checkpoints are kept: those that at least one of the rules keeps. If neither `last` nor
/// `younger_ms` is set, all are kept. If [`EndedRule`] deletes an ended tree, the checkpoints of
/// that tree are deleted with it, unless they are pinned or younger than `younger_ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRules {
    /// Keep this many of the latest checkpoints of each process.
    pub last: Option<usize>,
    /// Keep checkpoints that are younger than this many milliseconds.
    pub younger_ms: Option<u64>,
    /// Keep checkpoints with these labels. The creator of a checkpoint chooses its label, so pinned
    /// labels must not be revealed to models.
    pub pinned: BTreeSet<Arc<str>>,
}

/// How long ended processes are kept, together with the checkpoints of their trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedRule {
    /// Ended processes are never deleted.
    #[default]
    Forever,
    /// For this many milliseconds after the last process of their tree has ended.
    ForMs(u64),
}

/// How much history of a kept process is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HistoryRule {
    /// The whole history: any fact is a possible position to branch from.
    #[default]
    Whole,
    /// The history from the oldest kept checkpoint on; the whole history if no kept checkpoint
    /// includes the process. A history starts at an image (see [`crate::journal`]): the last but
    /// one at or before the checkpoint, so that one may be damaged. With fewer than three images,
    /// counting the birth, nothing is deleted.
    FromOldestCheckpoint,
}

/// The processes, histories and checkpoints to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletions {
    /// Processes.
    pub processes: BTreeSet<Pid>,
    /// Processes whose history before this fact is deleted.
    pub histories: BTreeMap<Pid, FactNumber>,
    /// Checkpoints.
    pub checkpoints: BTreeSet<CheckpointId>,
}

impl Deletions {
    /// Whether nothing is to be deleted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.histories.is_empty() && self.checkpoints.is_empty()
    }
}

impl Retention {
    /// Applies the rules to these processes and checkpoints. `ended_ms` returns the end of a
    /// process; a process with an unknown end is kept. Checkpoints that are `in_use` count as
    /// pinned. `history_start(pid, fact)` returns where the history of `pid` may begin so that
    /// `fact` can still be loaded; `None` if that deletes nothing.
    #[must_use]
    pub fn deletions(
        &self,
        rows: &[ProcessRow],
        mut checkpoints: Vec<Checkpoint>,
        in_use: &BTreeSet<CheckpointId>,
        ended_ms: impl Fn(Pid) -> Option<u64>,
        history_start: impl Fn(Pid, FactNumber) -> Option<FactNumber>,
        now_ms: u64,
    ) -> Deletions {
        let mut dropped_checkpoints = self.dropped_checkpoints(&checkpoints, in_use, now_ms);
        checkpoints.retain(|checkpoint| !dropped_checkpoints.contains(&checkpoint.id));
        let processes = self.processes_to_delete(rows, &checkpoints, in_use, ended_ms, now_ms);
        let is_deleted = |checkpoint: &Checkpoint| {
            checkpoint
                .members
                .iter()
                .any(|member| processes.contains(&member.pid))
        };
        dropped_checkpoints.extend(
            checkpoints
                .iter()
                .filter(|checkpoint| is_deleted(checkpoint))
                .map(|checkpoint| checkpoint.id),
        );
        checkpoints.retain(|checkpoint| !is_deleted(checkpoint));
        let first_needed_facts = self.first_needed_facts(&checkpoints).into_iter();
        let histories = first_needed_facts
            .filter_map(|(pid, first)| Some((pid, history_start(pid, first)?)))
            .collect();
        Deletions {
            processes,
            histories,
            checkpoints: dropped_checkpoints,
        }
    }

    /// Checkpoints that the checkpoint rules delete.
    fn dropped_checkpoints(
        &self,
        checkpoints: &[Checkpoint],
        in_use: &BTreeSet<CheckpointId>,
        now_ms: u64,
    ) -> BTreeSet<CheckpointId> {
        let CheckpointRules {
            last,
            younger_ms,
            pinned,
        } = &self.checkpoints;
        if last.is_none() && younger_ms.is_none() {
            return BTreeSet::new();
        }
        let mut later_counts: BTreeMap<Pid, usize> = BTreeMap::new();
        let mut dropped_checkpoints = BTreeSet::new();
        for checkpoint in checkpoints.iter().rev() {
            let later_count = later_counts.entry(checkpoint.pid).or_default();
            let is_recent = last.is_some_and(|last| *later_count < last);
            let is_young = younger_ms
                .is_some_and(|max_age_ms| now_ms.saturating_sub(checkpoint.at_ms) < max_age_ms);
            let is_pinned = pinned.contains(&checkpoint.label) || in_use.contains(&checkpoint.id);
            if !is_recent && !is_young && !is_pinned {
                dropped_checkpoints.insert(checkpoint.id);
            }
            *later_count += 1;
        }
        dropped_checkpoints
    }

    /// Selects the processes to delete. `kept_checkpoints` are the checkpoints that the checkpoint
    /// rules keep.
    fn processes_to_delete(
        &self,
        rows: &[ProcessRow],
        kept_checkpoints: &[Checkpoint],
        in_use: &BTreeSet<CheckpointId>,
        ended_ms: impl Fn(Pid) -> Option<u64>,
        now_ms: u64,
    ) -> BTreeSet<Pid> {
        let EndedRule::ForMs(max_age_ms) = self.ended else {
            return BTreeSet::new();
        };
        let is_expired = |row: &&ProcessRow| {
            let is_old = || {
                ended_ms(row.pid).is_some_and(|ended| now_ms.saturating_sub(ended) >= max_age_ms)
            };
            row.exit.is_some() && is_old()
        };
        let mut deletable: BTreeSet<Pid> =
            rows.iter().filter(is_expired).map(|row| row.pid).collect();
        // A process that a kept checkpoint needs may keep other trees and checkpoints: repeat until
        // nothing changes.
        loop {
            deletable = without_ancestors(rows, deletable);
            // A checkpoint is deleted only if all of its members are.
            let is_kept = |checkpoint: &&Checkpoint| {
                in_use.contains(&checkpoint.id)
                    || self.outlasts_its_tree(checkpoint, now_ms)
                    || !checkpoint
                        .members
                        .iter()
                        .all(|member| deletable.contains(&member.pid))
            };
            let needed_processes: BTreeSet<Pid> = kept_checkpoints
                .iter()
                .filter(is_kept)
                .flat_map(|checkpoint| &checkpoint.members)
                .map(|member| member.pid)
                .collect();
            let before = deletable.len();
            deletable.retain(|pid| !needed_processes.contains(pid));
            if deletable.len() == before {
                return deletable;
            }
        }
    }

    /// Whether a checkpoint is kept although its tree has ended. The tree is then kept as well.
    fn outlasts_its_tree(&self, checkpoint: &Checkpoint, now_ms: u64) -> bool {
        let CheckpointRules {
            younger_ms, pinned, ..
        } = &self.checkpoints;
        let is_young = younger_ms
            .is_some_and(|max_age_ms| now_ms.saturating_sub(checkpoint.at_ms) < max_age_ms);
        is_young || pinned.contains(&checkpoint.label)
    }

    /// The first fact of each process that these checkpoints need. Processes without an entry keep
    /// all facts.
    fn first_needed_facts(&self, kept_checkpoints: &[Checkpoint]) -> BTreeMap<Pid, FactNumber> {
        let mut first_needed_facts: BTreeMap<Pid, FactNumber> = BTreeMap::new();
        if self.history == HistoryRule::FromOldestCheckpoint {
            for member in kept_checkpoints
                .iter()
                .flat_map(|checkpoint| &checkpoint.members)
            {
                let first = first_needed_facts.entry(member.pid).or_insert(member.at);
                *first = member.at.min(*first);
            }
        }
        first_needed_facts
    }
}

/// Removes the processes from `deletable` whose tree contains a process that is not in `deletable`,
/// or from whose tree a kept process was copied or branched. The kept process needs the rows of
/// that tree to translate pids.
#[must_use]
pub fn without_ancestors(rows: &[ProcessRow], deletable: BTreeSet<Pid>) -> BTreeSet<Pid> {
    let parents = parents_by_pid(rows);
    let trees: Vec<(Pid, &ProcessRow)> = rows
        .iter()
        .map(|row| (root(&parents, row.pid), row))
        .collect();
    let mut kept_roots: BTreeSet<Pid> = trees
        .iter()
        .filter(|(_, row)| !deletable.contains(&row.pid))
        .map(|(root, _)| *root)
        .collect();
    loop {
        let before = kept_roots.len();
        let rows_of_kept = trees.iter().filter(|(root, _)| kept_roots.contains(root));
        let ancestors: Vec<Pid> = rows_of_kept
            .filter_map(|(_, row)| Some(row.ancestor()?.0))
            .collect();
        kept_roots.extend(ancestors.into_iter().map(|pid| root(&parents, pid)));
        if kept_roots.len() == before {
            break;
        }
    }
    trees
        .iter()
        .filter(|(root, _)| !kept_roots.contains(root))
        .map(|(_, row)| row.pid)
        .collect()
}

/// Groups these processes by tree.
#[must_use]
pub fn by_tree(rows: &[ProcessRow], processes: &BTreeSet<Pid>) -> Vec<BTreeSet<Pid>> {
    let parents = parents_by_pid(rows);
    let mut trees: BTreeMap<Pid, BTreeSet<Pid>> = BTreeMap::new();
    for pid in processes {
        trees.entry(root(&parents, *pid)).or_default().insert(*pid);
    }
    trees.into_values().collect()
}

fn parents_by_pid(rows: &[ProcessRow]) -> BTreeMap<Pid, Option<Pid>> {
    rows.iter().map(|row| (row.pid, row.parent)).collect()
}

/// The root of a process's tree. A process with an unknown parent is a root.
fn root(parents: &BTreeMap<Pid, Option<Pid>>, pid: Pid) -> Pid {
    let parent = |pid: &Pid| {
        parents
            .get(pid)
            .copied()
            .flatten()
            .filter(|parent| parents.contains_key(parent))
    };
    std::iter::successors(Some(pid), parent)
        .last()
        .unwrap_or(pid)
}

#[cfg(test)]
mod tests;
