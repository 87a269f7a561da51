//! The budgets that all trees with a label share, and what was used of each in its period.
//!
//! A [`LabelBook`] is the pure part of what a kernel knows of labels: what the store has, and the
//! usage that was decided and is not durable yet. Usage counts from the moment when it is decided,
//! so that no model call begins that an earlier one has used the budget up for. It enters the record
//! of a label in the commit of the facts that hold it, in the period of that commit.
//!
//! Kernels can share the budgets of labels. Each then counts its own usage as above, and compares it
//! with its [`LabelSlice`] of the budget, in place of the whole.
//!
//! Invariant kept here: LABEL-1, the record of a label has the sum of the usage that its trees
//! committed since `since_ms`, each call once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_proto::budget::{Amount, Budget, Paused};
use dormouse_proto::label::{Label, LabelBudget, LabelError, LabelRecord};
use dormouse_proto::model::Usage;

use crate::schedule::{UTC, period_of};

/// A change of the records of labels, to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelChange {
    /// A tree with these labels used this.
    Used {
        /// The labels.
        labels: Arc<[Label]>,
        /// The usage.
        usage: Usage,
    },
    /// The budget of a label was set, or removed.
    BudgetSet {
        /// The label.
        label: Label,
        /// The budget.
        budget: Option<LabelBudget>,
    },
}

/// A label whose budget is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExhaustedLabel {
    /// The label.
    pub label: Label,
    /// The amount that is used up, with the usage and the limit.
    pub reached: Paused,
    /// When the next period begins: milliseconds since the epoch, UTC.
    pub until_ms: u64,
    /// Whether there is more of the budget than this kernel may use now.
    pub rest: BudgetRest,
}

/// Whether a budget that a kernel may use no more of has something left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRest {
    /// The whole budget is used up.
    UsedUp,
    /// Only the slice of this kernel is used up: another slice may follow.
    Elsewhere,
}

/// What one kernel may use of the budget of a label, if several kernels share the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelSlice {
    /// The most that the trees of this kernel may use in the period. An amount of `None` is zero.
    pub limits: Budget,
    /// What was used elsewhere in the period, as far as it is known here.
    pub used_elsewhere: Usage,
}

/// A label with a budget, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelStatus {
    /// The label.
    pub label: Label,
    /// Its budget.
    pub budget: LabelBudget,
    /// Since when usage is counted: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When the next period begins: milliseconds since the epoch, UTC.
    pub until_ms: u64,
    /// The usage since then.
    pub spent: Usage,
    /// The amount that is used up.
    pub reached: Option<Paused>,
}

/// All labels that a kernel knows.
#[derive(Clone, Debug, Default)]
pub struct LabelBook {
    labels: BTreeMap<Label, CountedLabel>,
    /// The highest number of a record.
    last_number: u64,
}

/// What is known of one label.
#[derive(Clone, Debug)]
struct CountedLabel {
    /// The number of its record and the record, if it ever had a budget.
    stored: Option<(u64, LabelRecord)>,
    /// When the period of the record ends.
    until_ms: u64,
    /// Usage that was decided and is not committed yet.
    pending: Usage,
}

/// Records that a commit writes, by label, each with its number.
#[derive(Clone, Debug, Default)]
pub struct LabelDraft {
    records: BTreeMap<Label, (u64, LabelRecord)>,
}

impl LabelDraft {
    /// The records, each with its number.
    pub fn records(&self) -> impl Iterator<Item = (u64, &LabelRecord)> {
        self.records
            .values()
            .map(|(number, record)| (*number, record))
    }
}

impl LabelBook {
    /// The book of what a store has: records with their numbers.
    #[must_use]
    pub fn new(records: impl IntoIterator<Item = (u64, LabelRecord)>) -> Self {
        let mut book = Self::default();
        for (number, record) in records {
            book.last_number = book.last_number.max(number);
            book.store(number, record);
        }
        book
    }

    /// Takes over the records that a store has, after a commit whose end is not known.
    pub fn reload(&mut self, records: impl IntoIterator<Item = (u64, LabelRecord)>) {
        for (number, record) in records {
            self.store(number, record);
        }
    }

    fn store(&mut self, number: u64, record: LabelRecord) {
        let until_ms = period_end(&record);
        let counted = self.labels.entry(record.label.clone());
        let counted = counted.or_insert_with(CountedLabel::new);
        counted.until_ms = until_ms;
        counted.stored = Some((number, record));
    }

    /// Counts usage that was decided, before it is committed. O(log n) in the labels, each.
    pub fn charge(&mut self, labels: &[Label], usage: Usage) {
        for label in labels {
            let counted = self.labels.entry(label.clone());
            counted.or_insert_with(CountedLabel::new).pending += usage;
        }
    }

    /// The label among these whose budget is used up; of several, the one that stays so the longest.
    /// O(log n) in the labels, each.
    #[must_use]
    pub fn exhausted(&self, labels: &[Label], now_ms: u64) -> Option<ExhaustedLabel> {
        let exhausted = labels.iter().filter_map(|label| {
            let counted = self.labels.get(label)?;
            Some(ExhaustedLabel {
                label: label.clone(),
                reached: counted.reached(now_ms)?,
                until_ms: counted.until_ms,
                rest: BudgetRest::UsedUp,
            })
        });
        exhausted.max_by_key(|exhausted| exhausted.until_ms)
    }

