//! `dormouse ps`: lists the processes of a store.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::args::Store;
use crate::failure::Failure;
use crate::process_table::{ProcessLine, process_lines};
use crate::process_trees::Trees;
use crate::read_only::Readers;
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

/// Lists the processes as a tree. Exits with 3 if a journal cannot be read, or if a process may be
/// missing from the list, and nobody has acknowledged that.
pub(crate) async fn ps(args: Ps) -> Result<ExitCode, Failure> {
    let mut readers = Readers::open(&args.store).await?;
    let (mut lines, mut lost) = (Vec::new(), Vec::new());
    while let Some(kernel) = readers.next().await? {
        let roots = Trees::new(kernel.processes().await?).roots();
        let statuses = readers.statuses().await?;
        let mut found = process_lines(&kernel, &roots).await?;
        found.iter_mut().for_each(|line| line.set_status(&statuses));
        lines.extend(found);
        lost.extend_from_slice(kernel.losses());
        kernel.shutdown().await?;
    }
    let mut out = terminal::stdout();
    if !args.json {
        writeln!(out, "{}", ProcessLine::header())?;
    }
    for line in &lines {
        if args.json {
            writeln!(out, "{}", terminal::escaped_json(&json!(line)))?
        } else {
            writeln!(out, "{line}")?
        }
    }
    print_losses(&mut out, &lost, args.json)?;
    let is_complete = lost.is_empty() && lines.iter().all(ProcessLine::is_readable_or_acknowledged);
    Ok(if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}

/// Prints a line for each loss of the store, so that a list is not taken for complete.
pub(crate) fn print_losses(
    out: &mut impl Write,
    lost: &[String],
    json: bool,
) -> std::io::Result<()> {
    for loss in lost {
        if json {
            writeln!(out, "{}", terminal::escaped_json(&json!({ "lost": loss })))?;
        } else {
            writeln!(out, "missing: {}", terminal::one_line(loss))?;
        }
    }
    Ok(())
}
