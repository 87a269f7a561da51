//! `dormouse gc`: deletes what the retention rules select, and frees the space that nothing needs.
//!
//! With `--dry-run` the store is opened read-only, and nothing is written.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use clap::Args;
use dormouse::KernelError;
use dormouse::garbage::{
    CollectionReport, CollectionRequest, EncodedRecord, InUse, UnreadablePolicy, collect,
};
use dormouse::id::Pid;
use dormouse::inventory::Inventory;
use dormouse::ports::{OwnerToken, Store as _, StoreError, SweepLimits, SweepMode, SweepOutcome};
use dormouse::retention::{CheckpointRules, EndedRule, HistoryRule, Retention};
use dormouse::store::{Issue, LogStore, Options, Repair, fsck};

use crate::args::Store;
use crate::failure::Failure;
use crate::kernel_setup::require_store;
use crate::ps::print_losses;
use crate::stop_signals::StopSignals;
use crate::store_key::store_options;
use crate::terminal;

/// `dormouse gc`
#[derive(Debug, Args)]
pub(crate) struct Gc {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Write nothing, and print what would be deleted and freed. The store may be in use.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete all checkpoints except the last N of each process, and those that another rule keeps.
    #[arg(long, value_name = "N")]
    pub(crate) keep_checkpoints: Option<usize>,
    /// Delete checkpoints older than this, except those that another rule keeps: 30d, 12h, 15m.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Option<u64>,
    /// Keep the checkpoints of this label, whatever the other rules say, and with them trees that
    /// have ended; may be given several times. Labels are not secret, and any process can use any
    /// label, so do not pin one that models know.
    #[arg(long, value_name = "LABEL")]
    pub(crate) pin: Vec<String>,
    /// Delete trees whose processes have all ended at least this long ago, and their checkpoints
    /// with them. A checkpoint keeps its tree only if it has a label of --pin, or is younger than
    /// the age of --older-than.
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) drop_ended: Option<u64>,
    /// Delete the history of each process before its oldest kept checkpoint, up to the last but
    /// one snapshot before it.
    #[arg(long)]
    pub(crate) shorten: bool,
    /// Sweep the segments of the log that are live to at most this percentage. 50 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) live_percent: Option<u8>,
    /// Delete contents even if journals that may refer to them cannot be read, and processes even
    /// if checkpoints that may need them cannot be read.
    #[arg(long)]
    pub(crate) despite_damage: bool,
}

impl Gc {
    /// Whether something is deleted, or only counted.
    pub(crate) fn mode(&self) -> SweepMode {
        if self.dry_run {
            SweepMode::Count
        } else {
            SweepMode::Free
        }
    }

    fn sweep_limits(&self) -> SweepLimits {
        let mut limits = SweepLimits::default();
        if let Some(percent) = self.live_percent {
            limits.live_percent = percent;
        }
        limits
    }

    fn unreadable_policy(&self) -> UnreadablePolicy {
        if self.despite_damage {
            UnreadablePolicy::Discard
        } else {
            UnreadablePolicy::KeepAll
        }
    }
}

/// The highest `--live-percent` that is advised: a higher one moves much and frees little.
const MAX_ADVISED_LIVE_PERCENT: u8 = 90;

/// Collects garbage, or counts it, and prints the result. A signal stops the collection at its next
/// step. Exits with 3 if the store has lost something that nobody has acknowledged, also if only a
/// segment that was to be freed shows it.
pub(crate) async fn gc(args: Gc) -> Result<ExitCode, Failure> {
    require_store(&args.store.folder)?;
    check_rules(&args)?;
    let options = store_options(&args.store.key)?;
    let (unreadable, limits) = (args.unreadable_policy(), args.sweep_limits());
    let mut stop = StopSignals::listen()?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let mode = args.mode();
    let mut collecting = tokio::task::spawn_blocking({
        let is_stopped = is_stopped.clone();
        move || collect_garbage(&args, options, mode, &is_stopped)
    });
    let mut stop_code = 0;
    let joined = tokio::select! {
        joined = &mut collecting => joined,
        code = stop.next() => {
            stop_code = code;
            is_stopped.store(true, Ordering::Relaxed);
            tokio::select! {
                joined = collecting => joined,
                // A step can take long on a slow disk. A store survives being killed at any
                // moment, so a second signal ends the program at once.
                code = stop.next() => std::process::exit(code.into()),
            }
        }
    };
    let collected = joined.map_err(|error| Failure::Run(error.to_string()))?;
    let Collected {
        report,
        lost,
        is_loss_new,
    } = collected.map_err(KernelError::from)?;
    print_report(&report, &lost, mode, unreadable, limits.live_percent)?;
    print_losses(&mut terminal::stdout(), &lost, false)?;
    // Acknowledged damage is printed, but does not change the exit code.
    if is_loss_new {
        return Ok(ExitCode::from(3));
    }
    Ok(match report.swept.outcome {
        SweepOutcome::Done => ExitCode::SUCCESS,
        SweepOutcome::Interrupted => ExitCode::from(stop_code),
    })
}

