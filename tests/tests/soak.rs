//! Everything at once, for as long as one likes: trees that start, fork, spawn and write to each
//! other; hosts that speak, signal, branch, copy, take back, and lose interest halfway; models and
//! tools that fail, hang and panic; collections, hibernation, and a kernel that is closed and
//! opened again.
//!
//! What is checked: a call that must not be repeated runs once for each process that makes it, a
//! message is heard once, whatever a host asks for is answered in time, and no task or descriptor
//! is left. What grows is printed, minute by minute.
//!
//! `SOAK_SEED` chooses what happens, as far as the scheduling of threads lets it; `SOAK_MINUTES`
//! how long it lasts.

mod calls;
mod figures;
mod host;
mod mind;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dormouse::host::{LocalHost, Permissions};
use dormouse::mail::Reach;
use dormouse::ports::{StoreError, SweepMode};
use dormouse::retention::{CheckpointRules, EndedRule, HistoryRule, Retention};
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelError, LoadError, NotFound, ProcessError, StoreFailure};
use dormouse_tests::random::Random;
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio::task::JoinSet;

use calls::Calls;
use figures::Figures;

/// Hosts that act at the same time.
const HOSTS: u64 = 8;
/// Processes that live at once, about.
const CROWD: usize = 300;
/// How long anything may take that a host asks for. A model that hangs is left long before.
const PATIENCE: Duration = Duration::from_secs(120);
const SEGMENT_BYTES: u64 = 8 << 20;
const RESIDENT_BYTES: u64 = 64 << 20;

/// How much happens.
struct Plan {
    seed: u64,
    lasts: Duration,
    between_collections: Duration,
    between_openings: Duration,
    /// How long ended processes are kept.
    ended: Duration,
}

/// What all that act share.
struct Soak {
    plan: Plan,
    began: Instant,
    folder: PathBuf,
    /// The kernel of now, and its store: whoever acts holds it for reading.
    open: RwLock<Option<Open>>,
    calls: Arc<Calls>,
    figures: Figures,
}

struct Open {
    kernel: Kernel,
    store: Arc<LogStore>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_at_once_for_a_moment() {
    let plan = Plan {
        seed: seed(),
        lasts: Duration::from_secs(6),
        between_collections: Duration::from_secs(1),
        between_openings: Duration::from_secs(2),
        ended: Duration::from_secs(3),
    };
    soak(plan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes SOAK_MINUTES: see .ci/soak"]
async fn everything_at_once() {
    let minutes = std::env::var("SOAK_MINUTES")
        .ok()
        .and_then(|minutes| minutes.parse().ok())
        .unwrap_or(60.0);
    let plan = Plan {
        seed: seed(),
        lasts: Duration::from_secs_f64(minutes * 60.0),
        between_collections: Duration::from_secs(10),
        between_openings: Duration::from_secs(90),
        ended: Duration::from_secs(60),
    };
    watch_panics();
    soak(plan).await;
    let panics = PANICS.load(Ordering::Relaxed);
    assert_eq!(
        panics, 0,
        "something panicked beside the tools and models that do so: see above"
    );
}

/// Panics of which nobody knew.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics but for those of the tools and models, which are silent from here on.
fn watch_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_meant = panic
            .payload_as_str()
            .is_some_and(|text| text.starts_with(calls::NO_LUCK));
        if !is_meant {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(panic);
        }
    }));
}

fn seed() -> u64 {
    std::env::var("SOAK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1)
}

async fn soak(plan: Plan) {
    eprintln!("soak: SOAK_SEED={}, {:?}", plan.seed, plan.lasts);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("main.toml"), host::PROGRAM).unwrap();
    let calls = Arc::new(Calls::new(plan.seed));
    let open = RwLock::new(Some(open_kernel(folder.path(), &calls).await));
    let (began, folder_path) = (Instant::now(), folder.path().to_owned());
    let soak = Arc::new(Soak {
        plan,
        began,
        folder: folder_path,
        open,
        calls,
        figures: Figures::default(),
    });
    let mut tasks = JoinSet::new();
    for host in 0..HOSTS {
        tasks.spawn(host::act(soak.clone(), Random::of(&[soak.plan.seed, host])));
    }
    tasks.spawn(collect(soak.clone()));
    tasks.spawn(reopen(soak.clone()));
    tasks.spawn(calls::explain(soak.clone()));
    tasks.spawn(figures::print(soak.clone()));
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let soak = Arc::into_inner(soak).expect("nobody acts any more");
    let open = soak
        .open
        .into_inner()
        .expect("it is put back before it is let go");
    within(&soak.folder, "a shutdown", open.kernel.shutdown())
        .await
        .unwrap();
    // What ran last is explained once nothing runs any more.
    soak.calls.explain(soak.calls.take_again(), &open.store);
    soak.figures.print_end();
    soak.calls.check();
}

