//! `dormouse export` and `dormouse import`: processes as files, from one store to another.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dormouse::Imported;
use dormouse::checkpoint::Scope;
use dormouse::export::{MaskTarget, Redact, look, skim};
use dormouse::host::ExportFile;
use regex::bytes::Regex;

use crate::compose::{Composition, check_store, reading};
use crate::finish::finish;
use crate::key::Key;
use crate::models::Models;
use crate::permissions::Permissions;
use crate::point::PointOf;
use crate::requirements::{compile_exported, warn_of_missing};
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal;
use crate::trees::hold_others;
use crate::watch::{Output, Watch};

/// `dormouse export`
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// What to export: PID (as it is now), PID@FACT or PID@cp:N.
    #[arg(value_name = "POINT")]
    pub(crate) of: PointOf,
    /// The file, such as planner.dormouse. Only its owner can read it.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store's folder. It may be in use.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) key: Key,
    /// Include all processes below it, and the messages in flight between them.
    #[arg(long)]
    pub(crate) tree: bool,
    /// Mask matches in every text that is exported; may be given several times. Lengths and line
    /// breaks are kept.
    #[arg(long, value_name = "REGEX")]
    pub(crate) redact: Vec<regex::bytes::Regex>,
}

/// `dormouse import`
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file that `dormouse export` made. Resuming its processes runs the programs in it:
    /// `dormouse show` lists what they start and reach.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store's folder; created if it is absent.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) key: Key,
    /// Resume the imported processes, and nothing else in the store, and run them to their end.
    /// Permissions and models apply to that run.
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
    #[command(flatten)]
    pub(crate) models: Models,
    /// Print events and the result as one JSON object a line.
    #[arg(long, requires = "resume")]
    pub(crate) json: bool,
}

/// Masks all matches of these patterns.
pub(crate) struct Patterns(pub(crate) Vec<Regex>);

impl Redact for Patterns {
    fn masks(&self, _: MaskTarget, bytes: &[u8]) -> Vec<Range<usize>> {
        let found = self.0.iter().flat_map(|pattern| pattern.find_iter(bytes));
        found.map(|found| found.range()).collect()
    }
}

/// Writes an export, and says what it holds.
pub(crate) async fn export(args: Export) -> Result<ExitCode, Failure> {
    let kernel = reading(&args.store, &args.key).await?;
    let scope = if args.tree {
        Scope::Tree
    } else {
        Scope::Process
    };
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
    writeln!(
        terminal::stdout(),
        "{}  {processes} processes  {contents} contents  {bytes} bytes",
        told.id
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Imports an export, and prints the new pids, each with its number in the export. Nothing of it
/// runs without `--resume`.
pub(crate) async fn import(args: Import) -> Result<ExitCode, Failure> {
    let file = File::open(&args.file).map_err(|error| unusable(&args.file, &error))?;
    if args.resume {
        return import_and_resume(args, file).await;
    }
    if !args.permissions.is_empty() || !args.models.is_empty() {
        let why = "permissions and models are for what runs, and what is imported is held: add \
             --resume, or give them to resume";
        return Err(Failure::Usage(why.to_owned()));
    }
    if check_store(&args.store).is_err() {
        // No store is created for a file that is refused.
        skim(&file, &mut ())?;
    }
    let kernel = Composition::of(Some(&args.store), &args.key)
        .kernel()
        .await?;
    let imported = kernel.import(file).held().await;
    let pids = imported.map(|imported| imported.pids);
    kernel.shutdown().await;
    let mut out = terminal::stdout();
    for (there, here) in pids? {
        writeln!(out, "{here}  was {there}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Imports an export, and runs exactly the imported processes.
async fn import_and_resume(args: Import, file: File) -> Result<ExitCode, Failure> {
    let manifest = look(&file, &mut ())?;
    let composition = Composition::of(Some(&args.store), &args.key);
    let kernel = composition
        .permissions(&args.permissions)
        .models(&args.models)
        .kernel()
        .await?;
    // The import refuses programs that do not compile here, and says why.
    let named = manifest
        .members
        .iter()
        .map(|member| (member.image.bundle.hash, &*member.image.program));
    warn_of_missing(
        &kernel,
        &compile_exported(named, &manifest.programs).unwrap_or_default(),
    );
    hold_others(&kernel, &[]).await?;
    let watch = Watch::begin(&kernel, Output::of(args.json));
    let stop = StopSignals::listen()?;
    let Imported { process, pids, .. } = kernel.import(file).await?;
    pids.iter().for_each(|(there, here)| {
        terminal::tell(&format!("imports process {here}, which was {there}"))
    });
    finish(kernel, vec![process], watch, stop, Some(&args.store)).await
}

/// The failure for a file that cannot be read or written.
pub(crate) fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}