    /// As [`exhausted`](Self::exhausted), where the kernel has slices of the budgets: `slice_of` says
    /// what it has of a label, in the period that ends at a time, and is told its own usage; `None` if
    /// the label has no budget. A label with a slice whose budget is not set in this kernel yet has
    /// used it up.
    #[must_use]
    pub fn exhausted_in_slices(
        &self,
        labels: &[Label],
        now_ms: u64,
        slice_of: &dyn Fn(&Label, u64, &Usage) -> Option<LabelSlice>,
    ) -> Option<ExhaustedLabel> {
        let exhausted = labels.iter().filter_map(|label| {
            let counted = self.labels.get(label);
            let budgeted = counted.and_then(|counted| {
                let (_, record) = counted.stored.as_ref()?;
                Some((counted, record, record.budget.as_ref()?))
            });
            match budgeted {
                Some((counted, record, budget)) => {
                    let spent = counted.spent(record, now_ms);
                    let until_ms = match now_ms < counted.until_ms {
                        true => counted.until_ms,
                        false => period(budget, now_ms).1,
                    };
                    let slice = slice_of(label, until_ms, &spent)?;
                    exhausted_slice(label, budget, (until_ms, &spent), &slice)
                }
                None => {
                    slice_of(label, 0, &Usage::default())?;
                    Some(not_set_yet(label))
                }
            }
        });
        exhausted.max_by_key(|exhausted| (exhausted.rest == BudgetRest::UsedUp, exhausted.until_ms))
    }

    /// The labels that have a budget, sorted.
    #[must_use]
    pub fn statuses(&self, now_ms: u64) -> Vec<LabelStatus> {
        let status = |(label, counted): (&Label, &CountedLabel)| {
            let (_, mut record) = counted.stored.clone()?;
            roll(&mut record, now_ms);
            Some(LabelStatus {
                label: label.clone(),
                until_ms: period_end(&record),
                since_ms: record.since_ms,
                spent: sum(record.spent, counted.pending),
                reached: counted.reached(now_ms),
                budget: record.budget?,
            })
        };
        self.labels.iter().filter_map(status).collect()
    }

    /// The records that these changes lead to, if they are committed at `at_ms`. Changes nothing.
    #[must_use]
    pub fn draft<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a LabelChange>,
        at_ms: u64,
    ) -> LabelDraft {
        let mut draft = LabelDraft::default();
        let mut last_number = self.last_number;
        for change in changes {
            match change {
                LabelChange::Used { labels, usage } => {
                    for label in &**labels {
                        if let Some((_, record)) = self.record_in(&mut draft, label)
                            && record.budget.is_some()
                        {
                            roll(record, at_ms);
                            record.spent += *usage;
                        }
                    }
                }
                LabelChange::BudgetSet { label, budget } => {
                    if self.record_in(&mut draft, label).is_none() {
                        last_number += 1;
                        let record = LabelRecord {
                            label: label.clone(),
                            budget: None,
                            since_ms: at_ms,
                            spent: Usage::default(),
                        };
                        draft.records.insert(label.clone(), (last_number, record));
                    }
                    if let Some((_, record)) = draft.records.get_mut(label) {
                        set_budget(record, budget.clone(), at_ms);
                    }
                }
            }
        }
        draft
            .records
            .retain(|label, drafted| self.stored(label) != Some(&*drafted));
        draft
    }

    /// The record of a label in a draft, taken over from the book; `None` if it has none.
    fn record_in<'d>(
        &self,
        draft: &'d mut LabelDraft,
        label: &Label,
    ) -> Option<&'d mut (u64, LabelRecord)> {
        if !draft.records.contains_key(label) {
            let stored = self.stored(label)?.clone();
            draft.records.insert(label.clone(), stored);
        }
        draft.records.get_mut(label)
    }

    fn stored(&self, label: &Label) -> Option<&(u64, LabelRecord)> {
        self.labels.get(label)?.stored.as_ref()
    }

    /// Takes over the records of a commit. `changes` are all those that it was asked for: what was
    /// charged for them is pending no more, whether they were committed or not.
    pub fn finish<'a>(
        &mut self,
        committed: LabelDraft,
        changes: impl IntoIterator<Item = &'a LabelChange>,
    ) {
        for (number, record) in committed.records.into_values() {
            self.last_number = self.last_number.max(number);
            self.store(number, record);
        }
        for change in changes {
            let LabelChange::Used { labels, usage } = change else {
                continue;
            };
            for label in &**labels {
                if let Some(counted) = self.labels.get_mut(label) {
                    counted.pending = counted.pending.saturating_sub(*usage);
                }
            }
        }
    }
}

impl CountedLabel {
    fn new() -> Self {
        Self {
            stored: None,
            until_ms: 0,
            pending: Usage::default(),
        }
    }

