//! How far a commit has come before a kernel goes on, by its setting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::model::Request;
use dormouse::ports::{Model, StoreError, SyncLevel};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{Durability, Kernel, KernelError, Recovery, StoreFailure, Verdict};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::{FnModel, asks, program, says, within};

/// The commits of a store: how many entries each had, and what it was to survive.
#[derive(Clone, Default)]
struct Commits(Arc<Mutex<Vec<(usize, SyncLevel)>>>);

impl Commits {
    fn of(&self, inner: Arc<MemoryStore>) -> Faulty<Arc<MemoryStore>> {
        let commits = self.clone();
        Faulty::new(inner, move |_, operation| {
            if let Operation::Commit {
                entries,
                sync_level,
            } = operation
            {
                commits.0.lock().unwrap().push((entries, sync_level));
            }
            Fate::Pass
        })
    }

    fn taken(&self) -> Vec<(usize, SyncLevel)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn echo() -> impl Model {
    FnModel(|request: Request| async move { Ok(says(&request.messages.last().unwrap().text())) })
}

async fn run_one(kernel: &Kernel) {
    let process = kernel.start(program(kernel, "")).input("go").await.unwrap();
    within(process.wait()).await.unwrap();
}

#[tokio::test]
async fn every_setting_asks_for_the_disk_when_it_says() {
    for durability in [
        Durability::EveryFact,
        Durability::EveryTurn,
        Durability::Relaxed,
    ] {
        let (commits, inner) = (Commits::default(), Arc::new(MemoryStore::new()));
        let builder = Kernel::open(commits.of(inner))
            .durability(durability)
            .model("m", echo());
        let kernel = builder.build().await.unwrap();
        run_one(&kernel).await;
        let taken = commits.taken();
        let synced = taken
            .iter()
            .filter(|(_, sync_level)| *sync_level == SyncLevel::Synced)
            .count();
        match durability {
            Durability::EveryFact => assert_eq!(synced, taken.len(), "{taken:?}"),
            Durability::EveryTurn => {
                assert!(0 < synced && synced < taken.len(), "{taken:?}");
                assert_eq!(
                    (taken[0].1, taken.last().unwrap().1),
                    (SyncLevel::Synced, SyncLevel::Synced),
                    "birth and end"
                );
            }
            Durability::Relaxed => assert_eq!(synced, 0, "{taken:?}"),
        }
        kernel.shutdown().await.unwrap();
        let left = if durability == Durability::Relaxed {
            vec![(0, SyncLevel::Synced)]
        } else {
            Vec::new()
        };
        assert_eq!(
            commits.taken(),
            left,
            "a kernel that shuts down leaves nothing unsynced"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_only_written_is_synced_a_second_later() {
    let (commits, inner) = (Commits::default(), Arc::new(MemoryStore::new()));
    let builder = Kernel::open(commits.of(inner))
        .durability(Durability::Relaxed)
        .model("m", echo());
    let kernel = builder.build().await.unwrap();
    run_one(&kernel).await;
    let before = commits.taken();
    assert!(
        before
            .iter()
            .all(|(_, sync_level)| *sync_level == SyncLevel::Written),
        "{before:?}"
    );
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    let after = commits.taken();
    assert_eq!(after, [(0, SyncLevel::Synced)], "once, and only once");
}

/// A commit that would have synced what was only written before it is refused: that is synced a
/// second later, or by the shutdown.
#[tokio::test(start_paused = true)]
async fn what_was_written_before_a_refused_commit_is_synced_all_the_same() {
    for is_late in [true, false] {
        let (commits, is_full) = (Commits::default(), Arc::new(AtomicBool::new(false)));
        let refuses = is_full.clone();
        let store = Faulty::new(
            commits.of(Arc::default()),
            move |_, operation| match operation {
                Operation::Commit { entries: 1.., .. } if refuses.load(Ordering::SeqCst) => {
                    Fate::Fail(disk_full())
                }
                _ => Fate::Pass,
            },
        );
        let kernel = Kernel::open(store)
            .durability(Durability::EveryTurn)
            .build()
            .await
            .unwrap();
        let start = || kernel.start(program(&kernel, "")).session().without_input();
        let session = start().await.unwrap();
        commits.taken();
        session.open("note", "what was noted", None).await.unwrap();
        let written = commits.taken();
        assert!(
            !written.is_empty()
                && written
                    .iter()
                    .all(|(_, sync_level)| *sync_level == SyncLevel::Written),
            "{written:?}"
        );
        is_full.store(true, Ordering::SeqCst);
        assert!(start().await.is_err(), "the birth is refused");
        if is_late {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
        } else {
            kernel.shutdown().await.unwrap();
        }
        let synced = commits.taken();
        assert_eq!(synced, [(0, SyncLevel::Synced)], "late: {is_late}");
    }
}

#[tokio::test]
async fn a_late_sync_that_fails_is_told_to_the_next_who_wants_something_kept() {
    let inner = Faulty::new(MemoryStore::new(), |_, operation| match operation {
        Operation::Commit { entries: 0, .. } => {
            Fate::Fail(StoreError::Failed("the sync failed".to_owned()))
        }
        _ => Fate::Pass,
    });
    let failing = Arc::new(Mutex::new(false));
    let failed = failing.clone();
    let store = Faulty::new(inner, move |_, operation| match operation {
        Operation::Commit { entries: 0, .. } => {
            *failed.lock().unwrap() = true;
            Fate::Pass
        }
        Operation::Commit { .. } if *failed.lock().unwrap() => {
            Fate::Fail(StoreError::Failed("earlier".to_owned()))
        }
        _ => Fate::Pass,
    });
    let builder = Kernel::open(store)
        .durability(Durability::Relaxed)
        .model("m", echo());
    let kernel = builder.build().await.unwrap();
    run_one(&kernel).await;
    while !*failing.lock().unwrap() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let error = kernel
        .start(program(&kernel, ""))
        .input("go")
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("takes no more commits"),
        "{error}"
    );
}

/// The first sync fails: that of a second later, or that of the shutdown. Nothing waits for either.
#[tokio::test(start_paused = true)]
async fn a_sync_that_fails_is_told_to_whoever_shuts_down() {
    for is_late in [true, false] {
        let is_first = Mutex::new(true);
        let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
            Operation::Commit { entries: 0, .. }
                if std::mem::take(&mut *is_first.lock().unwrap()) =>
            {
                Fate::Fail(disk_full())
            }
            _ => Fate::Pass,
        });
        let kernel = Kernel::open(store)
            .durability(Durability::Relaxed)
            .model("m", echo())
            .build()
            .await
            .unwrap();
        run_one(&kernel).await;
        if is_late {
            tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        }
        let error = kernel.shutdown().await.unwrap_err();
        assert!(
            matches!(error, KernelError::Store(StoreFailure::NotDurable(_))),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_relaxed_kernel_that_shuts_down_leaves_everything_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        Kernel::open(LogStore::open(folder.path()).unwrap())
            .durability(Durability::Relaxed)
            .model("m", echo())
    };
    let kernel = open().build().await.unwrap();
    run_one(&kernel).await;
    kernel.shutdown().await.unwrap();
    let again = open().build().await.unwrap();
    let listed = again.processes().await.unwrap();
    assert_eq!(
        listed
            .iter()
            .map(|info| info.status.word())
            .collect::<Vec<_>>(),
        ["done"]
    );
    again.shutdown().await.unwrap();
}

/// A verdict is acknowledged to a person, whether its process is loaded or not.
#[tokio::test]
async fn the_verdict_of_a_person_is_synced_every_turn() {
    let (commits, inner) = (Commits::default(), Arc::new(MemoryStore::new()));
    let open = |recovery| {
        let asks_first = FnModel(|request: Request| async move {
            let last = request.messages.last().unwrap().text();
            Ok(match last.as_str() {
                "go" => asks(&[
                    ("ask_user", r#"{"question": "one?"}"#),
                    ("ask_user", r#"{"question": "two?"}"#),
                    ("ask_user", r#"{"question": "three?"}"#),
                ]),
                _ => says("done"),
            })
        });
        Kernel::open(commits.of(inner.clone()))
            .durability(Durability::EveryTurn)
            .recovery(recovery)
            .model("m", asks_first)
            .build()
    };
    let kernel = open(Recovery::Resume).await.unwrap();
    let ask_user = program(&kernel, "[tools]\nenabled = [\"ask_user\"]\n");
    let process = kernel.start(ask_user).input("go").await.unwrap();
    within(process.wait_for(|view| view.status().word() == "asking"))
        .await
        .unwrap();
    let held: Vec<_> = kernel.pending().await.unwrap().calls;
    assert_eq!(held.len(), 3);
    commits.taken();
    kernel.refuse(held[0].id, "no").await.unwrap();
    assert!(is_synced(&commits.taken()), "loaded");
    kernel.shutdown().await.unwrap();

    let kernel = open(Recovery::Hold).await.unwrap();
    commits.taken();
    let refuse = Verdict::Refuse { why: String::new() };
    kernel.record_verdict(held[1].id, refuse).await.unwrap();
    assert!(is_synced(&commits.taken()), "not loaded");
    assert_eq!(kernel.pending().await.unwrap().calls.len(), 1);
    kernel.shutdown().await.unwrap();
}

fn is_synced(commits: &[(usize, SyncLevel)]) -> bool {
    !commits.is_empty() && commits.iter().all(|(_, level)| *level == SyncLevel::Synced)
}
