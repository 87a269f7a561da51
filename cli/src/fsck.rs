//! `dormouse fsck`: checks a store, and repairs what can be repaired.
//!
//! Without `--repair` nothing is written, and the store may be in use by another program.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use dormouse::KernelError;
use dormouse::garbage::EncodedRecord;
use dormouse::id::{ContentHash, Pid};
use dormouse::store::{FsckReport, Issue, Options, Repair, fsck};

use crate::args::Store;
use crate::failure::Failure;
use crate::kernel_setup::require_store_files;
use crate::read_rate::{Pacer, ReadRate};
use crate::stop_signals::StopSignals;
use crate::store_key::store_options;
use crate::terminal;

/// `dormouse fsck`
#[derive(Debug, Args)]
pub(crate) struct Fsck {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Repair what can be repaired: rebuild the index, write HEAD again, drop damaged snapshots
    /// that can be replayed. Acknowledge the rest: it is noted as lost and not reported again, and
    /// everything else can be used. Put back copies first, if there are any.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Read at most so many bytes a second, as in 20MB/s: a check that leaves the disk to the
    /// program that writes the store.
    #[arg(long, value_name = "BYTES")]
    pub(crate) rate: Option<ReadRate>,
}

/// Checks the store and prints the damage. Exits with 0 if no damage is new, 1 if nothing is lost
/// by the damage, 3 if something is lost or if the store cannot be checked.
pub(crate) async fn run(args: Fsck) -> Result<ExitCode, Failure> {
    require_store_files(&args.store.folder)?;
    let progress = Arc::new(ReadProgress::default());
    let options = progress
        .clone()
        .throttle(store_options(&args.store.key)?, args.rate);
    let mut stop = StopSignals::listen()?;
    let mut checking = tokio::task::spawn_blocking(move || check(&args, &options));
    let code = tokio::select! {
        joined = &mut checking => {
            return joined.map_err(|error| Failure::Run(error.to_string()))?;
        }
        code = stop.next() => code,
    };
    progress.is_stopped.store(true, Ordering::Relaxed);
    let result = checking
        .await
        .map_err(|error| Failure::Run(error.to_string()))?;
    // A repair that has read the whole store continues to its end, and may fail.
    let is_cut_short = progress.is_cut_short.load(Ordering::Relaxed);
    let why = match result {
        Err(Failure::Store(why)) if is_cut_short => why,
        result => return result,
    };
    let bytes = progress.bytes.load(Ordering::Relaxed);
    terminal::print_stderr(&format!(
        "stopped after {bytes} bytes, before the check was complete; nothing was changed: {why}"
    ));
    Ok(ExitCode::from(code))
}

/// A request to stop is noticed within this time, however low the rate is.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// How many bytes have been read, and whether reading has to stop.
#[derive(Debug, Default)]
struct ReadProgress {
    bytes: AtomicU64,
    is_stopped: AtomicBool,
    /// Whether a read was refused, so that the check is not complete.
    is_cut_short: AtomicBool,
}

