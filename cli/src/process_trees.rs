//! The process trees of a store, and the choice of the trees that a command runs.
//!
//! A command that runs processes isolates every tree that it was not asked to run
//! ([`isolate_others`]): the permissions on its command line are meant for the chosen trees only.

use std::collections::{BTreeMap, BTreeSet};

use dormouse::id::Pid;
use dormouse::process::ExportId;
use dormouse::record::Speculation;
use dormouse::{Kernel, KernelError, NotFound, ProcessInfo};

use crate::failure::Failure;
use crate::terminal::{one_line, print_stderr};

/// The process trees of a store.
pub(crate) struct Trees {
    /// The root of each tree.
    roots: BTreeMap<Pid, ProcessInfo>,
    /// For each root, the members of its tree that have not ended, the root included.
    living_members: BTreeMap<Pid, Vec<Pid>>,
    /// For each root with living members: when the next alarm of its tree is due, if all of them
    /// only wait for alarms.
    asleep_until: BTreeMap<Pid, Option<u64>>,
    /// For each process, the root of its tree.
    root_of: BTreeMap<Pid, Pid>,
}

impl Trees {
    /// Groups processes by tree. A process whose parent the store has lost is a root. `processes`
    /// must be in the order of their pids, so that parents come before their children.
    pub(crate) fn new(processes: Vec<ProcessInfo>) -> Self {
        let mut roots = BTreeMap::new();
        let mut root_of = BTreeMap::new();
        let mut living_members: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
        let mut asleep_until: BTreeMap<Pid, Option<u64>> = BTreeMap::new();
        for info in processes {
            let pid = info.row.pid;
            let root = info
                .row
                .parent
                .and_then(|parent| root_of.get(&parent))
                .copied()
                .unwrap_or(pid);
            root_of.insert(pid, root);
            if info.row.exit.is_none() {
                living_members.entry(root).or_default().push(pid);
                let next_alarm_ms = info.row.waiting.alarm_ms();
                asleep_until
                    .entry(root)
                    .and_modify(|first| {
                        *first = first.and_then(|first| Some(first.min(next_alarm_ms?)));
                    })
                    .or_insert(next_alarm_ms);
            }
            if root == pid {
                roots.insert(pid, info);
            }
        }
        Self {
            roots,
            living_members,
            asleep_until,
            root_of,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// The root of the tree that a process is part of.
    pub(crate) fn root_of(&self, pid: Pid) -> Option<Pid> {
        self.root_of.get(&pid).copied()
    }

    /// When the next alarm of a tree is due (milliseconds since the epoch, UTC), if all of its
    /// living members only wait for alarms.
    pub(crate) fn asleep_until(&self, root: Pid) -> Option<u64> {
        self.asleep_until.get(&root).copied().flatten()
    }

    /// Describes a root by its pid, its program, and its export if it was imported.
    pub(crate) fn describe(&self, root: Pid) -> String {
        describe(&self.roots[&root])
    }

    /// Whether this root has not ended.
    pub(crate) fn is_alive(&self, root: Pid) -> bool {
        self.roots
            .get(&root)
            .is_some_and(|info| info.row.exit.is_none())
    }

    /// The members of these trees that have not ended.
    pub(crate) fn living_members(&self, roots: &[Pid]) -> Vec<Pid> {
        roots
            .iter()
            .filter_map(|root| self.living_members.get(root))
            .flatten()
            .copied()
            .collect()
    }

    /// As [`root_of`](Self::root_of), for a process that the user names.
    ///
    /// # Errors
    /// The store holds no such process, or may have lost it (LOST-1).
    pub(crate) async fn find_root(&self, kernel: &Kernel, pid: Pid) -> Result<Pid, Failure> {
        if let Some(root) = self.root_of(pid) {
            return Ok(root);
        }
        Err(match kernel.process(pid).await {
            Err(error @ KernelError::NotFound(NotFound::MayBeLost { .. })) => error.into(),
            _ => Failure::Usage(format!(
                "the store holds no process {pid}: dormouse ps lists those it holds"
            )),
        })
    }

    /// The roots of the trees of these processes, each once.
    ///
    /// # Errors
    /// As [`find_root`](Self::find_root).
    pub(crate) async fn roots_of(
        &self,
        kernel: &Kernel,
        pids: &[u64],
    ) -> Result<Vec<Pid>, Failure> {
        let mut roots = BTreeSet::new();
        for pid in pids.iter().copied().map(Pid) {
            let root = self.find_root(kernel, pid).await?;
            if root != pid {
                print_stderr(&format!(
                    "process {pid} is part of the tree of process {root}, which is resumed as a \
                     whole"
                ));
            }
            roots.insert(root);
        }
        Ok(roots.into_iter().collect())
    }

    /// The roots of all trees.
    pub(crate) fn roots(&self) -> Vec<Pid> {
        self.roots.keys().copied().collect()
    }

    /// The roots of all trees except `left_out`.
    fn roots_except(&self, left_out: &[Pid]) -> Vec<Pid> {
        self.roots
            .keys()
            .copied()
            .filter(|root| !left_out.contains(root))
            .collect()
    }

    /// The roots of all trees with living members, except `left_out`. If every tree has ended and
    /// `left_out` is empty, returns the newest root, so that its result can be shown again.
    ///
    /// # Errors
    /// If nothing is left to resume.
    pub(crate) fn living_roots_except(&self, left_out: &[Pid]) -> Result<Vec<Pid>, Failure> {
        let rest = self.roots_except(left_out);
        // A tree whose root has ended may still have living members, which end once they are
        // resumed.
        let living: Vec<Pid> = rest
            .iter()
            .copied()
            .filter(|root| self.living_members.contains_key(root))
            .collect();
        if !living.is_empty() {
            return Ok(living);
        }
        match rest.last() {
            Some(newest) if left_out.is_empty() => Ok(vec![*newest]),
            _ => Err(Failure::Usage(
                "nothing is resumed: name the processes to resume, or add --imported for all"
                    .to_owned(),
            )),
        }
    }

    /// The living imported trees that never ran in this store: none of their processes has a fact
    /// after its birth. A process whose journal cannot be read counts as one that never ran. Reads
    /// the journals of all living processes of the imported trees.
    pub(crate) async fn imported_never_run(&self, kernel: &Kernel) -> Vec<Pid> {
        let mut never_run = Vec::new();
        for (root, members) in &self.living_members {
            if import_origin(&self.roots[root]).is_none() {
                continue;
            }
            let mut has_run = false;
            for pid in members {
                has_run |= kernel.inspect(*pid).await.is_ok_and(|view| view.fact.0 > 0);
            }
            if !has_run {
                never_run.push(*root);
            }
        }
        never_run
    }
}

/// Those of these roots that are branches of a race. The race ended with the program that ran it, so
/// nobody judges them any more. Reads the journal of each root that is not loaded.
pub(crate) async fn unjudged_branches(kernel: &Kernel, roots: &[Pid]) -> Vec<Pid> {
    let mut unjudged = Vec::new();
    for root in roots {
        let view = kernel.inspect(*root).await;
        if view.is_ok_and(|view| view.speculation == Speculation::Branch) {
            unjudged.push(*root);
        }
    }
    unjudged
}

/// Isolates every tree except these: a message from a running tree does not wake a process of an
/// isolated one.
pub(crate) async fn isolate_others(kernel: &Kernel, roots: &[Pid]) -> Result<(), Failure> {
    let trees = Trees::new(kernel.processes().await?);
    Ok(kernel.isolate(trees.roots_except(roots))?)
}

fn describe(info: &ProcessInfo) -> String {
    let mut text = format!("process {}, {}", info.row.pid, info.row.program);
    if let Some((export, pid_in_export)) = import_origin(info) {
        text += &format!(", imported from export {export}, where it was {pid_in_export}");
    }
    one_line(&text)
}

/// The export that a process was imported from, and its pid there. None for a process of this
/// store.
fn import_origin(info: &ProcessInfo) -> Option<(ExportId, Pid)> {
    let branch_origin = info.row.branched_from?;
    Some((branch_origin.import?.export?, branch_origin.pid))
}

#[cfg(test)]
mod tests {
    use dormouse::ProcessStatus;
    use dormouse::process::ProcessRow;

    use super::*;

    #[test]
    fn a_process_whose_parent_is_lost_is_the_root_of_a_tree() {
        let process = |pid: u64, parent: Option<u64>| ProcessInfo {
            row: ProcessRow {
                parent: parent.map(Pid),
                ..ProcessRow::started(Pid(pid), "p")
            },
            status: ProcessStatus::Held,
            view: None,
        };
        // Process 1 is lost.
        let trees = Trees::new(vec![
            process(2, Some(1)),
            process(3, Some(2)),
            process(4, None),
            process(5, Some(1)),
        ]);
        assert_eq!(trees.roots(), [Pid(2), Pid(4), Pid(5)]);
        assert_eq!(trees.roots_except(&[Pid(2)]), [Pid(4), Pid(5)]);
        assert_eq!(trees.living_members(&[Pid(2)]), [Pid(2), Pid(3)]);
    }
}
