//! A log that ends before HEAD's position, or whose HEAD is lost: after a repair the remaining
//! records can be read, and records that may be missing are reported exactly once.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_actors::ports::{Store, StoreError};
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};
use dormouse_store::{FsckReport, Issue, LogStore, Repair, fsck};

use crate::support::*;

/// Process 1 runs and wrote the last facts; process 2 ended before; the last commit created process
/// 3.
fn fill(folder: &Path) {
    let store = LogStore::open(folder).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), created(2), facts(1, 1..=2)]);
    commit(&store, owner, &[facts(2, 1..=3), ended(2)]);
    commit(&store, owner, &[facts(1, 3..=4), snapshot(1, 4)]);
    commit(&store, owner, &[created(3), facts(1, 5..=6)]);
}

fn segment(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("log/{number:08}.seg"))
}

fn check(folder: &Path, repair: Repair) -> FsckReport {
    fsck(folder, &LogStore::options(), repair, &mut |_, _| {}).unwrap()
}

fn cut_last_segment(folder: &Path, bytes: u64) -> Vec<u8> {
    let (path, end) = (segment(folder, 1), records_end(&segment(folder, 1)));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..(end - bytes) as usize]).unwrap();
    whole
}

fn open_both_ways(folder: &Path) -> [LogStore; 2] {
    // One after the other: only one can be open for writing.
    let read_only = LogStore::read_only(folder).unwrap();
    [read_only, LogStore::open(folder).unwrap()]
}

/// Acknowledged losses are answered as lost, and everything else as before.
fn check_salvaged(folder: &Path) {
    for store in open_both_ways(folder) {
        let listing = store.processes().unwrap();
        assert!(
            listing.losses.is_empty() && !listing.acknowledged_losses.is_empty(),
            "{listing:?}"
        );
        assert!(
            listing.last_pid > 3,
            "no number is given again: {listing:?}"
        );
        let lost = store.journal(Pid(1), None).unwrap_err();
        assert!(matches!(lost, StoreError::Lost { .. }), "{lost}");
        let lost = store.journal(Pid(3), None).unwrap_err();
        assert!(matches!(lost, StoreError::Lost { .. }), "{lost}");
        assert_eq!(
            store.journal(Pid(1), Some(FactNumber(4))).unwrap().base,
            FactNumber(4)
        );
        let history = store.history(Pid(1)).unwrap();
        assert_eq!(
            (history.last(), history.lost.is_some()),
            (FactNumber(4), true)
        );
        let written = history.commit_of(FactNumber(4)).unwrap();
        assert_eq!(
            history.last_fact_by(written.commit).unwrap(),
            Some(FactNumber(4))
        );
        assert!(
            matches!(
                history.commit_of(FactNumber(5)),
                Err(StoreError::Damaged { .. })
            ),
            "it is not said to be unknown"
        );
        assert!(matches!(
            history.last_fact_by(CommitNumber(u64::MAX)),
            Err(StoreError::Damaged { .. })
        ));
        assert_eq!(store.temp_files_up_to(Pid(1), written.commit).unwrap(), []);
        assert!(store.temp_files(Pid(1)).is_err());
        // The end of the process is known, so none of its records is missing.
        let ended = store.journal(Pid(2), None).unwrap();
        assert_eq!((ended.facts.len(), ended.row.exit.is_some()), (3, true));
        assert_eq!(store.history(Pid(2)).unwrap().readable().unwrap().len(), 2);
        assert_eq!(store.temp_files(Pid(2)).unwrap(), []);
    }
}

