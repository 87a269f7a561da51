//! Simulates power losses and failed disk operations. Every commit that was acknowledged as synced
//! must survive, and the surviving commits must be a prefix of all commits.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use dormouse_actors::ports::inventory::Inventory;
use dormouse_actors::ports::{
    Batch, Deletions, KeptContents, OwnerToken, Store, StoreError, SweepLimits, SweepMode,
    SweepReport, SweepRequest, SyncLevel, WriteOp,
};
use dormouse_proto::checkpoint::{Checkpoint, Scope};
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;

use crate::disk::volatile::{Fault, VolatileDisk};
use crate::{LogStore, MemoryStore};

const PIDS: u64 = 3;
const COMMITS: u64 = 24;

/// A seeded pseudo-random generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

fn seed() -> u64 {
    std::env::var("DORMOUSE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1)
}

fn trial_count(default: u64) -> u64 {
    std::env::var("DORMOUSE_TRIALS")
        .ok()
        .and_then(|trials| trials.parse().ok())
        .unwrap_or(default)
}

/// The contents of all commits with their hashes, computed once because every trial needs them.
static CONTENTS: LazyLock<Vec<(ContentHash, Bytes)>> = LazyLock::new(|| {
    let content = |number: u64| {
        let length = if number.is_multiple_of(5) {
            70_000
        } else {
            300
        };
        let bytes: Bytes = number
            .to_le_bytes()
            .into_iter()
            .cycle()
            .take(length)
            .collect();
        (ContentHash(*blake3::hash(&bytes).as_bytes()), bytes)
    };
    (0..=COMMITS).map(content).collect()
});

/// The content of commit `number`.
fn content(number: u64) -> &'static (ContentHash, Bytes) {
    &CONTENTS[number as usize]
}

/// Commit `number`, from 1. Each adds a fact to process 1, so that its facts count the commits.
fn entries(number: u64) -> Vec<WriteOp> {
    let row = |pid| ProcessRow::started(Pid(pid), "worker");
    let created = |pid| WriteOp::ProcessCreated {
        row: Box::new(row(pid)),
        image: vec![pid as u8; 40],
    };
    let (hash, bytes) = content(number).clone();
    let fact = |pid, number: u64| WriteOp::Facts {
        pid: Pid(pid),
        first: FactNumber(number),
        facts: vec![vec![7; 30]],
    };
    let mut entries: Vec<_> = if number == 1 {
        (1..=PIDS).map(created).collect()
    } else {
        Vec::new()
    };
    entries.push(WriteOp::Content {
        hash,
        bytes,
        index: Bytes::from_static(b"index"),
    });
    entries.extend((1..=PIDS).map(|pid| fact(pid, number)));
    entries.push(WriteOp::TempFile {
        root: Pid(1),
        number,
        record: number.to_le_bytes().to_vec(),
    });
    if number.is_multiple_of(6) {
        entries.push(WriteOp::Snapshot {
            pid: Pid(2),
            at: FactNumber(number),
            image: vec![9; 60],
        });
        let id = CheckpointId(number);
        let pid = Pid(1);
        let scope = Scope::Tree;
        let members = (1..=PIDS).map(Pid).collect();
        entries.push(WriteOp::Checkpoint {
            id,
            label: "six".into(),
            pid,
            root: pid,
            scope,
            members,
        });
    }
    entries
}

/// A folder for LOCK and the index, on a memory file system if there is one. The log and HEAD are
/// on the simulated disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn open(disk: &VolatileDisk, folder: &Path) -> Result<(LogStore, OwnerToken), StoreError> {
    let store = LogStore::open_on(
        Arc::new(disk.clone()),
        folder,
        &LogStore::options().segment_bytes(120_000),
    )?;
    let owner = store.claim()?;
    Ok((store, owner))
}

