//! The slices that one shard has of the budgets of labels, in memory.
//!
//! Processes look at a slice before each decision, and never wait for the database. Where it is
//! nearly used up, or missing, that wakes the node (`label_sharing.rs`), which asks for more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use dormouse::Budget;
use dormouse::label::Label;
use dormouse::model::Usage;
use dormouse::ports::{LabelSlice, LabelSlices};
use dormouse_postgres::ShardId;
use tokio::sync::Notify;

use crate::label_tables::{Amounts, GrantedSlice, SharedBudget, SliceChange, UsageReport, limited};

/// After how long without usage a shard gives back what it has not used.
pub(crate) const RETURNED_AFTER: Duration = Duration::from_secs(3);

/// All budgets, as the node read them last.
pub(crate) type SharedBudgets = Arc<RwLock<BTreeMap<Label, SharedBudget>>>;

/// The slices of a shard, under one claim.
pub(crate) struct ShardSlices {
    pub(crate) shard: ShardId,
    pub(crate) epoch: u64,
    budgets: SharedBudgets,
    /// Wakes the node when a slice is to grow.
    wake: Arc<Notify>,
    slices: Mutex<BTreeMap<Label, Slice>>,
}

/// A slice of one budget.
#[derive(Clone, Debug)]
struct Slice {
    /// The generation of the budget that the kernel counts for; `None` before it has it.
    generation: Option<i64>,
    /// The period: when it ends.
    until_ms: u64,
    granted: Amounts,
    elsewhere: Amounts,
    /// What the kernel has used, by what it said last.
    used: Amounts,
    /// What the database knows; `None` if it was not told of this period yet.
    reported: Option<Amounts>,
    /// From which usage on the slice is to grow.
    grows_from: Amounts,
    is_wanted: bool,
    /// When usage was last seen.
    used_at: Instant,
    /// The limits that the slice was granted under.
    limits: Budget,
}

impl Slice {
    fn new() -> Self {
        Self {
            generation: None,
            until_ms: 0,
            granted: [0; 3],
            elsewhere: [0; 3],
            used: [0; 3],
            reported: None,
            grows_from: [0; 3],
            is_wanted: false,
            used_at: Instant::now(),
            limits: Budget::default(),
        }
    }

    /// Takes over what the kernel has used.
    fn observe(&mut self, until_ms: u64, used: Amounts) {
        if self.until_ms != until_ms {
            *self = Self {
                generation: self.generation,
                until_ms,
                ..Self::new()
            };
        }
        if self.used != used {
            self.used = used;
            self.used_at = Instant::now();
        }
    }

    /// Whether the slice is to grow before more is begun than it has.
    fn is_low(&self, budget: &Budget) -> bool {
        limited(budget).any(|(at, _, _)| self.used[at] >= self.grows_from[at])
    }

    fn as_seen(&self, budget: &Budget) -> LabelSlice {
        let mut limits = Budget::default();
        for (at, amount, _) in limited(budget) {
            limits = limits.with(amount, Some(self.granted[at]));
        }
        let [input_tokens, output_tokens, cost_nanos] = self.elsewhere;
        LabelSlice {
            limits,
            used_elsewhere: Usage {
                input_tokens,
                output_tokens,
                cost_nanos,
                ..Usage::default()
            },
        }
    }

    /// What is to be reported, if anything is. What is given back may no longer be used from here
    /// on.
    fn report(&mut self, budget: &SharedBudget) -> Option<SliceChange> {
        if self.generation != Some(budget.generation) {
            return None;
        }
        let is_unused =
            limited(&budget.budget.limits).any(|(at, _, _)| self.granted[at] > self.used[at]);
        let change = if self.reported.is_none() {
            // What an earlier owner had and has not used comes back.
            SliceChange::Return
        } else if self.is_wanted {
            SliceChange::More
        } else if is_unused && self.used_at.elapsed() > RETURNED_AFTER {
            SliceChange::Return
        } else if self.reported != Some(self.used) || self.limits != budget.budget.limits {
            SliceChange::Keep
        } else {
            return None;
        };
        if change == SliceChange::Return {
            self.granted = self.used;
            self.grows_from = [0; 3];
        }
        Some(change)
    }
}

