//! The process trees of a store: which of them a command is about, and where imported ones come
//! from.

use std::collections::{BTreeMap, BTreeSet};

use dormouse::id::Pid;
use dormouse::process::Restored;
use dormouse::{Kernel, ProcessInfo};

use crate::status::Failure;
use crate::terminal::{line, tell};

/// The process trees of a store.
pub(crate) struct Trees {
    /// The root of each tree.
    roots: BTreeMap<Pid, ProcessInfo>,
    /// By root, the members of its tree that have not ended; the root may be one of them.
    living: BTreeMap<Pid, Vec<Pid>>,
    /// By process, the root of its tree.
    root_of: BTreeMap<Pid, Pid>,
}

impl Trees {
    /// `processes` are sorted by pid, so that parents come before their children.
    pub(crate) fn of(processes: Vec<ProcessInfo>) -> Self {
        let (mut roots, mut root_of) = (BTreeMap::new(), BTreeMap::new());
        let mut living: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
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
                living.entry(root).or_default().push(pid);
            }
            if root == pid {
                roots.insert(pid, info);
            }
        }
        Self {
            roots,
            living,
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

    /// A root in words: its pid, program, and export if it was imported.
    pub(crate) fn described(&self, root: Pid) -> String {
        described(&self.roots[&root])
    }

    /// Whether this root has not ended.
    pub(crate) fn lives(&self, root: Pid) -> bool {
        self.roots
            .get(&root)
            .is_some_and(|info| info.row.exit.is_none())
    }

    /// The members of these trees that have not ended.
    pub(crate) fn living(&self, roots: &[Pid]) -> Vec<Pid> {
        roots
            .iter()
            .filter_map(|root| self.living.get(root))
            .flatten()
            .copied()
            .collect()
    }

    /// The roots of the trees of these processes, each once.
    ///
    /// # Errors
    /// For a pid that the store does not hold.
    pub(crate) fn named(&self, pids: &[u64]) -> Result<Vec<Pid>, Failure> {
        let mut roots = BTreeSet::new();
        for pid in pids.iter().copied().map(Pid) {
            let unknown = || {
                Failure::Usage(format!(
                    "the store holds no process {pid}: dormouse ps lists those it holds"
                ))
            };
            let root = self.root_of(pid).ok_or_else(unknown)?;
            if root != pid {
                tell(&format!(
                    "process {pid} is part of the tree of process {root}, which is resumed as a \
                     whole"
                ));
            }
            roots.insert(root);
        }
        Ok(roots.into_iter().collect())
    }

    /// The roots of all trees that have not ended, except `left_out`. If all have ended, the newest
    /// one.
    ///
    /// # Errors
    /// If nothing is left to resume.
    pub(crate) fn all_but(&self, left_out: &[Pid]) -> Result<Vec<Pid>, Failure> {
        let rest: Vec<Pid> = self
            .roots
            .keys()
            .copied()
            .filter(|root| !left_out.contains(root))
            .collect();
        // A tree whose root has ended may still have living members, which end once they are
        // resumed.
        let living: Vec<Pid> = rest
            .iter()
            .copied()
            .filter(|root| self.living.contains_key(root))
            .collect();
        match (rest.last(), living.is_empty()) {
            (_, false) => Ok(living),
            (Some(newest), true) if left_out.is_empty() => Ok(vec![*newest]),
            _ => Err(Failure::Usage(
                "nothing is resumed: name what is to run, or add --imported for all".to_owned(),
            )),
        }
    }

    /// The imported trees that never ran in this store: no process of them has a fact after its
    /// birth. A process whose journal cannot be read counts as one that never ran. Reads the
    /// journals of all processes of these trees.
    pub(crate) async fn never_run(&self, kernel: &Kernel) -> Vec<Pid> {
        let mut never = Vec::new();
        for (root, _) in self
            .roots
            .iter()
            .filter(|(_, info)| import_of(info).is_some())
        {
            let mut ran = false;
            for pid in self.living.get(root).into_iter().flatten() {
                ran |= kernel.inspect(*pid).await.is_ok_and(|view| view.fact.0 > 0);
            }
            if !ran && self.living.contains_key(root) {
                never.push(*root);
            }
        }
        never
    }
}

/// Holds all trees except these: a message from a tree that runs does not wake them.
pub(crate) async fn hold_others(kernel: &Kernel, roots: &[Pid]) -> Result<(), Failure> {
    let processes = kernel.processes().await?.into_iter();
    let others =
        processes.filter(|info| info.row.parent.is_none() && !roots.contains(&info.row.pid));
    Ok(kernel.hold(others.map(|info| info.row.pid))?)
}

/// A process by pid and program, and for an imported one its export.
fn described(info: &ProcessInfo) -> String {
    let imported =
        import_of(info).and_then(|restored| Some((restored.from, restored.foreign?.export?)));
    let imported = imported
        .map(|(from, export)| format!(", imported from export {export}, where it was {from}"));
    line(&format!(
        "process {}, {}{}",
        info.row.pid,
        info.row.program,
        imported.unwrap_or_default()
    ))
}

/// Where an imported process comes from; nothing for any other.
fn import_of(info: &ProcessInfo) -> Option<Restored> {
    info.row.restored.filter(|restored| {
        restored
            .foreign
            .is_some_and(|foreign| foreign.export.is_some())
    })
}
