//! The labels of process trees, shared by all actors of a kernel. `dormouse_kernel::labels` decides;
//! this module adds the lock, and the encoding of the records.
//!
//! A process actor looks at the labels of its tree before each decision, and counts what a decision
//! used at once. The checkpoint actor writes the records in the commit of the facts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_kernel::labels::{ExhaustedLabel, LabelBook, LabelChange, LabelDraft, LabelStatus};
use dormouse_proto::label::{Label, LabelRecord};
use dormouse_proto::model::Usage;
use dormouse_proto::record::codec;

use crate::clock::now_ms;
use crate::ports::{LabelSlices, Store, StoreError, WriteOp};

/// The labels of one kernel. The lock is held for one operation only.
#[derive(Default)]
pub(crate) struct Labels {
    book: Mutex<LabelBook>,
    /// What this kernel may use of each budget, if it shares them with other kernels.
    slices: Option<Arc<dyn LabelSlices>>,
}

impl Labels {
    /// The labels that a store has.
    ///
    /// # Errors
    /// Those of [`Store::labels`]; [`StoreError::Damaged`] for a record that does not decode.
    pub(crate) fn read(store: &dyn Store) -> Result<Self, StoreError> {
        Ok(Self {
            book: Mutex::new(LabelBook::new(read_records(store)?)),
            slices: None,
        })
    }

    /// The labels of a kernel that shares their budgets with others, if it has slices.
    pub(crate) fn with_slices(self, slices: Option<Arc<dyn LabelSlices>>) -> Self {
        Self { slices, ..self }
    }

    /// Reads the records again after a commit that failed and may have been done. If that fails too,
    /// the store is unusable.
    pub(crate) fn reload(&self, store: &dyn Store) {
        if let Ok(records) = read_records(store) {
            self.lock().reload(records);
        }
    }

    fn lock(&self) -> MutexGuard<'_, LabelBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The label among these whose budget is used up.
    pub(crate) fn exhausted(&self, labels: &[Label]) -> Option<ExhaustedLabel> {
        if labels.is_empty() {
            return None;
        }
        let book = self.lock();
        match &self.slices {
            None => book.exhausted(labels, now_ms()),
            Some(slices) => {
                let slice_of =
                    |label: &Label, until_ms, used: &Usage| slices.slice(label, until_ms, used);
                book.exhausted_in_slices(labels, now_ms(), &slice_of)
            }
        }
    }

    /// Counts usage that was decided.
    pub(crate) fn charge(&self, labels: &[Label], usage: Usage) {
        self.lock().charge(labels, usage);
    }

    pub(crate) fn statuses(&self) -> Vec<LabelStatus> {
        self.lock().statuses(now_ms())
    }

    /// The records that a commit of these changes writes.
    pub(crate) fn draft<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a LabelChange>,
        at_ms: u64,
    ) -> LabelDraft {
        self.lock().draft(changes, at_ms)
    }

    /// Takes over the records of a commit, if there was one.
    pub(crate) fn finish<'a>(
        &self,
        committed: LabelDraft,
        changes: impl IntoIterator<Item = &'a LabelChange>,
    ) {
        self.lock().finish(committed, changes);
    }

    /// Takes over a change in a kernel without a store.
    pub(crate) fn apply(&self, change: &LabelChange) {
        let mut book = self.lock();
        let draft = book.draft([change], now_ms());
        book.finish(draft, [change]);
    }
}

fn read_records(store: &dyn Store) -> Result<Vec<(u64, LabelRecord)>, StoreError> {
    let decode = |(number, record): (u64, Vec<u8>)| {
        let record = codec::decode(&record).map_err(|error| StoreError::Damaged {
            what: format!("the record of label {number} does not decode: {error}"),
        })?;
        Ok((number, record))
    };
    store.labels()?.into_iter().map(decode).collect()
}

/// The operations that write the records of a draft.
///
/// # Errors
/// [`StoreError::Refused`] if a record cannot be encoded.
pub(crate) fn label_ops(draft: &LabelDraft) -> Result<Vec<WriteOp>, StoreError> {
    let to_op = |(number, record)| {
        let record = codec::encode(record).map_err(|error| StoreError::Refused {
            why: error.to_string(),
        })?;
        Ok(WriteOp::Label { number, record })
    };
    draft.records().map(to_op).collect()
}
