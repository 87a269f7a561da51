//! `dormouse label` on a cluster: budgets that count in all shards.

use std::path::Path;
use std::process::ExitCode;

use dormouse::label::{Label, LabelBudget};
use dormouse::model::Usage;
use dormouse::schedule::period_of;
use dormouse::{Amount, LabelStatus, Paused};
use dormouse_cluster::{Cluster, ClusterLabel};

use super::database::connect;
use crate::failure::Failure;
use crate::label::{LabelAction, ListBudgets, RemoveBudget, SetBudget, no_budget, print_budgets};

/// Does what `dormouse label` is asked for.
pub(super) async fn label(action: LabelAction) -> Result<ExitCode, Failure> {
    match action {
        LabelAction::Set(args) => set_budget(args).await,
        LabelAction::Remove(args) => remove_budget(&args).await,
        LabelAction::List(args) => list_budgets(&args).await,
    }
}

async fn set_budget(args: SetBudget) -> Result<ExitCode, Failure> {
    let budget = LabelBudget {
        per: args.per,
        zone: args.zone.into(),
        limits: args.limits.budget(),
    };
    let cluster = connect(&args.store.folder).await?;
    cluster.set_label_budget(args.label, budget).await?;
    Ok(ExitCode::SUCCESS)
}

async fn remove_budget(args: &RemoveBudget) -> Result<ExitCode, Failure> {
    let store: &Path = &args.store.folder;
    let cluster = connect(store).await?;
    let budgets = cluster.label_budgets().await?;
    if !budgets.iter().any(|budget| budget.label == args.label) {
        return Err(no_budget(&args.label, store));
    }
    cluster.remove_label_budget(args.label.clone()).await?;
    Ok(ExitCode::SUCCESS)
}

async fn list_budgets(args: &ListBudgets) -> Result<ExitCode, Failure> {
    let cluster = connect(&args.store.folder).await?;
    let budgets = cluster.label_budgets().await?;
    let labels: Vec<_> = budgets.into_iter().map(status_of).collect();
    print_budgets(&labels, args.json)
}

/// The label that holds a tree up: one whose budget is used up, or else one with a budget, of which
/// other shards may have the rest.
pub(super) async fn find_reached(
    cluster: &Cluster,
    labels: &[Label],
) -> Result<Option<LabelStatus>, Failure> {
    let budgets = cluster.label_budgets().await?.into_iter();
    let of_tree = budgets.filter(|budget| labels.contains(&budget.label));
    let statuses = of_tree.map(status_of);
    Ok(statuses.max_by_key(|status| status.reached.is_some()))
}

/// The label as a kernel lists it.
fn status_of(label: ClusterLabel) -> LabelStatus {
    let ClusterLabel {
        label,
        budget,
        until_ms,
        amounts,
    } = label;
    let mut spent = Usage::default();
    for amount in &amounts {
        match amount.amount {
            Amount::InputTokens => spent.input_tokens = amount.used,
            Amount::OutputTokens => spent.output_tokens = amount.used,
            _ => spent.cost_nanos = amount.used,
        }
    }
    let reached = amounts.iter().find(|amount| amount.used >= amount.limit);
    let period = period_of(budget.per, &budget.zone, until_ms.saturating_sub(1));
    LabelStatus {
        // Beyond the calendar there is one period for ever.
        since_ms: period.map_or(0, |(since_ms, _)| since_ms),
        reached: reached.map(|amount| Paused {
            amount: amount.amount,
            used: amount.used,
            limit: amount.limit,
        }),
        label,
        budget,
        until_ms,
        spent,
    }
}
