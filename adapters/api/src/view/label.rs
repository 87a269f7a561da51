//! Budgets of labels.

use std::collections::BTreeMap;

use dormouse_kernel::labels::LabelStatus;
use dormouse_kernel::schedule::format_time;
use dormouse_proto::budget::Amount;
use dormouse_proto::label::Label;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A label with a budget, as `dormouse label list --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelView {
    /// The label, such as `user=anna`.
    pub label: String,
    /// How long the budget lasts: `day` or `month`.
    pub per: String,
    /// The time zone in which a period begins.
    pub zone: String,
    /// The limits, by amount.
    pub limits: BTreeMap<String, UsedOf>,
    /// Since when usage is counted: milliseconds since the epoch, UTC.
    pub since_ms: u64,
    /// When the next period begins: milliseconds since the epoch, UTC.
    pub until_ms: u64,
    /// When the next period begins, as a date and a time, UTC.
    pub until: String,
    /// Whether a limit is reached.
    pub is_used_up: bool,
}

/// What was used of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedOf {
    /// What was used.
    pub used: String,
    /// The limit.
    pub limit: String,
}

impl From<&LabelStatus> for LabelView {
    fn from(status: &LabelStatus) -> Self {
        let limits = status.budget.limits.limited().map(|(amount, limit)| {
            let shown = UsedOf {
                used: amount.show(used(status, amount)),
                limit: amount.show(limit),
            };
            (amount.word().to_owned(), shown)
        });
        Self {
            label: status.label.to_string(),
            per: status.budget.per.word().to_owned(),
            zone: status.budget.zone.to_string(),
            limits: limits.collect(),
            since_ms: status.since_ms,
            until_ms: status.until_ms,
            until: format_time(status.until_ms),
            is_used_up: status.reached.is_some(),
        }
    }
}

/// What was used of an amount.
fn used(status: &LabelStatus, amount: Amount) -> u64 {
    match amount {
        Amount::InputTokens => status.spent.all_input_tokens(),
        Amount::OutputTokens => status.spent.output_tokens,
        _ => status.spent.cost_nanos,
    }
}

/// What was used of each limit: `cost 1.02 of 5, output_tokens 64 of 50`.
#[must_use]
pub fn describe_usage(status: &LabelStatus) -> String {
    let limits = status.budget.limits.limited();
    let parts = limits.map(|(amount, limit)| {
        let (used, limit) = (amount.show(used(status, amount)), amount.show(limit));
        format!("{} {used} of {limit}", amount.word())
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The label of a tree that is used up, if there is one; of several, the one that stays so longest.
#[must_use]
pub fn find_used_up(statuses: &[LabelStatus], labels: &[Label]) -> Option<LabelStatus> {
    let of_tree = |status: &&LabelStatus| labels.contains(&status.label);
    let used_up = statuses.iter().filter(of_tree);
    let used_up = used_up.filter(|status| status.reached.is_some());
    used_up.max_by_key(|status| status.until_ms).cloned()
}

/// The limit that was reached, or else what was used of each.
#[must_use]
pub fn describe_reached(status: &LabelStatus) -> String {
    let reached = status.reached.as_ref();
    reached.map_or_else(|| describe_usage(status), ToString::to_string)
}

/// What a label has used up, and until when: `user=anna: output_tokens 64 of 50, until …`.
#[must_use]
pub fn describe_used_up(status: &LabelStatus) -> String {
    let until = format_time(status.until_ms);
    let reached = describe_reached(status);
    format!("{}: {reached}, until {until}", status.label)
}
