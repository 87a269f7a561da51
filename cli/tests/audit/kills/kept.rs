//! What stores keep: their processes with all facts, and what these say about the calls of the tool
//! that must not be repeated.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse::Fact;
use dormouse::id::{FactNumber, Pid};
use dormouse::message::Block;
use dormouse::ports::{Store as _, StoreError};
use dormouse::process::ProcessRow;
use dormouse::record::{CallFact, codec};
use dormouse::store::LogStore;

use super::files;
use super::place::{HERE, Place, THERE};

/// What a store keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) rows: BTreeMap<Pid, ProcessRow>,
    pub(crate) facts: BTreeMap<Pid, Vec<Vec<u8>>>,
}

impl Kept {
    pub(crate) fn of(folder: &Path) -> Result<Self, StoreError> {
        let store = LogStore::read_only(folder)?;
        let mut kept = Self::default();
        for row in store.processes()?.rows {
            let upto = store.history(row.pid)?.last();
            kept.facts
                .insert(row.pid, store.facts(row.pid, FactNumber(1), upto)?);
            kept.rows.insert(row.pid, row);
        }
        Ok(kept)
    }

    /// The process at the top of a tree.
    fn root(&self, pid: Pid) -> Pid {
        self.rows
            .get(&pid)
            .and_then(|row| row.parent)
            .map_or(pid, |parent| self.root(parent))
    }

    /// All processes of the tree of `root`.
    fn tree(&self, root: Pid) -> impl Iterator<Item = &ProcessRow> {
        self.rows
            .values()
            .filter(move |row| self.root(row.pid) == root)
    }

    /// Whatever was kept `before` is kept still; trees that had ended may be gone as a whole, if
    /// they may be gone at all.
    fn check(&self, before: &Self, may_drop: bool, what: &str) {
        for (pid, facts) in &before.facts {
            let root = before.root(*pid);
            let is_dropped = before
                .tree(root)
                .all(|row| !self.rows.contains_key(&row.pid));
            if is_dropped && may_drop && before.tree(root).all(|row| row.exit.is_some()) {
                continue;
            }
            let now = self
                .facts
                .get(pid)
                .unwrap_or_else(|| panic!("process {pid} is lost: {what}"));
            assert!(
                now.starts_with(facts),
                "facts of process {pid} are lost: {} of {}, {what}",
                now.len(),
                facts.len()
            );
            let (was, is) = (&before.rows[pid], &self.rows[pid]);
            assert!(
                was.exit.is_none() || was.exit == is.exit || was.reopenings < is.reopenings,
                "process {pid} had ended: {what}"
            );
        }
    }
}

/// What both stores keep, and the facts of processes that were dropped since.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) here: Kept,
    pub(crate) there: Kept,
    pub(crate) all: BTreeMap<(&'static str, Pid), Vec<Vec<u8>>>,
}

impl Known {
    /// What there is now. Each store opens, and is whole.
    pub(crate) fn look_again(&self, place: &Place, what: &str) -> Self {
        let mut all = self.all.clone();
        let mut look = |name: &'static str| {
            // An import that is killed early has not made the store yet, or not the first file of
            // its log. What was kept before is found to be lost then, and the next import has to
            // open it.
            if files(&place.path(name).join("log")).is_empty() {
                return Kept::default();
            }
            for words in [format!("fsck --store {name}"), format!("ps --store {name}")] {
                let looked = place.run(&words, None);
                assert_eq!(looked.code, Some(0), "{words}: {looked:?} after {what}");
            }
            let kept = Kept::of(&place.path(name))
                .unwrap_or_else(|error| panic!("{name}: {error} after {what}"));
            all.extend(
                kept.facts
                    .iter()
                    .map(|(pid, facts)| ((name, *pid), facts.clone())),
            );
            kept
        };
        let (here, there) = (look(HERE), look(THERE));
        Self { here, there, all }
    }

    pub(crate) fn check_kept(&self, before: &Self, may_drop: bool, what: &str) {
        self.here.check(&before.here, may_drop, what);
        self.there.check(&before.there, false, what);
    }

    /// The calls of the tool, by what they are about.
    pub(crate) fn calls(&self) -> Calls {
        let mut calls = Calls::default();
        for fact in self.all.values().flatten() {
            match codec::decode::<Fact>(fact).unwrap() {
                Fact::Call(CallFact::ModelReplied { blocks, .. }) => {
                    blocks
                        .iter()
                        .filter_map(noted)
                        .for_each(|id| *calls.asked.entry(id).or_default() += 1);
                }
                Fact::Call(CallFact::ToolReturned { answer, .. }) => {
                    if let Some(id) = answer.text.strip_prefix("noted ") {
                        *calls.answered.entry(id.trim_end().to_owned()).or_default() += 1;
                    } else if answer.text.contains("ffect is unknown") {
                        calls.unknown += 1;
                    }
                }
                _ => {}
            }
        }
        calls
    }
}

/// The id that a call of the tool is about.
pub(crate) fn noted(block: &Block) -> Option<String> {
    let Block::ToolUse { name, args, .. } = block else {
        return None;
    };
    let args: serde_json::Value = serde_json::from_str(args).unwrap();
    (**name == *"note").then(|| args["id"].as_str().unwrap().to_owned())
}

/// How often a call was asked for, and how often it was answered that it had run, by its id:
/// branches and imports have the same.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) asked: BTreeMap<String, usize>,
    answered: BTreeMap<String, usize>,
    /// Answers that the effect is unknown.
    unknown: usize,
}

impl Calls {
    /// What was answered was run, and what was run was asked for: once each.
    pub(crate) fn check(&self, runs: &BTreeMap<String, usize>, what: &str) {
        for (id, ran) in runs {
            let asked = self.asked.get(id).copied().unwrap_or_default();
            assert!(
                *ran <= asked,
                "'{id}' was asked for {asked} times and ran {ran} times: {what}"
            );
        }
        for (id, answered) in &self.answered {
            let ran = runs.get(id).copied().unwrap_or_default();
            assert!(
                *answered <= ran,
                "'{id}' ran {ran} times and was answered {answered} times: {what}"
            );
        }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.values().sum()
    }

    pub(crate) fn unknown(&self) -> usize {
        self.unknown
    }

    /// Calls that were not answered at all.
    pub(crate) fn open(&self) -> usize {
        self.asked()
            .saturating_sub(self.answered.values().sum::<usize>() + self.unknown)
    }
}
