//! Recovery after a crash: the store contains every acknowledged commit, and any other commit
//! completely or not at all.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use dormouse_actors::ports::{Batch, Store as _, StoreError, SyncLevel};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_store::LogStore;

use crate::support::*;

fn segment(folder: &Path, number: u32) -> PathBuf {
    folder.join("log").join(format!("{number:08}.seg"))
}

fn last_fact(store: &LogStore, pid: u64) -> u64 {
    let journal = store.journal(Pid(pid), None).unwrap();
    let expected: Vec<_> = (1..=journal.facts.len() as u64)
        .map(|number| fact(pid, number))
        .collect();
    assert_eq!(journal.facts, expected);
    journal.facts.len() as u64
}

fn last_change(store: &LogStore, root: u64) -> u64 {
    let changes = records(store.temp_files(Pid(root)).unwrap());
    let expected: Vec<_> = (1..=changes.len() as u64)
        .map(|number| change(root, number))
        .collect();
    assert_eq!(changes, expected);
    changes.len() as u64
}

fn refusal(folder: &Path) -> String {
    match LogStore::open(folder) {
        Err(StoreError::Damaged { what }) => what,
        other => panic!("the store must be refused as damaged, not {other:?}"),
    }
}

/// The folder as after a power loss: copied while the store is open, without what was never synced.
fn crash_copy(folder: &Path) -> tempfile::TempDir {
    let copy = tempdir();
    copy_folder(folder, copy.path());
    let _ = fs::remove_file(copy.path().join("HEAD2"));
    copy
}

#[test]
fn a_torn_commit_is_recovered_completely_or_not_at_all() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(
        &store,
        owner,
        &[created(1), facts(1, 1..=2), temp_file(1, 1)],
    );
    let before = records_end(&segment(folder.path(), 1));
    let brought = bytes(5, 300);
    commit(
        &store,
        owner,
        &[
            content(&brought),
            facts(1, 3..=4),
            temp_file(1, 2),
            created(2),
            temp_file(2, 1),
        ],
    );
    let after = records_end(&segment(folder.path(), 1));
    let crashed = crash_copy(folder.path());
    let (crashed, brought) = (crashed.path(), &brought);
    let cut = |length: u64| {
        let copy = crash_copy(crashed);
        File::options()
            .write(true)
            .open(segment(copy.path(), 1))
            .unwrap()
            .set_len(length)
            .unwrap();
        let store = LogStore::open(copy.path()).unwrap();
        let whole = length == after;
        assert_eq!(
            last_fact(&store, 1),
            if whole { 4 } else { 2 },
            "cut at {length} of {after}"
        );
        assert_eq!(
            store.processes().unwrap().rows.len(),
            if whole { 2 } else { 1 },
            "cut at {length} of {after}"
        );
        assert_eq!(
            read(&store, hash(brought)).is_ok(),
            whole,
            "cut at {length} of {after}"
        );
        assert_eq!(
            last_change(&store, 1),
            if whole { 2 } else { 1 },
            "cut at {length} of {after}"
        );
        assert_eq!(
            store.temp_files(Pid(2)).is_ok(),
            whole,
            "cut at {length} of {after}"
        );
        let owner = store.claim().unwrap();
        commit(
            &store,
            owner,
            &[facts(1, if whole { 5..=5 } else { 3..=3 })],
        );
    };
    std::thread::scope(|threads| {
        for half in [before, before + 1] {
            threads.spawn(move || (half..=after).step_by(2).for_each(cut));
        }
    });
}

#[test]
fn a_commit_whose_beginning_was_lost_is_cut() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), facts(1, 1..=2)]);
    let before = records_end(&segment(folder.path(), 1)) as usize;
    commit(&store, owner, &[facts(1, 3..=3), facts(1, 4..=4)]);
    for damaged_byte in [0, 20, 100, 143, 150] {
        let copy = crash_copy(folder.path());
        let mut log = fs::read(segment(copy.path(), 1)).unwrap();
        log[before + damaged_byte] ^= 1;
        fs::write(segment(copy.path(), 1), log).unwrap();
        assert_eq!(
            last_fact(&LogStore::open(copy.path()).unwrap(), 1),
            2,
            "byte {damaged_byte} of the commit"
        );
    }
}

