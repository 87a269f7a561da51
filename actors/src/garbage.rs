//! Collecting garbage: what the retention rules give up, what nothing refers to any more, and the room that both took.
//!
//! First the rules are applied, each as a commit of its own, so that what is given up is so for every reader from then on. Then
//! the journals of all that is left are read for the contents that they refer to, and the store sweeps the rest. Commits go on
//! all the while: the store knows what they name since the mark began.
//!
//! It runs beside the actors, in a thread where blocking is allowed. It reads every journal that is kept, from one image to the
//! next, and asks before each of these reads whether it is to go on. Where it is broken off, what was given up stays given up,
//! nothing more is freed, and the next collection begins anew.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::io;
use std::ops::ControlFlow;

use dormouse_kernel::retention::{Retention, without_ancestors};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::{ContentRef, Fact, Image};
use dormouse_proto::temp_file::TempFileRecord;

use crate::ports::{
    Batch, Bounds, Contents, Entry, Forgotten, Journal, Live, MarkToken, OwnerToken, Progress, Purpose, Step, Store,
    StoreError, Sweep, Swept, Until,
};

/// An order to collect garbage.
pub struct Collection<'a> {
    /// Who may write.
    pub owner: OwnerToken,
    /// What is given up.
    pub retention: &'a Retention,
    /// What becomes of contents and processes while something that may need them cannot be read.
    pub unreadable: Unreadable,
    /// Whether anything is written.
    pub purpose: Purpose,
    /// How the work is divided.
    pub bounds: Bounds,
    /// The time: milliseconds since the epoch, UTC.
    pub now_ms: u64,
    /// Told of the processes that were given up, as soon as the store says so, whatever becomes of the rest.
    pub forgot: &'a mut dyn FnMut(&BTreeSet<Pid>),
    /// Asked before each stage; to break off leaves the store whole.
    pub watch: &'a mut dyn FnMut(Stage) -> ControlFlow<()>,
}

/// A bounded part of a collection, about to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// To find out whether the rules give up a process, or a part of its history.
    Choose(Pid),
    /// To read what a process refers to, from one image to the next.
    Read(Pid),
    /// A step of the sweep.
    Sweep(Step),
}

/// What becomes of contents and processes while something that may need them cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// All are kept: a part that cannot be read may refer to any of them, and may be put back from a copy. Where it may have
    /// been a checkpoint or a process, those that there are are kept as well, with their histories.
    #[default]
    KeepAll,
    /// Only those that something readable refers to are kept.
    GiveUp,
}

/// What was collected, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// What the rules gave up.
    pub forgotten: Forgotten,
    /// Contents that something refers to.
    pub live_contents: u64,
    /// What cannot be read, and so may refer to anything.
    pub unreadable: Vec<String>,
    /// What became of the room.
    pub swept: Swept,
}

/// Collects the garbage of a store, or counts it. Blocks; costs a pass over the journals that are kept, over the headers of the
/// log, and over what is moved. One collection at a time frees: a later one makes this one fail.
///
/// # Errors
/// As those of the store. What was given up or freed before stays so.
pub fn collect(store: &dyn Store, order: Collection<'_>) -> Result<Garbage, StoreError> {
    let Collection { owner, retention, unreadable, purpose, bounds, now_ms, forgot, watch } = order;
    let begun = match purpose {
        Purpose::Free => Begun { store, token: store.begin_mark(owner)? },
        Purpose::Count => Begun { store, token: MarkToken::default() },
    };
    let mut watch = Watch { ask: watch, progress: Progress::Done };
    let mut forgotten = chosen(store, retention, now_ms, &mut watch)?;
    if unreadable == Unreadable::KeepAll && !store.processes()?.lost.is_empty() {
        (forgotten.processes, forgotten.histories) = Default::default();
    }
    if purpose == Purpose::Free && watch.progress == Progress::Done {
        forget(store, owner, now_ms, &mut forgotten, forgot)?;
    }
    let listing = store.processes()?;
    let mut mark = Mark { unreadable: listing.lost, ..Mark::default() };
    for pid in listing.rows.iter().map(|row| row.pid).filter(|pid| !forgotten.processes.contains(pid)) {
        mark.process(store, pid, forgotten.histories.get(&pid).copied().unwrap_or_default(), &mut watch)?;
    }
    let live_contents = mark.contents.len() as u64;
    if watch.progress == Progress::BrokenOff {
        let swept = Swept { progress: Progress::BrokenOff, ..Swept::default() };
        return Ok(Garbage { forgotten, live_contents, unreadable: mark.unreadable, swept });
    }
    let are_all_kept = unreadable == Unreadable::KeepAll && !mark.unreadable.is_empty();
    let contents = if are_all_kept { Contents::All } else { Contents::These(mark.contents) };
    let live = Live { contents, forgotten };
    let ask = &mut |step| (watch.ask)(Stage::Sweep(step));
    let swept = store.sweep(owner, Sweep { mark: begun.token, live: &live, purpose, bounds, watch: ask })?;
    Ok(Garbage { forgotten: live.forgotten, live_contents, unreadable: mark.unreadable, swept })
}

