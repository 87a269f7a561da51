use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use dormouse_actors::ports::{Batch, Store as _, SyncLevel, WriteOp};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::ProcessRow;

use super::*;
use crate::log_store::LogStore;

#[test]
fn an_index_ahead_of_head_is_valid_if_the_log_is_whole_up_to_its_position() {
    // For each case: which commit after HEAD is damaged, and up to which of the four positions the
    // log is then whole.
    let cases: [(Option<usize>, [bool; 4]); 4] = [
        (None, [true, true, true, true]),
        (Some(0), [false, false, false, false]),
        (Some(1), [true, false, false, false]),
        (Some(2), [true, true, false, false]),
    ];
    for (damaged, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        let commit = |entry| store.commit(owner, Batch::durable(&[entry], 0)).unwrap();
        commit(WriteOp::ProcessCreated {
            row: Box::new(ProcessRow::started(Pid(1), "p")),
            image: vec![1],
        });
        store.writer().sync_head().unwrap();
        let head = store.writer().head_position();
        let positions = [1, 2, 3, 4].map(|number| {
            commit(WriteOp::Facts {
                pid: Pid(1),
                first: FactNumber(number),
                facts: vec![vec![2; 40]],
            });
            store.writer().position()
        });
        assert_eq!(store.writer().head_position(), head, "HEAD lags behind");
        if let Some(number) = damaged {
            let path = folder.path().join("log/00000001.seg");
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[0xA5; 4], positions[number].last)
                .unwrap();
        }
        let are_whole =
            positions.map(|position| is_whole_between(&store.log, head, position).unwrap());
        assert_eq!(
            are_whole, expected,
            "damage to commit {damaged:?} behind HEAD"
        );
        let elsewhere = LogPosition {
            chain: [7; 32],
            ..positions[3]
        };
        assert!(
            !is_whole_between(&store.log, head, elsewhere).unwrap(),
            "a commit that the log does not have"
        );
        drop(store);
    }
}

#[test]
fn the_records_that_are_not_yet_indexed_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let commit = |entry| {
        let entries = [entry];
        store
            .commit(
                owner,
                Batch {
                    sync_level: SyncLevel::Written,
                    ..Batch::durable(&entries, 0)
                },
            )
            .unwrap();
    };
    commit(WriteOp::ProcessCreated {
        row: Box::new(ProcessRow::started(Pid(1), "p")),
        image: vec![1],
    });
    let mut most = 0;
    for number in 1..=MAX_PENDING_RECORDS as u64 + 10 {
        commit(WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(number),
            facts: vec![vec![2]],
        });
        most = most.max(store.index().pending.records());
    }
    assert!(
        most > MAX_PENDING_RECORDS - 10,
        "{most}: records are indexed in batches"
    );
    assert!(
        most <= MAX_PENDING_RECORDS && store.index().pending.records() < 20,
        "{most}"
    );
}

#[test]
fn an_index_that_is_rebuilt_has_only_the_entries_of_the_table_that_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    // The log leads to an entry that is stored by itself, the table that is kept has a shorter one.
    let created = WriteOp::ProcessCreated {
        row: Box::new(ProcessRow::started(Pid(1), "p".repeat(300))),
        image: vec![1],
    };
    store.commit(owner, Batch::durable(&[created], 0)).unwrap();
    let row = ProcessRow::started(Pid(1), "p");
    store
        .index_mut()
        .processes
        .entry_mut(Pid(1), || unreachable!())
        .creation_row = Some(row.clone());
    store.index_mut().drop_locations();
    store.journal(Pid(1), None).unwrap();
    assert!(store.index().is_authoritative(), "it was rebuilt");
    drop(store);
    let store = LogStore::open(folder.path()).unwrap();
    assert!(!store.index().is_authoritative(), "it was used again");
    assert_eq!(store.processes().unwrap().rows, [row]);
}
