//! `dormouse ps`: the processes of a store.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;

use crate::args::{Permissions, Ps};
use crate::compose::Composition;
use crate::report::{Line, tree};
use crate::status::Failure;

/// Lists them as a tree, with what each holds.
pub(crate) async fn ps(args: Ps) -> Result<ExitCode, Failure> {
    let permissions = Permissions::default();
    let kernel = Composition { store: Some(&args.store), permissions: &permissions }.existing().await?;
    let lines = tree(&kernel).await?;
    kernel.shutdown().await;
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(out, "{}", Line::header())?;
    }
    for line in &lines {
        if args.json { writeln!(out, "{}", json!(line))? } else { writeln!(out, "{line}")? }
    }
    Ok(ExitCode::SUCCESS)
}