async fn open_kernel(folder: &Path, calls: &Arc<Calls>) -> Open {
    let store = Arc::new(
        LogStore::options()
            .segment_bytes(SEGMENT_BYTES)
            .open(folder.join("store"))
            .unwrap(),
    );
    let host = LocalHost::new(Permissions::none(), folder).unwrap();
    let builder = Kernel::open(store.clone())
        .model("m", mind::model(calls.clone()))
        .host(host);
    let builder = builder
        .hibernate_after(Duration::from_millis(300))
        .max_loaded(CROWD)
        .reach(Reach::Everyone);
    let builder = builder
        .resident_bytes_limit(RESIDENT_BYTES)
        .model_deadline(Duration::from_secs(5))
        .model_attempts(2);
    let kernel = calls::enter(builder, calls).build().await.unwrap();
    kernel.resume_all().await.unwrap();
    Open { kernel, store }
}

/// Awaits what must happen; panics where it does not.
async fn within<T>(folder: &Path, what: &str, future: impl Future<Output = T>) -> T {
    let late = |_| {
        panic!(
            "{what} did not come to its end within {PATIENCE:?}; the store is in {}",
            folder.display()
        )
    };
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(late)
}

impl Soak {
    /// The kernel of now, which stays open as long as this is held.
    async fn open(&self) -> RwLockReadGuard<'_, Open> {
        let open = self.open.read().await;
        RwLockReadGuard::map(open, |open| {
            open.as_ref().expect("it is put back before it is let go")
        })
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= self.plan.lasts
    }

    /// Sleeps, but not beyond the end.
    async fn pause(&self, pause: Duration) {
        tokio::time::sleep(pause.min(self.plan.lasts.saturating_sub(self.began.elapsed()))).await;
    }
}

async fn collect(soak: Arc<Soak>) {
    let retention = Retention {
        checkpoints: CheckpointRules {
            last: Some(3),
            ..CheckpointRules::default()
        },
        ended: EndedRule::ForMs(soak.plan.ended.as_millis() as u64),
        history: HistoryRule::FromOldestCheckpoint,
    };
    while !soak.is_over() {
        soak.pause(soak.plan.between_collections).await;
        let open = soak.open().await;
        let began = Instant::now();
        let collected = open
            .kernel
            .collect_garbage(retention.clone(), SweepMode::Free);
        let report = within(&soak.folder, "a collection", collected)
            .await
            .unwrap();
        assert_eq!(report.unreadable, [""; 0], "nothing is damaged");
        soak.figures.collected(
            began.elapsed(),
            report.read + report.swept.inspected_records,
        );
    }
}

/// Closes the kernel and opens another on the same store, again and again.
async fn reopen(soak: Arc<Soak>) {
    while !soak.is_over() {
        soak.pause(soak.plan.between_openings).await;
        let mut open = soak.open.write().await;
        let Open { kernel, store } = open.take().expect("it is put back before it is let go");
        within(&soak.folder, "a shutdown", kernel.shutdown())
            .await
            .unwrap();
        let let_go = async {
            while Arc::strong_count(&store) > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(&soak.folder, "letting go of a store", let_go).await;
        drop(store);
        *open = Some(
            within(
                &soak.folder,
                "an opening",
                open_kernel(&soak.folder, &soak.calls),
            )
            .await,
        );
        soak.figures.opened();
    }
}

/// What came of it, where it is an error that a host must reckon with.
fn is_expected(error: &KernelError) -> bool {
    if let KernelError::Store(StoreFailure::Load(error)) = error {
        // A collection may give it up meanwhile.
        return matches!(**error, LoadError::Store(StoreError::UnknownProcess(_)));
    }
    matches!(
        error,
        KernelError::Process(
            ProcessError::Ended(_)
                | ProcessError::Unanswered(_)
                | ProcessError::Busy { .. }
                | ProcessError::Pending { .. }
        ) | KernelError::NotFound(NotFound::Process(_) | NotFound::InCheckpoint { .. })
            | KernelError::Store(StoreFailure::Store(
                StoreError::UnknownFact { .. }
                    | StoreError::DeletedFact { .. }
                    | StoreError::UnknownProcess(_)
            ))
    )
}
