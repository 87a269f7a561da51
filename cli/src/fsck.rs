//! `dormouse fsck`: looks a store over, and mends what can be.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use dormouse::KernelError;
use dormouse::garbage::Piece;
use dormouse::id::{ContentHash, Pid};
use dormouse::store::{FsckReport, Issue, Options, Repair, fsck};

use crate::args::Store;
use crate::compose::look_for_store;
use crate::rate::{Pacer, Rate};
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::{key, terminal};

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
    pub(crate) rate: Option<Rate>,
}

/// Reports the damage. Exits with 0 where there is none that was not acknowledged, 1 where there is
/// some by which nothing is lost, 3 where something is lost, or where the store cannot be looked
/// over.
pub(crate) async fn run(args: Fsck) -> Result<ExitCode, Failure> {
    look_for_store(&args.store.folder)?;
    let reading = Arc::new(Reading::default());
    let options = reading
        .clone()
        .watch(key::options(&args.store.key)?, args.rate);
    let mut stop = StopSignals::listen()?;
    let looking = tokio::task::spawn_blocking(move || look(&args, &options));
    tokio::pin!(looking);
    let code = tokio::select! {
        looked = &mut looking => return looked.map_err(|error| Failure::Run(error.to_string()))?,
        code = stop.next() => code,
    };
    reading.is_stopped.store(true, Ordering::Relaxed);
    // A repair that has read everything goes on to its end.
    match looking.await {
        Ok(Err(Failure::Store(why))) => {
            let bytes = reading.bytes.load(Ordering::Relaxed);
            terminal::tell(&format!(
                "stopped after {bytes} bytes, before the store was judged; nothing was changed: \
                 {why}"
            ));
            Ok(ExitCode::from(code))
        }
        looked => looked.map_err(|error| Failure::Run(error.to_string()))?,
    }
}

/// A request to stop is noticed within this time, however low the rate is.
const NOTICED_WITHIN: Duration = Duration::from_millis(100);

/// How far reading has come, and whether it goes on.
#[derive(Debug, Default)]
struct Reading {
    bytes: AtomicU64,
    is_stopped: AtomicBool,
}

impl Reading {
    /// Counts what is read, at most at this rate, until it is stopped.
    fn watch(self: Arc<Self>, options: Options, rate: Option<Rate>) -> Options {
        let (began, pacer) = (
            Instant::now(),
            rate.map(|rate| Mutex::new(Pacer::new(rate))),
        );
        options.pace(move |bytes| {
            let wait = pacer.as_ref().map(|pacer| {
                let mut pacer = pacer.lock().unwrap_or_else(PoisonError::into_inner);
                pacer.wait(began.elapsed(), bytes)
            });
            let mut left = wait.unwrap_or_default();
            while left > Duration::ZERO && !self.is_stopped.load(Ordering::Relaxed) {
                let step = left.min(NOTICED_WITHIN);
                std::thread::sleep(step);
                left -= step;
            }
            if self.is_stopped.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
    }
}

fn look(args: &Fsck, options: &Options) -> Result<ExitCode, Failure> {
    let repair = if args.repair { Repair::Yes } else { Repair::No };
    let mut holders: HashMap<ContentHash, BTreeSet<Pid>> = HashMap::new();
    let mut undecoded = BTreeSet::new();
    let mut note = |pid: Pid, piece: Piece<'_>| match piece.contents() {
        Ok(contents) => contents
            .into_iter()
            .for_each(|hash| holders.entry(hash).or_default().extend([pid])),
        Err(error) => {
            undecoded.insert(format!(
                "process {pid}: a record with the right hash cannot be decoded: {error}"
            ));
        }
    };
    let report = fsck(&args.store.folder, options, repair, &mut note).map_err(KernelError::from)?;
    print_report(&report, &holders, &undecoded, repair)
}

fn print_report(
    report: &FsckReport,
    holders: &HashMap<ContentHash, BTreeSet<Pid>>,
    undecoded: &BTreeSet<String>,
    repair: Repair,
) -> Result<ExitCode, Failure> {
    let mut out = terminal::stdout();
    for finding in &report.issues {
        writeln!(out, "{finding}{}", held_by(finding, holders))?;
    }
    for line in undecoded {
        writeln!(out, "{line}")?;
    }
    for finding in &report.acknowledged {
        writeln!(out, "acknowledged: {finding}")?;
    }
    let damage = report.issues.len() + undecoded.len();
    writeln!(
        out,
        "{} records, {} bytes, {damage} {}: {}",
        report.records,
        report.bytes,
        if damage == 1 { "finding" } else { "findings" },
        verdict(report, undecoded.len(), repair)
    )?;
    let is_lost = !undecoded.is_empty() || !report.issues.iter().all(Issue::is_repairable);
    Ok(match damage {
        0 => ExitCode::SUCCESS,
        _ if is_lost => ExitCode::from(3),
        _ => ExitCode::from(1),
    })
}

/// What follows from the findings and from so many records that have no meaning.
fn verdict(report: &FsckReport, undecoded: usize, repair: Repair) -> String {
    let mendable = report
        .issues
        .iter()
        .filter(|finding| finding.is_repairable())
        .count();
    let damage = report.issues.len() + undecoded;
    if damage == 0 {
        return match report.acknowledged.len() {
            0 => "whole".to_owned(),
            known => format!(
                "nothing new. {known} of what is lost was acknowledged before: it is answered as \
                 lost"
            ),
        };
    }
    if report.issues.iter().any(Issue::blocks_repair) {
        return "damaged. Nothing was changed: the store cannot be used before that is done"
            .to_owned();
    }
    match repair {
        Repair::No if mendable == damage => {
            format!("damaged. --repair mends {mendable} of {damage}; nothing was changed")
        }
        Repair::No => format!(
            "damaged. --repair mends {mendable} of {damage}, and acknowledges the rest as lost; \
             nothing was changed. If there is a copy of what is damaged, put that back first"
        ),
        Repair::Yes if mendable == damage => "damaged. All of it was mended".to_owned(),
        Repair::Yes => format!(
            "damaged. {mendable} of {damage} are mended. The rest is lost, and that is \
             acknowledged now: all else can be used, and what is put back later is read again"
        ),
    }
}

/// Who has a descriptor of a damaged content, or another use for it.
fn held_by(finding: &Issue, holders: &HashMap<ContentHash, BTreeSet<Pid>>) -> String {
    let Issue::Content { hash } = finding else {
        return String::new();
    };
    let pids = holders
        .get(hash)
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    if pids.is_empty() {
        ". Nothing refers to it".to_owned()
    } else {
        format!(". It is held by process {}", pids.join(", "))
    }
}
