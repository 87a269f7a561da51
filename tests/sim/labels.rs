//! Labels of trees, as `actors/src/process/labels.rs` and `actors/src/supervisor/labels.rs` have them:
//! a process looks at the labels of its tree before each decision, and the supervisor releases those
//! that a label held up.

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_kernel::labels::{LabelBook, LabelChange};
use dormouse_kernel::process::{Decision, Input, Signal};
use dormouse_proto::budget::{Amount, Budget};
use dormouse_proto::id::Pid;
use dormouse_proto::label::{Label, LabelBudget, LabelRecord};
use dormouse_proto::model::Usage;
use dormouse_proto::record::codec;

use crate::defect::Defect;
use crate::process::Running;
use crate::supervisor::table::Run;
use crate::world::World;

/// What all trees with a label may use of output tokens at first, and what a person adds.
const FIRST_LIMIT: u64 = 150;
const MORE: u64 = 120;

/// The labels of a world, as one kernel knows them.
#[derive(Default)]
pub(crate) struct Labels {
    pub(crate) book: LabelBook,
    /// The processes that labels hold up.
    held: BTreeSet<Pid>,
}

/// Labels that trees have.
fn all_labels() -> [Label; 3] {
    ["project=x", "user=anna", "user=ben"].map(|text| text.parse().expect("it is a label"))
}

impl World {
    /// Budgets, before anything runs. Only two of the labels have one.
    pub(crate) fn set_first_budgets(&mut self) {
        for label in all_labels().into_iter().skip(1) {
            self.set_label_limit(label, FIRST_LIMIT);
        }
    }

    /// The labels of a tree that is about to begin.
    pub(crate) fn pick_labels(&mut self) -> Arc<[Label]> {
        let [project, anna, ben] = all_labels();
        match self.random.below(10) {
            0..5 => Arc::default(),
            5..7 => Arc::new([anna]),
            7..9 => Arc::new([project, ben]),
            _ => Arc::new([project, anna]),
        }
    }

    pub(crate) fn labels_of(&self, pid: Pid) -> Arc<[Label]> {
        let root = self.supervisor.table.root(pid);
        let row = self.supervisor.table.row(root);
        row.map(|row| row.labels.clone()).unwrap_or_default()
    }

    fn set_label_limit(&mut self, label: Label, tokens: u64) {
        let limits = Budget::default().with(Amount::OutputTokens, Some(tokens));
        let budget = Some(LabelBudget::per_month(limits));
        let change = LabelChange::BudgetSet { label, budget };
        self.commit_labels(&[change]);
    }

    /// A person raises the budget of a label, mostly of one that is used up.
    pub(crate) fn raise_any_label(&mut self) {
        let statuses = self.labels.book.statuses(self.time_ms());
        let used_up: Vec<_> = statuses.iter().filter(|it| it.reached.is_some()).collect();
        let Some(status) = self.random.pick(&used_up) else {
            return;
        };
        let limit = status.budget.limits.output_tokens.unwrap_or(0);
        self.tally.count("budgets of labels raised");
        self.set_label_limit(status.label.clone(), limit + MORE);
        self.release_from_labels();
    }

    /// No label holds anything up any more.
    pub(crate) fn lift_labels(&mut self) {
        for label in all_labels().into_iter().skip(1) {
            self.set_label_limit(label, u64::MAX / 2);
        }
        self.release_from_labels();
    }

    /// Writes the records that changes lead to.
    pub(crate) fn commit_labels(&mut self, changes: &[LabelChange]) {
        let draft = self.labels.book.draft(changes, self.time_ms());
        for (number, record) in draft.records() {
            let record = codec::encode(record).expect("a record of this world is small");
            self.store.disk.labels.insert(number, record);
        }
        self.labels.book.finish(draft, changes);
    }

    /// A new kernel has what the store has.
    pub(crate) fn read_labels(&mut self) {
        let records = self.store.disk.labels.iter();
        let records = records.map(|(number, record)| {
            let record: LabelRecord = codec::decode(record).expect("it was encoded by us");
            (*number, record)
        });
        self.labels = Labels {
            book: LabelBook::new(records),
            held: BTreeSet::new(),
        };
    }

    /// Whether a label of the tree of a process is used up.
    pub(crate) fn is_exhausted(&self, pid: Pid) -> bool {
        let labels = self.labels_of(pid);
        self.labels
            .book
            .exhausted(&labels, self.time_ms())
            .is_some()
    }

    /// Whether a process has to be suspended before it decides on an input.
    pub(crate) fn must_suspend(&self, running: &Running, input: &Input) -> bool {
        self.defect != Some(Defect::LooksAtNoLabel)
            && !matches!(input, Input::Signal(Signal::Suspend))
            && !running.state.is_suspended()
            && running.state.exit().is_none()
            && self.is_exhausted(running.pid())
    }

    /// Counts what a decision uses before it is accepted.
    pub(crate) fn charge(&mut self, running: &Running, decision: &Decision) {
        let used = decision.state.usage().saturating_sub(running.state.usage());
        if used != Usage::default() {
            let labels = self.labels_of(running.pid());
            self.labels.book.charge(&labels, used);
        }
    }

    /// A label holds a process up. The budget may have been raised meanwhile.
    pub(crate) fn hold_by_label(&mut self, pid: Pid) {
        self.tally.count("processes held up by a label");
        self.labels.held.insert(pid);
    }

    /// Those whose labels have a budget left go on, unless something else holds them up.
    fn release_from_labels(&mut self) {
        for pid in self.labels.held.clone() {
            if self.is_exhausted(pid) {
                continue;
            }
            self.labels.held.remove(&pid);
            let is_unloaded = matches!(
                self.supervisor.table.run_of(pid),
                None | Some(Run::Held | Run::Ended)
            );
            if !is_unloaded && !self.supervisor.table.is_below_paused(pid) {
                self.deliver(pid, Input::Signal(Signal::Release));
            }
        }
    }
}