/// A mark that is over when this is dropped, however the collection ends.
struct Begun<'a> {
    store: &'a dyn Store,
    token: MarkToken,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.store.end_mark(self.token);
    }
}

/// Whoever may break a collection off; asked no more once that was said.
struct Watch<'a> {
    ask: &'a mut dyn FnMut(Stage) -> ControlFlow<()>,
    progress: Progress,
}

impl Watch<'_> {
    fn goes_on(&mut self, stage: Stage) -> bool {
        if self.progress == Progress::Done && (self.ask)(stage).is_break() {
            self.progress = Progress::BrokenOff;
        }
        self.progress == Progress::Done
    }
}

/// What the rules give up; nothing where it was broken off.
fn chosen(
    store: &dyn Store,
    retention: &Retention,
    now_ms: u64,
    watch: &mut Watch<'_>,
) -> Result<Forgotten, StoreError> {
    let rows: Vec<ProcessRow> = store.processes()?.rows;
    let mut kept = store.checkpoints()?;
    let checkpoints = retention.dropped_checkpoints(&kept, now_ms);
    kept.retain(|checkpoint| !checkpoints.contains(&checkpoint.id));
    let asked = RefCell::new(&mut *watch);
    // Of one whose history cannot be read the end is not known, and it is kept.
    let ended_ms = |pid| {
        let goes_on = asked.borrow_mut().goes_on(Stage::Choose(pid));
        goes_on.then(|| store.history(pid).ok()?.last().map(|written| written.at_ms)).flatten()
    };
    let processes = retention.forgotten(&rows, &kept, ended_ms, now_ms);
    let mut histories = BTreeMap::new();
    for (pid, floor) in retention.floors(&kept) {
        if !watch.goes_on(Stage::Choose(pid)) {
            break;
        }
        if let Some(below) = generation_before(store, pid, floor)?.filter(|_| !processes.contains(&pid)) {
            histories.insert(pid, below);
        }
    }
    match watch.progress {
        Progress::Done => Ok(Forgotten { processes, histories, checkpoints }),
        Progress::BrokenOff => Ok(Forgotten::default()),
    }
}

/// Where a history can begin that must reach back to `floor`: at the snapshot before the one that `floor` is read from, so that
/// damage to one leaves another. None where that gives nothing up.
fn generation_before(store: &dyn Store, pid: Pid, floor: FactNumber) -> Result<Option<FactNumber>, StoreError> {
    let base = |upto: FactNumber| match store.journal(pid, Some(upto)) {
        Ok(journal) => Ok(Some(journal.base)),
        Err(StoreError::Io { doing, source }) => Err(StoreError::Io { doing, source }),
        // What is given up already, or cannot be read, is left as it is.
        Err(_) => Ok(None),
    };
    let before = |fact: FactNumber| fact.0.checked_sub(1).map(FactNumber);
    let Some(latest) = base(floor)?.and_then(before) else { return Ok(None) };
    let Some(earlier) = base(latest)? else { return Ok(None) };
    let gives_up = match before(earlier) {
        Some(fact) => base(fact)?.is_some(),
        None => false,
    };
    Ok(gives_up.then_some(earlier))
}