#[test]
fn damage_before_the_end_is_never_cut() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), created(2)]);
    let before = records_end(&segment(folder.path(), 1)) as usize;
    commit(&store, owner, &[facts(1, 1..=3)]);
    commit(&store, owner, &[facts(2, 1..=3)]);
    for (damaged_byte, with_index) in [(20, true), (20, false), (150, true), (150, false)] {
        let copy = crash_copy(folder.path());
        let mut log = fs::read(segment(copy.path(), 1)).unwrap();
        let length = records_end(&segment(copy.path(), 1)) as usize;
        log[before + damaged_byte] ^= 1;
        fs::write(segment(copy.path(), 1), log).unwrap();
        if !with_index {
            fs::remove_dir_all(copy.path().join("index")).unwrap();
        }
        let store = LogStore::open(copy.path()).unwrap();
        let case = format!("byte {damaged_byte}, with index: {with_index}");
        assert_eq!(
            fs::metadata(segment(copy.path(), 1)).unwrap().len() as usize,
            length,
            "{case}"
        );
        assert!(
            matches!(store.journal(Pid(1), None), Err(StoreError::Damaged { .. })),
            "{case}"
        );
        assert_eq!(
            store.journal(Pid(1), Some(FactNumber(0))).unwrap().image,
            b"image of 1",
            "{case}"
        );
        assert_eq!(last_fact(&store, 2), 3, "{case}");
        let owner = store.claim().unwrap();
        commit(&store, owner, &[facts(2, 4..=4)]);
        assert_eq!(last_fact(&store, 2), 4, "{case}");
    }
}

#[test]
fn a_damaged_snapshot_is_skipped_for_an_earlier_one() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), facts(1, 1..=4)]);
    commit(&store, owner, &[snapshot(1, 2)]);
    commit(&store, owner, &[snapshot(1, 4)]);
    let end = records_end(&segment(folder.path(), 1)) as usize;
    commit(&store, owner, &[facts(1, 5..=5)]);
    let mut log = fs::read(segment(folder.path(), 1)).unwrap();
    log[end - 1] ^= 1;
    fs::write(segment(folder.path(), 1), log).unwrap();
    let journal = store.journal(Pid(1), None).unwrap();
    assert_eq!(
        (journal.base, &journal.image[..]),
        (FactNumber(2), &b"image of 1 at 2"[..])
    );
    assert_eq!(journal.facts, [fact(1, 3), fact(1, 4), fact(1, 5)]);
}

#[test]
fn a_damaged_content_is_stored_again_when_it_is_committed_again() {
    for length in [300, 200_000] {
        let folder = tempdir();
        let store = LogStore::open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        let brought = bytes(9, length);
        commit(&store, owner, &[content(&brought)]);
        let mut log = fs::read(segment(folder.path(), 1)).unwrap();
        log[records_end(&segment(folder.path(), 1)) as usize - 1] ^= 1;
        fs::write(segment(folder.path(), 1), log).unwrap();
        let found = read(&store, hash(&brought));
        assert!(
            matches!(found, Err(StoreError::Damaged { .. })),
            "{length} bytes: {found:?}"
        );
        commit(&store, owner, &[content(&brought)]);
        assert_eq!(read(&store, hash(&brought)).unwrap(), brought);
    }
}

#[test]
fn a_log_that_continues_after_heads_position_is_read_to_its_end() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let old_head = fs::read(folder.path().join("HEAD")).unwrap();
    commit(&store, owner, &[created(1), facts(1, 1..=3)]);
    drop(store);
    assert_ne!(
        fs::read(folder.path().join("HEAD")).unwrap(),
        old_head,
        "closing moves HEAD"
    );
    fs::write(folder.path().join("HEAD"), &old_head).unwrap();
    fs::write(folder.path().join("HEAD2"), old_head).unwrap();
    assert_eq!(last_fact(&LogStore::open(folder.path()).unwrap(), 1), 3);
}

#[test]
fn the_log_of_another_store_or_an_older_log_is_refused() {
    let (folder, other) = (tempdir(), tempdir());
    let write = |folder: &Path, up_to: u64| {
        let store = LogStore::open(folder).unwrap();
        let owner = store.claim().unwrap();
        let begin = store
            .journal(Pid(1), None)
            .map_or(0, |journal| journal.facts.len() as u64);
        if begin == 0 {
            commit(&store, owner, &[created(1)]);
        }
        (begin + 1..=up_to).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    };
    write(folder.path(), 3);
    let old = crash_copy(folder.path());
    write(folder.path(), 6);
    write(other.path(), 9);
    let log = |folder: &Path| fs::read(segment(folder, 1)).unwrap();
    let cases = [
        ("an older log", log(old.path()), "shorter than HEAD says"),
        ("an empty log", Vec::new(), "shorter than HEAD says"),
        (
            "zeros",
            vec![0; log(folder.path()).len()],
            "nothing in the log was written by the store",
        ),
        (
            "another store's log",
            log(other.path()),
            "nothing in the log was written by the store",
        ),
    ];
    for (name, bytes, complaint) in cases {
        for with_index in [true, false] {
            let copy = crash_copy(folder.path());
            fs::write(segment(copy.path(), 1), &bytes).unwrap();
            if !with_index {
                fs::remove_dir_all(copy.path().join("index")).unwrap();
            }
            let what = refusal(copy.path());
            assert!(
                what.contains(complaint),
                "{name}, with index {with_index}: {what}"
            );
        }
    }
    fs::remove_file(segment(folder.path(), 1)).unwrap();
    assert!(refusal(folder.path()).contains("shorter than HEAD says"));
}

