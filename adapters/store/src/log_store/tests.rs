use std::ops::ControlFlow;

use bytes::Bytes;
use dormouse_actors::ports::inventory::Inventory;
use dormouse_actors::ports::{Deletions, KeptContents, SweepLimits, WriteOp};
use dormouse_proto::process::ProcessRow;

use super::*;
use crate::head::Head;
use crate::issue::Issue;
use crate::location_index::{LocationIndex, RecordKey};
use crate::record_builder::RecordBuilder;
use dormouse_records::secret::Keys;

const CONTENT: &[u8] = b"content";

/// Commits a process with three facts, two images and a change of temporary files, and a content.
fn fill(store: &LogStore) -> OwnerToken {
    let owner = store.claim().unwrap();
    // The index stores an entry of that length by itself, next to the block of its process.
    let row = ProcessRow::started(Pid(1), "p".repeat(300));
    store
        .commit(
            owner,
            Batch::durable(
                &[WriteOp::ProcessCreated {
                    row: Box::new(row),
                    image: vec![1],
                }],
                0,
            ),
        )
        .unwrap();
    let facts = |first, facts| WriteOp::Facts {
        pid: Pid(1),
        first: FactNumber(first),
        facts,
    };
    let snapshot = WriteOp::Snapshot {
        pid: Pid(1),
        at: FactNumber(1),
        image: vec![5],
    };
    store
        .commit(
            owner,
            Batch::durable(
                &[facts(1, vec![vec![2]]), snapshot, facts(2, vec![vec![3]])],
                0,
            ),
        )
        .unwrap();
    let hash = name_of(CONTENT);
    let bytes = Bytes::from_static(CONTENT);
    let temp_file = WriteOp::TempFile {
        root: Pid(1),
        number: 1,
        record: vec![6],
    };
    store
        .commit(
            owner,
            Batch::durable(
                &[
                    WriteOp::Content {
                        hash,
                        bytes,
                        index: Bytes::new(),
                    },
                    facts(3, vec![vec![4]]),
                    temp_file,
                ],
                0,
            ),
        )
        .unwrap();
    owner
}

/// Changes a value; `None` removes its key.
type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;

/// Damages the index of a closed store.
fn damage_last(folder: &Path, kind: u8, damage: Damage) {
    let keys = Keys::plain(Head::read(&OsDisk, folder).unwrap().unwrap().key);
    LocationIndex::open(&folder.join("index"), keys)
        .unwrap()
        .damage_last(kind, damage);
}

fn name_of(bytes: &[u8]) -> ContentHash {
    ContentHash(*blake3::hash(bytes).as_bytes())
}

fn check_filled(store: &LogStore, case: &str) {
    assert_eq!(store.processes().unwrap().rows.len(), 1, "{case}");
    let journal = store.journal(Pid(1), Some(FactNumber(0))).unwrap();
    assert_eq!((journal.image, journal.facts), (vec![1], vec![]), "{case}");
    let journal = store.journal(Pid(1), None).unwrap();
    let history = [vec![journal.image], journal.facts].concat();
    let from_birth: [&[u8]; 4] = [&[1], &[2], &[3], &[4]];
    let from_snapshot: [&[u8]; 3] = [&[5], &[3], &[4]];
    assert!(
        history == from_birth || history == from_snapshot,
        "{case}: {history:?}"
    );
    assert_eq!(
        store
            .content(name_of(CONTENT))
            .unwrap()
            .slice(0..7)
            .unwrap(),
        CONTENT,
        "{case}"
    );
    assert_eq!(store.temp_files(Pid(1)).unwrap()[0].record, [6], "{case}");
}

#[test]
fn an_index_that_fails_while_the_store_is_open_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = fill(&store);
    store.index_mut().drop_locations();
    check_filled(&store, "lost after commits");
    store.index_mut().drop_locations();
    let fact = WriteOp::Facts {
        pid: Pid(1),
        first: FactNumber(4),
        facts: vec![vec![9]],
    };
    store.commit(owner, Batch::durable(&[fact], 0)).unwrap();
    assert_eq!(
        store.journal(Pid(1), None).unwrap().facts.last().unwrap(),
        &[9]
    );
}

