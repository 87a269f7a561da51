//! `dormouse gc`: deletes what the rules select, and frees the space that nothing needs.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use dormouse::KernelError;
use dormouse::garbage::{Collection, Garbage, Unreadable, collect};
use dormouse::inventory::Inventory;
use dormouse::ports::{Bounds, OwnerToken, Progress, Purpose, Store as _, StoreError};
use dormouse::retention::{CheckpointRules, EndedRule, HistoryRule, Retention};
use dormouse::store::{LogStore, Options};

use crate::args::Store;
use crate::compose::check_store;
use crate::ps::show_missing;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::{key, terminal};

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
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) older_than: Option<u64>,
    /// Keep the checkpoints of this label, whatever the other rules say, and with them trees that
    /// have ended; may be given several times. A label is chosen by whoever makes a checkpoint, so
    /// pin none that models are told.
    #[arg(long, value_name = "LABEL")]
    pub(crate) pin: Vec<String>,
    /// Delete trees whose processes have all ended at least this long ago, and their checkpoints
    /// with them. A checkpoint keeps its tree only if it has a label of --pin, or is younger than
    /// the age of --older-than.
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub(crate) drop_ended: Option<u64>,
    /// Delete the history of each process before its oldest kept checkpoint.
    #[arg(long)]
    pub(crate) shorten: bool,
    /// Sweep the segments of the log that are live to at most this percentage.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) live_percent: u8,
    /// Delete contents even if journals that may refer to them cannot be read, and processes even
    /// if checkpoints that may need them cannot be read.
    #[arg(long)]
    pub(crate) despite_damage: bool,
}

/// Collects, or counts, and says what that came to. A signal breaks it off at the next step. Exits
/// with 3 where the store cannot list all that it held.
pub(crate) async fn gc(args: Gc) -> Result<ExitCode, Failure> {
    check_store(&args.store.folder)?;
    let has_a_rule =
        args.keep_checkpoints.is_some() || args.older_than.is_some() || args.drop_ended.is_some();
    if !args.pin.is_empty() && !has_a_rule {
        return Err(Failure::Usage(
            "--pin keeps checkpoints that other rules give up, and none was named: add \
             --keep-checkpoints N, --older-than AGE or --drop-ended AGE. Without them all \
             checkpoints are kept"
                .to_owned(),
        ));
    }
    let options = key::options(&args.store.key)?;
    let mut stop = StopSignals::listen()?;
    let goes_on = Arc::new(AtomicBool::new(true));
    let asked = goes_on.clone();
    let purpose = if args.dry_run {
        Purpose::Count
    } else {
        Purpose::Free
    };
    let mut collecting =
        tokio::task::spawn_blocking(move || collected(&args, options, purpose, &asked));
    let (collected, code) = tokio::select! {
        collected = &mut collecting => (collected, 0),
        code = stop.next() => {
            goes_on.store(false, Ordering::Relaxed);
            tokio::select! {
                collected = collecting => (collected, code),
                // A step can be long on a slow disk. To be killed in the middle of one does no
                // harm.
                code = stop.next() => std::process::exit(code.into()),
            }
        }
    };
    let garbage = collected
        .map_err(|error| Failure::Run(error.to_string()))?
        .map_err(KernelError::from)?;
    let (garbage, lost) = garbage;
    report(&garbage, purpose)?;
    if !lost.is_empty() {
        show_missing(&mut terminal::stdout(), &lost, false)?;
        return Ok(ExitCode::from(3));
    }
    Ok(match garbage.swept.progress {
        Progress::Done => ExitCode::SUCCESS,
        Progress::BrokenOff => ExitCode::from(code),
    })
}

