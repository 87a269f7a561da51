//! Garbage collection: it deletes unreferenced contents, and must keep everything else.
//!
//! A collection begins a mark, then takes an inventory, which says what journals refer to, then
//! sweeps. What commits refer to after the mark began is kept as well. `entries.rs` makes the
//! operations to commit, and `subject.rs` runs them on the store under test.

use std::ops::ControlFlow;

use bytes::Bytes;
use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::inventory::Inventory;
use dormouse_actors::ports::{
    Deletions, InventoryUpdate, KeptContents, MarkToken, OwnerToken, Store, StoreError,
    SweepLimits, SweepMode, SweepReport, SweepRequest, SweepStep, WriteOp,
};
use dormouse_proto::id::ContentHash;

use crate::entries::*;
use crate::subject::*;

/// The bounds of a collection that frees every part of the log with any garbage, in small steps.
pub const THOROUGH: SweepLimits = SweepLimits {
    live_percent: 99,
    step_bytes: 400,
    close_bytes: u64::MAX,
};

/// The contents that journals reference. The default keeps all contents.
#[derive(Clone, Debug, Default)]
pub struct LiveContents(Option<Vec<ContentHash>>);

impl LiveContents {
    /// Whether a content is kept.
    #[must_use]
    pub fn contains(&self, hash: ContentHash) -> bool {
        self.0.as_ref().is_none_or(|hashes| hashes.contains(&hash))
    }
}

/// Keeps only these contents: every record of a journal references each of them.
#[must_use]
pub fn keep_only(contents: &[&Bytes]) -> LiveContents {
    LiveContents(Some(contents.iter().map(|bytes| hash(bytes)).collect()))
}

/// The parameters of a collection.
#[derive(Clone, Copy, Debug)]
pub struct CollectionOptions {
    /// The mark of the collection.
    pub mark: MarkToken,
    /// Whether garbage is freed or only counted.
    pub mode: SweepMode,
    /// How much garbage a part must have to be freed, and the size of a step.
    pub limits: SweepLimits,
}

/// Takes an inventory and collects garbage.
///
/// # Errors
/// Those of [`Store::update_inventory`] and [`Store::sweep`].
pub fn sweep_with(
    store: &dyn Store,
    owner: OwnerToken,
    live: &LiveContents,
    CollectionOptions { mark, mode, limits }: CollectionOptions,
    watch: &mut dyn FnMut(SweepStep) -> ControlFlow<()>,
) -> Result<SweepReport, StoreError> {
    let inventory = &mut Inventory::default();
    let references = &mut |_: EncodedRecord<'_>| Ok(live.0.clone().unwrap_or_default());
    store.update_inventory(InventoryUpdate {
        inventory,
        references,
        watch: &mut || ControlFlow::Continue(()),
    })?;
    let contents = if live.0.is_some() {
        KeptContents::Referenced
    } else {
        KeptContents::All
    };
    store.sweep(
        owner,
        SweepRequest {
            mark,
            inventory,
            contents,
            deletions: &Deletions::default(),
            mode,
            limits,
            watch,
        },
    )
}

/// Collects as thoroughly as possible, and calls `watch` before each step.
///
/// # Errors
/// Those of [`sweep_with`].
pub fn sweep_watched(
    store: &dyn Store,
    owner: OwnerToken,
    mark: MarkToken,
    live: &LiveContents,
    watch: &mut dyn FnMut(SweepStep) -> ControlFlow<()>,
) -> Result<SweepReport, StoreError> {
    let options = CollectionOptions {
        mark,
        mode: SweepMode::Free,
        limits: THOROUGH,
    };
    sweep_with(store, owner, live, options, watch)
}

/// Begins a mark and collects as thoroughly as possible.
///
/// # Panics
/// If the store refuses it.
pub fn sweep(store: &dyn Store, owner: OwnerToken, live: &LiveContents) -> SweepReport {
    let mark = store.begin_mark(owner).unwrap();
    sweep_watched(store, owner, mark, live, &mut continue_always).unwrap()
}

/// Counts the garbage that a collection would free.
///
/// # Panics
/// If the store refuses it.
pub fn count_garbage(store: &dyn Store, owner: OwnerToken, live: &LiveContents) -> SweepReport {
    let options = CollectionOptions {
        mark: MarkToken::default(),
        mode: SweepMode::Count,
        limits: THOROUGH,
    };
    sweep_with(store, owner, live, options, &mut continue_always).unwrap()
}