#[test]
fn a_log_that_ends_before_heads_position_is_refused_until_a_repair_acknowledges_it() {
    // Cuts in the payload, in the header and between two records of the last commit, and before all
    // of it.
    for bytes in [1, 100, 198, 650] {
        let folder = tempdir();
        fill(folder.path());
        let whole = cut_last_segment(folder.path(), bytes);
        let refused = LogStore::open(folder.path()).unwrap_err();
        assert!(
            refused.to_string().contains("shorter than HEAD says"),
            "{refused}"
        );
        let found = check(folder.path(), Repair::No);
        let short = found.issues.iter().find_map(|finding| match finding {
            Issue::LogTooShort { end, commits, .. } => Some((*end, *commits)),
            _ => None,
        });
        let (end, commits) = short.unwrap_or_else(|| panic!("{found:?}"));
        assert!(
            end.offset <= records_end(&segment(folder.path(), 1)) && commits >= 1,
            "{found:?}"
        );
        assert!(
            LogStore::open(folder.path()).is_err(),
            "to look changes nothing"
        );
        let mended = check(folder.path(), Repair::Yes);
        assert!(
            mended.issues.iter().any(|finding| !finding.is_repairable()),
            "{mended:?}"
        );
        if bytes < 650 {
            assert!(
                mended.issues.contains(&Issue::MayContinueInLoss {
                    pid: Pid(1),
                    last: FactNumber(4)
                }),
                "{mended:?}"
            );
            check_salvaged(folder.path());
        }
        let again = check(folder.path(), Repair::No);
        assert!(
            again.issues.is_empty() && !again.acknowledged.is_empty(),
            "{again:?}"
        );
        let segments = files(&folder.path().join("log")).len();
        check(folder.path(), Repair::Yes);
        assert_eq!(
            files(&folder.path().join("log")).len(),
            segments,
            "it is acknowledged once"
        );
        let new = {
            let store = LogStore::open(folder.path()).unwrap();
            let owner = store.claim().unwrap();
            let new = store.processes().unwrap().last_pid + 1;
            commit(&store, owner, &[created(new), facts(new, 1..=1)]);
            new
        };
        // The restored segment continues the hash chain, and nothing is lost.
        fs::write(segment(folder.path(), 1), whole).unwrap();
        let healed = check(folder.path(), Repair::No);
        assert!(
            healed.issues.is_empty() && healed.acknowledged.is_empty(),
            "{healed:?}"
        );
        for store in open_both_ways(folder.path()) {
            assert_eq!(store.journal(Pid(1), None).unwrap().facts.len(), 2);
            assert_eq!(store.journal(Pid(new), None).unwrap().facts.len(), 1);
            assert_eq!(store.processes().unwrap().rows.len(), 4);
        }
    }
}

#[test]
fn a_lost_head_leaves_the_end_of_the_log_unknown() {
    for bytes in [0, 1, 100, 650] {
        let folder = tempdir();
        fill(folder.path());
        remove_head_files(folder.path());
        cut_last_segment(folder.path(), bytes);
        let found = check(folder.path(), Repair::No);
        let unvouched = found
            .issues
            .iter()
            .find(|finding| matches!(finding, Issue::UnknownEnd { .. }));
        let said = unvouched.unwrap_or_else(|| panic!("{found:?}")).to_string();
        assert!(
            said.contains("it is unknown whether more followed commit"),
            "{said}"
        );
        let mended = check(folder.path(), Repair::Yes);
        assert!(mended.issues.contains(unvouched.unwrap()), "{mended:?}");
        if bytes > 0 && bytes < 650 {
            check_salvaged(folder.path());
        }
        let again = check(folder.path(), Repair::No);
        assert!(
            again.issues.is_empty() && !again.acknowledged.is_empty(),
            "{again:?}"
        );
        for store in open_both_ways(folder.path()) {
            // It is unknown whether the process continued.
            assert!(matches!(
                store.journal(Pid(1), None),
                Err(StoreError::Lost { .. })
            ));
            assert!(store.journal(Pid(1), Some(FactNumber(2))).is_ok());
            assert!(store.journal(Pid(2), None).is_ok());
        }
    }
}