fn collected(
    args: &Gc,
    options: Options,
    purpose: Purpose,
    goes_on: &AtomicBool,
) -> Result<(Garbage, Vec<String>), StoreError> {
    let (store, owner) = open(args, options, purpose)?;
    let unreadable = if args.despite_damage {
        Unreadable::GiveUp
    } else {
        Unreadable::KeepAll
    };
    let retention = retention(args);
    let live_percent = args.live_percent;
    let collection = Collection {
        owner,
        inventory: &mut Inventory::default(),
        retention: &retention,
        in_use: &BTreeSet::new,
        unreadable,
        purpose,
        bounds: Bounds {
            live_percent,
            ..Bounds::default()
        },
        now_ms: now_ms(),
        forgot: &mut |_| {},
        watch: &mut |_| match goes_on.load(Ordering::Relaxed) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        },
    };
    Ok((collect(&store, collection)?, store.processes()?.lost))
}

/// For counting, the store is opened read-only, so another program may write it meanwhile.
fn open(
    args: &Gc,
    options: Options,
    purpose: Purpose,
) -> Result<(LogStore, OwnerToken), StoreError> {
    match purpose {
        Purpose::Count => Ok((options.read_only(&args.store.folder)?, OwnerToken(0))),
        Purpose::Free => {
            let store = options.open(&args.store.folder)?;
            let owner = store.claim()?;
            Ok((store, owner))
        }
    }
}

fn retention(args: &Gc) -> Retention {
    Retention {
        checkpoints: CheckpointRules {
            last: args.keep_checkpoints,
            younger_ms: args.older_than,
            pinned: args
                .pin
                .iter()
                .map(|label| label.as_str().into())
                .collect::<BTreeSet<_>>(),
        },
        ended: args.drop_ended.map_or(EndedRule::Ever, EndedRule::ForMs),
        history: if args.shorten {
            HistoryRule::FromOldestCheckpoint
        } else {
            HistoryRule::Whole
        },
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn report(garbage: &Garbage, purpose: Purpose) -> std::io::Result<()> {
    let Garbage {
        forgotten,
        live_contents,
        unreadable,
        swept,
        ..
    } = garbage;
    let (gave, freed) = match purpose {
        Purpose::Count => ("would give up", "would free"),
        Purpose::Free => ("gave up", "freed"),
    };
    let mut out = terminal::stdout();
    writeln!(
        out,
        "{gave}  {} checkpoints, {} processes, {} histories in part",
        forgotten.checkpoints.len(),
        forgotten.processes.len(),
        forgotten.histories.len()
    )?;
    if swept.progress == Progress::BrokenOff {
        writeln!(
            out,
            "broken off: what was given up stays so, and the next gc goes on with the room"
        )?;
    }
    if swept.bytes_before > 0 {
        writeln!(
            out,
            "{freed}  {} of {} segments; {} contents of {} bytes; {} bytes moved",
            swept.freed_parts,
            swept.parts,
            swept.dropped_contents,
            swept.dropped_content_bytes,
            swept.moved_bytes
        )?;
        writeln!(
            out,
            "log  {} bytes before, {} after; {live_contents} contents are referred to",
            swept.bytes_before, swept.bytes_after
        )?;
    }
    if swept.left_bytes >= swept.bytes_after / 10 && swept.left_bytes > 0 {
        writeln!(
            out,
            "{} bytes of garbage stay where too much is live: --live-percent 90 moves that and \
             frees them",
            swept.left_bytes
        )?;
    }
    for part in &swept.damaged_parts {
        writeln!(
            out,
            "segment {part:08} holds damage and is left alone: see dormouse fsck"
        )?;
    }
    for what in unreadable {
        writeln!(out, "unreadable: {what}")?;
    }
    if !unreadable.is_empty() {
        writeln!(
            out,
            "what cannot be read may refer to any content: all are kept, but with \
             --despite-damage; and so are all processes where it may have been a checkpoint of \
             theirs"
        )?;
    }
    Ok(())
}

/// Milliseconds of an age like `30d`, `12h`, `15m` or `40s`.
pub(crate) fn age(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no age: give a number and one of d, h, m, s, as in 30d");
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        "d" => 86_400,
        "h" => 3_600,
        "m" => 60,
        "s" => 1,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds * 1_000).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::age;

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
            assert_eq!(age(text).ok(), expected, "{text:?}");
        }
    }
}