/// Checks that the store contains the first commits, completely. Returns how many there are.
fn check(store: &LogStore, case: &str) -> u64 {
    let survived = match store.journal(Pid(1), None) {
        Err(StoreError::UnknownProcess(_)) => 0,
        journal => journal
            .unwrap_or_else(|error| panic!("{case}: {error}"))
            .facts
            .len() as u64,
    };
    let expected_store = MemoryStore::new();
    let owner = expected_store.claim().unwrap();
    (1..=survived).for_each(|number| {
        expected_store
            .commit(owner, Batch::durable(&entries(number), number))
            .unwrap();
    });
    assert_eq!(
        store.processes().unwrap(),
        expected_store.processes().unwrap(),
        "{case}"
    );
    // Compaction takes commit numbers as well, so commits are recognised by their times.
    let times = |store: &dyn Store, pid| -> Vec<_> {
        let history = store.history(pid).unwrap().commits;
        assert!(
            history.is_sorted_by(|one, other| one.commit <= other.commit),
            "{case}: {history:?}"
        );
        history
            .iter()
            .map(|written| (written.at_ms, written.first, written.count))
            .collect()
    };
    let files = |store: &dyn Store, pid| -> Vec<_> {
        store
            .temp_files(pid)
            .unwrap()
            .into_iter()
            .map(|change| change.record)
            .collect()
    };
    let checkpoints = |store: &dyn Store| -> Vec<_> {
        let none = CommitNumber::default();
        store
            .checkpoints()
            .unwrap()
            .into_iter()
            .map(|it| Checkpoint { commit: none, ..it })
            .collect()
    };
    for pid in (1..=PIDS).map(Pid).filter(|_| survived > 0) {
        for up_to in [None, Some(FactNumber(survived / 2))] {
            assert_eq!(
                store.journal(pid, up_to).unwrap(),
                expected_store.journal(pid, up_to).unwrap(),
                "{case}"
            );
        }
        assert_eq!(times(store, pid), times(&expected_store, pid), "{case}");
        assert_eq!(files(store, pid), files(&expected_store, pid), "{case}");
    }
    assert_eq!(checkpoints(store), checkpoints(&expected_store), "{case}");
    for number in 1..=survived {
        let (hash, expected) = content(number);
        let read = store
            .content(*hash)
            .unwrap()
            .slice(0..expected.len() as u64);
        assert_eq!(
            read.ok().as_ref(),
            Some(expected),
            "{case}: the content of commit {number}"
        );
    }
    survived
}

/// Compacts every segment before the last, or closes that one first, in small steps.
fn compact(
    store: &LogStore,
    owner: OwnerToken,
    close_bytes: u64,
) -> Result<SweepReport, StoreError> {
    let mark = store.begin_mark(owner)?;
    let inventory = &mut Inventory::default();
    let deletions = &Deletions::default();
    let limits = SweepLimits {
        live_percent: 100,
        step_bytes: 50_000,
        close_bytes,
    };
    let contents = KeptContents::All;
    let mode = SweepMode::Free;
    let watch = &mut |_| ControlFlow::Continue(());
    store.sweep(
        owner,
        SweepRequest {
            mark,
            inventory,
            contents,
            deletions,
            mode,
            limits,
            watch,
        },
    )
}

/// Whether compactions run now and then between commits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compactions {
    Between,
    Never,
}

/// Commits from `from` on until all are made or one fails. Returns how many are known to be synced.
fn make_commits(
    store: &LogStore,
    owner: OwnerToken,
    from: u64,
    compactions: Compactions,
    rng: &mut Rng,
) -> (u64, Result<(), StoreError>) {
    let mut synced = from - 1;
    for number in from..=COMMITS {
        let sync_level = if rng.below(3) == 0 {
            SyncLevel::Synced
        } else {
            SyncLevel::Written
        };
        let batch = Batch {
            ops: &entries(number),
            at_ms: number,
            sync_level,
        };
        if let Err(error) = store.commit(owner, batch) {
            return (synced, Err(error));
        }
        if compactions == Compactions::Between && rng.below(6) == 0 {
            let close_bytes = if rng.below(4) == 0 { 0 } else { u64::MAX };
            match compact(store, owner, close_bytes) {
                Ok(report) => assert!(
                    report.damaged_segments.is_empty(),
                    "commit {number}: {report:?}"
                ),
                Err(error) => return (synced, Err(error)),
            }
        }
        if sync_level == SyncLevel::Synced {
            synced = number;
        }
    }
    (synced, Ok(()))
}

#[test]
fn a_power_loss_keeps_every_synced_commit_and_no_partial_commit() {
    let seed = seed();
    let trials = trial_count(1_000);
    std::thread::scope(|threads| {
        for half in 0..2 {
            threads.spawn(move || lose_power(seed, &(half..trials).step_by(2).collect::<Vec<_>>()));
        }
    });
}