/// Refuses rules that select nothing.
pub(crate) fn check_rules(args: &Gc) -> Result<(), Failure> {
    let has_a_rule =
        args.keep_checkpoints.is_some() || args.older_than.is_some() || args.drop_ended.is_some();
    if args.pin.is_empty() || has_a_rule {
        return Ok(());
    }
    Err(Failure::Usage(
        "--pin keeps checkpoints that another rule would delete, and there is no other rule: \
         add --keep-checkpoints N, --older-than AGE or --drop-ended AGE. Without them all \
         checkpoints are kept"
            .to_owned(),
    ))
}

/// What a collection found.
struct Collected {
    report: CollectionReport,
    /// What the store has lost.
    lost: Vec<String>,
    /// Whether something is lost that nobody has acknowledged.
    is_loss_new: bool,
}

/// Runs the collection.
fn collect_garbage(
    args: &Gc,
    options: Options,
    mode: SweepMode,
    is_stopped: &AtomicBool,
) -> Result<Collected, StoreError> {
    let (store, owner) = open(args, options.clone(), mode)?;
    let retention = retention(args);
    let collection = CollectionRequest {
        owner,
        inventory: &mut Inventory::default(),
        retention: &retention,
        // No process runs while this command has the store open.
        in_use: &InUse::default(),
        unreadable: args.unreadable_policy(),
        mode,
        limits: args.sweep_limits(),
        now_ms: now_ms(),
        on_deleted: &mut |_| {},
        watch: &mut |_| {
            if is_stopped.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    };
    let report = collect(&store, collection)?;
    let lost = store.processes()?.losses;
    drop(store);
    // A damaged segment does not say whether something is lost with it, nor whether that was
    // acknowledged. The check reads the whole log, and only such a store pays for it.
    let is_complete = report.swept.outcome == SweepOutcome::Done;
    let is_damaged = is_complete && !report.swept.damaged_segments.is_empty();
    let is_loss_new =
        report.is_damage_new || (is_damaged && has_new_loss(&args.store.folder, &options)?);
    Ok(Collected {
        report,
        lost,
        is_loss_new,
    })
}

/// Whether `fsck` finds something lost that nobody has acknowledged.
fn has_new_loss(folder: &Path, options: &Options) -> Result<bool, StoreError> {
    let mut is_undecodable = false;
    let mut check_record = |_: Pid, record: EncodedRecord<'_>| {
        is_undecodable |= record.contents().is_err();
    };
    let report = fsck(folder, options, Repair::No, &mut check_record)?;
    Ok(is_undecodable || !report.issues.iter().all(Issue::is_repairable))
}

/// Opens the store: read-only for counting, so that another program may write it meanwhile.
fn open(
    args: &Gc,
    options: Options,
    mode: SweepMode,
) -> Result<(LogStore, OwnerToken), StoreError> {
    match mode {
        SweepMode::Count => Ok((options.read_only(&args.store.folder)?, OwnerToken(0))),
        SweepMode::Free => {
            let store = options.open(&args.store.folder)?;
            let owner = store.claim()?;
            Ok((store, owner))
        }
    }
}

/// The retention rules that the flags ask for. Without flags everything is kept.
pub(crate) fn retention(args: &Gc) -> Retention {
    let checkpoints = CheckpointRules {
        last: args.keep_checkpoints,
        younger_ms: args.older_than,
        pinned: args.pin.iter().map(|label| label.as_str().into()).collect(),
    };
    let ended = match args.drop_ended {
        Some(age_ms) => EndedRule::ForMs(age_ms),
        None => EndedRule::Forever,
    };
    let history = if args.shorten {
        HistoryRule::FromOldestCheckpoint
    } else {
        HistoryRule::Whole
    };
    Retention {
        checkpoints,
        ended,
        history,
    }
}

