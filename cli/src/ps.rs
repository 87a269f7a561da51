//! `dormouse ps`: the processes of a store.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::args::Store;
use crate::compose::reading;
use crate::report::{Line, tree};
use crate::status::Failure;
use crate::terminal;

/// `dormouse ps`
#[derive(Debug, Args)]
pub(crate) struct Ps {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists them as a tree, with what each holds. Exits with 3 where a journal cannot be read, or a
/// process may be missing.
pub(crate) async fn ps(args: Ps) -> Result<ExitCode, Failure> {
    let kernel = reading(&args.store.folder, &args.store.key).await?;
    let processes = kernel.processes().await?;
    let roots: Vec<_> = processes
        .iter()
        .filter(|info| info.row.parent.is_none())
        .map(|info| info.row.pid)
        .collect();
    let lines = tree(&kernel, &roots).await?;
    let lost = kernel.lost().to_vec();
    kernel.shutdown().await;
    let mut out = terminal::stdout();
    if !args.json {
        writeln!(out, "{}", Line::header())?;
    }
    for line in &lines {
        if args.json {
            writeln!(out, "{}", terminal::json(&json!(line)))?
        } else {
            writeln!(out, "{line}")?
        }
    }
    show_missing(&mut out, &lost, args.json)?;
    let is_well = lost.is_empty() && lines.iter().all(Line::is_well);
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

/// Prints what the store cannot list.
pub(crate) fn show_missing(
    out: &mut impl Write,
    lost: &[String],
    json: bool,
) -> std::io::Result<()> {
    for lost in lost {
        match json {
            true => writeln!(out, "{}", terminal::json(&json!({ "lost": lost })))?,
            false => writeln!(out, "missing: {}", terminal::line(lost))?,
        }
    }
    Ok(())
}