fn lose_power(seed: u64, trials: &[u64]) {
    let count = trials.len();
    let mut shorter_logs = 0;
    let mut full_runs = 0;
    for trial in trials {
        let mut rng = Rng(seed.wrapping_mul(1_000_003).wrapping_add(*trial));
        let compactions = if trial.is_multiple_of(5) {
            Compactions::Between
        } else {
            Compactions::Never
        };
        let disk = VolatileDisk::default();
        let folder = folder();
        let failing_step = 1 + rng.below(if compactions == Compactions::Between {
            240
        } else {
            120
        }) as u64;
        disk.fail_at(failing_step, Fault::Power);
        let mut synced = 0;
        if let Ok((store, owner)) = open(&disk, folder.path()) {
            synced = make_commits(&store, owner, 1, compactions, &mut rng).0;
        }
        full_runs += usize::from(!disk.has_failed());
        let disk = disk.after_power_loss(&mut |limit| rng.below(limit));
        if rng.below(2) == 0 {
            // An index that is newer than the log, or missing altogether, must change no answer.
            std::fs::remove_dir_all(folder.path().join("index")).ok();
        }
        let case = format!("seed {seed}, trial {trial}, power lost at step {failing_step}");
        let (store, owner) =
            open(&disk, folder.path()).unwrap_or_else(|error| panic!("{case}: {error}"));
        let survived = check(&store, &case);
        assert!(
            survived >= synced,
            "{case}: {synced} commits were synced, {survived} are there"
        );
        shorter_logs += usize::from(survived < COMMITS);
        // The store continues on the same disk.
        let (_, done) = make_commits(&store, owner, survived + 1, compactions, &mut rng);
        done.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(check(&store, &case), COMMITS, "{case}");
    }
    assert!(
        shorter_logs > count / 2 && full_runs < count / 2,
        "{shorter_logs} of {count} lost a tail"
    );
}

#[test]
fn a_failed_reservation_of_space_does_not_lengthen_the_log() {
    for last in 1..=COMMITS {
        let disk = VolatileDisk::default();
        let dir = folder();
        disk.fail_reserving();
        let (store, owner) = open(&disk, dir.path()).unwrap();
        (1..=last).for_each(|number| {
            store
                .commit(owner, Batch::durable(&entries(number), number))
                .unwrap();
        });
        // After a kill, nothing that was written is lost.
        let killed = disk.after_power_loss(&mut |limit| usize::from(limit == 3));
        drop(store);
        let (store, _) = open(&killed, dir.path()).unwrap();
        assert_eq!(check(&store, &format!("killed after commit {last}")), last);
    }
}

#[test]
fn any_failed_disk_operation_is_reported_once_and_loses_no_synced_commit() {
    let steps = {
        let disk = VolatileDisk::default();
        let folder = folder();
        let (store, owner) = open(&disk, folder.path()).unwrap();
        make_commits(&store, owner, 1, Compactions::Between, &mut Rng(0))
            .1
            .unwrap();
        drop(store);
        disk.steps()
    };
    assert!(steps > 60, "{steps} steps");
    std::thread::scope(|threads| {
        for half in 1..=2 {
            threads.spawn(move || {
                (half..=steps)
                    .step_by(2)
                    .for_each(|step| fail_at(step, steps))
            });
        }
    });
}

fn fail_at(step: u64, steps: u64) {
    let disk = VolatileDisk::default();
    let folder = folder();
    disk.fail_at(step, Fault::Once(std::io::ErrorKind::StorageFull));
    let case = format!("step {step} of {steps} fails");
    let mut opened = open(&disk, folder.path());
    let mut synced = 0;
    let mut errors = u32::from(opened.is_err());
    for _ in 0..4 {
        let (store, owner) = match opened {
            Ok(opened) => opened,
            Err(_) => open(&disk, folder.path()).unwrap_or_else(|error| panic!("{case}: {error}")),
        };
        let survived = check(&store, &case);
        assert!(
            survived >= synced,
            "{case}: {synced} commits were synced, {survived} are there"
        );
        let (now, outcome) = make_commits(
            &store,
            owner,
            survived + 1,
            Compactions::Between,
            &mut Rng(0),
        );
        synced = now;
        errors += u32::from(outcome.is_err());
        if matches!(outcome, Err(StoreError::Io { .. }))
            && store.commit(owner, Batch::durable(&[], 0)).is_ok()
        {
            // After a write that was rolled back, the same store accepts the next.
            assert!(check(&store, &case) >= synced, "{case}");
        }
        drop(store);
        opened = open(&disk, folder.path());
    }
    assert_eq!(
        check(
            &opened.unwrap_or_else(|error| panic!("{case}: {error}")).0,
            &case
        ),
        COMMITS,
        "{case}"
    );
    assert!(
        errors <= 1,
        "{case}: one fault is reported once, not {errors} times"
    );
}
