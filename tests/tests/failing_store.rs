//! A store that fails at its Nth operation, for every N of a swarm's run: what was acknowledged is
//! there, and the swarm comes to the same end when it is opened again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse::ports::{Store, StoreError};
use dormouse::process::ExitStatus;
use dormouse::store::MemoryStore;
use dormouse::{Event, Kernel, KernelError, ProcessError};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::swarm::{self, Held, Ledger, Line, Snapshots};
use dormouse_tests::{PATIENCE, program, within};
use futures_util::StreamExt;

/// Runs that wait beside each other.
const AT_ONCE: usize = 8;

/// How an operation fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// It fails once, and nothing of it is done.
    Once,
    /// It and all that come after it fail.
    ForGood,
    /// It is done, but fails, and all that come after it do: the end of a kernel between a commit
    /// and its acknowledgement.
    Unheard,
}

/// A store that fails at operation `at`, counted from 1 and from now; none of the openings before
/// counts.
fn failing(inner: Arc<MemoryStore>, at: usize, how: Failure) -> Faulty<Arc<MemoryStore>> {
    Faulty::new(inner, move |number, operation| {
        // What a commit brought is asked of it in every opening alike: that it cannot be opened is
        // another test's.
        let is_opening = matches!(
            operation,
            Operation::Claim | Operation::Processes | Operation::Checkpoints
        );
        match (number.cmp(&at), how) {
            _ if is_opening => Fate::Pass,
            (std::cmp::Ordering::Less, _) | (std::cmp::Ordering::Greater, Failure::Once) => {
                Fate::Pass
            }
            (std::cmp::Ordering::Equal, Failure::Once) => Fate::Fail(disk_full()),
            (std::cmp::Ordering::Equal, Failure::Unheard) => Fate::Unheard(gone()),
            (_, Failure::ForGood | Failure::Unheard) => Fate::Fail(gone()),
        }
    })
}

fn gone() -> StoreError {
    StoreError::Failed("the disk is gone".to_owned())
}

/// Runs the swarm on `store` until it ends or stops. Answers with what was acknowledged, and its
/// last word where it ended.
async fn run(store: impl Store, folder: &Path) -> (String, Option<String>) {
    let kernel = swarm::kernel(store, folder, Snapshots::Often)
        .await
        .unwrap();
    let events = kernel.events();
    let said = end(&kernel, folder).await;
    // The store fails in between, and a sync of the shutdown with it.
    let _ = within(kernel.shutdown()).await;
    let events: Vec<Event> = events.collect().await;
    let lines = events.iter().filter_map(|event| Line::of(event).unwrap());
    (lines.map(|line| format!("{line}\n")).collect(), said)
}

async fn end(kernel: &Kernel, folder: &Path) -> Option<String> {
    within(kernel.resume_all()).await.ok()?;
    // What a store that failed refuses is no end.
    let coordinator = within(swarm::coordinator(kernel, folder)).await.ok()?;
    let clerk = kernel.process_named("clerk").await.ok()?;
    let exit = tokio::time::timeout(PATIENCE, async {
        // Whoever answers to the coordinator may be stopped while it is not.
        tokio::select! {
            exit = coordinator.wait() => exit,
            exit = clerk.wait() => exit,
        }
    });
    let Ok(exit) = exit.await else {
        return Some("nothing".to_owned());
    };
    match exit {
        Ok(exit) => (exit.status == ExitStatus::Done).then(|| exit.message.to_string()),
        Err(KernelError::Process(ProcessError::Held { .. })) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_at_any_operation_loses_nothing_and_the_swarm_ends_the_same() {
    let counted = Arc::new(AtomicUsize::new(0));
    let expected = {
        let folder = tempfile::tempdir().unwrap();
        swarm::prepare(folder.path()).unwrap();
        let store = failing(Arc::default(), usize::MAX, Failure::Once);
        let operations = store.clone();
        let said = run(store, folder.path()).await.1.unwrap();
        counted.store(operations.operations(), Ordering::SeqCst);
        said
    };
    let operations = counted.load(Ordering::SeqCst);
    assert!(operations >= 300, "{operations} operations");
    let trials = (1..=operations).map(|at| {
        let expected = expected.clone();
        async move {
            tokio::spawn(fails_at(
                at,
                [Failure::ForGood, Failure::Unheard, Failure::Once][at % 3],
                expected,
            ))
            .await
        }
    });
    let ended: Vec<_> = futures_util::stream::iter(trials)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let failed: Vec<String> = ended
        .into_iter()
        .filter_map(|ended| ended.unwrap().err())
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {operations}:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

/// What went wrong where operation `at` failed.
async fn fails_at(at: usize, how: Failure, expected: String) -> Result<(), String> {
    let case = format!("operation {at} fails: {how:?}");
    let (folder, inner) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::new()));
    swarm::prepare(folder.path()).unwrap();
    let (acknowledged, said) = run(failing(inner.clone(), at, how), folder.path()).await;
    if let Some(lost) = Held::of(&inner).unwrap().lost(&acknowledged) {
        return Err(format!("{case}: '{lost}' was acknowledged"));
    }
    // One that never saw the failure has ended. Where the disk had no room for a temporary file, a
    // model was told, and these know nothing better than to wait.
    if was_told(&inner) {
        return Ok(());
    }
    if let Some(said) = said.filter(|said| *said != expected) {
        return Err(format!("{case}: it ended with {said}"));
    }
    let again = run(inner.clone(), folder.path()).await.1;
    if again.as_ref() != Some(&expected) {
        return Err(format!("{case}: opened again it ended with {again:?}"));
    }
    let mut ran = Ledger::of(folder.path()).ids().unwrap();
    let all = ran.len();
    ran.sort_unstable();
    ran.dedup();
    if ran.len() == all {
        Ok(())
    } else {
        Err(format!("{case}: CALL-2, {all} runs of {ran:?}"))
    }
}

/// Whether a tool has answered that the store refused what it was to do.
fn was_told(store: &MemoryStore) -> bool {
    let text = "the store cannot append: no storage space";
    let tells = |bytes: &[u8]| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    store.processes().unwrap().rows.iter().any(|row| {
        let journal = store.journal(row.pid, None).unwrap();
        tells(&journal.image) || journal.facts.iter().any(|fact| tells(fact))
    })
}

/// What waits for the commit is answered, as is what comes after it, and the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_panics_in_a_commit_has_failed() {
    let store = Faulty::new(MemoryStore::new(), |_, operation| match operation {
        Operation::Commit { .. } => panic!("the disk is on fire"),
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(store).build().await.unwrap();
    for _ in 0..2 {
        let start = kernel.start(program(&kernel, "")).session();
        let error = within(start.without_input()).await.unwrap_err();
        assert!(error.to_string().contains("the disk is on fire"), "{error}");
    }
    within(kernel.shutdown()).await.unwrap();
}
