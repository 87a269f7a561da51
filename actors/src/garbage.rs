//! Collecting garbage: what the retention rules give up, what nothing refers to any more, and the
//! room that both took.
//!
//! A collection has three steps. It reads what was written since the last collection into an
//! inventory. It applies the rules, each as a commit of its own, after which no reader sees what
//! was given up. Then the store sweeps what the inventory does not need. Processes commit
//! meanwhile: the store notes what their commits refer to, from a mark on that is set before the
//! first step.
//!
//! The inventory stays in memory between collections, so a collection costs what changed since the
//! last one. The first one after a start reads every journal that is kept.
//!
//! A collection runs in a thread where blocking is allowed, and asks before each bounded part of
//! its work whether to continue. If it is stopped, what was given up stays given up, nothing more
//! is freed, and the next collection continues.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use dormouse_kernel::inventory::Inventory;
use dormouse_kernel::retention::{Retention, by_tree, without_ancestors};
use dormouse_proto::id::{CheckpointId, ContentHash, Pid};
use dormouse_proto::record::codec::{self, CodecError};
use dormouse_proto::record::{ContentRef, Fact, Image};
use dormouse_proto::temp_file::TempFileRecord;

use crate::ports::{
    Batch, Bounds, Contents, Forgotten, MarkToken, OwnerToken, Progress, Purpose, Step,
    StockTaking, Store, StoreError, Sweep, Swept, SyncLevel, WriteOp,
};

/// An order to collect garbage.
pub struct Collection<'a> {
    /// Who may write.
    pub owner: OwnerToken,
    /// What the last collection of this opened store found; an empty one costs a pass over
    /// everything that is kept.
    pub inventory: &'a mut Inventory,
    /// What is given up.
    pub retention: &'a Retention,
    /// Checkpoints that somebody is about to use: they are kept. Asked after the checkpoints of the
    /// store were listed.
    pub in_use: &'a dyn Fn() -> BTreeSet<CheckpointId>,
    /// What becomes of contents and processes while something that may need them cannot be read.
    pub unreadable: Unreadable,
    /// Whether anything is written.
    pub purpose: Purpose,
    /// How the work is divided.
    pub bounds: Bounds,
    /// The time: milliseconds since the epoch, UTC.
    pub now_ms: u64,
    /// Told of the processes that were given up, as soon as the store says so, whatever becomes of
    /// the rest.
    pub forgot: &'a mut dyn FnMut(&BTreeSet<Pid>),
    /// Asked before each stage; to break off leaves the store whole.
    pub watch: &'a mut dyn FnMut(Stage) -> ControlFlow<()>,
}

/// A bounded part of a collection, about to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// To read some of what came to the store.
    Read,
    /// A step of the sweep.
    Sweep(Step),
}

/// What becomes of contents and processes while something that may need them cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// All are kept: a part that cannot be read may refer to any of them, and may be put back from
    /// a copy. Where it may have been a checkpoint or a process, those that there are are kept as
    /// well, with their histories.
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
    /// Records of the log that were read to find out.
    pub read: u64,
    /// What cannot be read, and so may refer to anything.
    pub unreadable: Vec<String>,
    /// What became of the room.
    pub swept: Swept,
}

