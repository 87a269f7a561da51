//! Random lives of whole kernels: one collects garbage at any moment and is killed without a close,
//! its twin does neither. What any living process reads is the same in both. `DORMOUSE_SEED` begins
//! with another seed, `DORMOUSE_TRIALS` says how many.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use dormouse::garbage::{CollectionReport, CollectionRequest, InUse, UnreadablePolicy, collect};
use dormouse::id::{CheckpointId, Pid};
use dormouse::inventory::Inventory;
use dormouse::model::Request;
use dormouse::ports::{OwnerToken, Store, SweepLimits, SweepMode, SweepOutcome, SweepReport};
use dormouse::process::{Exit, ProcessRow};
use dormouse::retention::{CheckpointRules, EndedRule, HistoryRule, Retention};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{Kernel, Position, Process};
use dormouse_tests::random::Random;
use dormouse_tests::{FnModel, asks, copy_folder, program, results, says, turn, within};

const STEPS: u64 = 80;
/// Processes that live at once, about.
const CROWD: usize = 6;
const PROGRAM: &str = "max_iterations = 500\n[tools]\neffects = \"run\"\nenabled = [\"read_fd\", \"list_fds\", \
\"fork\"]\n[limits]\nmax_restores = 100\n";

/// Forks when it is told to; a child says what it was asked.
async fn kernel(store: impl Store) -> Kernel {
    let model = FnModel(|request: Request| async move {
        let last = request
            .messages
            .last()
            .map(|message| format!("{:?}", message.blocks))
            .unwrap_or_default();
        Ok(match results(&request, 0).first() {
            Some((text, _)) if text.starts_with("You are child") => says("seen"),
            None if last.contains("split") => asks(&[("fork", r#"{"prompts": ["one", "two"]}"#)]),
            _ => says("ok"),
        })
    });
    let builder = Kernel::open(store)
        .model("m", model)
        .snapshot_after_facts(4)
        .resident_bytes_limit(1);
    within(builder.build().into_future()).await.unwrap()
}

fn open(folder: &Path) -> LogStore {
    LogStore::options()
        .segment_bytes(6_000)
        .open(folder)
        .unwrap()
}

/// A content of some kilobytes, of which there are so few that some are shared, or dropped and
/// committed again.
fn text(number: u64) -> String {
    (0..60 + number * 20)
        .map(|line| format!("content {number}, {line}\n"))
        .collect()
}

/// A kernel that collects, and its twin.
struct Lives {
    random: Random,
    case: String,
    folder: tempfile::TempDir,
    one: Option<Kernel>,
    twin: Option<Kernel>,
    /// What the twin keeps.
    kept: Arc<MemoryStore>,
    happened: BTreeMap<&'static str, u64>,
}

impl Lives {
    async fn begin(seed: u64) -> Self {
        let (folder, kept) = (memory_folder(), Arc::new(MemoryStore::new()));
        let (one, twin) = (
            kernel(open(folder.path())).await,
            kernel(kept.clone()).await,
        );
        let (one, twin) = (Some(one), Some(twin));
        let (random, happened) = (Random::of(&[seed]), BTreeMap::new());
        Self {
            random,
            case: format!("seed {seed}"),
            folder,
            one,
            twin,
            kept,
            happened,
        }
    }

    fn kernels(&self) -> [&Kernel; 2] {
        [&self.one, &self.twin]
            .map(|kernel| kernel.as_ref().expect("there is one between two steps"))
    }

    fn note(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    /// Awaits that nobody does anything by itself any more, as those that a branch from the middle
    /// of a fork has made.
    async fn settle(&self) {
        for kernel in self.kernels() {
            let settled = async {
                let busy = ["starting", "thinking", "acting", "waiting"];
                while kernel
                    .processes()
                    .await
                    .unwrap()
                    .iter()
                    .any(|info| busy.contains(&info.status.word()))
                {
                    tokio::task::yield_now().await;
                }
            };
            within(settled).await;
        }
    }

    /// The rows of those that live.
    async fn living(&self) -> Vec<ProcessRow> {
        self.settle().await;
        let mut rows = Vec::new();
        for kernel in self.kernels() {
            let all = kernel
                .processes()
                .await
                .unwrap()
                .into_iter()
                .map(|info| info.row);
            rows.push(all.filter(|row| row.exit.is_none()).collect::<Vec<_>>());
        }
        assert_eq!(rows[0], rows[1], "{}: who lives", self.case);
        rows.swap_remove(0)
    }

    async fn both(&self, pid: Pid) -> [Process; 2] {
        let [one, twin] = self.kernels();
        [
            one.process(pid).await.unwrap(),
            twin.process(pid).await.unwrap(),
        ]
    }

    async fn step(&mut self) {
        let living = self.living().await;
        let pids: Vec<_> = living.iter().map(|row| row.pid).collect();
        let checkpoints: Vec<_> = self.kernels()[0]
            .checkpoints()
            .await
            .unwrap()
            .iter()
            .map(|it| it.id)
            .collect();
        let (pid, checkpoint) = (self.random.pick(&pids), self.random.pick(&checkpoints));
        let what = self.random.below(100);
        match (what, pid, checkpoint) {
            (_, None, _) | (0..8, ..) if pids.len() < CROWD => self.start().await,
            (8..30, Some(pid), _) => self.open(pid).await,
            (30..38, Some(pid), _) => self.split(pid).await,
            (38..43, Some(pid), _) if pids.len() < CROWD => self.copy(pid).await,
            (43..52, Some(pid), _) => self.checkpoint(pid).await,
            (52..57, Some(pid), Some(checkpoint)) => self.restore(pid, checkpoint).await,
            (57..62, _, Some(checkpoint)) if pids.len() < CROWD => {
                self.branch(None, checkpoint).await
            }
            (62..67, Some(pid), Some(checkpoint)) if pids.len() < CROWD => {
                self.branch(Some(pid), checkpoint).await
            }
            (67..73, Some(pid), _) => self.sleep(pid).await,
            (73..82, Some(pid), _) if pids.len() > 2 => self.end(pid).await,
            (82..92, ..) => self.collect().await,
            (92..95, Some(pid), _) => self.collect_while_it_works(pid).await,
            (95..100, ..) => self.kill().await,
            _ => {}
        }
    }

    async fn start(&mut self) {
        for kernel in self.kernels() {
            let start = kernel
                .start(program(kernel, PROGRAM))
                .session()
                .without_input();
            within(start.into_future()).await.unwrap();
        }
    }

    async fn open(&mut self, pid: Pid) {
        let text = text(self.random.below(30));
        let page = Some(200 + self.random.below(400) as u32);
        let mut answers = Vec::new();
        for process in self.both(pid).await {
            answers.push(without_times(
                &within(process.open("it", text.clone(), page))
                    .await
                    .unwrap()
                    .text,
            ));
        }
        assert_eq!(answers[0], answers[1], "{}", self.case);
    }

    async fn split(&mut self, pid: Pid) {
        for process in self.both(pid).await {
            turn(&process, "split").await;
        }
    }

    async fn copy(&mut self, pid: Pid) {
        for process in self.both(pid).await {
            within(process.fork()).await.unwrap();
        }
    }

    async fn checkpoint(&mut self, pid: Pid) {
        let of_tree = self.random.percent(50);
        for process in self.both(pid).await {
            let made = if of_tree {
                within(process.tree().checkpoint("c")).await
            } else {
                within(process.checkpoint("c")).await
            };
            made.unwrap();
        }
    }

    /// What is known in the one is known in the other; what was given up is only so in the one.
    async fn restore(&mut self, pid: Pid, checkpoint: CheckpointId) {
        let [one, twin] = self.both(pid).await;
        let said = within(one.restore(checkpoint))
            .await
            .map_err(|error| error.to_string());
        let right = within(twin.restore(checkpoint))
            .await
            .map_err(|error| error.to_string());
        assert_eq!(
            said, right,
            "{}: restore {pid} from {checkpoint}",
            self.case
        );
        if said.is_ok() {
            self.note("a process was restored");
        }
    }

    /// A branch of a checkpoint, or of a fact.
    async fn branch(&mut self, of: Option<Pid>, checkpoint: CheckpointId) {
        let at: Option<(Pid, Position)> = match of {
            None => None,
            Some(pid) => {
                let log = self.kernels()[1].log(pid).await.unwrap();
                Some((
                    pid,
                    Position::Fact(log[self.random.index(log.len().min(8))].number),
                ))
            }
        };
        let mut made = Vec::new();
        for kernel in self.kernels().map(Kernel::clone) {
            let branch = match at {
                Some((pid, point)) => kernel.branch(pid, point),
                None => kernel.restore(checkpoint),
            };
            match within(branch.stopped().into_future()).await {
                Ok(branch) => {
                    branch.tree().cont().await.unwrap();
                    made.push(branch.pid());
                }
                Err(error) if made.is_empty() && of.is_some() => {
                    assert!(
                        error.to_string().contains("was deleted"),
                        "{}: {error}",
                        self.case
                    );
                    return self.note("a fact was asked for that was given up");
                }
                Err(error) => panic!("{}: {at:?} or {checkpoint}: {error}", self.case),
            }
        }
        assert_eq!(made[0], made[1], "{}", self.case);
        self.note("a branch was made");
    }

    async fn sleep(&mut self, pid: Pid) {
        let mut slept = Vec::new();
        for process in self.both(pid).await {
            slept.push(
                within(process.hibernate())
                    .await
                    .map_err(|error| error.to_string()),
            );
        }
        assert_eq!(slept[0], slept[1], "{}", self.case);
    }

    async fn end(&mut self, pid: Pid) {
        for process in self.both(pid).await {
            // All below it would end a moment later, and not at the same moment in both.
            within(process.tree().kill()).await.unwrap();
            let _: Exit = within(process.wait()).await.unwrap();
        }
        let [one, twin] = self.kernels();
        for kernel in [one, twin] {
            let below = kernel.processes().await.unwrap();
            for info in below
                .into_iter()
                .filter(|info| info.row.parent == Some(pid))
            {
                within(kernel.process(info.row.pid).await.unwrap().wait())
                    .await
                    .unwrap();
            }
        }
    }

    fn retention(&mut self) -> Retention {
        let last = self.random.percent(60).then(|| 1 + self.random.index(3));
        Retention {
            checkpoints: CheckpointRules {
                last,
                ..CheckpointRules::default()
            },
            ended: if self.random.percent(60) {
                EndedRule::ForMs(0)
            } else {
                EndedRule::Forever
            },
            history: if self.random.percent(50) {
                HistoryRule::FromOldestCheckpoint
            } else {
                HistoryRule::Whole
            },
        }
    }

    async fn collect(&mut self) {
        let retention = self.retention();
        let foreseen = self.foreseen(&retention).await;
        let report = within(self.kernels()[0].collect_garbage(retention, SweepMode::Free))
            .await
            .unwrap();
        assert_eq!(report.deletions, foreseen.deletions, "{}", self.case);
        assert_eq!(
            report.live_contents, foreseen.live_contents,
            "{}",
            self.case
        );
        assert!(
            report.swept.freed_contents <= foreseen.swept.freed_contents,
            "{}: {foreseen:?}",
            self.case
        );
        assert!(
            report.unreadable.is_empty() && report.swept.damaged_segments.is_empty(),
            "{}: {report:?}",
            self.case
        );
        assert_eq!(report.swept.outcome, SweepOutcome::Done);
        for (what, happened) in [
            ("segments were freed", report.swept.freed_segments > 0),
            ("contents were dropped", report.swept.freed_contents > 0),
            (
                "processes were given up",
                !report.deletions.processes.is_empty(),
            ),
            (
                "histories were shortened",
                !report.deletions.histories.is_empty(),
            ),
            (
                "checkpoints were given up",
                !report.deletions.checkpoints.is_empty(),
            ),
        ] {
            if happened {
                self.note(what);
            }
        }
    }

    /// What is counted, which is the same for who remembers earlier collections and for who does
    /// not.
    async fn foreseen(&self, retention: &Retention) -> CollectionReport {
        loop {
            let count = || self.kernels()[0].collect_garbage(retention.clone(), SweepMode::Count);
            let first = within(count()).await.unwrap();
            let cold = self.counted_by_one_who_remembers_nothing(retention);
            let warm = within(count()).await.unwrap();
            // What a process still had to write came in between otherwise.
            if first.swept.bytes_before == warm.swept.bytes_before {
                assert_eq!(without_work(&warm), without_work(&cold), "{}", self.case);
                return warm;
            }
        }
    }

    /// What somebody else counts who opens the store now.
    fn counted_by_one_who_remembers_nothing(&self, retention: &Retention) -> CollectionReport {
        let store = LogStore::options()
            .segment_bytes(6_000)
            .read_only(self.folder.path())
            .unwrap();
        let order = CollectionRequest {
            owner: OwnerToken(0),
            inventory: &mut Inventory::default(),
            retention,
            in_use: &InUse::default(),
            unreadable: UnreadablePolicy::KeepAll,
            mode: SweepMode::Count,
            limits: SweepLimits::default(),
            now_ms: u64::MAX,
            on_deleted: &mut |_| {},
            watch: &mut |_| ControlFlow::Continue(()),
        };
        collect(&store, order).unwrap()
    }

    /// A collection that runs beside others' work, and is let go of some time or other.
    async fn collect_while_it_works(&mut self, pid: Pid) {
        let retention = self.retention();
        let kernel = self.kernels()[0].clone();
        let collecting =
            tokio::spawn(async move { kernel.collect_garbage(retention, SweepMode::Free).await });
        for _ in 0..1 + self.random.below(3) {
            self.open(pid).await;
        }
        if self.random.percent(50) {
            collecting.abort();
        }
        match within(collecting).await {
            Ok(report) => assert!(report.unwrap().unreadable.is_empty(), "{}", self.case),
            Err(aborted) => {
                assert!(aborted.is_cancelled());
                self.note("a collection was broken off");
            }
        }
        // The next to ask waits for it.
        let counted =
            within(self.kernels()[0].collect_garbage(Retention::default(), SweepMode::Count))
                .await
                .unwrap();
        assert!(counted.unreadable.is_empty(), "{}: {counted:?}", self.case);
    }

    /// The one goes on with what stands on the disk at this moment; nothing was closed.
    async fn kill(&mut self) {
        let copy = memory_folder();
        let skipped: &[&str] = if self.random.percent(50) {
            &[]
        } else {
            &["index"]
        };
        copy_folder(self.folder.path(), copy.path(), skipped).unwrap();
        for kernel in [self.one.take(), self.twin.take()].into_iter().flatten() {
            within(kernel.shutdown()).await.unwrap();
        }
        self.folder = copy;
        self.one = Some(kernel(open(self.folder.path())).await);
        self.twin = Some(kernel(self.kept.clone()).await);
        for kernel in self.kernels() {
            within(kernel.resume_all()).await.unwrap();
        }
        self.note("a kernel was killed");
    }

    /// What every living process has, and some of what it reads.
    async fn check(&mut self) {
        for row in self.living().await {
            let pid = row.pid;
            let both = self.both(pid).await;
            let list = self.same(&both, "list_fds", "{}").await;
            let fds: Vec<_> = list
                .match_indices("fd:")
                .filter_map(|(at, _)| {
                    list[at + 3..]
                        .split(|it: char| !it.is_ascii_digit())
                        .next()?
                        .parse::<u64>()
                        .ok()
                })
                .collect();
            for fd in 1..=fds.into_iter().max().unwrap_or(0) {
                let line = 1 + self.random.below(60);
                let args = format!(
                    "{{\"fd\": \"fd:{fd}\", \"start_line\": {line}, \"end_line\": {}}}",
                    line + 3
                );
                let read = self.same(&both, "read_fd", &args).await;
                if read.contains("content ") {
                    self.note("a content was read");
                }
            }
        }
    }

    async fn same(&self, both: &[Process; 2], tool: &str, args: &str) -> String {
        let mut answers = Vec::new();
        for process in both {
            answers.push(without_times(
                &within(process.call(tool, args)).await.unwrap().text,
            ));
        }
        assert_eq!(
            answers[0],
            answers[1],
            "{}: {tool} {args} of {}",
            self.case,
            both[0].pid()
        );
        answers.swap_remove(0)
    }
}

/// What a collection found, whatever it took to find out.
fn without_work(report: &CollectionReport) -> CollectionReport {
    CollectionReport {
        read: 0,
        swept: SweepReport {
            inspected_records: 0,
            ..report.swept.clone()
        },
        ..report.clone()
    }
}

/// The twin does everything a moment later.
fn without_times(text: &str) -> String {
    let mut parts = text.split(" opened=\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('"').map_or("", |(_, rest)| rest)
    })
}

fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// HEAD and log, with the index or without it.
#[tokio::test]
async fn what_living_processes_read_is_what_they_read_where_nothing_is_ever_collected() {
    let number = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|it| it.parse().ok())
            .unwrap_or(default)
    };
    let (first, trials): (u64, u64) = (number("DORMOUSE_SEED", 1), number("DORMOUSE_TRIALS", 6));
    let mut happened: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + trials {
        let mut lives = Lives::begin(seed).await;
        for step in 0..STEPS {
            lives.case = format!("seed {seed}, step {step}");
            lives.step().await;
            if step % 4 == 3 {
                lives.check().await;
            }
        }
        lives.check().await;
        for (what, times) in std::mem::take(&mut lives.happened) {
            *happened.entry(what).or_default() += times;
        }
        for kernel in [lives.one.take(), lives.twin.take()].into_iter().flatten() {
            within(kernel.shutdown()).await.unwrap();
        }
    }
    let all = [
        "a branch was made",
        "a content was read",
        "a fact was asked for that was given up",
        "a kernel was killed",
        "a process was restored",
        "checkpoints were given up",
        "contents were dropped",
        "histories were shortened",
        "processes were given up",
        "segments were freed",
    ];
    let missing: Vec<_> = all
        .iter()
        .filter(|what| !happened.contains_key(**what))
        .collect();
    assert!(
        trials < 6 || missing.is_empty(),
        "nothing of this happened: {missing:?}; what did: {happened:?}"
    );
}