impl ShardSlices {
    pub(crate) fn new(
        shard: ShardId,
        epoch: u64,
        budgets: SharedBudgets,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            shard,
            epoch,
            budgets,
            wake,
            slices: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Label, Slice>> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self, label: &Label) -> Option<SharedBudget> {
        let budgets = self.budgets.read().unwrap_or_else(PoisonError::into_inner);
        budgets.get(label).cloned()
    }

    /// Takes over what the kernel says of a label that it counts for.
    pub(crate) fn observe(&self, label: &Label, until_ms: u64, used: Amounts) {
        let mut slices = self.lock();
        let slice = slices.entry(label.clone()).or_insert_with(Slice::new);
        slice.observe(until_ms, used);
    }

    /// The labels that this shard has to do with, each with the generation that the kernel counts
    /// for.
    pub(crate) fn generations(&self) -> Vec<(Label, Option<i64>)> {
        let slices = self.lock();
        let generation = |(label, slice): (&Label, &Slice)| (label.clone(), slice.generation);
        slices.iter().map(generation).collect()
    }

    /// From now on the kernel counts for this generation of the budget.
    pub(crate) fn set_generation(&self, label: &Label, generation: i64) {
        if let Some(slice) = self.lock().get_mut(label) {
            *slice = Slice {
                generation: Some(generation),
                is_wanted: slice.is_wanted,
                ..Slice::new()
            };
        }
    }

    /// The budget is no more.
    pub(crate) fn remove(&self, label: &Label) {
        self.lock().remove(label);
    }

    /// What is to be reported to the database now.
    pub(crate) fn reports(&self) -> Vec<UsageReport> {
        let mut slices = self.lock();
        let reports = slices.iter_mut().filter_map(|(label, slice)| {
            let budget = self.budget(label)?;
            let change = slice.report(&budget)?;
            Some(self.report_of(label, slice, change))
        });
        reports.collect()
    }

    /// Gives back all that is not used. Nothing may be begun any more.
    pub(crate) fn final_reports(&self) -> Vec<UsageReport> {
        let slices = self.lock();
        let known = slices.iter().filter(|(_, slice)| slice.until_ms > 0);
        let reports = known.map(|(label, slice)| self.report_of(label, slice, SliceChange::Return));
        reports.collect()
    }

    fn report_of(&self, label: &Label, slice: &Slice, change: SliceChange) -> UsageReport {
        UsageReport {
            label: label.clone(),
            shard: self.shard,
            epoch: self.epoch,
            generation: slice.generation.unwrap_or_default(),
            until_ms: slice.until_ms,
            used: slice.used,
            change,
        }
    }

    /// Takes over the answer to a report. Returns whether the kernel is to look again: there is
    /// more to use, or nothing anywhere.
    pub(crate) fn apply(&self, report: &UsageReport, answer: &GrantedSlice) -> bool {
        let Some(budget) = self.budget(&report.label) else {
            return false;
        };
        let mut slices = self.lock();
        let Some(slice) = slices.get_mut(&report.label) else {
            return false;
        };
        if slice.until_ms != report.until_ms || slice.generation != Some(report.generation) {
            return false;
        }
        let before = (slice.granted, slice.elsewhere);
        slice.granted = answer.granted;
        slice.elsewhere = answer.elsewhere;
        slice.reported = Some(report.used);
        slice.limits = budget.budget.limits;
        for at in 0..3 {
            // A slice grows when half of it is used up, so that processes seldom wait for it.
            let room = answer.granted[at].saturating_sub(report.used[at]);
            slice.grows_from[at] = answer.granted[at] - room / 2;
        }
        if report.change == SliceChange::More {
            // Denied, it is asked for again with the next round.
            slice.is_wanted = limited(&budget.budget.limits)
                .any(|(at, _, _)| answer.granted[at] <= slice.used[at]);
        }
        before != (slice.granted, slice.elsewhere)
    }
}