#[test]
fn missing_segments_at_the_end_are_named_and_can_be_restored() {
    let folder = tempdir();
    let open = || LogStore::options().segment_bytes(600).open(folder.path());
    {
        let store = open().unwrap();
        let owner = store.claim().unwrap();
        commit(&store, owner, &[created(1), facts(1, 1..=1)]);
        (2..=9).for_each(|number| commit(&store, owner, &[facts(1, number..=number)]));
    }
    let segments = files(&folder.path().join("log"));
    let lost = &segments[segments.len() - 2..];
    let aside: Vec<_> = lost.iter().map(|path| fs::read(path).unwrap()).collect();
    lost.iter().for_each(|path| fs::remove_file(path).unwrap());
    let refused = open().unwrap_err().to_string();
    let name = lost[1].file_name().unwrap().to_str().unwrap();
    assert!(refused.contains(&format!("{name} is missing")), "{refused}");
    check(folder.path(), Repair::Yes);
    let up_to = {
        let store = open().unwrap();
        let last = store.history(Pid(1)).unwrap().last();
        assert!(store.journal(Pid(1), Some(last)).is_ok() && last > FactNumber(1));
        last
    };
    assert!(up_to < FactNumber(9));
    assert!(
        lost.iter().all(|path| !path.exists()),
        "no other takes their place"
    );
    lost.iter()
        .zip(aside)
        .for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert_eq!(
        open()
            .unwrap()
            .history(Pid(1))
            .unwrap()
            .readable()
            .unwrap()
            .last()
            .unwrap()
            .last(),
        FactNumber(9)
    );
    let healed = check(folder.path(), Repair::No);
    assert!(
        healed.issues.is_empty() && healed.acknowledged.is_empty(),
        "{healed:?}"
    );
}

#[test]
fn two_diverged_copies_of_a_store_are_refused() {
    let folder = tempdir();
    fill(folder.path());
    let whole = fs::read(segment(folder.path(), 1)).unwrap();
    remove_head_files(folder.path());
    cut_last_segment(folder.path(), 650);
    check(folder.path(), Repair::Yes);
    fs::write(segment(folder.path(), 1), whole).unwrap();
    let refused = LogStore::open(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("two copies of the store"), "{refused}");
    assert!(LogStore::read_only(folder.path()).is_err());
}

/// Damages many bytes one by one: the ranges that `fsck` calls readable must be readable.
#[test]
fn the_ranges_that_fsck_calls_readable_are_readable() {
    let whole = tempdir();
    fill(whole.path());
    let length = records_end(&segment(whole.path(), 1));
    for at in (0..length).step_by(7) {
        let folder = tempdir();
        copy_folder(whole.path(), folder.path());
        let mut log = fs::read(segment(folder.path(), 1)).unwrap();
        log[at as usize] ^= 0x40;
        fs::write(segment(folder.path(), 1), log).unwrap();
        for repair in [Repair::No, Repair::Yes, Repair::No] {
            let FsckReport {
                issues,
                acknowledged,
                ..
            } = check(folder.path(), repair);
            let issues: Vec<_> = issues.iter().chain(&acknowledged).collect();
            let store = LogStore::read_only(folder.path()).unwrap();
            for row in store.processes().unwrap().rows {
                check_issues(&store, row.pid, &issues, &format!("byte {at}, {repair:?}"));
            }
        }
    }
}

