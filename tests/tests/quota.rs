//! A store that may hold only so much: who brings too much is refused by name and alone, nothing is
//! lost, and all goes on after a collection, or with a larger quota.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use dormouse::ports::SweepMode;
use dormouse::retention::{EndedRule, Retention};
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelError, Process, ProcessError, StoreFailure};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{FnModel, program, says, within};

const QUOTA: u64 = 400_000;
const PROGRAM: &str = "[tools]\nenabled = [\"read_fd\"]\n";

fn model() -> impl dormouse::ports::Model {
    FnModel(|_| async { Ok(says("ok")) })
}

async fn open(folder: &Path, quota: u64) -> Kernel {
    let store = LogStore::options().quota_bytes(quota).open(folder).unwrap();
    Kernel::open(store)
        .model("m", model())
        .build()
        .await
        .unwrap()
}

async fn session(kernel: &Kernel) -> Process {
    within(
        kernel
            .start(program(kernel, PROGRAM))
            .session()
            .without_input()
            .into_future(),
    )
    .await
    .unwrap()
}

/// 20 KB that are no other's.
fn text(number: usize) -> String {
    (0..1_000)
        .map(|line| format!("content {number:04}, {line:04}\n"))
        .collect()
}

/// Opens contents from `first` on until one is refused; answers with its number.
async fn fill(process: &Process, first: usize) -> usize {
    for number in first..first + 100 {
        match within(process.open(format!("c{number}"), text(number), None)).await {
            Ok(_) => {}
            Err(error) => {
                let said = error.to_string();
                assert!(
                    matches!(
                        error,
                        KernelError::Store(StoreFailure::NotDurable(_))
                            | KernelError::Process(ProcessError::Unanswered(_))
                    ),
                    "{said}"
                );
                let held = within(process.wait()).await.unwrap_err().to_string();
                assert!(
                    held.contains("is held") && held.contains("the store is full"),
                    "{held}"
                );
                assert!(
                    held.contains("dormouse gc") && held.contains("quota"),
                    "{held}"
                );
                return number;
            }
        }
    }
    panic!("a quota is a bound");
}

async fn check(process: &Process, contents: usize) {
    for number in 1..=contents {
        let args = format!("{{\"fd\": \"fd:{number}\", \"start_line\": 500, \"end_line\": 500}}");
        let answer = within(process.call("read_fd", args)).await.unwrap();
        assert!(
            !answer.is_error && answer.text.contains(", 0499"),
            "fd:{number}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn who_fills_a_quota_goes_on_after_a_collection_and_with_a_larger_quota() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path(), QUOTA).await;
    let (old, new) = (session(&kernel).await, session(&kernel).await);
    for number in 0..8 {
        within(old.open("old", text(1_000 + number), None))
            .await
            .unwrap();
    }
    let held = fill(&new, 0).await;
    assert!((5..20).contains(&held), "{held}");
    assert!(
        kernel
            .processes()
            .await
            .unwrap()
            .iter()
            .all(|info| info.row.exit.is_none()),
        "nobody has ended"
    );

    // To end somebody is possible in a full store, and so is to give it up.
    within(old.kill()).await.unwrap();
    within(old.wait()).await.unwrap();
    let retention = Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    let report = within(kernel.collect_garbage(retention, SweepMode::Free))
        .await
        .unwrap();
    assert!(
        report.swept.bytes_after + 150_000 < report.swept.bytes_before,
        "{report:?}"
    );
    let new = within(kernel.resume(new.pid())).await.unwrap();
    check(&new, held).await;
    let more = fill(&new, held).await;
    assert!(more > held + 4, "{held}, {more}");
    within(kernel.shutdown()).await.unwrap();

    let kernel = open(folder.path(), 2 * QUOTA).await;
    let new = within(kernel.resume(new.pid())).await.unwrap();
    check(&new, more).await;
    assert!(fill(&new, more).await > more + 10);
    within(kernel.shutdown()).await.unwrap();
}

#[tokio::test]
async fn who_brings_too_much_is_refused_alone_though_others_commit_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (stands, (release, released)) = (Arc::new(AtomicBool::new(false)), mpsc::channel::<()>());
    let (stand, released) = (stands.clone(), Mutex::new(released));
    let inner = LogStore::options()
        .quota_bytes(QUOTA)
        .open(folder.path())
        .unwrap();
    let store = Faulty::new(inner, move |_, operation| {
        if matches!(operation, Operation::Commit { .. }) && stand.swap(false, Ordering::SeqCst) {
            // What comes meanwhile is committed together.
            let _ = released.lock().unwrap().recv();
        }
        Fate::Pass
    });
    let kernel = Kernel::open(store)
        .model("m", model())
        .build()
        .await
        .unwrap();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(session(&kernel).await);
    }
    stands.store(true, Ordering::SeqCst);
    let opens = |session: &Process, bytes: String| {
        let session = session.clone();
        tokio::spawn(async move { session.open("it", bytes, None).await })
    };
    let first = opens(&sessions[0], text(0));
    let ready = async || {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    };
    ready().await;
    let small = [opens(&sessions[1], text(1))];
    ready().await;
    // All of it is one process's, the later facts of which follow on what is refused.
    let large = [
        opens(&sessions[2], text(2).repeat(30)),
        opens(&sessions[2], text(3)),
        opens(&sessions[2], text(4)),
    ];
    ready().await;
    let last = opens(&sessions[3], text(5));
    ready().await;
    release.send(()).unwrap();
    for taken in [vec![first], small.into(), vec![last]]
        .into_iter()
        .flatten()
    {
        within(taken).await.unwrap().unwrap();
    }
    for refused in large {
        assert!(within(refused).await.unwrap().is_err());
    }
    let held = within(sessions[2].wait()).await.unwrap_err().to_string();
    assert!(
        held.contains("the store is full"),
        "told of the first refusal, and of no gap: {held}"
    );
    let stopped = within(kernel.resume(sessions[2].pid())).await.unwrap();
    within(stopped.open("it", text(6), None)).await.unwrap();
    check(&stopped, 1).await;
    for session in [0, 1, 3] {
        check(&sessions[session], 1).await;
    }
    within(kernel.shutdown()).await.unwrap();
}
