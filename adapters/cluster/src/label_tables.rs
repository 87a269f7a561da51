//! The tables of the budgets that trees of all shards share. The methods block.

use std::collections::BTreeMap;

use dormouse::label::{Label, LabelBudget, Period};
use dormouse::model::Usage;
use dormouse::ports::StoreError;
use dormouse::{Amount, Budget};
use dormouse_postgres::{Row, ShardId};

use crate::tables::{Tables, parameters};

/// Amounts of a label, in the order of [`LabelBudget::AMOUNTS`].
pub(crate) type Amounts = [u64; 3];

/// The most of an amount that is written: more than any budget can have.
const MAX_AMOUNT: u64 = 1 << 60;

/// A budget that the trees of all shards share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedBudget {
    /// A budget with another generation counts from zero.
    pub(crate) generation: i64,
    pub(crate) budget: LabelBudget,
}

/// How a slice changes when its usage is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceChange {
    /// It grows, if there is room.
    More,
    /// It stays, unless the limit is lower now.
    Keep,
    /// What is not used is given back.
    Return,
}

/// What a shard has used of a label in a period.
#[derive(Clone, Debug)]
pub(crate) struct UsageReport {
    pub(crate) label: Label,
    pub(crate) shard: ShardId,
    pub(crate) epoch: u64,
    pub(crate) generation: i64,
    pub(crate) until_ms: u64,
    pub(crate) used: Amounts,
    pub(crate) change: SliceChange,
}

/// The answer to a report.
#[derive(Clone, Debug)]
pub(crate) struct GrantedSlice {
    pub(crate) label: Label,
    pub(crate) shard: ShardId,
    /// What the shard may use in the period, in all.
    pub(crate) granted: Amounts,
    /// What other shards have used.
    pub(crate) elsewhere: Amounts,
}

/// The sums over all shards for one label, in its latest period.
#[derive(Clone, Debug)]
pub(crate) struct SliceSums {
    pub(crate) until_ms: u64,
    pub(crate) used: Amounts,
    pub(crate) granted: Amounts,
}

/// The amounts of a usage.
pub(crate) fn amounts_of(usage: &Usage) -> Amounts {
    [
        usage.all_input_tokens(),
        usage.output_tokens,
        usage.cost_nanos,
    ]
}

impl Tables {
    /// Sets the budget of a label. What was counted stays if the periods do.
    pub(crate) fn set_label_budget(
        &self,
        label: &Label,
        budget: &LabelBudget,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO {schema}.label_budget AS b (label, period, zone, limits) VALUES ($1, $2, $3, $4)
            ON CONFLICT (label) DO UPDATE SET
                generation = CASE WHEN b.period = excluded.period AND b.zone = excluded.zone
                    THEN b.generation ELSE excluded.generation END,
                period = excluded.period, zone = excluded.zone, limits = excluded.limits";
        let limit = |amount| budget.limits.limit(amount).map(to_sql);
        let limits: Vec<Option<i64>> = LabelBudget::AMOUNTS.into_iter().map(limit).collect();
        let (period, zone) = (budget.per.word().to_owned(), budget.zone.to_string());
        let parameters = parameters![label.to_string(), period, zone, limits];
        self.0
            .query("set the budget of a label", sql, parameters)
            .map(drop)
    }

    /// Removes the budget of a label, and what was counted.
    pub(crate) fn remove_label_budget(&self, label: &Label) -> Result<(), StoreError> {
        let sql = "WITH removed AS (DELETE FROM {schema}.label_budget WHERE label = $1)
            DELETE FROM {schema}.label_slice WHERE label = $1";
        let parameters = parameters![label.to_string()];
        self.0
            .query("remove the budget of a label", sql, parameters)
            .map(drop)
    }

    /// All budgets of labels.
    pub(crate) fn label_budgets(&self) -> Result<BTreeMap<Label, SharedBudget>, StoreError> {
        let doing = "read the budgets of labels";
        let sql = "SELECT label, generation, period, zone, limits FROM {schema}.label_budget";
        let rows = self.0.query(doing, sql, vec![])?;
        let budget = |row: &Row| {
            let per: Period = row.get::<_, &str>(2).parse().map_err(damaged)?;
            let limits: Vec<Option<i64>> = row.get(4);
            let mut budget = Budget::default();
            for (amount, limit) in LabelBudget::AMOUNTS.into_iter().zip(limits) {
                budget = budget.with(amount, limit.map(i64::unsigned_abs));
            }
            let shared = SharedBudget {
                generation: row.get(1),
                budget: LabelBudget {
                    per,
                    zone: row.get::<_, &str>(3).into(),
                    limits: budget,
                },
            };
            Ok((label_of(row)?, shared))
        };
        rows.iter().map(budget).collect()
    }

