//! Checking and repairing a store.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use dormouse_actors::ports::{Store, StoreError, WriteOp};
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_store::{Issue, LogStore, Options, Repair, fsck};

use crate::support::*;

/// Commits a process with two snapshots, an ended process, and a content.
fn fill(folder: &Path) -> Bytes {
    let store = LogStore::open(folder).unwrap();
    let owner = store.claim().unwrap();
    let held = bytes(5, 2_000);
    commit(&store, owner, &[created(1), created(2), content(&held)]);
    (1..=9).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    commit(
        &store,
        owner,
        &[
            snapshot(1, 3),
            snapshot(1, 9),
            temp_file(1, 1),
            facts(2, 1..=1),
            ended(2),
        ],
    );
    commit(&store, owner, &[facts(1, 10..=10)]);
    held
}

/// Damages the only occurrence of these bytes in the log.
fn damage(folder: &Path, text: &[u8]) {
    let path = folder.join("log/00000001.seg");
    let mut log = fs::read(&path).unwrap();
    let places: Vec<_> = log
        .windows(text.len())
        .enumerate()
        .filter(|(_, at)| *at == text)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(places.len(), 1, "{:?}", String::from_utf8_lossy(text));
    log[places[0] + text.len() / 2] ^= 1;
    fs::write(path, log).unwrap();
}

fn check(folder: &Path, repair: Repair) -> Result<Vec<String>, StoreError> {
    let report = fsck(folder, &LogStore::options(), repair, &mut |_, _| {})?;
    Ok(report.issues.iter().map(Issue::to_string).collect())
}

fn state(folder: &Path) -> Vec<Vec<u8>> {
    ["HEAD", "log/00000001.seg"]
        .map(|file| fs::read(folder.join(file)).unwrap_or_default())
        .to_vec()
}

#[test]
fn an_undamaged_store_has_no_issues() {
    let folder = tempdir();
    fill(folder.path());
    let before = state(folder.path());
    let mut pieces = 0;
    let report = fsck(
        folder.path(),
        &LogStore::options(),
        Repair::No,
        &mut |_, _| pieces += 1,
    )
    .unwrap();
    assert!(report.issues.is_empty(), "{report:?}");
    assert_eq!(
        pieces,
        2 + 11 + 2 + 1,
        "births, facts, snapshots, a change of files"
    );
    assert_eq!(state(folder.path()), before);
    assert_eq!(
        check(folder.path(), Repair::Yes).unwrap(),
        Vec::<String>::new()
    );
    assert_eq!(
        LogStore::open(folder.path())
            .unwrap()
            .journal(Pid(1), None)
            .unwrap()
            .base,
        FactNumber(9)
    );
}

#[test]
fn damage_is_reported_for_each_process_and_content() {
    let held = hash(&bytes(5, 2_000));
    let cases: [(&[u8], String); 6] = [
        (
            b"fact 5 of 1",
            "process 1: facts 5-5 are lost; it can be read up to 4 and from 9 on".to_owned(),
        ),
        (
            b"fact 10 of 1",
            "process 1: facts 10-10 are lost; it can be read up to 9".to_owned(),
        ),
        (
            b"image of 1 at 9",
            "process 1: its snapshot at fact 9 is damaged; it is replayed from an earlier one"
                .to_owned(),
        ),
        (b"image of 2", "process 2: ".to_owned()),
        (
            b"change 1 of the files of 1",
            "process 1: change 1 of the temporary files of its tree is lost".to_owned(),
        ),
        (&bytes(5, 2_000), format!("content {held}: it is damaged")),
    ];
    for (text, expected) in cases {
        let folder = tempdir();
        fill(folder.path());
        damage(folder.path(), text);
        let before = state(folder.path());
        let found = check(folder.path(), Repair::No).unwrap();
        assert!(
            found.iter().any(|finding| finding.starts_with(&expected)),
            "{expected}: {found:?}"
        );
        assert_eq!(
            state(folder.path()),
            before,
            "to look changes nothing: {expected}"
        );
    }
}

