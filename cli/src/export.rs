//! `dormouse export` and `dormouse import`: processes as files, from one store to another.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use dormouse::checkpoint::Scope;
use dormouse::export::{Place, Redact, skim};
use dormouse::host::ExportFile;
use regex::bytes::Regex;

use crate::args::{Export, Import};
use crate::compose::{Composition, check_store, reading};
use crate::status::Failure;

/// Masks whatever matches one of these.
pub(crate) struct Patterns(pub(crate) Vec<Regex>);

impl Redact for Patterns {
    fn masks(&self, _: Place, bytes: &[u8]) -> Vec<Range<usize>> {
        let found = self.0.iter().flat_map(|pattern| pattern.find_iter(bytes));
        found.map(|found| found.range()).collect()
    }
}

/// Writes an export, and says what it holds.
pub(crate) async fn export(args: Export) -> Result<ExitCode, Failure> {
    let kernel = reading(&args.store, &args.key).await?;
    let scope = if args.tree { Scope::Tree } else { Scope::Process };
    let mut export = kernel.export(args.of.pid, scope).at(args.of.at);
    if !args.redact.is_empty() {
        export = export.redact(Patterns(args.redact));
    }
    let written = match ExportFile::create(&args.file) {
        Ok(file) => export.write(file).await.map_err(Failure::from),
        Err(error) => Err(unusable(&args.file, &error)),
    };
    kernel.shutdown().await;
    let (file, told) = written?;
    file.keep().map_err(|error| unusable(&args.file, &error))?;
    let (processes, contents, bytes) = (told.processes, told.contents, told.bytes);
    writeln!(std::io::stdout(), "{}  {processes} processes  {contents} contents  {bytes} bytes", told.id)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes in an export, and prints the new pids, each with its number in the export. Nothing of it runs.
pub(crate) async fn import(args: Import) -> Result<ExitCode, Failure> {
    let file = File::open(&args.file).map_err(|error| unusable(&args.file, &error))?;
    if check_store(&args.store).is_err() {
        // No store is made for a file that is not taken in.
        skim(&file, &mut ())?;
    }
    let kernel = Composition::of(Some(&args.store), &args.key).kernel().await?;
    let imported = kernel.import(file).held().await;
    let pids = imported.map(|imported| imported.pids);
    kernel.shutdown().await;
    let mut out = std::io::stdout().lock();
    for (there, here) in pids? {
        writeln!(out, "{here}  was {there}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A file that was named cannot be used.
pub(crate) fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}