impl ReadProgress {
    /// Counts the bytes that are read with these options, and bounds their rate. Once `is_stopped`
    /// is set, the next read fails.
    fn throttle(self: Arc<Self>, options: Options, rate: Option<ReadRate>) -> Options {
        let start = Instant::now();
        let pacer = rate.map(|rate| Mutex::new(Pacer::new(rate)));
        options.throttle(move |bytes| {
            let mut wait = Duration::ZERO;
            if let Some(pacer) = &pacer {
                let mut pacer = pacer.lock().unwrap_or_else(PoisonError::into_inner);
                wait = pacer.wait(start.elapsed(), bytes);
            }
            while wait > Duration::ZERO && !self.is_stopped.load(Ordering::Relaxed) {
                let step = wait.min(MAX_SLEEP);
                std::thread::sleep(step);
                wait -= step;
            }
            if self.is_stopped.load(Ordering::Relaxed) {
                self.is_cut_short.store(true, Ordering::Relaxed);
                return ControlFlow::Break(());
            }
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
    }
}

/// For each content, the processes whose records refer to it.
type ReferencingProcesses = HashMap<ContentHash, BTreeSet<Pid>>;

fn check(args: &Fsck, options: &Options) -> Result<ExitCode, Failure> {
    let repair = if args.repair { Repair::Yes } else { Repair::No };
    let mut references = ReferencingProcesses::new();
    let mut undecodable = BTreeSet::new();
    let mut check_record = |pid: Pid, record: EncodedRecord<'_>| match record.contents() {
        Ok(contents) => {
            for hash in contents {
                references.entry(hash).or_default().insert(pid);
            }
        }
        Err(error) => {
            undecodable.insert(format!(
                "process {pid}: a record matches its hash and cannot be decoded: {error}"
            ));
        }
    };
    let report =
        fsck(&args.store.folder, options, repair, &mut check_record).map_err(KernelError::from)?;
    print_report(&report, &references, &undecodable, repair)
}

fn print_report(
    report: &FsckReport,
    references: &ReferencingProcesses,
    undecodable: &BTreeSet<String>,
    repair: Repair,
) -> Result<ExitCode, Failure> {
    let mut out = terminal::stdout();
    for issue in &report.issues {
        writeln!(out, "{issue}{}", references_to(issue, references))?;
    }
    for line in undecodable {
        writeln!(out, "{line}")?;
    }
    for issue in &report.acknowledged {
        writeln!(out, "acknowledged: {issue}")?;
    }
    let damage = report.issues.len() + undecodable.len();
    writeln!(
        out,
        "{} records, {} bytes, {damage} {}: {}",
        report.records,
        report.bytes,
        if damage == 1 { "issue" } else { "issues" },
        verdict(report, undecodable.len(), repair)
    )?;
    let is_lost = !undecodable.is_empty() || !report.issues.iter().all(Issue::is_repairable);
    Ok(match damage {
        0 => ExitCode::SUCCESS,
        _ if is_lost => ExitCode::from(3),
        _ => ExitCode::from(1),
    })
}

/// What the user can do about the issues and about `undecodable` records.
fn verdict(report: &FsckReport, undecodable: usize, repair: Repair) -> String {
    let repairable = report
        .issues
        .iter()
        .filter(|issue| issue.is_repairable())
        .count();
    let damage = report.issues.len() + undecodable;
    if damage == 0 {
        return match report.acknowledged.len() {
            0 => "whole".to_owned(),
            known => format!(
                "nothing new. {known} losses were acknowledged before: a request for what was lost \
                 fails"
            ),
        };
    }
    if report.issues.iter().any(Issue::blocks_repair) {
        return "damaged. Nothing was changed: the store cannot be used before that is done"
            .to_owned();
    }
    match repair {
        Repair::No if repairable == damage => {
            format!("damaged. --repair repairs {repairable} of {damage}; nothing was changed")
        }
        Repair::No => format!(
            "damaged. --repair repairs {repairable} of {damage}, and acknowledges the rest as \
             lost; nothing was changed. If there is a copy of what is damaged, put it back first"
        ),
        Repair::Yes if repairable == damage => "damaged. All of it was repaired".to_owned(),
        Repair::Yes => format!(
            "damaged. {repairable} of {damage} were repaired. The rest is lost, and the loss is \
             acknowledged now: everything else can be used, and what is put back later is read \
             again"
        ),
    }
}

/// The sentence of a report that says which processes refer to a damaged content.
fn references_to(issue: &Issue, references: &ReferencingProcesses) -> String {
    let Issue::Content { hash } = issue else {
        return String::new();
    };
    let Some(pids) = references.get(hash) else {
        return ". Nothing refers to it".to_owned();
    };
    let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
    format!(". It is held by process {}", pids.join(", "))
}
