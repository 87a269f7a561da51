//! `dormouse export` and `dormouse import`: move processes from one store to another as a file.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dormouse::ImportedTree;
use dormouse::checkpoint::Scope;
use dormouse::effect::EffectPolicy;
use dormouse::export::{MaskTarget, Redact, read_export, scan_export};
use dormouse::host::ExportFile;
use regex::bytes::Regex;

use crate::event_printer::EventPrinter;
use crate::failure::{Failure, file_failure};
use crate::kernel_setup::{KernelSetup, require_store};
use crate::models::Models;
use crate::permissions::Permissions;
use crate::process_position::ProcessPosition;
use crate::process_trees::isolate_others;
use crate::read_only::open_read_only_at;
use crate::requirements::{compile_exported, warn_of_missing_permissions};
use crate::run_to_end::{WhenAsleep, run_to_end};
use crate::server_questions::Answers;
use crate::stop_signals::StopSignals;
use crate::store_key::Key;
use crate::terminal::{self, OutputFormat};

/// `dormouse export`
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// What to export: PID (as it is now), PID@FACT or PID@cp:N.
    #[arg(value_name = "POSITION")]
    pub(crate) position: ProcessPosition,
    /// The file, such as planner.dormouse. Only its owner can read it. It must not exist yet.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store's folder, which may be in use; or the database of a cluster:
    /// postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE")]
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
    /// Replace the file if it exists.
    #[arg(long)]
    pub(crate) force: bool,
}

/// `dormouse import`
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file that `dormouse export` made. Resuming its processes runs the programs in it:
    /// `dormouse show` lists what they start and reach.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The store's folder, created if it is absent; or, with --resume, the database of a cluster:
    /// postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "STORE")]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) key: Key,
    /// Resume the imported processes, and nothing else in the store, and run them to their end.
    /// Permissions and models apply to that run.
    #[arg(long)]
    pub(crate) resume: bool,
    /// What happens to calls that repeat what the exported processes did beyond the position of the
    /// export, in place of the policies of their programs: recorded, ask, run or refuse.
    #[arg(long, value_name = "POLICY")]
    pub(crate) effects: Option<EffectPolicy>,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
    #[command(flatten)]
    pub(crate) models: Models,
    /// Print events and the result as one JSON object a line.
    #[arg(long, requires = "resume")]
    pub(crate) json: bool,
}

/// Masks every match of these patterns, in exports and in recordings.
pub(crate) struct RedactPatterns(pub(crate) Vec<Regex>);

impl Redact for RedactPatterns {
    fn masks(&self, _: MaskTarget, bytes: &[u8]) -> Vec<Range<usize>> {
        let matches = self.0.iter().flat_map(|pattern| pattern.find_iter(bytes));
        matches.map(|found| found.range()).collect()
    }
}

/// Writes an export, and prints its id and size.
pub(crate) async fn export(args: Export) -> Result<ExitCode, Failure> {
    let kernel = open_read_only_at(&args.store, &args.key, args.position.pid).await?;
    let created = match args.force {
        true => ExportFile::create(&args.file),
        false => ExportFile::create_new(&args.file),
    };
    let scope = if args.tree {
        Scope::Tree
    } else {
        Scope::Process
    };
    let mut export = kernel.export(args.position.pid, scope).at(args.position.at);
    if !args.redact.is_empty() {
        export = export.redact(RedactPatterns(args.redact));
    }
    let written = match created {
        Ok(file) => export.write(file).await.map_err(Failure::from),
        Err(error) => Err(not_created(&args.file, &error)),
    };
    kernel.shutdown().await?;
    let (file, exported) = written?;
    file.persist()
        .map_err(|error| not_created(&args.file, &error))?;
    writeln!(
        terminal::stdout(),
        "{}  {}  {}  {}",
        exported.id,
        counted(exported.processes, "process", "processes"),
        counted(exported.contents, "content", "contents"),
        counted(exported.bytes, "byte", "bytes")
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The failure for an export file that was not created.
fn not_created(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(format!(
            "{} exists already, and is left as it is: name another file, or replace it with --force",
            path.display()
        )),
        _ => file_failure(path, error),
    }
}

/// A number with its noun: `1 process`, `2 processes`.
fn counted(number: impl Display + PartialEq + From<u8>, one: &str, many: &str) -> String {
    let noun = if number == 1.into() { one } else { many };
    format!("{number} {noun}")
}

/// Imports an export, and prints the new pids, each with its pid in the export. The imported
/// processes do not run without `--resume`.
pub(crate) async fn import(args: Import) -> Result<ExitCode, Failure> {
    let file = File::open(&args.file).map_err(|error| file_failure(&args.file, &error))?;
    if args.resume {
        return import_and_resume(args, file).await;
    }
    if !args.permissions.is_empty() || !args.models.is_empty() {
        let why = "permissions and models are for processes that run, and imported processes are \
             held: add --resume, or give these flags to resume";
        return Err(Failure::Usage(why.to_owned()));
    }
    if require_store(&args.store).is_err() {
        // The store would be created: check the file first, so that a bad file leaves no store.
        scan_export(&file, &mut ())?;
    }
    let kernel = KernelSetup::new(Some(&args.store), &args.key)
        .build()
        .await?;
    let imported = with_policy(kernel.import(file), args.effects).held().await;
    let pids = imported.map(|imported| imported.pids);
    let closed = kernel.shutdown().await;
    let mut out = terminal::stdout();
    for (exported_pid, pid) in pids? {
        writeln!(out, "{pid}  was {exported_pid}")?;
    }
    closed?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn with_policy(
    import: dormouse::Import<File>,
    policy: Option<EffectPolicy>,
) -> dormouse::Import<File> {
    match policy {
        Some(policy) => import.effects(policy),
        None => import,
    }
}

/// Imports an export, and runs the imported processes and no others.
async fn import_and_resume(args: Import, file: File) -> Result<ExitCode, Failure> {
    let manifest = read_export(&file, &mut ())?;
    let kernel = KernelSetup::new(Some(&args.store), &args.key)
        .permissions(&args.permissions)
        .models(&args.models)
        .server_questions()
        .build()
        .await?;
    let programs = manifest
        .members
        .iter()
        .map(|member| (member.image.bundle.hash, &*member.image.program));
    // A program that does not compile needs no warning here: the import refuses it, and says why.
    let programs = compile_exported(programs, &manifest.programs).unwrap_or_default();
    warn_of_missing_permissions(&kernel, &programs);
    isolate_others(&kernel, &[]).await?;
    let format = OutputFormat::from_json_flag(args.json);
    let events = EventPrinter::spawn(&kernel, format, Answers::of_format(format));
    let stop = StopSignals::listen()?;
    let import = with_policy(kernel.import(file), args.effects);
    let ImportedTree { process, pids, .. } = import.await?;
    for (exported_pid, pid) in &pids {
        terminal::print_stderr(&format!("imports process {pid}, which was {exported_pid}"));
    }
    let (roots, store) = (process.into(), Some(args.store.as_path()));
    run_to_end(kernel, roots, WhenAsleep::End, events, stop, store).await
}