#[test]
fn a_log_that_diverged_from_head_is_refused() {
    let folder = tempdir();
    let grow = |folder: &Path, text: &str, times: u64| {
        let store = LogStore::open(folder).unwrap();
        let owner = store.claim().unwrap();
        for number in 0..times {
            let body = format!("{text} {number}").into();
            commit(&store, owner, &[content(&body)]);
        }
    };
    grow(folder.path(), "common", 2);
    let branch = crash_copy(folder.path());
    grow(folder.path(), "the one", 5);
    grow(branch.path(), "the other way", 9);
    fs::copy(segment(branch.path(), 1), segment(folder.path(), 1)).unwrap();
    let what = refusal(folder.path());
    assert!(what.contains("not the one that HEAD belongs to"), "{what}");
}

#[test]
fn a_log_without_head_is_refused() {
    let folder = tempdir();
    drop(LogStore::open(folder.path()).unwrap());
    remove_head_files(folder.path());
    assert!(refusal(folder.path()).contains("has a log but no HEAD"));
}

#[test]
fn an_index_ahead_of_the_log_or_of_another_store_is_rebuilt() {
    let (folder, other) = (tempdir(), tempdir());
    for (folder, up_to) in [(folder.path(), 3), (other.path(), 5)] {
        let store = LogStore::open(folder).unwrap();
        let owner = store.claim().unwrap();
        commit(&store, owner, &[created(1), facts(1, 1..=up_to)]);
    }
    let older = crash_copy(folder.path());
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[facts(1, 4..=8)]);
    drop(store);
    for source in [folder.path(), other.path()] {
        let copy = crash_copy(older.path());
        fs::remove_dir_all(copy.path().join("index")).unwrap();
        copy_folder(&source.join("index"), &copy.path().join("index"));
        assert_eq!(last_fact(&LogStore::open(copy.path()).unwrap(), 1), 3);
    }
}

/// An index of longer segments points past their ends, and would let a compaction drop live
/// records.
#[test]
fn an_index_of_longer_segments_is_rebuilt() {
    let folder = tempdir();
    let options = || LogStore::options().segment_bytes(1000);
    let store = options().open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    (1..=20).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    drop(store);
    let whole = fs::read(segment(folder.path(), 2)).unwrap();
    let first_record = 168 + u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    for left in [0, first_record] {
        match left {
            0 => fs::remove_file(segment(folder.path(), 2)).unwrap(),
            _ => fs::write(segment(folder.path(), 2), &whole[..left]).unwrap(),
        }
        let store = options().open(folder.path()).unwrap();
        assert_eq!(
            store.processes().unwrap().losses.len(),
            1,
            "left of it: {left}"
        );
        assert!(store.facts(Pid(1), FactNumber(1), FactNumber(20)).is_err());
        drop(store);
        fs::write(segment(folder.path(), 2), &whole).unwrap();
        let store = options().open(folder.path()).unwrap();
        assert_eq!(
            store.processes().unwrap().losses,
            [""; 0],
            "it was put back"
        );
        assert_eq!(
            store
                .facts(Pid(1), FactNumber(1), FactNumber(20))
                .unwrap()
                .len(),
            20
        );
    }
}

/// A damaged record of facts is a gap in the history, and the facts after it can be read, whether
/// the index was flushed before the damage or not.
#[test]
fn a_history_has_a_gap_where_a_record_is_damaged() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    commit(&store, owner, &[facts(1, 1..=1)]);
    let damaged = records_end(&segment(folder.path(), 1)) as usize;
    commit(&store, owner, &[facts(1, 2..=2)]);
    commit(&store, owner, &[facts(1, 3..=3)]);
    drop(store);
    let mut log = fs::read(segment(folder.path(), 1)).unwrap();
    log[damaged + 20] ^= 1;
    fs::write(segment(folder.path(), 1), log).unwrap();
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(folder.path().join("index")).unwrap();
        }
        let history = LogStore::open(folder.path())
            .unwrap()
            .history(Pid(1))
            .unwrap();
        let known = [0, 1, 3].map(|number| history.commit_of(FactNumber(number)).unwrap().first.0);
        assert_eq!(known, [0, 1, 3], "with an index: {with_index}");
        let lost = history.commit_of(FactNumber(2)).unwrap_err();
        assert!(matches!(lost, StoreError::Damaged { .. }), "{lost}");
    }
}

