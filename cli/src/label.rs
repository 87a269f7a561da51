//! `dormouse label`: sets, removes and lists the budgets of labels, which all trees of a store with
//! a label share.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use dormouse::api::view::{LabelView, describe_reached, describe_usage};
use dormouse::label::{Label, LabelBudget, Period};
use dormouse::schedule::format_time;
use dormouse::{KernelError, LabelStatus};
use serde_json::{Value, json};

use crate::args::{ModelAmounts, Store};
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
use crate::read_only::Readers;
use crate::store_address::is_cluster;
use crate::terminal::{self, one_line, print_stderr};

/// `dormouse label`
#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    #[command(subcommand)]
    pub(crate) action: LabelAction,
}

/// What is done with the budgets.
#[derive(Debug, Subcommand)]
pub(crate) enum LabelAction {
    /// Set what all trees with a label may use together, each day or month. Other limits for the
    /// same period keep what was counted; another period or zone begins at zero.
    Set(SetBudget),
    /// Remove the budget of a label, and what was counted.
    Remove(RemoveBudget),
    /// List the labels that have a budget, and what was used in the present period.
    List(ListBudgets),
}

/// `dormouse label set`
#[derive(Debug, Args)]
pub(crate) struct SetBudget {
    /// The label, such as user=anna.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) label: Label,
    /// How long the budget lasts: day or month.
    #[arg(long, value_name = "PERIOD")]
    pub(crate) per: Period,
    /// The time zone in which a period begins, by its IANA name, such as Europe/Berlin.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(crate) zone: String,
    #[command(flatten)]
    pub(crate) limits: ModelAmounts,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// `dormouse label remove`
#[derive(Debug, Args)]
pub(crate) struct RemoveBudget {
    /// The label, such as user=anna.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) label: Label,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// `dormouse label list`
#[derive(Debug, Args)]
pub(crate) struct ListBudgets {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Does what `dormouse label` is asked for.
pub(crate) async fn label(args: LabelArgs) -> Result<ExitCode, Failure> {
    match args.action {
        LabelAction::Set(args) => set_budget(args).await,
        LabelAction::Remove(args) => remove_budget(args).await,
        LabelAction::List(args) => list_budgets(args).await,
    }
}

/// Sets a budget. The store is created if there is none, so that budgets can be set before anything
/// runs.
async fn set_budget(args: SetBudget) -> Result<ExitCode, Failure> {
    let budget = LabelBudget {
        per: args.per,
        zone: args.zone.into(),
        limits: args.limits.budget(),
    };
    let kernel = KernelSetup::on(&args.store).build().await?;
    let set = kernel.set_label_budget(args.label, budget).await;
    kernel.shutdown().await?;
    set.map_err(label_failure)?;
    Ok(ExitCode::SUCCESS)
}

async fn remove_budget(args: RemoveBudget) -> Result<ExitCode, Failure> {
    let kernel = KernelSetup::on(&args.store).open_existing().await?;
    let is_known = kernel.labels().iter().any(|it| it.label == args.label);
    let removed = match is_known {
        true => kernel.remove_label_budget(args.label.clone()).await,
        false => Ok(()),
    };
    kernel.shutdown().await?;
    removed?;
    if is_known {
        return Ok(ExitCode::SUCCESS);
    }
    Err(no_budget(&args.label, &args.store.folder))
}

/// The failure for a label whose budget is to be removed and that has none.
pub(crate) fn no_budget(label: &Label, store: &Path) -> Failure {
    Failure::Usage(format!(
        "the label {label} has no budget: dormouse label list --store {} shows which have one",
        store.display()
    ))
}

async fn list_budgets(args: ListBudgets) -> Result<ExitCode, Failure> {
    let mut readers = Readers::open(&args.store).await?;
    let mut labels = Vec::new();
    while let Some(kernel) = readers.next().await? {
        labels.extend(kernel.labels());
        kernel.shutdown().await?;
    }
    print_budgets(&labels, args.json)
}

/// Prints labels with what was used of their budgets.
pub(crate) fn print_budgets(labels: &[LabelStatus], json: bool) -> Result<ExitCode, Failure> {
    let mut out = terminal::stdout();
    if !json {
        writeln!(out, "{:<28} {:<6} {:<21} USED", "LABEL", "PER", "UNTIL")?;
    }
    for status in labels {
        if json {
            writeln!(out, "{}", terminal::escaped_json(&label_json(status)))?;
        } else {
            let label = one_line(&status.label.to_string());
            writeln!(
                out,
                "{label:<28} {:<6} {:<21} {}",
                status.budget.per.word(),
                format_time(status.until_ms),
                describe_usage(status)
            )?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn label_failure(error: KernelError) -> Failure {
    match error {
        KernelError::Label(error) => Failure::Usage(error.to_string()),
        error => error.into(),
    }
}

/// A label as JSON. Scripts read it: `docs/limits.md`.
pub(crate) fn label_json(status: &LabelStatus) -> Value {
    json!(LabelView::from(status))
}

/// Which label holds trees up, and how they go on, on standard error.
pub(crate) fn print_how_to_go_on(status: &LabelStatus, store: Option<&Path>) {
    print_stderr(&format!(
        "the label {} has used up its budget ({}): its trees go on at {}",
        one_line(&status.label.to_string()),
        describe_reached(status),
        format_time(status.until_ms)
    ));
    let Some(store) = store else {
        return;
    };
    let then = match is_cluster(store) {
        true => "Or set".to_owned(),
        false => format!(
            "Continue then with dormouse resume --store {}, or set",
            store.display()
        ),
    };
    let LabelBudget { per, zone, .. } = &status.budget;
    let flag = match &status.reached {
        Some(reached) => reached.amount.word().replace('_', "-"),
        None => "cost".to_owned(),
    };
    let example = if flag == "cost" { "10.00" } else { "100000" };
    print_stderr(&format!(
        "{then} a larger budget now: dormouse label set '{}' --per {} --zone {zone} --{flag} {example} \
         --store {}",
        one_line(&status.label.to_string()),
        per.word(),
        store.display(),
    ));
}