/// Makes durable what is given up, one commit each. What the store refuses since something needs it again is kept.
fn forget(
    store: &dyn Store,
    owner: OwnerToken,
    at_ms: u64,
    forgotten: &mut Forgotten,
    forgot: &mut dyn FnMut(&BTreeSet<Pid>),
) -> Result<(), StoreError> {
    let give_up = |entry: Entry| match store.commit(owner, Batch { entries: &[entry], at_ms, until: Until::Written }) {
        Ok(()) => Ok(true),
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => Ok(false),
        Err(StoreError::UnknownProcess(_) | StoreError::UnknownCheckpoint(_)) => Ok(true),
        Err(error) => Err(error),
    };
    let mut failed = None;
    let mut keeps = |outcome: Result<bool, StoreError>| {
        outcome.unwrap_or_else(|error| {
            failed.get_or_insert(error);
            false
        })
    };
    forgotten.checkpoints.retain(|id| keeps(give_up(Entry::CheckpointDropped { id: *id })));
    // Choosing reads every history: somebody may have been born meanwhile who goes on from one of them.
    let rows = store.processes()?.rows;
    forgotten.processes = without_ancestors(&rows, std::mem::take(&mut forgotten.processes));
    forgotten.processes.retain(|pid| keeps(give_up(Entry::Forgotten { pid: *pid })));
    forgotten.histories.retain(|pid, below| keeps(give_up(Entry::Shortened { pid: *pid, below: *below })));
    forgot(&forgotten.processes);
    if let Some(error) = failed {
        return Err(error);
    }
    store.commit(owner, Batch::durable(&[], at_ms))
}

/// What was come by in journals.
#[derive(Default)]
struct Mark {
    contents: HashSet<ContentHash>,
    unreadable: Vec<String>,
}

impl Mark {
    /// Notes what a process refers to, from fact `since` on, and the temporary files of the tree that begins with it.
    fn process(
        &mut self,
        store: &dyn Store,
        pid: Pid,
        since: FactNumber,
        watch: &mut Watch<'_>,
    ) -> Result<(), StoreError> {
        let mut upto = None;
        loop {
            if !watch.goes_on(Stage::Read(pid)) {
                return Ok(());
            }
            let base = match store.journal(pid, upto) {
                Ok(journal) => self.journal(pid, &journal),
                // It was given up meanwhile, or its history is no longer.
                Err(StoreError::UnknownProcess(_) | StoreError::ForgottenFact { .. }) => break,
                Err(error) => {
                    self.unreadable(pid, error)?;
                    break;
                }
            };
            match base.0.checked_sub(1).map(FactNumber).filter(|_| base > since) {
                Some(before) => upto = Some(before),
                None => break,
            }
        }
        match store.temp_files(pid) {
            Ok(changes) => {
                changes.iter().for_each(|change| self.piece(pid, Piece::TempFile(&change.record)));
                Ok(())
            }
            Err(StoreError::UnknownProcess(_)) => Ok(()),
            Err(error) => self.unreadable(pid, error),
        }
    }

    /// Answers with the fact that the journal's image stands at.
    fn journal(&mut self, pid: Pid, journal: &Journal) -> FactNumber {
        self.piece(pid, Piece::Image(&journal.image));
        journal.facts.iter().for_each(|fact| self.piece(pid, Piece::Fact(fact)));
        journal.base
    }

    fn piece(&mut self, pid: Pid, piece: Piece<'_>) {
        match piece.contents() {
            Ok(contents) => self.contents.extend(contents),
            Err(error) => self.unreadable.push(format!("process {pid}: {error}")),
        }
    }

    /// Notes damage; any other error ends the collection.
    fn unreadable(&mut self, pid: Pid, error: StoreError) -> Result<(), StoreError> {
        match error {
            StoreError::Damaged { what } => {
                self.unreadable.push(format!("process {pid}: {what}"));
                Ok(())
            }
            error => Err(error),
        }
    }
}

/// Something that a journal holds, encoded.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// An image of a process.
    Image(&'a [u8]),
    /// A fact.
    Fact(&'a [u8]),
    /// A change of temporary files.
    TempFile(&'a [u8]),
}

impl Piece<'_> {
    /// The contents that it refers to.
    ///
    /// # Errors
    /// Where it does not decode.
    pub fn contents(self) -> Result<Vec<ContentHash>, CodecError> {
        let mut contents = Vec::new();
        let mut note = |reference: ContentRef| {
            contents.push(reference.hash);
            Ok::<_, Infallible>(reference)
        };
        match self {
            Self::Image(bytes) => drop(codec::decode::<Image<ContentRef>>(bytes)?.try_map(&mut note)),
            Self::Fact(bytes) => drop(codec::decode::<Fact<ContentRef>>(bytes)?.try_map(&mut note)),
            Self::TempFile(bytes) => drop(codec::decode::<TempFileRecord<ContentRef>>(bytes)?.try_map(&mut note)),
        }
        Ok(contents)
    }
}