fn check_issues(store: &LogStore, pid: Pid, issues: &[&Issue], case: &str) {
    let mut up_to = None::<FactNumber>;
    let mut begins = true;
    for finding in issues {
        match finding {
            Issue::Facts { pid: of, first, .. } if *of == pid => {
                let before = FactNumber(first.0 - 1);
                up_to = Some(up_to.map_or(before, |up_to| up_to.min(before)));
            }
            Issue::MayContinueInLoss { pid: of, last } if *of == pid => {
                up_to = Some(up_to.map_or(*last, |up_to| up_to.min(*last)))
            }
            Issue::FirstSnapshot { pid: of, .. } if *of == pid => begins = false,
            _ => {}
        }
    }
    let history = store.history(pid).unwrap();
    let last = up_to.unwrap_or(history.last());
    for number in (0..=last.0).map(FactNumber).filter(|_| begins) {
        assert!(
            store.journal(pid, Some(number)).is_ok(),
            "{case}: {pid}@{number}: {issues:?}"
        );
        let written = history.commit_of(number).unwrap();
        match history.last_fact_by(written.commit) {
            Ok(last) => assert!(last >= Some(number), "{case}: {pid}@{number}: {issues:?}"),
            // The rest of the commit may be lost.
            Err(error) => {
                let is_last = history.commit_of(last).unwrap().commit == written.commit;
                assert!(
                    is_last && up_to.is_some(),
                    "{case}: {pid}@{number}: {error}: {issues:?}"
                );
            }
        }
        assert!(
            store.facts(pid, FactNumber(1), number).is_ok(),
            "{case}: {pid}@{number}"
        );
    }
    if up_to.is_none() && begins {
        assert!(
            store.journal(pid, None).is_ok() && history.readable().is_ok(),
            "{case}: {pid}: {issues:?}"
        );
    } else if let Some(up_to) = up_to.filter(|_| begins) {
        // The following facts are lost, which is another error than unknown facts.
        let lost = store.journal(pid, Some(up_to.plus(1)));
        assert!(
            matches!(
                lost,
                Err(StoreError::Damaged { .. } | StoreError::Lost { .. })
            ),
            "{case}: {pid}: {lost:?}"
        );
    }
}

/// A compaction moves the record of an acknowledgement like other records.
#[test]
fn an_acknowledgement_survives_a_compaction() {
    let folder = tempdir();
    let options = LogStore::options().segment_bytes(1_500);
    let store = options.clone().open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), created(2), facts(1, 1..=1)]);
    let damaged = records_end(&segment(folder.path(), 1)) as usize;
    commit(&store, owner, &[facts(1, 2..=2)]);
    commit(&store, owner, &[facts(1, 3..=3)]);
    // The acknowledgement must be in another segment than the damage, because a damaged segment is
    // not compacted.
    (1..=10).for_each(|number| commit(&store, owner, &[facts(2, number..=number)]));
    drop(store);
    let mut log = fs::read(segment(folder.path(), 1)).unwrap();
    log[damaged + 20] ^= 1;
    fs::write(segment(folder.path(), 1), log).unwrap();
    fsck(folder.path(), &options, Repair::Yes, &mut |_, _| {}).unwrap();
    let issues = |store: &LogStore| {
        let listing = store.processes().unwrap();
        assert_eq!(listing.losses, [""; 0]);
        let lost = store
            .facts(Pid(1), FactNumber(1), FactNumber(3))
            .unwrap_err();
        assert!(matches!(lost, StoreError::Lost { .. }), "{lost}");
        listing.acknowledged_losses
    };
    let store = options.clone().open(folder.path()).unwrap();
    let before = issues(&store);
    assert!(!before.is_empty());
    let noted = files(&folder.path().join("log")).len() as u32;
    let owner = store.claim().unwrap();
    (11..=30).for_each(|number| commit(&store, owner, &[facts(2, number..=number)]));
    sweep(&store, owner, &keep_only(&[]));
    let stub = fs::metadata(segment(folder.path(), noted)).unwrap().len();
    assert_eq!(stub, 168, "segment {noted}, which held the note, was swept");
    assert_eq!(issues(&store), before);
    drop(store);
    for store in open_both_ways(folder.path()) {
        assert_eq!(issues(&store), before);
    }
    let found = fsck(folder.path(), &options, Repair::No, &mut |_, _| {}).unwrap();
    assert!(
        found.issues.is_empty() && !found.acknowledged.is_empty(),
        "{found:?}"
    );
}