/// Collects the garbage of a store, or counts it. Blocks; costs a read of what came to the store
/// since the inventory was last brought up, and of what is moved: for an empty inventory a pass
/// over the log. One collection at a time frees: a later one makes this one fail.
///
/// # Errors
/// As those of the store. What was given up or freed before stays so.
pub fn collect(store: &dyn Store, order: Collection<'_>) -> Result<Garbage, StoreError> {
    let Collection {
        owner,
        inventory,
        retention,
        in_use,
        unreadable,
        purpose,
        bounds,
        now_ms,
        forgot,
        watch,
    } = order;
    let begun = match purpose {
        Purpose::Free => Begun {
            store,
            token: store.begin_mark(owner)?,
        },
        Purpose::Count => Begun {
            store,
            token: MarkToken::default(),
        },
    };
    let mut garbage = Garbage::default();
    let mut stock = Stock {
        store,
        inventory,
        watch,
    };
    if stock.take(&mut garbage)? == Progress::Done {
        garbage.forgotten = stock.chosen(retention, in_use, unreadable, now_ms)?;
        if purpose == Purpose::Free {
            forget(store, owner, now_ms, &mut garbage.forgotten, forgot)?;
            stock.take(&mut garbage)?;
        }
    }
    let Stock {
        inventory, watch, ..
    } = stock;
    let to_come = if purpose == Purpose::Free {
        Forgotten::default()
    } else {
        garbage.forgotten.clone()
    };
    let losses = inventory.losses(&to_come);
    garbage.live_contents = inventory.live_contents(&losses);
    let missing = store.processes()?.missing().map(str::to_owned).collect();
    garbage.unreadable = [missing, inventory.unreadable()].concat();
    if garbage.swept.progress == Progress::Done {
        let are_all_kept = unreadable == Unreadable::KeepAll && !garbage.unreadable.is_empty();
        let contents = if are_all_kept {
            Contents::All
        } else {
            Contents::Referred
        };
        let watch = &mut |step| watch(Stage::Sweep(step));
        let (mark, forgotten) = (begun.token, &to_come);
        garbage.swept = store.sweep(
            owner,
            Sweep {
                mark,
                inventory,
                contents,
                forgotten,
                purpose,
                bounds,
                watch,
            },
        )?;
    }
    if !garbage.unreadable.is_empty() {
        // What is missing may be put back, so the next collection looks at everything again.
        *inventory = Inventory::default();
    }
    Ok(garbage)
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

/// What is known of a store.
struct Stock<'a, 'w> {
    store: &'a dyn Store,
    inventory: &'a mut Inventory,
    watch: &'w mut dyn FnMut(Stage) -> ControlFlow<()>,
}

impl Stock<'_, '_> {
    /// Brings the inventory up to what the store holds now.
    fn take(&mut self, garbage: &mut Garbage) -> Result<Progress, StoreError> {
        let (inventory, watch) = (&mut *self.inventory, &mut || (self.watch)(Stage::Read));
        let references = &mut |piece: Piece<'_>| piece.contents();
        let taken = self.store.take_stock(StockTaking {
            inventory,
            references,
            watch,
        });
        if taken.is_err() {
            *self.inventory = Inventory::default();
        }
        let taken = taken?;
        garbage.read += taken.records;
        garbage.swept.progress = taken.progress;
        Ok(taken.progress)
    }

    /// What the rules give up. Where a checkpoint or a process may be among what is lost,
    /// acknowledged or not, those that there are are kept.
    fn chosen(
        &self,
        retention: &Retention,
        in_use: &dyn Fn() -> BTreeSet<CheckpointId>,
        unreadable: Unreadable,
        now_ms: u64,
    ) -> Result<Forgotten, StoreError> {
        let listing = self.store.processes()?;
        let are_some_lost = unreadable == Unreadable::KeepAll && listing.missing().next().is_some();
        let of_checkpoints = Retention {
            checkpoints: retention.checkpoints.clone(),
            ..Retention::default()
        };
        let retention = if are_some_lost {
            &of_checkpoints
        } else {
            retention
        };
        let ended_ms = |pid| self.inventory.ended_ms(pid);
        let begins = |pid, floor| self.inventory.generation_before(pid, floor);
        let checkpoints = self.store.checkpoints()?;
        Ok(retention.forgotten(
            &listing.rows,
            checkpoints,
            &in_use(),
            ended_ms,
            begins,
            now_ms,
        ))
    }
}

/// Makes durable what is given up: a commit for each checkpoint, tree and history. What the store
/// refuses since something needs it again is kept.
fn forget(
    store: &dyn Store,
    owner: OwnerToken,
    at_ms: u64,
    forgotten: &mut Forgotten,
    forgot: &mut dyn FnMut(&BTreeSet<Pid>),
) -> Result<(), StoreError> {
    let give_up = |entries: &[WriteOp]| match store.commit(
        owner,
        Batch {
            ops: entries,
            at_ms,
            until: SyncLevel::Written,
        },
    ) {
        Ok(()) => Ok(true),
        Err(StoreError::Refused { .. } | StoreError::UnknownProcess(_)) => Ok(false),
        Err(StoreError::UnknownCheckpoint(_)) => Ok(true),
        Err(error) => Err(error),
    };
    let mut failed = None;
    let mut keeps = |outcome: Result<bool, StoreError>| {
        outcome.unwrap_or_else(|error| {
            failed.get_or_insert(error);
            false
        })
    };
    // Somebody may have been born meanwhile who goes on from one of them: that one stays, and so do
    // its checkpoints.
    let rows = store.processes()?.rows;
    let going = without_ancestors(&rows, forgotten.processes.clone());
    let staying: BTreeSet<Pid> = forgotten.processes.difference(&going).copied().collect();
    let mut kept = store.checkpoints()?;
    kept.retain(|checkpoint| {
        checkpoint
            .members
            .iter()
            .any(|member| staying.contains(&member.pid))
    });
    forgotten
        .checkpoints
        .retain(|id| kept.iter().all(|checkpoint| checkpoint.id != *id));
    forgotten.processes = going;
    forgotten
        .checkpoints
        .retain(|id| keeps(give_up(&[WriteOp::CheckpointDropped { id: *id }])));
    // A tree goes as a whole, wherever a collection ends.
    for tree in by_tree(&rows, &forgotten.processes) {
        let entries: Vec<_> = tree
            .iter()
            .map(|pid| WriteOp::ProcessDeleted { pid: *pid })
            .collect();
        if !keeps(give_up(&entries)) {
            forgotten.processes.retain(|pid| !tree.contains(pid));
        }
    }
    forgotten.histories.retain(|pid, below| {
        keeps(give_up(&[WriteOp::HistoryTruncated {
            pid: *pid,
            below: *below,
        }]))
    });
    forgot(&forgotten.processes);
    if let Some(error) = failed {
        return Err(error);
    }
    store.commit(owner, Batch::durable(&[], at_ms))
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
            Self::Image(bytes) => {
                let _ = codec::decode::<Image<ContentRef>>(bytes)?.try_map(&mut note);
            }
            Self::Fact(bytes) => drop(codec::decode::<Fact<ContentRef>>(bytes)?.try_map(&mut note)),
            Self::TempFile(bytes) => {
                let _ = codec::decode::<TempFileRecord<ContentRef>>(bytes)?.try_map(&mut note);
            }
        }
        Ok(contents)
    }
}