#[test]
fn a_damaged_snapshot_is_dropped_and_the_journal_replayed_from_an_earlier_one() {
    let folder = tempdir();
    fill(folder.path());
    damage(folder.path(), b"image of 1 at 9");
    assert_eq!(check(folder.path(), Repair::Yes).unwrap().len(), 1);
    assert_eq!(
        check(folder.path(), Repair::No).unwrap(),
        Vec::<String>::new(),
        "it is no damage any more"
    );
    let journal = LogStore::open(folder.path())
        .unwrap()
        .journal(Pid(1), None)
        .unwrap();
    assert_eq!((journal.base, journal.facts.len()), (FactNumber(3), 7));
}

#[test]
fn a_damaged_content_is_declared_lost_until_it_is_committed_again() {
    let folder = tempdir();
    let held = fill(folder.path());
    damage(folder.path(), &held);
    assert_eq!(check(folder.path(), Repair::Yes).unwrap().len(), 1);
    assert_eq!(
        check(folder.path(), Repair::No).unwrap(),
        Vec::<String>::new()
    );
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(folder.path().join("index")).unwrap();
        }
        let error = read(&LogStore::open(folder.path()).unwrap(), hash(&held)).unwrap_err();
        assert!(
            error.to_string().contains("is lost. It is stored again"),
            "{error}"
        );
    }
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    assert_eq!(
        store.journal(Pid(1), None).unwrap().base,
        FactNumber(9),
        "everything else works"
    );
    commit(&store, owner, &[content(&held)]);
    assert_eq!(read(&store, hash(&held)).unwrap(), held);
}

#[test]
fn a_damaged_file_of_head_is_rewritten_from_the_other() {
    for lost in ["HEAD", "HEAD2"] {
        for damage in [None, Some(&b"nothing"[..])] {
            let folder = tempdir();
            fill(folder.path());
            let path = folder.path().join(lost);
            let whole = fs::read(folder.path().join("HEAD")).unwrap();
            match damage {
                None => fs::remove_file(&path).unwrap(),
                Some(bytes) => fs::write(&path, bytes).unwrap(),
            }
            let found = check(folder.path(), Repair::No).unwrap();
            // Stores of older versions have no HEAD2.
            let is_found = lost == "HEAD" || damage.is_some();
            assert_eq!(
                found,
                vec![format!("{lost}: missing or damaged"); usize::from(is_found)]
            );
            assert_eq!(
                LogStore::read_only(folder.path())
                    .unwrap()
                    .journal(Pid(1), None)
                    .unwrap()
                    .facts
                    .len(),
                1
            );
            if damage.is_none() {
                assert_eq!(check(folder.path(), Repair::Yes).unwrap(), found);
            } else {
                drop(LogStore::open(folder.path()).unwrap());
            }
            assert_eq!(
                check(folder.path(), Repair::No).unwrap(),
                Vec::<String>::new()
            );
            assert_eq!(
                fs::read(folder.path().join("HEAD")).unwrap().len(),
                whole.len()
            );
        }
    }
}

#[test]
fn a_store_with_a_damaged_creation_record_lists_the_other_processes() {
    let folder = tempdir();
    fill(folder.path());
    damage(folder.path(), b"image of 2");
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let listing = LogStore::open(folder.path()).unwrap().processes().unwrap();
    assert_eq!(listing.rows, [row(1)]);
    assert_eq!((listing.last_pid, listing.losses.len()), (2, 1));
    assert!(
        listing.losses[0].contains("process 2"),
        "{:?}",
        listing.losses
    );
}

