//! Inventories: what a pass reads again, and that missing records are never taken for records
//! without references.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::inventory::{Inventory, Losses, ShortName};
use dormouse_actors::ports::{InventoryReport, InventoryUpdate, Progress, Store as _, WriteOp};
use dormouse_store::LogStore;

use crate::support::*;

/// One segment per commit.
fn open(folder: &Path) -> Result<LogStore, String> {
    LogStore::options()
        .segment_bytes(1)
        .open(folder)
        .map_err(|error| error.to_string())
}

/// Takes an inventory in a bounded number of parts. A record references the content with its bytes.
fn take(store: &LogStore, inventory: &mut Inventory, mut parts: usize) -> InventoryReport {
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

fn refers(inventory: &Inventory, bytes: &[u8]) -> bool {
    inventory.is_referred_to(ShortName::of(&hash(bytes).0), &Losses::default())
}

const ALL: usize = usize::MAX;

#[test]
fn what_was_gone_through_is_not_read_again() {
    let folder = tempdir();
    let store = open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), created(2)]);
    commit(&store, owner, &[facts(1, 1..=3), temp_file(2, 1)]);
    let mut inventory = Inventory::default();
    // Each segment starts with a record of its own.
    assert_eq!(take(&store, &mut inventory, ALL).records, 3 + 3);
    assert_eq!(
        take(&store, &mut inventory, ALL),
        InventoryReport::default()
    );
    commit(&store, owner, &[facts(2, 1..=1)]);
    assert_eq!(take(&store, &mut inventory, ALL).records, 2);
    for record in [
        fact(1, 1),
        fact(1, 3),
        fact(2, 1),
        change(2, 1),
        b"image of 1".to_vec(),
    ] {
        assert!(refers(&inventory, &record), "{record:?}");
    }
    commit(&store, owner, &[snapshot(1, 2)]);
    commit(&store, owner, &[history_truncated(1, 2)]);
    commit(&store, owner, &[process_deleted(2)]);
    assert_eq!(take(&store, &mut inventory, ALL).records, 6);
    for gone in [
        fact(1, 1),
        fact(1, 2),
        fact(2, 1),
        change(2, 1),
        b"image of 1".to_vec(),
    ] {
        assert!(!refers(&inventory, &gone), "{gone:?}");
    }
    assert!(refers(&inventory, &fact(1, 3)) && refers(&inventory, b"image of 1 at 2"));
    drop(store);
    let store = open(folder.path()).unwrap();
    assert!(
        take(&store, &mut inventory, ALL).records >= 14,
        "an inventory is of one opened store"
    );
    assert!(refers(&inventory, &fact(1, 3)) && !refers(&inventory, &fact(1, 1)));
    assert!(
        inventory.unreadable().is_empty(),
        "{:?}",
        inventory.unreadable()
    );
}

#[test]
fn what_was_broken_off_goes_on_where_it_was() {
    let folder = tempdir();
    let store = open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    (1..=20).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    let (mut inventory, mut records, mut broken_off) = (Inventory::default(), 0, 0);
    loop {
        let taken = take(&store, &mut inventory, 4);
        records += taken.records;
        match taken.progress {
            Progress::Interrupted => broken_off += 1,
            Progress::Done => break,
        }
    }
    assert_eq!(records, 42);
    assert!(broken_off >= 5, "{broken_off}");
    assert!((1..=20).all(|number| refers(&inventory, &fact(1, number))));
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
fn a_part_of_a_journal_that_is_missing_may_refer_to_anything() {
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
            take(&store, &mut inventory, ALL);
            let lost = [store.processes().unwrap().lost, inventory.unreadable()].concat();
            assert!(!is_needed || !lost.is_empty(), "{case}");
        }
    }
    assert!(
        refused <= 6,
        "most of these stores can be opened: {refused} cannot"
    );
}
