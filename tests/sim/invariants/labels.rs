//! LABEL-1: the trees with a label stay within its budget, except for the calls in flight, and the
//! record of the label has the sum of what their journals used, each call once.

use std::collections::BTreeMap;

use dormouse_kernel::process::{Fact, State};
use dormouse_proto::id::Pid;
use dormouse_proto::label::{Label, LabelRecord};
use dormouse_proto::model::Usage;
use dormouse_proto::record::{CallFact, codec};

use super::{Held, ensure};
use crate::process::Running;
use crate::supervisor::table::Run;
use crate::world::World;

/// The output tokens of all trees with a label, beside the book of the kernel.
pub(crate) type LabelUse = BTreeMap<Label, u64>;

impl World {
    /// `running` is the process after a step from `before` with these facts.
    pub(super) fn label_1(&mut self, running: &Running, before: &State, facts: &[Fact]) -> Held {
        let pid = running.pid();
        let used = running.state.usage().saturating_sub(before.usage());
        let labels = self.labels_of(pid);
        for label in labels.iter() {
            *self.label_use.entry(label.clone()).or_default() += used.output_tokens;
        }
        let asks = |fact: &Fact| matches!(fact, Fact::Call(CallFact::ModelCalled { .. }));
        if !facts.iter().any(asks) {
            return Ok(());
        }
        for status in self.labels.book.statuses(self.time_ms()) {
            let used = self.label_use.get(&status.label).copied().unwrap_or(0);
            let limit = status.budget.limits.output_tokens.unwrap_or(u64::MAX);
            let is_free = !labels.contains(&status.label) || used < limit;
            ensure(is_free, "LABEL-1", || {
                format!(
                    "{pid} asks its model, and {} has used {used} of {limit}",
                    status.label
                )
            })?;
        }
        Ok(())
    }

    /// What the disk says of the labels is what its journals say: nothing is being written.
    pub(crate) fn label_records(&mut self) -> Held {
        let mut used = LabelUse::new();
        for pid in self.store.disk.journals.keys().copied().collect::<Vec<_>>() {
            let labels = self.labels_on_disk(pid);
            if labels.is_empty() {
                continue;
            }
            let of_process = self.store.disk.used_since_birth(&self.programs, pid)?;
            for label in labels.iter() {
                *used.entry(label.clone()).or_default() += of_process.output_tokens;
            }
        }
        for record in self.store.disk.labels.values() {
            let record: LabelRecord = codec::decode(record).expect("it was encoded by us");
            let expected = used.get(&record.label).copied().unwrap_or(0);
            let Usage { output_tokens, .. } = record.spent;
            ensure(output_tokens == expected, "LABEL-1", || {
                format!(
                    "{} has used {expected}, and its record says {output_tokens}",
                    record.label
                )
            })?;
        }
        self.label_use = used;
        Ok(())
    }

    /// At rest, nobody is suspended for nothing.
    pub(crate) fn label_holds(&self) -> Held {
        for running in self.running.values() {
            let pid = running.pid();
            let table = &self.supervisor.table;
            let is_running = table.run_of(pid) == Some(Run::Running(running.life));
            let is_held = table.is_below_paused(pid) || self.is_exhausted(pid);
            let is_fine = !is_running || is_held || !running.state.is_suspended();
            ensure(is_fine, "PROGRESS", || {
                format!("{pid} is suspended, and nothing holds it up")
            })?;
        }
        Ok(())
    }

    fn labels_on_disk(&self, pid: Pid) -> std::sync::Arc<[Label]> {
        let journals = &self.store.disk.journals;
        let parent = |pid: &Pid| journals.get(pid).and_then(|journal| journal.row.parent);
        let root = std::iter::successors(Some(pid), parent).last();
        let row = root.and_then(|root| journals.get(&root));
        row.map(|journal| journal.row.labels.clone())
            .unwrap_or_default()
    }
}
