//! `dormouse resume`: what a store holds goes on, all of it or the trees that are named.
//!
//! Permissions that are given now are for what is resumed now: every other tree stays held, also where one that runs writes to it.
//! What came from another store runs here for the first time only where the user names it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use dormouse::id::Pid;
use dormouse::process::Restored;
use dormouse::{Kernel, ProcessInfo};

use crate::args::Resume;
use crate::compose::Composition;
use crate::requirements::tell_of_missing;
use crate::run::finish;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal::{line, tell};
use crate::watch::{Output, Watch};

/// Of so many trees it is said which permissions they lack: to know that, a journal is read.
const LOOKED_AT: usize = 32;

/// Goes on with what has not ended. Where all has, the newest result is shown once more.
pub(crate) async fn resume(args: Resume) -> Result<ExitCode, Failure> {
    let kernel = Composition::on(&args.store).permissions(&args.permissions).models(&args.models).existing().await?;
    let watch = Watch::begin(&kernel, Output::of(args.json));
    let stop = StopSignals::listen()?;
    let trees = Trees::of(kernel.processes().await?);
    let folder = args.store.folder.display();
    if trees.roots.is_empty() {
        return Err(Failure::Usage(format!("the store {folder} holds no process: run a program")));
    }
    let chosen = match &args.pids[..] {
        [] => {
            let strangers = if args.imported { Vec::new() } else { trees.never_run(&kernel).await };
            for root in &strangers {
                let who = who(&trees.roots[root]);
                tell(&format!(
                    "{who}, stays held: it never ran here. Resume it by dormouse resume {root} --store {folder}"
                ));
            }
            trees.all_but(&strangers)?
        }
        pids => trees.named(pids)?,
    };
    hold_others(&kernel, &chosen).await?;
    for root in chosen.iter().filter(|root| trees.lives(**root)) {
        tell(&format!("resumes {}", who(&trees.roots[root])));
    }
    let mut programs = Vec::new();
    for root in chosen.iter().filter(|root| trees.lives(**root)).take(LOOKED_AT) {
        // What cannot be read says so when it is resumed.
        programs.extend(kernel.inspect(*root).await.ok().map(|view| view.program));
    }
    tell_of_missing(&kernel, &programs);
    for pid in trees.living(&chosen) {
        kernel.resume(pid).await?;
    }
    let is_over = !chosen.iter().any(|root| trees.lives(*root));
    let mut roots = Vec::new();
    for root in chosen.into_iter().filter(|root| is_over || trees.lives(*root)) {
        roots.push(kernel.process(root).await?);
    }
    finish(kernel, roots, watch, stop, Some(&args.store.folder)).await
}

/// Sees to it that no process runs but those of these trees and new ones, whoever writes to it.
pub(crate) async fn hold_others(kernel: &Kernel, roots: &[Pid]) -> Result<(), Failure> {
    let processes = kernel.processes().await?.into_iter();
    let others = processes.filter(|info| info.row.parent.is_none() && !roots.contains(&info.row.pid));
    Ok(kernel.hold(others.map(|info| info.row.pid))?)
}

/// A process, and where it comes from.
pub(crate) fn who(info: &ProcessInfo) -> String {
    let imported = import_of(info).and_then(|restored| Some((restored.from, restored.foreign?.export?)));
    let imported = imported.map(|(from, export)| format!(", imported from export {export}, where it was {from}"));
    line(&format!("process {}, {}{}", info.row.pid, info.row.program, imported.unwrap_or_default()))
}

/// What a process of an import goes on from.
fn import_of(info: &ProcessInfo) -> Option<Restored> {
    info.row.restored.filter(|restored| restored.foreign.is_some_and(|foreign| foreign.export.is_some()))
}

/// The trees of a store.
struct Trees {
    /// By the process that each begins with.
    roots: BTreeMap<Pid, ProcessInfo>,
    /// The members of each that have not ended, itself among them.
    living: BTreeMap<Pid, Vec<Pid>>,
    /// The tree that each process is part of.
    root_of: BTreeMap<Pid, Pid>,
}

impl Trees {
    /// `processes` by rising pid: parents come before their children.
    fn of(processes: Vec<ProcessInfo>) -> Self {
        let (mut roots, mut root_of) = (BTreeMap::new(), BTreeMap::new());
        let mut living: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
        for info in processes {
            let pid = info.row.pid;
            let root = info.row.parent.and_then(|parent| root_of.get(&parent)).copied().unwrap_or(pid);
            root_of.insert(pid, root);
            if info.row.exit.is_none() {
                living.entry(root).or_default().push(pid);
            }
            if root == pid {
                roots.insert(pid, info);
            }
        }
        Self { roots, living, root_of }
    }

    fn lives(&self, root: Pid) -> bool {
        self.roots.get(&root).is_some_and(|info| info.row.exit.is_none())
    }

    /// The members of these trees that have not ended.
    fn living(&self, roots: &[Pid]) -> Vec<Pid> {
        roots.iter().filter_map(|root| self.living.get(root)).flatten().copied().collect()
    }

    /// The trees of these processes, each once.
    fn named(&self, pids: &[u64]) -> Result<Vec<Pid>, Failure> {
        let mut roots = BTreeSet::new();
        for pid in pids.iter().copied().map(Pid) {
            let unknown =
                || Failure::Usage(format!("the store holds no process {pid}: dormouse ps lists those it holds"));
            let root = *self.root_of.get(&pid).ok_or_else(unknown)?;
            if root != pid {
                tell(&format!("process {pid} is part of the tree of process {root}, which is resumed as a whole"));
            }
            roots.insert(root);
        }
        Ok(roots.into_iter().collect())
    }

    /// The trees but these. Where all of them have ended, the newest.
    fn all_but(&self, strangers: &[Pid]) -> Result<Vec<Pid>, Failure> {
        let rest: Vec<Pid> = self.roots.keys().copied().filter(|root| !strangers.contains(root)).collect();
        // A tree whose root has ended may still have members to be ended with it.
        let living: Vec<Pid> = rest.iter().copied().filter(|root| self.living.contains_key(root)).collect();
        match (rest.last(), living.is_empty()) {
            (_, false) => Ok(living),
            (Some(newest), true) if strangers.is_empty() => Ok(vec![*newest]),
            _ => Err(Failure::Usage("nothing is resumed: name what is to run, or add --imported for all".to_owned())),
        }
    }

    /// The trees that were imported and of which nothing ever ran here: no process has a fact beyond its birth. One whose journal
    /// cannot be read counts as one that did not.
    async fn never_run(&self, kernel: &Kernel) -> Vec<Pid> {
        let mut never = Vec::new();
        for (root, _) in self.roots.iter().filter(|(_, info)| import_of(info).is_some()) {
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