impl LabelSlices for ShardSlices {
    fn slice(&self, label: &Label, until_ms: u64, used: &Usage) -> Option<LabelSlice> {
        let budget = self.budget(label)?;
        let limits = budget.budget.limits;
        let mut slices = self.lock();
        let slice = slices.entry(label.clone()).or_insert_with(Slice::new);
        if slice.generation != Some(budget.generation) {
            // The kernel does not count for it yet.
            let is_new = !std::mem::replace(&mut slice.is_wanted, true);
            if is_new {
                self.wake.notify_one();
            }
            return Some(LabelSlice::default());
        }
        slice.observe(until_ms, crate::label_tables::amounts_of(used));
        if slice.is_low(&limits) && !std::mem::replace(&mut slice.is_wanted, true) {
            self.wake.notify_one();
        }
        Some(slice.as_seen(&limits))
    }
}

#[cfg(test)]
mod tests {
    use dormouse::Amount;
    use dormouse::label::LabelBudget;

    use super::*;

    fn slices(limit: u64) -> (ShardSlices, Label) {
        let label: Label = "user=anna".parse().unwrap();
        let limits = Budget::default().with(Amount::OutputTokens, Some(limit));
        let shared = SharedBudget {
            generation: 1,
            budget: LabelBudget::per_day(limits),
        };
        let budgets = BTreeMap::from([(label.clone(), shared)]);
        let budgets = Arc::new(RwLock::new(budgets));
        let slices = ShardSlices::new(ShardId(3), 7, budgets, Arc::default());
        (slices, label)
    }

    fn output(tokens: u64) -> Usage {
        Usage {
            output_tokens: tokens,
            ..Usage::default()
        }
    }

    fn granted(slices: &ShardSlices, granted: u64) -> bool {
        let reports = slices.reports();
        let report = reports.first().unwrap();
        let answer = GrantedSlice {
            label: report.label.clone(),
            shard: report.shard,
            granted: [report.used[0], granted, report.used[2]],
            elsewhere: [0; 3],
        };
        slices.apply(report, &answer)
    }

    #[test]
    fn a_slice_is_zero_before_it_is_granted_and_grows_before_it_is_used_up() {
        let (slices, label) = slices(100);
        let limit = |used| {
            let slice = slices.slice(&label, 9, &output(used)).unwrap();
            slice.limits.output_tokens.unwrap_or_default()
        };
        assert_eq!(limit(0), 0);
        assert!(slices.reports().is_empty(), "the kernel does not count yet");
        slices.set_generation(&label, 1);
        assert_eq!(limit(4), 0);
        assert_eq!(slices.reports()[0].change, SliceChange::Return);
        granted(&slices, 4);
        assert_eq!(slices.reports()[0].change, SliceChange::More);
        assert!(granted(&slices, 24));
        assert_eq!(limit(13), 24);
        assert_eq!(slices.reports()[0].change, SliceChange::Keep);
        granted(&slices, 24);
        assert!(slices.reports().is_empty(), "nothing has changed");
        assert_eq!(limit(20), 24);
        assert_eq!(slices.reports()[0].change, SliceChange::More);
        // Another period has a slice of its own.
        let next_day = slices.slice(&label, 10, &output(0)).unwrap();
        assert_eq!(next_day.limits.output_tokens, Some(0));
    }

    #[test]
    fn a_label_without_a_budget_is_not_limited() {
        let (slices, _) = slices(100);
        let other = "user=ben".parse().unwrap();
        assert_eq!(slices.slice(&other, 9, &output(5)), None);
    }
}