#[test]
fn full_segments_are_followed_by_new_ones_with_private_files() {
    let folder = tempdir();
    let store = LogStore::options()
        .segment_bytes(1000)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    (1..=30).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    let large = bytes(1, 5000);
    commit(&store, owner, &[content(&large)]);
    let count = fs::read_dir(folder.path().join("log")).unwrap().count();
    assert!(count > 5, "{count} segments");
    let crashed = crash_copy(folder.path());
    for store in [store, LogStore::open(crashed.path()).unwrap()] {
        assert_eq!(last_fact(&store, 1), 30);
        assert_eq!(read(&store, hash(&large)).unwrap(), large);
    }
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path().join("log")), 0o700);
    for file in [
        "HEAD",
        "HEAD2",
        "LOCK",
        "log/00000001.seg",
        "log/00000002.seg",
    ] {
        assert_eq!(mode(folder.path().join(file)), 0o600, "{file}");
    }
}

#[test]
fn space_is_reserved_after_the_end_and_freed_at_closing() {
    let folder = tempfile::tempdir().unwrap();
    let room = |number| fs::metadata(segment(folder.path(), number)).unwrap().len();
    let store = LogStore::options()
        .segment_bytes(1 << 20)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    assert!(
        room(1) > records_end(&segment(folder.path(), 1)),
        "there is room for the next commit"
    );
    let crashed = crash_copy(folder.path());
    (1..=12).for_each(|number| commit(&store, owner, &[content(&bytes(number, 100_000))]));
    assert_eq!(
        room(1),
        records_end(&segment(folder.path(), 1)),
        "the segment has ended"
    );
    drop(store);
    assert_eq!(
        room(2),
        records_end(&segment(folder.path(), 2)),
        "the store is closed"
    );
    let store = LogStore::open(crashed.path()).unwrap();
    assert_eq!(
        last_fact(&store, 1),
        0,
        "behind a crash nothing is made of room"
    );
}

#[test]
fn a_missing_segment_in_the_middle_leaves_the_rest_readable() {
    let folder = tempdir();
    let store = LogStore::options()
        .segment_bytes(1000)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), created(2)]);
    (1..=20).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    commit(&store, owner, &[snapshot(1, 20)]);
    drop(store);
    fs::remove_file(segment(folder.path(), 3)).unwrap();
    for with_index in [true, false] {
        let copy = crash_copy(folder.path());
        if !with_index {
            fs::remove_dir_all(copy.path().join("index")).unwrap();
        }
        let store = LogStore::open(copy.path()).unwrap();
        assert_eq!(store.journal(Pid(1), None).unwrap().base, FactNumber(20));
        assert!(matches!(
            store.journal(Pid(1), Some(FactNumber(19))),
            Err(StoreError::Damaged { .. })
        ));
        assert_eq!(
            store.journal(Pid(1), Some(FactNumber(1))).unwrap().facts,
            [fact(1, 1)]
        );
        assert_eq!(
            store.journal(Pid(2), Some(FactNumber(0))).unwrap().image,
            b"image of 2"
        );
    }
}

#[test]
fn a_content_is_stored_once() {
    let folder = tempdir();
    let large = bytes(2, 1 << 20);
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    (0..3).for_each(|_| commit(&store, owner, &[content(&large), content(&large)]));
    drop(store);
    let store = LogStore::open(folder.path()).unwrap();
    commit(&store, store.claim().unwrap(), &[content(&large)]);
    let size = fs::metadata(segment(folder.path(), 1)).unwrap().size();
    assert!(size < (1 << 20) + 4096, "{size} bytes");
}