    /// The generations of the budgets that a shard counts for.
    pub(crate) fn label_generations(
        &self,
        shard: ShardId,
    ) -> Result<BTreeMap<Label, i64>, StoreError> {
        let doing = "read the slices of a shard";
        let sql = "SELECT label, generation FROM {schema}.label_slice WHERE shard = $1";
        let rows = self.0.query(doing, sql, parameters![shard.0 as i32])?;
        rows.iter()
            .map(|row| Ok((label_of(row)?, row.get(1))))
            .collect()
    }

    /// Reports usage, and changes slices. Leaves out the reports of which another budget, or a
    /// later owner of the shard, made nothing. One round trip.
    pub(crate) fn share_labels(
        &self,
        mut reports: Vec<UsageReport>,
    ) -> Result<Vec<GrantedSlice>, StoreError> {
        // Labels are locked in one order.
        reports.sort_by(|a, b| (&a.label, a.shard.0).cmp(&(&b.label, b.shard.0)));
        let sql = "SELECT r.label, r.shard, s.out_granted, s.out_elsewhere
            FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[])
                AS r (label, shard, epoch, generation, until_ms, input_tokens, output_tokens, cost, change),
            LATERAL {schema}.share_label(r.label, r.shard, r.epoch, r.generation, r.until_ms,
                ARRAY[r.input_tokens, r.output_tokens, r.cost], r.change) AS s";
        let numbers =
            |of: &dyn Fn(&UsageReport) -> i64| reports.iter().map(of).collect::<Vec<i64>>();
        let change = |report: &UsageReport| report.change.word().to_owned();
        let parameters = parameters![
            reports
                .iter()
                .map(|report| report.label.to_string())
                .collect::<Vec<_>>(),
            reports
                .iter()
                .map(|report| report.shard.0 as i32)
                .collect::<Vec<_>>(),
            numbers(&|report| report.epoch as i64),
            numbers(&|report| report.generation),
            numbers(&|report| i64::try_from(report.until_ms).unwrap_or(i64::MAX)),
            numbers(&|report| to_sql(report.used[0])),
            numbers(&|report| to_sql(report.used[1])),
            numbers(&|report| to_sql(report.used[2])),
            reports.iter().map(change).collect::<Vec<_>>(),
        ];
        let rows = self
            .0
            .query("share the budgets of labels", sql, parameters)?;
        let granted = |row: &Row| {
            Ok(GrantedSlice {
                label: label_of(row)?,
                shard: ShardId(row.get::<_, i32>(1).unsigned_abs()),
                granted: amounts(row, 2),
                elsewhere: amounts(row, 3),
            })
        };
        rows.iter().map(granted).collect()
    }

    /// What all shards have used and may use of each label, in its latest period.
    pub(crate) fn label_sums(&self) -> Result<BTreeMap<Label, SliceSums>, StoreError> {
        let sql = "SELECT s.label, s.until_ms,
                ARRAY[sum(s.used[1]), sum(s.used[2]), sum(s.used[3])]::bigint[],
                ARRAY[sum(s.granted[1]), sum(s.granted[2]), sum(s.granted[3])]::bigint[]
            FROM {schema}.label_slice AS s JOIN {schema}.label_budget AS b USING (label, generation)
            WHERE s.until_ms = (SELECT max(l.until_ms) FROM {schema}.label_slice AS l
                WHERE l.label = s.label AND l.generation = s.generation)
            GROUP BY s.label, s.until_ms";
        let rows = self.0.query("sum the usage of labels", sql, vec![])?;
        let sums = |row: &Row| {
            let sums = SliceSums {
                until_ms: row.get::<_, i64>(1).unsigned_abs(),
                used: amounts(row, 2),
                granted: amounts(row, 3),
            };
            Ok((label_of(row)?, sums))
        };
        rows.iter().map(sums).collect()
    }
}

impl SliceChange {
    fn word(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Keep => "keep",
            Self::Return => "return",
        }
    }
}

/// The amounts of a budget that its slice limits, each with its place in [`Amounts`].
pub(crate) fn limited(budget: &Budget) -> impl Iterator<Item = (usize, Amount, u64)> + '_ {
    let amounts = LabelBudget::AMOUNTS.into_iter().enumerate();
    amounts.filter_map(|(at, amount)| Some((at, amount, budget.limit(amount)?)))
}

fn to_sql(amount: u64) -> i64 {
    amount.min(MAX_AMOUNT) as i64
}

fn amounts(row: &Row, column: usize) -> Amounts {
    let values: Vec<i64> = row.get(column);
    let mut values = values.into_iter().map(i64::unsigned_abs);
    std::array::from_fn(|_| values.next().unwrap_or_default())
}

fn label_of(row: &Row) -> Result<Label, StoreError> {
    row.get::<_, &str>(0).parse().map_err(damaged)
}

fn damaged(error: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged {
        what: format!("a budget of a label cannot be read: {error}"),
    }
}
