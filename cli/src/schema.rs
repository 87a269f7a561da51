//! `dormouse schema`: the JSON Schema of program files, for editors.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::program;

use crate::failure::Failure;
use crate::terminal;

/// `dormouse schema`
#[derive(Debug, Args)]
pub(crate) struct Schema {}

/// Prints the schema.
pub(crate) fn schema(Schema {}: Schema) -> Result<ExitCode, Failure> {
    let mut out = terminal::stdout();
    writeln!(out, "{:#}", program::schema())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