fn now_ms() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// Prints what was found, except the losses of the process table, which are printed after it.
fn print_report(
    report: &CollectionReport,
    lost: &[String],
    mode: SweepMode,
    policy: UnreadablePolicy,
    live_percent: u8,
) -> std::io::Result<()> {
    let CollectionReport {
        deletions,
        live_contents,
        unreadable,
        swept,
        ..
    } = report;
    let freed = freed(mode);
    let mut out = terminal::stdout();
    print_deletions(
        &mut out,
        mode,
        [
            deletions.checkpoints.len() as u64,
            deletions.processes.len() as u64,
            deletions.histories.len() as u64,
        ],
    )?;
    if swept.outcome == SweepOutcome::Interrupted {
        let so_far = match mode {
            SweepMode::Count => "nothing was changed, and these counts are not complete",
            SweepMode::Free => {
                "what was deleted stays deleted, and the next gc continues to free space"
            }
        };
        writeln!(out, "stopped early: {so_far}")?;
    }
    if swept.bytes_before > 0 {
        writeln!(
            out,
            "{freed}  {} of {} segments; {} contents of {} bytes; {} bytes moved",
            swept.freed_segments,
            swept.segments,
            swept.freed_contents,
            swept.freed_content_bytes,
            swept.moved_bytes
        )?;
        writeln!(
            out,
            "log  {} bytes before, {} after; {live_contents} contents are referenced",
            swept.bytes_before, swept.bytes_after
        )?;
    }
    // Below a tenth of the log, another collection is not worth its cost.
    if swept.kept_garbage_bytes >= swept.bytes_after / 10 && swept.kept_garbage_bytes > 0 {
        let kept = swept.kept_garbage_bytes;
        let advice = if live_percent < MAX_ADVISED_LIVE_PERCENT {
            format!(
                ": --live-percent {MAX_ADVISED_LIVE_PERCENT} moves the live part and frees them"
            )
        } else {
            String::new()
        };
        writeln!(
            out,
            "{kept} bytes of garbage stay in segments that are mostly live{advice}"
        )?;
    }
    for segment in &swept.damaged_segments {
        writeln!(
            out,
            "segment {segment:08} is damaged and was not changed: see dormouse fsck"
        )?;
    }
    for description in unreadable.iter().filter(|text| !lost.contains(text)) {
        writeln!(out, "unreadable: {}", terminal::one_line(description))?;
    }
    if !unreadable.is_empty() {
        writeln!(out, "{}", unreadable_text(policy))?;
    }
    Ok(())
}

/// Prints how many checkpoints, processes and histories are deleted.
pub(crate) fn print_deletions(
    out: &mut impl Write,
    mode: SweepMode,
    [checkpoints, processes, histories]: [u64; 3],
) -> std::io::Result<()> {
    let deleted = match mode {
        SweepMode::Count => "would delete",
        SweepMode::Free => "deleted",
    };
    writeln!(
        out,
        "{deleted}  {checkpoints} checkpoints, {processes} processes, the older history of \
         {histories} processes"
    )
}

/// The word before what is freed.
pub(crate) fn freed(mode: SweepMode) -> &'static str {
    match mode {
        SweepMode::Count => "would free",
        SweepMode::Free => "freed",
    }
}

/// What a collection does because records cannot be read.
fn unreadable_text(policy: UnreadablePolicy) -> &'static str {
    match policy {
        UnreadablePolicy::KeepAll => {
            "unreadable records may refer to any content, so all contents are kept. If one of them \
             may be a checkpoint, all processes that it may need are kept as well. \
             --despite-damage deletes what no readable record refers to"
        }
        UnreadablePolicy::Discard => {
            "--despite-damage deletes what no readable record refers to, even if an unreadable one \
             may refer to it"
        }
    }
}

/// Milliseconds of an age like `30d`, `12h`, `15m` or `40s`.
pub(crate) fn parse_age(text: &str) -> anyhow::Result<u64> {
    let invalid =
        || anyhow!("'{text}' is not an age: give a number and one of d, h, m, s, as in 30d");
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(invalid)?;
    let seconds: u64 = match unit {
        "d" => 86_400,
        "h" => 3_600,
        "m" => 60,
        "s" => 1,
        _ => return Err(invalid()),
    };
    let number: u64 = number.parse().map_err(|_| invalid())?;
    number.checked_mul(seconds * 1_000).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::parse_age;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        let cases = [
            ("30d", Some(2_592_000_000)),
            ("12h", Some(43_200_000)),
            ("0s", Some(0)),
            ("2m", Some(120_000)),
        ];
        let wrong =
            ["", "d", "30", "3w", "-1d", "99999999999999999d", "1ä"].map(|text| (text, None));
        for (text, expected) in cases.into_iter().chain(wrong) {
            assert_eq!(parse_age(text).ok(), expected, "{text:?}");
        }
    }
}
