//! `dormouse fsck`: looks a store over, and mends what can be.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use dormouse::garbage::Piece;
use dormouse::id::{ContentHash, Pid};
use dormouse::ports::StoreError;
use dormouse::store::{Finding, Repair, fsck};

use crate::args::Store;
use crate::compose::not_a_store;
use crate::status::{Failure, with_key_hint};
use crate::{key, terminal};

/// `dormouse fsck`
#[derive(Debug, Args)]
pub(crate) struct Fsck {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Repair what can be repaired: rebuild the index, drop damaged snapshots that can be replayed, record what is lost.
    #[arg(long)]
    pub(crate) repair: bool,
}

/// Reports the damage. Exits with 0 where there is none, 1 where there is some, 2 where the store cannot be looked over.
pub(crate) fn run(args: &Fsck) -> Result<ExitCode, Failure> {
    let repair = if args.repair { Repair::Yes } else { Repair::No };
    let mut holders: HashMap<ContentHash, BTreeSet<Pid>> = HashMap::new();
    let mut undecoded = Vec::new();
    let mut note = |pid: Pid, piece: Piece<'_>| match piece.contents() {
        Ok(contents) => contents.into_iter().for_each(|hash| holders.entry(hash).or_default().extend([pid])),
        Err(error) => undecoded.push(format!("process {pid}: a record with the right hash has no meaning: {error}")),
    };
    if !args.store.folder.join("log").is_dir() {
        return Err(not_a_store(&args.store.folder));
    }
    let checkup = match fsck(&args.store.folder, &key::options(&args.store.key)?, repair, &mut note) {
        Ok(checkup) => checkup,
        Err(error @ StoreError::Key { .. }) => return Err(Failure::Usage(with_key_hint(&error))),
        Err(error) => return Err(Failure::Usage(error.to_string())),
    };
    let mut out = terminal::stdout();
    for finding in &checkup.findings {
        writeln!(out, "{finding}{}", held_by(finding, &holders))?;
    }
    for line in &undecoded {
        writeln!(out, "{line}")?;
    }
    let damage = checkup.findings.len() + undecoded.len();
    let mendable = checkup.findings.iter().filter(|finding| finding.can_be_mended()).count();
    writeln!(
        out,
        "{} records, {} bytes, {damage} {}: {}",
        checkup.records,
        checkup.bytes,
        if damage == 1 { "finding" } else { "findings" },
        verdict(damage, mendable, repair)
    )?;
    Ok(if damage == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// What follows from so many findings.
fn verdict(damage: usize, mendable: usize, repair: Repair) -> String {
    const REST: &str = "It stays as it is, and all else can be used; a copy of the segment can be put back";
    match (damage, mendable, repair) {
        (0, _, _) => "whole".to_owned(),
        (_, 0, _) => format!("damaged. None of it can be mended. {REST}"),
        (_, _, Repair::No) => format!("damaged. --repair mends {mendable} of {damage}; nothing was changed"),
        (_, _, Repair::Yes) if mendable == damage => "damaged. All of it was mended".to_owned(),
        (_, _, Repair::Yes) => format!("damaged. {mendable} of {damage} are mended. The rest cannot be. {REST}"),
    }
}

/// Who has a descriptor of a damaged content, or another use for it.
fn held_by(finding: &Finding, holders: &HashMap<ContentHash, BTreeSet<Pid>>) -> String {
    let Finding::Content { hash } = finding else { return String::new() };
    let pids = holders.get(hash).into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
    if pids.is_empty() {
        ". Nothing refers to it".to_owned()
    } else {
        format!(". It is held by process {}", pids.join(", "))
    }
}