fn continue_always(_: SweepStep) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Commits two processes and twelve contents.
fn fill(subject: &mut Subject, owner: OwnerToken) -> Vec<Bytes> {
    let contents: Vec<_> = (0..12).map(|seed| bytes(seed, 600)).collect();
    commit_ops(subject, owner, &[created(1), created(2)]);
    for (number, bytes) in (1..).zip(&contents) {
        commit_ops(
            subject,
            owner,
            &[
                content(bytes),
                facts(1, number..=number),
                temp_file(1, number),
            ],
        );
    }
    contents
}

/// The contents that are readable.
fn readable<'a>(subject: &mut Subject, contents: &'a [Bytes]) -> Vec<&'a Bytes> {
    let is_read = |bytes: &&Bytes| with_store(subject, |store| read(store, hash(bytes)).is_ok());
    contents.iter().filter(is_read).collect()
}

pub(crate) fn a_sweep_without_a_mark_is_refused(subject: &mut Subject) {
    let owner = claim(subject);
    let contents = fill(subject, owner);
    let error = with_store(subject, |store| {
        let none = MarkToken::default();
        sweep_watched(store, owner, none, &keep_only(&[]), &mut continue_always).unwrap_err()
    });
    assert!(
        matches!(error, StoreError::MarkSuperseded { .. }),
        "{error}"
    );
    assert_eq!(readable(subject, &contents).len(), 12);
}

pub(crate) fn a_sweep_deletes_unreferenced_contents(subject: &mut Subject) {
    let owner = claim(subject);
    let contents = fill(subject, owner);
    let live = keep_only(&[&contents[3], &contents[8]]);
    with_store(subject, |store| {
        // Facts and file changes follow the contents, so that the log may still be writing to its
        // last part.
        sweep(store, owner, &live);
    });
    for referenced in [&contents[3], &contents[8]] {
        let found = with_store(subject, |store| read(store, hash(referenced)).unwrap());
        assert_eq!(found, *referenced);
    }
    check_journal(subject, 1, None, "image of 1", 0, 12);
    let files = with_store(subject, |store| {
        store.temp_files(dormouse_proto::id::Pid(1)).unwrap().len()
    });
    assert_eq!(files, 12);
    // A deleted content can be committed again.
    commit_ops(subject, owner, &[content(&contents[0])]);
    let found = with_store(subject, |store| read(store, hash(&contents[0])).unwrap());
    assert_eq!(found, contents[0]);
}

pub(crate) fn counting_garbage_changes_nothing(subject: &mut Subject) {
    let owner = claim(subject);
    let contents = fill(subject, owner);
    with_store(subject, |store| {
        count_garbage(store, owner, &keep_only(&[]));
    });
    assert_eq!(readable(subject, &contents).len(), 12);
}

pub(crate) fn a_content_that_a_commit_references_survives_an_earlier_mark(subject: &mut Subject) {
    let owner = claim(subject);
    let contents = fill(subject, owner);
    let referenced = &contents[5];
    let reference = WriteOp::ContentReferenced {
        hash: hash(referenced),
    };
    with_store(subject, |store| {
        let first = store.begin_mark(owner).unwrap();
        commit(store, owner, &[reference.clone(), facts(1, 13..=13)]);
        let second = store.begin_mark(owner).unwrap();
        // The first mark may have read this journal before it referenced the content.
        let refused =
            sweep_watched(store, owner, first, &keep_only(&[]), &mut continue_always).unwrap_err();
        assert!(
            matches!(refused, StoreError::MarkSuperseded { .. }),
            "{refused}"
        );
        store.end_mark(first);
        commit(store, owner, std::slice::from_ref(&reference));
        sweep_watched(store, owner, second, &keep_only(&[]), &mut continue_always).unwrap();
        assert_eq!(read(store, hash(referenced)).unwrap(), *referenced);
    });
}

pub(crate) fn only_the_newest_owner_sweeps(subject: &mut Subject) {
    let old = claim(subject);
    let contents = fill(subject, old);
    with_store(subject, |store| {
        let mark = store.begin_mark(old).unwrap();
        store.claim().unwrap();
        let refused =
            sweep_watched(store, old, mark, &keep_only(&[]), &mut continue_always).unwrap_err();
        assert!(matches!(refused, StoreError::Stale { .. }), "{refused}");
        let refused = store.begin_mark(old).unwrap_err();
        assert!(matches!(refused, StoreError::Stale { .. }), "{refused}");
    });
    assert_eq!(readable(subject, &contents).len(), 12);
}