#[test]
fn a_reopened_store_uses_its_index_without_rebuilding_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    fill(&store);
    let loss = Issue::TempFile {
        root: Pid(1),
        number: 9,
    };
    store
        .write_repair_records(
            vec![RecordBuilder::losses_acknowledged(&[loss]).unwrap()],
            0,
        )
        .unwrap();
    assert!(store.index().is_authoritative(), "there was none");
    drop(store);
    for _ in 0..2 {
        let store = LogStore::open(folder.path()).unwrap();
        assert!(!store.index().is_authoritative());
        check_filled(&store, "opened again");
        assert!(
            !store.index().is_authoritative(),
            "it knew all that was asked"
        );
        let owner = store.claim().unwrap();
        store.commit(owner, Batch::durable(&[], 0)).unwrap();
    }
}

#[test]
fn all_losses_stay_acknowledged_if_they_take_several_records() {
    let folder = tempfile::tempdir().unwrap();
    let losses: Vec<_> = (1..=5)
        .map(|number| Issue::TempFile {
            root: Pid(1),
            number,
        })
        .collect();
    let check = |store: &LogStore, case: &str| {
        let acknowledged = store.index().processes().acknowledged_losses();
        assert_eq!(
            acknowledged.into_iter().collect::<Vec<_>>(),
            losses,
            "{case}"
        );
    };
    let store = LogStore::open(folder.path()).unwrap();
    fill(&store);
    store.acknowledge_losses(&losses, 2, 0).unwrap();
    check(&store, "at once");
    drop(store);
    check(&LogStore::open(folder.path()).unwrap(), "reopened");
    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    check(
        &LogStore::open(folder.path()).unwrap(),
        "with an index that is built again",
    );
}

#[test]
fn a_store_is_reopened_without_giving_up_its_lock() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().canonicalize().unwrap();
    fill(&LogStore::open(&dir).unwrap());
    let check_in_use = |case: &str| {
        let other = LogStore::open(&dir);
        assert!(
            matches!(other, Err(StoreError::InUse { .. })),
            "{case}: {other:?}"
        );
    };
    let lock = StoreLock::acquire(&dir).unwrap();
    check_in_use("locked");
    let options = LogStore::options();
    let store = LogStore::open_locked(&dir, &options, lock).unwrap();
    check_in_use("opened under the lock");
    let store = store.reopen(&options).unwrap();
    check_filled(&store, "reopened");
    check_in_use("reopened");
    drop(store);
    check_filled(&LogStore::open(&dir).unwrap(), "the lock is released");
}

#[test]
fn a_lost_or_changed_key_of_the_index_changes_no_answer() {
    let flip = |mut value: Vec<u8>| {
        value[5] ^= 1;
        Some(value)
    };
    let kinds_of_damage: [(&str, Damage); 2] = [("lost", |_| None), ("changed", flip)];
    for kind in *b"fsctbpm" {
        for (word, damage) in kinds_of_damage {
            let folder = tempfile::tempdir().unwrap();
            fill(&LogStore::open(folder.path()).unwrap());
            damage_last(folder.path(), kind, damage);
            let case = format!("a key of kind {} was {word}", char::from(kind));
            check_filled(&LogStore::open(folder.path()).unwrap(), &case);
        }
    }
}

#[test]
fn large_contents_are_read_from_the_memory_map_of_their_segment() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let bytes = Bytes::from(vec![7; 300_000]);
    let hash = name_of(&bytes);
    store
        .commit(
            owner,
            Batch::durable(
                &[WriteOp::Content {
                    hash,
                    bytes: bytes.clone(),
                    index: Bytes::new(),
                }],
                0,
            ),
        )
        .unwrap();
    let read = || store.content(hash).unwrap().slice(0..300_000).unwrap();
    let first = read();
    let second = read();
    assert_eq!(
        first.as_ptr(),
        second.as_ptr(),
        "both are slices of one map"
    );
    drop(store);
    assert_eq!(first, bytes, "a slice outlives the store");
}

