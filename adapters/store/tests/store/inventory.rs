//! Inventories: a pass reads only new records, and a missing record never counts as a record
//! without references.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::inventory::{Inventory, Removals, ShortName};
use dormouse_actors::ports::{InventoryReport, InventoryUpdate, Store as _, SweepOutcome, WriteOp};
use dormouse_store::LogStore;

use crate::support::*;

/// One segment per commit.
fn open(folder: &Path) -> Result<LogStore, String> {
    LogStore::options()
        .segment_bytes(1)
        .open(folder)
        .map_err(|error| error.to_string())
}

/// Updates an inventory, and stops after a number of parts. A fact or image references the content
/// that has the same bytes.
fn update_inventory(
    store: &LogStore,
    inventory: &mut Inventory,
    mut parts: usize,
) -> InventoryReport {
    let references = &mut |record: EncodedRecord<'_>| {
        let (EncodedRecord::Image(bytes)
        | EncodedRecord::Fact(bytes)
        | EncodedRecord::TempFile(bytes)) = record;
        Ok(vec![hash(bytes)])
    };
    let watch = &mut || {
        parts = parts.saturating_sub(1);
        if parts == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    store
        .update_inventory(InventoryUpdate {
            inventory,
            references,
            watch,
        })
        .unwrap()
}

fn has_reference(inventory: &Inventory, bytes: &[u8]) -> bool {
    inventory.is_referred_to(ShortName::of(&hash(bytes).0), &Removals::default())
}

const UNLIMITED: usize = usize::MAX;

#[test]
fn a_pass_reads_only_records_after_the_last_pass() {
    let folder = tempdir();
    let store = open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), created(2)]);
    commit(&store, owner, &[facts(1, 1..=3), temp_file(2, 1)]);
    let mut inventory = Inventory::default();
    // Each segment starts with a record of its own.
    assert_eq!(
        update_inventory(&store, &mut inventory, UNLIMITED).records,
        3 + 3
    );
    assert_eq!(
        update_inventory(&store, &mut inventory, UNLIMITED),
        InventoryReport::default()
    );
    commit(&store, owner, &[facts(2, 1..=1)]);
    assert_eq!(
        update_inventory(&store, &mut inventory, UNLIMITED).records,
        2
    );
    for record in [
        fact(1, 1),
        fact(1, 3),
        fact(2, 1),
        change(2, 1),
        b"image of 1".to_vec(),
    ] {
        assert!(has_reference(&inventory, &record), "{record:?}");
    }
    commit(&store, owner, &[snapshot(1, 2)]);
    commit(&store, owner, &[history_truncated(1, 2)]);
    commit(&store, owner, &[process_deleted(2)]);
    assert_eq!(
        update_inventory(&store, &mut inventory, UNLIMITED).records,
        6
    );
    for gone in [
        fact(1, 1),
        fact(1, 2),
        fact(2, 1),
        change(2, 1),
        b"image of 1".to_vec(),
    ] {
        assert!(!has_reference(&inventory, &gone), "{gone:?}");
    }
    assert!(
        has_reference(&inventory, &fact(1, 3)) && has_reference(&inventory, b"image of 1 at 2")
    );
    drop(store);
    let store = open(folder.path()).unwrap();
    assert!(
        update_inventory(&store, &mut inventory, UNLIMITED).records >= 14,
        "an inventory is of one opened store"
    );
    assert!(has_reference(&inventory, &fact(1, 3)) && !has_reference(&inventory, &fact(1, 1)));
    assert!(
        inventory.unreadable().is_empty(),
        "{:?}",
        inventory.unreadable()
    );
}

#[test]
fn an_interrupted_pass_continues_where_it_stopped() {
    let folder = tempdir();
    let store = open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    (1..=20).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    let (mut inventory, mut records, mut broken_off) = (Inventory::default(), 0, 0);
    loop {
        let taken = update_inventory(&store, &mut inventory, 4);
        records += taken.records;
        match taken.outcome {
            SweepOutcome::Interrupted => broken_off += 1,
            SweepOutcome::Done => break,
        }
    }
    assert_eq!(records, 42);
    assert!(broken_off >= 5, "{broken_off}");
    assert!((1..=20).all(|number| has_reference(&inventory, &fact(1, number))));
    assert!(
        inventory.unreadable().is_empty(),
        "{:?}",
        inventory.unreadable()
    );
}

/// Damage to the file of a segment.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Removed,
    /// A flipped bit in the second record, at this byte.
    Flipped(usize),
}

#[test]
fn a_process_with_missing_records_has_unknown_references() {
    // The commits, and whether a process is incomplete without the first record of each.
    let commits: [(Vec<WriteOp>, bool); 6] = [
        (vec![created(1)], true),
        (vec![facts(1, 1..=2)], true),
        (vec![content(&bytes(1, 500))], false),
        (vec![temp_file(1, 1)], true),
        (vec![facts(1, 3..=3)], true),
        (vec![facts(1, 4..=4)], true),
    ];
    let whole = tempdir();
    let store = open(whole.path()).unwrap();
    let owner = store.claim().unwrap();
    commits
        .iter()
        .for_each(|(entries, _)| commit(&store, owner, entries));
    commit(&store, owner, &[content(&bytes(2, 500))]);
    drop(store);
    let mut refused = 0;
    for (number, (entries, is_needed)) in (1..).zip(&commits) {
        for damage in [
            Damage::Removed,
            Damage::Flipped(40),
            Damage::Flipped(168 + 6),
        ] {
            let case = format!("{damage:?} in segment {number}: {entries:?}");
            let folder = tempdir();
            copy_folder(whole.path(), folder.path());
            let path = folder.path().join(format!("log/{number:08}.seg"));
            match damage {
                Damage::Removed => fs::remove_file(&path).unwrap(),
                Damage::Flipped(at) => {
                    let mut bytes = fs::read(&path).unwrap();
                    // After the first record of the segment.
                    bytes[200 + at] ^= 1;
                    fs::write(&path, bytes).unwrap();
                }
            }
            let Ok(store) = open(folder.path()) else {
                refused += 1;
                continue;
            };
            let mut inventory = Inventory::default();
            update_inventory(&store, &mut inventory, UNLIMITED);
            let lost = [store.processes().unwrap().losses, inventory.unreadable()].concat();
            assert!(!is_needed || !lost.is_empty(), "{case}");
        }
    }
    assert!(
        refused <= 6,
        "most of these stores can be opened: {refused} cannot"
    );
}