#[test]
fn a_damaged_checkpoint_is_reported_and_its_number_is_never_reused() {
    let folder = tempdir();
    let open = || {
        LogStore::options()
            .segment_bytes(400)
            .open(folder.path())
            .unwrap()
    };
    {
        let store = open();
        let owner = store.claim().unwrap();
        commit(&store, owner, &[created(1), facts(1, 1..=2)]);
        commit(&store, owner, &[checkpoint(1, &[1])]);
        commit(&store, owner, &[checkpoint(2, &[1])]);
        (3..=6).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    }
    let harmed = files(&folder.path().join("log"))
        .into_iter()
        .rev()
        .find_map(|path| {
            let mut log = fs::read(&path).unwrap();
            let at = log.windows(6).position(|window| window == b"before")?;
            log[at] ^= 1;
            fs::write(&path, log).unwrap();
            Some(path)
        });
    let path = harmed.expect("the label stands in a segment");
    let bytes = fs::read(&path).unwrap();
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(folder.path().join("index")).unwrap();
        } else {
            // An index that was flushed before the damage still has the entry, and is used.
            drop(open());
            fs::remove_dir_all(folder.path().join("index")).unwrap();
            drop(open());
        }
        let store = open();
        assert_eq!(
            (
                store.checkpoints().unwrap().len(),
                store.last_checkpoint().unwrap()
            ),
            (1, 2)
        );
        let lost = store.processes().unwrap().losses;
        assert!(
            lost.len() == 1 && lost[0].contains("checkpoint cp:2"),
            "{lost:?}"
        );
        let owner = store.claim().unwrap();
        let swept = sweep(&store, owner, &LiveContents::default());
        assert_eq!(swept.damaged_segments.len(), 1, "{swept:?}");
        assert_eq!(
            fs::read(&path).unwrap(),
            bytes,
            "what is damaged stays where it can be looked into"
        );
    }
    let store = open();
    let owner = store.claim().unwrap();
    assert_eq!(store.last_checkpoint().unwrap(), 2);
    commit(
        &store,
        owner,
        &[WriteOp::CheckpointDropped {
            id: CheckpointId(2),
        }],
    );
    assert!(
        store.processes().unwrap().losses.is_empty(),
        "it can be given up"
    );
}

#[test]
fn a_damaged_content_of_an_encrypted_store_is_reported_by_its_hash() {
    let folder = tempdir();
    let options = LogStore::options().key(secret(1));
    let segment = folder.path().join("log/00000001.seg");
    let held = bytes(5, 2_000);
    {
        let store = options.clone().open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        commit(&store, owner, &[created(1), content(&held)]);
    }
    let mut log = fs::read(&segment).unwrap();
    *log.last_mut().unwrap() ^= 1;
    fs::write(&segment, log).unwrap();
    let check = |options: &Options, repair| -> Result<Vec<Issue>, StoreError> {
        Ok(fsck(folder.path(), options, repair, &mut |_, _| {})?.issues)
    };
    for other in [LogStore::options(), LogStore::options().key(secret(2))] {
        let refused = check(&other, Repair::Yes).unwrap_err();
        assert!(matches!(refused, StoreError::Key { .. }), "{refused}");
    }
    assert_eq!(
        check(&options, Repair::Yes).unwrap(),
        [Issue::Content { hash: hash(&held) }]
    );
    assert_eq!(check(&options, Repair::No).unwrap(), []);
    let store = options.open(folder.path()).unwrap();
    let error = read(&store, hash(&held)).unwrap_err();
    assert!(
        error.to_string().contains("is lost. It is stored again"),
        "{error}"
    );
    let owner = store.claim().unwrap();
    commit(
        &store,
        owner,
        &[
            WriteOp::ContentReferenced { hash: hash(&held) },
            facts(1, 1..=1),
        ],
    );
    commit(&store, owner, &[content(&held)]);
    assert_eq!(read(&store, hash(&held)).unwrap(), held);
}