#[test]
fn damage_to_temporary_files_is_reported_and_the_rest_is_readable() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    let before = records_end(&segment(folder.path(), 1)) as usize;
    commit(&store, owner, &[temp_file(1, 1)]);
    commit(&store, owner, &[facts(1, 1..=2)]);
    commit(&store, owner, &[created(2), temp_file(2, 1)]);
    drop(store);
    // An unrecognisable record must not be treated as a change that never happened, nor must one
    // with a damaged payload.
    for (damaged_byte, with_index) in [(20, true), (20, false), (150, true), (150, false)] {
        let copy = crash_copy(folder.path());
        let mut log = fs::read(segment(copy.path(), 1)).unwrap();
        log[before + damaged_byte] ^= 1;
        fs::write(segment(copy.path(), 1), log).unwrap();
        if !with_index {
            fs::remove_dir_all(copy.path().join("index")).unwrap();
        }
        let store = LogStore::open(copy.path()).unwrap();
        let case = format!("byte {damaged_byte}, with index: {with_index}");
        assert!(
            matches!(store.temp_files(Pid(1)), Err(StoreError::Damaged { .. })),
            "{case}"
        );
        assert_eq!(
            (last_fact(&store, 1), last_change(&store, 2)),
            (2, 1),
            "{case}"
        );
    }
}

#[test]
fn temporary_files_may_be_lost_if_the_creation_record_is_lost() {
    let folder = tempdir();
    let store = LogStore::options()
        .segment_bytes(700)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    let filler = bytes(6, 500);
    commit(&store, owner, &[content(&filler)]);
    commit(&store, owner, &[created(1), temp_file(1, 1)]);
    commit(&store, owner, &[content(&bytes(7, 500))]);
    commit(&store, owner, &[facts(1, 1..=1)]);
    drop(store);
    fs::remove_file(segment(folder.path(), 2)).unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    assert_eq!(read(&store, hash(&filler)).unwrap(), filler);
    let found = store.temp_files(Pid(1));
    assert!(
        matches!(found, Err(StoreError::Damaged { .. })),
        "{found:?}"
    );
}

/// The disk may keep the end of a write and lose its beginning, and the index may have been flushed
/// after both.
#[test]
fn an_index_after_a_gap_from_a_power_loss_is_rebuilt() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let head = fs::read(folder.path().join("HEAD")).unwrap();
    commit(&store, owner, &[created(1)]);
    for pid in [2, 3] {
        store
            .commit(
                owner,
                Batch {
                    ops: &[created(pid)],
                    at_ms: NOW_MS,
                    sync_level: SyncLevel::Written,
                },
            )
            .unwrap();
    }
    drop(store);
    fs::write(folder.path().join("HEAD"), head).unwrap();
    fs::remove_file(folder.path().join("HEAD2")).unwrap();
    let path = folder.path().join("log/00000001.seg");
    let mut log = fs::read(&path).unwrap();
    let lost = log
        .windows(10)
        .position(|bytes| bytes == b"image of 2")
        .unwrap();
    log[lost..lost + 10].fill(0);
    fs::write(&path, log).unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    assert_eq!(store.processes().unwrap().rows, [row(1)]);
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(2)]);
    assert_eq!(store.journal(Pid(2), None).unwrap().image, b"image of 2");
}

/// The log can be used even if sled's files cannot be written.
#[test]
fn an_index_whose_folder_cannot_be_written_is_kept_in_memory() {
    let folder = tempdir();
    let index = folder.path().join("index");
    let held = bytes(1, 300_000);
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(
        &store,
        owner,
        &[created(1), content(&held), facts(1, 1..=5), snapshot(1, 5)],
    );
    drop(store);
    std::fs::remove_dir_all(&index).unwrap();
    // A file: sled cannot open it as a folder, and it cannot be removed as one.
    std::fs::write(&index, "in the way").unwrap();
    for round in 0..2 {
        let store = LogStore::open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        let next = 6 + round;
        commit(
            &store,
            owner,
            &[facts(1, next..=next), snapshot(1, next), created(2 + round)],
        );
        assert_eq!(store.processes().unwrap().rows.len(), 2 + round as usize);
        assert_eq!(
            store
                .journal(Pid(1), Some(FactNumber(4)))
                .unwrap()
                .facts
                .len(),
            4
        );
        assert_eq!(store.journal(Pid(1), None).unwrap().base, FactNumber(next));
        assert_eq!(read(&store, hash(&held)).unwrap(), held);
        sweep(&store, owner, &keep_only(&[&held]));
        assert_eq!(
            read(&store, hash(&held)).unwrap(),
            held,
            "where it was moved to"
        );
        assert_eq!(
            store
                .facts(Pid(1), FactNumber(1), FactNumber(next))
                .unwrap()
                .len() as u64,
            next
        );
    }
    assert_eq!(std::fs::read(&index).unwrap(), b"in the way");
    std::fs::remove_file(&index).unwrap();
    assert_eq!(
        LogStore::open(folder.path())
            .unwrap()
            .journal(Pid(1), None)
            .unwrap()
            .base,
        FactNumber(7)
    );
    assert!(
        index.join("db").is_file(),
        "and it is on the disk again when that takes it"
    );
}