    /// The usage of the present period, by its record.
    fn spent(&self, record: &LabelRecord, now_ms: u64) -> Usage {
        match now_ms < self.until_ms {
            true => sum(record.spent, self.pending),
            false => self.pending,
        }
    }

    /// The first amount that is used up.
    fn reached(&self, now_ms: u64) -> Option<Paused> {
        let (_, record) = self.stored.as_ref()?;
        let limits = record.budget.as_ref()?.limits;
        let spent = self.spent(record, now_ms);
        let reached = |amount| {
            let paused = Paused {
                amount,
                used: used(&spent, amount),
                limit: limits.limit(amount)?,
            };
            (paused.used >= paused.limit).then_some(paused)
        };
        LabelBudget::AMOUNTS.into_iter().find_map(reached)
    }
}

/// Some time at which a zone is looked at: in 1970, and not on the first day of the epoch, which
/// begins before the epoch in half of all zones.
const ANY_TIME_MS: u64 = 60 * 24 * 60 * 60 * 1_000;

/// Checks a budget before it is set.
///
/// # Errors
/// [`LabelError::NoLimit`], [`LabelError::Amount`], [`LabelError::Zone`].
pub fn check_label_budget(budget: &LabelBudget) -> Result<(), LabelError> {
    let valid = BTreeSet::from(LabelBudget::AMOUNTS);
    let mut limited = budget.limits.limited().map(|(amount, _)| amount);
    if let Some(amount) = limited.find(|amount| !valid.contains(amount)) {
        return Err(LabelError::Amount(amount));
    }
    if budget.limits.limited().next().is_none() {
        return Err(LabelError::NoLimit);
    }
    match period_of(budget.per, &budget.zone, ANY_TIME_MS) {
        Ok(_) => Ok(()),
        Err(_) => Err(LabelError::Zone(budget.zone.chars().take(64).collect())),
    }
}

/// Sets the budget. The count goes on if the periods stay as they are, and begins at zero otherwise.
fn set_budget(record: &mut LabelRecord, budget: Option<LabelBudget>, at_ms: u64) {
    roll(record, at_ms);
    let periods = |budget: &LabelBudget| (budget.per, budget.zone.clone());
    let before = record.budget.as_ref().map(periods);
    if before.is_none() || before != budget.as_ref().map(periods) {
        record.since_ms = at_ms;
        record.spent = Usage::default();
    }
    record.budget = budget;
}

/// Begins a new period if that of the record is over. A clock that is set back begins none.
fn roll(record: &mut LabelRecord, now_ms: u64) {
    let Some(budget) = &record.budget else { return };
    let (begin_ms, _) = period(budget, now_ms);
    if begin_ms > record.since_ms {
        record.since_ms = begin_ms;
        record.spent = Usage::default();
    }
}

/// When the period of a record ends; 0 for a label without a budget.
fn period_end(record: &LabelRecord) -> u64 {
    let budget = record.budget.as_ref();
    budget.map_or(0, |budget| period(budget, record.since_ms).1)
}

/// The zone was known when the budget was set. If this version knows it no more, periods are those of
/// UTC; and beyond the calendar there is one period for ever.
fn period(budget: &LabelBudget, at_ms: u64) -> (u64, u64) {
    period_of(budget.per, &budget.zone, at_ms)
        .or_else(|_| period_of(budget.per, UTC, at_ms))
        .unwrap_or((0, u64::MAX))
}

/// The first amount of a slice that is used up.
fn exhausted_slice(
    label: &Label,
    budget: &LabelBudget,
    (until_ms, spent): (u64, &Usage),
    slice: &LabelSlice,
) -> Option<ExhaustedLabel> {
    let reached = LabelBudget::AMOUNTS.into_iter().find_map(|amount| {
        let limit = budget.limits.limit(amount)?;
        let own = used(spent, amount);
        let used = own.saturating_add(used(&slice.used_elsewhere, amount));
        let is_reached = own >= slice.limits.limit(amount).unwrap_or(0).min(limit);
        is_reached.then_some(Paused {
            amount,
            used,
            limit,
        })
    })?;
    let rest = match reached.used >= reached.limit {
        true => BudgetRest::UsedUp,
        false => BudgetRest::Elsewhere,
    };
    Some(ExhaustedLabel {
        label: label.clone(),
        reached,
        until_ms,
        rest,
    })
}

/// A label whose budget this kernel does not count for yet. How much that is, it does not know.
fn not_set_yet(label: &Label) -> ExhaustedLabel {
    ExhaustedLabel {
        label: label.clone(),
        reached: Paused {
            amount: Amount::Cost,
            used: 0,
            limit: 0,
        },
        until_ms: u64::MAX,
        rest: BudgetRest::Elsewhere,
    }
}

fn used(usage: &Usage, amount: Amount) -> u64 {
    match amount {
        Amount::InputTokens => usage.all_input_tokens(),
        Amount::OutputTokens => usage.output_tokens,
        Amount::Cost => usage.cost_nanos,
        Amount::WallTime | Amount::Processes | Amount::Depth | Amount::ResidentBytes => 0,
    }
}

fn sum(mut usage: Usage, more: Usage) -> Usage {
    usage += more;
    usage
}

#[cfg(test)]
mod tests;