#[test]
fn a_lost_head_of_an_encrypted_store_is_rewritten_if_the_key_is_given() {
    let folder = tempdir();
    let options = LogStore::options().key(secret(1));
    let held = bytes(5, 2_000);
    {
        let store = options.clone().open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        commit(&store, owner, &[created(1), content(&held)]);
    }
    remove_head_files(folder.path());
    for other in [LogStore::options(), LogStore::options().key(secret(2))] {
        let refused = fsck(folder.path(), &other, Repair::Yes, &mut |_, _| {}).unwrap_err();
        assert!(
            refused.to_string().contains("only its own secret"),
            "{refused}"
        );
        assert!(!folder.path().join("HEAD").exists());
    }
    let report = fsck(folder.path(), &options, Repair::Yes, &mut |_, _| {}).unwrap();
    assert!(matches!(report.issues[0], Issue::Head { .. }), "{report:?}");
    assert_eq!(
        read(&options.open(folder.path()).unwrap(), hash(&held)).unwrap(),
        held
    );
}

#[test]
fn a_check_next_to_a_writer_changes_no_file() {
    let folder = tempdir();
    fill(folder.path());
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let lock = fs::read(folder.path().join("LOCK")).unwrap();
    for number in 11..40 {
        commit(&store, owner, &[facts(1, number..=number)]);
        assert_eq!(
            check(folder.path(), Repair::No).unwrap(),
            Vec::<String>::new()
        );
    }
    assert_eq!(fs::read(folder.path().join("LOCK")).unwrap(), lock);
    let in_use = check(folder.path(), Repair::Yes).unwrap_err();
    assert!(matches!(in_use, StoreError::InUse { .. }), "{in_use}");
}

#[test]
fn fsck_reports_stray_segments_and_damaged_segment_starts() {
    let folder = tempdir();
    fill(folder.path());
    let segment = |number: u32| folder.path().join(format!("log/{number:08}.seg"));
    fs::copy(segment(1), segment(9)).unwrap();
    let found = check(folder.path(), Repair::No).unwrap();
    assert!(
        found.len() == 1 && found[0].contains("the log continues to segment 00000009"),
        "{found:?}"
    );
    assert!(matches!(
        LogStore::open(folder.path()),
        Err(StoreError::Damaged { .. })
    ));
    fs::remove_file(segment(9)).unwrap();
    let mut log = fs::read(segment(1)).unwrap();
    log[180] ^= 1;
    fs::write(segment(1), log).unwrap();
    let found = check(folder.path(), Repair::No).unwrap();
    assert!(
        found.len() == 1 && found[0].contains("the first record of segment 00000001 is damaged"),
        "{found:?}"
    );
}

/// The record of a process's end says how many facts there were, so that missing ones are detected.
#[test]
fn facts_that_are_lost_before_an_end_or_a_snapshot_are_reported() {
    for (entries, last) in [
        (vec![facts(1, 2..=3), ended(1)], 3),
        (vec![facts(1, 2..=3), snapshot(1, 3)], 3),
    ] {
        let folder = tempdir();
        let store = LogStore::open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        commit(&store, owner, &[created(1), facts(1, 1..=1)]);
        commit(&store, owner, &entries);
        drop(store);
        drop(LogStore::open(folder.path()).unwrap());
        let mut log = fs::read(folder.path().join("log/00000001.seg")).unwrap();
        let text = fact(1, 2);
        let payload = log
            .windows(text.len())
            .position(|bytes| bytes == text)
            .unwrap();
        // The payload's header, which precedes it.
        log[payload - 60] ^= 1;
        fs::write(folder.path().join("log/00000001.seg"), log).unwrap();
        let found = check(folder.path(), Repair::No).unwrap();
        assert!(
            found
                .iter()
                .any(|finding| finding.contains("facts 2-3 are lost")),
            "{last}: {found:?}"
        );
        fs::remove_dir_all(folder.path().join("index")).unwrap();
        for store in [
            LogStore::open(folder.path()).unwrap(),
            LogStore::read_only(folder.path()).unwrap(),
        ] {
            let journal = store.facts(Pid(1), FactNumber(1), FactNumber(last));
            assert!(
                matches!(journal, Err(StoreError::Damaged { .. })),
                "{journal:?}"
            );
        }
    }
}