#[test]
fn a_commit_can_reference_a_content_whose_key_the_index_lost() {
    let folder = tempfile::tempdir().unwrap();
    fill(&LogStore::open(folder.path()).unwrap());
    damage_last(folder.path(), b'c', |_| None);
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let commit_reference = |hash, number| {
        let fact = WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(number),
            facts: vec![vec![9]],
        };
        store.commit(
            owner,
            Batch::durable(&[WriteOp::ContentReferenced { hash }, fact], 0),
        )
    };
    commit_reference(name_of(CONTENT), 4).unwrap();
    let unknown = commit_reference(name_of(b"another"), 5);
    assert!(
        matches!(unknown, Err(StoreError::UnknownContent(_))),
        "{unknown:?}"
    );
    assert_eq!(
        store
            .content(name_of(CONTENT))
            .unwrap()
            .slice(0..7)
            .unwrap(),
        CONTENT
    );
    assert_eq!(
        store.journal(Pid(1), None).unwrap().facts.last().unwrap(),
        &[9]
    );
}

#[test]
fn a_dropped_image_is_not_returned_although_its_record_is_readable() {
    for with_index in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let check = |store: &LogStore, case: &str| {
            let journal = store.journal(Pid(1), None).unwrap();
            assert_eq!(
                (journal.base, journal.image),
                (FactNumber(0), vec![1]),
                "{case}"
            );
            let is_indexed = store
                .query_index(|index| index.contains_key(&RecordKey::Image(Pid(1), FactNumber(1))))
                .unwrap();
            assert!(!is_indexed, "{case}: the index has it");
        };
        let store = LogStore::open(folder.path()).unwrap();
        fill(&store);
        // Flush first, so that the drop has to remove the key from the index on disk.
        store.flush_index().unwrap();
        assert_eq!(store.journal(Pid(1), None).unwrap().base, FactNumber(1));
        store
            .write_repair_records(
                vec![RecordBuilder::snapshot_dropped(Pid(1), FactNumber(1))],
                0,
            )
            .unwrap();
        check(&store, "at once");
        store.index_mut().drop_locations();
        check(&store, "with an index that is built again");
        drop(store);
        if !with_index {
            std::fs::remove_dir_all(folder.path().join("index")).unwrap();
        }
        check(
            &LogStore::open(folder.path()).unwrap(),
            &format!("reopened, with index: {with_index}"),
        );
    }
}

#[test]
fn compaction_removes_the_keys_of_a_truncated_history_from_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        LogStore::options()
            .segment_bytes(1)
            .open(folder.path())
            .unwrap()
    };
    let store = open();
    let owner = fill(&store);
    store
        .commit(
            owner,
            Batch::durable(
                &[WriteOp::HistoryTruncated {
                    pid: Pid(1),
                    below: FactNumber(1),
                }],
                0,
            ),
        )
        .unwrap();
    let mark = store.begin_mark(owner).unwrap();
    let inventory = &mut Inventory::default();
    let deletions = &Deletions::default();
    let watch = &mut |_| ControlFlow::Continue(());
    let limits = SweepLimits {
        live_percent: 99,
        ..SweepLimits::default()
    };
    let order = SweepRequest {
        mark,
        inventory,
        contents: KeptContents::All,
        deletions,
        mode: SweepMode::Free,
        limits,
        watch,
    };
    assert!(store.sweep(owner, order).unwrap().freed_segments > 0);
    let names = [
        RecordKey::Image(Pid(1), FactNumber(0)),
        RecordKey::Facts(Pid(1), FactNumber(1)),
    ];
    let check = |store: &LogStore, case: &str| {
        for name in names {
            assert!(
                !store
                    .query_index(|index| index.contains_key(&name))
                    .unwrap(),
                "{case}: {name:?}"
            );
        }
        assert!(
            store
                .query_index(|index| index.contains_key(&RecordKey::Image(Pid(1), FactNumber(1))))
                .unwrap(),
            "{case}"
        );
        let before = store.journal(Pid(1), Some(FactNumber(0)));
        assert!(
            matches!(before, Err(StoreError::DeletedFact { .. })),
            "{case}: {before:?}"
        );
        assert_eq!(
            store.journal(Pid(1), None).unwrap().base,
            FactNumber(1),
            "{case}"
        );
    };
    check(&store, "at once");
    drop(store);
    check(&open(), "reopened");
    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    check(&open(), "with an index that is built again");
}
