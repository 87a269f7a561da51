//! `dormouse import-store` and `dormouse export-store`: all trees of a store into a cluster, and
//! all trees of a cluster into a store.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::database::DatabaseUrl;
use crate::failure::Failure;
use crate::kernel_setup::KernelSetup;
use crate::store_key::Key;
use crate::terminal::{self, one_line, print_stderr};

/// `dormouse import-store`
#[derive(Debug, Args)]
pub(crate) struct ImportStore {
    /// The folder of the store. Nothing else may have it open.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The name of this import. Given again with the same name, the command goes on where it was,
    /// and brings no tree twice: a store of its own needs a name of its own.
    #[arg(long, value_name = "NAME")]
    name: String,
    #[command(flatten)]
    database: DatabaseUrl,
    #[command(flatten)]
    key: Key,
}

/// `dormouse export-store`
#[derive(Debug, Args)]
pub(crate) struct ExportStore {
    /// The folder of the store; created if it is absent.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    database: DatabaseUrl,
    #[command(flatten)]
    key: Key,
}

/// Brings a store into a cluster, and prints the new pid of each process.
pub(super) async fn import(args: ImportStore) -> Result<ExitCode, Failure> {
    let cluster = args.database.connect().await?;
    let source = KernelSetup::new(Some(&args.folder), &args.key);
    let source = source.open_existing().await?;
    let imported = cluster.import_store(&args.name, &source).await;
    let closed = source.shutdown().await;
    let imported = imported?;
    let mut out = terminal::stdout();
    for (old, new) in &imported.pids {
        writeln!(out, "{new}  was {old}")?;
    }
    for label in &imported.budgets {
        let label = one_line(&label.to_string());
        print_stderr(&format!("the budget of {label} is one of the cluster now"));
    }
    print_stderr(&format!(
        "The trees go on in the cluster: resume none of them in {}.",
        args.folder.display()
    ));
    closed?;
    Ok(ExitCode::SUCCESS)
}

/// Brings the trees of a cluster into a store, and prints the new pid of each root.
pub(super) async fn export(args: ExportStore) -> Result<ExitCode, Failure> {
    let cluster = args.database.connect().await?;
    let target = KernelSetup::new(Some(&args.folder), &args.key);
    let target = target.build().await?;
    let exported = cluster.export_store(&target).await;
    target.shutdown().await?;
    let mut out = terminal::stdout();
    for (old, new) in exported? {
        writeln!(out, "{new}  was {old}")?;
    }
    print_stderr(&format!(
        "The trees are held in {}, and go on in the cluster: end its nodes before you resume them \
         there.",
        args.folder.display()
    ));
    Ok(ExitCode::SUCCESS)
}
