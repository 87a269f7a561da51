//! Collecting garbage under a kernel that runs.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};

use dormouse::id::{FactNumber, Pid};
use dormouse::models::Scripted;
use dormouse::ports::{Store as _, SweepMode, SweepOutcome};
use dormouse::retention::{CheckpointRules, EndedRule, HistoryRule, Retention};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{FnTool, Kernel, KernelBuilder, KernelError, Position, Process, ProcessView};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::pair;
use dormouse_tests::{FnModel, Gate, Requests, program, results, says, turn, within};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

#[derive(Deserialize, JsonSchema)]
struct Named {
    name: String,
}

/// Some dozens of kilobytes that are no other's, and then a wait.
fn script(name: &str) -> String {
    let log = json!({ "name": name });
    format!(
        "[[turn]]\nwhen = {{ prompt = \"{name}\", round = 0 }}\ncalls = [{{ tool = \"log\", args = \
         {{ name = {} }} }}]\n[[turn]]\nwhen = {{ prompt = \"{name}\", round = 1 }}\ncalls = [{{ \
         tool = \"rest\", args = {{ name = {} }} }}]\n[[turn]]\nwhen = {{ prompt = \"{name}\", \
         round = 2 }}\ncalls = [{{ tool = \"read_fd\", args = {{ fd = \"fd:1\", start_line = 2000, \
         end_line = 2000 }} }}]\n",
        log["name"], log["name"]
    )
}

fn builder(dir: &Path, requests: &Requests, gate: &Gate) -> KernelBuilder {
    let turns =
        ["first", "second", "waits", "later"].map(script).concat() + "[[turn]]\ntext = \"done\"\n";
    let log = FnTool::new("log", "Tells much.", |Named { name }: Named| async move {
        Ok::<_, String>(
            (1..=2_500)
                .map(|line| format!("{name} says in line {line}\n"))
                .collect::<String>(),
        )
    });
    let gate = gate.clone();
    let rest = FnTool::new(
        "rest",
        "Rests, if it is to.",
        move |Named { name }: Named| {
            let gate = gate.clone();
            async move {
                if name == "waits" {
                    gate.pass().await;
                }
                Ok::<_, String>("rested")
            }
        },
    );
    let store = LogStore::options().segment_bytes(40_000).open(dir).unwrap();
    let model = requests.record(Scripted::parse(&turns, "script").unwrap());
    Kernel::builder()
        .model("m", model)
        .tool(log)
        .tool(rest)
        .store(store)
}

const PROGRAM: &str = "[tools]\nenabled = [\"log\", \"rest\", \"read_fd\"]\n";

#[tokio::test]
async fn what_has_ended_is_given_up_while_others_go_on() {
    let (folder, requests, gate) = (
        tempfile::tempdir().unwrap(),
        Requests::default(),
        Gate::default(),
    );
    let kernel = builder(folder.path(), &requests, &gate)
        .build()
        .await
        .unwrap();
    let start = |name: &'static str| kernel.start(program(&kernel, PROGRAM)).input(name);
    let waiting = start("waits").await.unwrap();
    within(gate.entered()).await;
    for name in ["first", "second"] {
        within(start(name).await.unwrap().wait()).await.unwrap();
    }
    let nothing = within(kernel.collect_garbage(Retention::default(), SweepMode::Count))
        .await
        .unwrap();
    assert!(
        nothing.deletions.is_empty() && nothing.unreadable.is_empty(),
        "{nothing:?}"
    );

    let retention = || Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    let foreseen = within(kernel.collect_garbage(retention(), SweepMode::Count))
        .await
        .unwrap();
    assert_eq!(
        kernel.processes().await.unwrap().len(),
        3,
        "to count gives nothing up"
    );
    let report = within(kernel.collect_garbage(retention(), SweepMode::Free))
        .await
        .unwrap();
    assert_eq!(report.deletions.processes, [Pid(2), Pid(3)].into());
    assert_eq!(report.deletions, foreseen.deletions);
    assert!(report.swept.freed_contents >= 1, "{report:?}");
    assert!(
        report.swept.bytes_after + 50_000 < report.swept.bytes_before,
        "{report:?}"
    );
    let left: Vec<_> = kernel
        .processes()
        .await
        .unwrap()
        .into_iter()
        .map(|info| info.row.pid)
        .collect();
    assert_eq!(left, [waiting.pid()]);
    assert!(kernel.copy(Pid(2), None).await.is_err());

    gate.open();
    within(waiting.wait()).await.unwrap();
    let read = requests
        .of(1)
        .last()
        .map(|request| results(request, 0))
        .unwrap();
    assert!(read[0].0.contains("waits says in line 2000"), "{read:?}");
    within(kernel.shutdown()).await.unwrap();

    let again = builder(folder.path(), &requests, &gate)
        .build()
        .await
        .unwrap();
    let left: Vec<_> = again
        .processes()
        .await
        .unwrap()
        .into_iter()
        .map(|info| info.row.pid)
        .collect();
    assert_eq!(left, [Pid(1)]);
    let later = again
        .start(program(&again, PROGRAM))
        .input("later")
        .await
        .unwrap();
    assert_eq!(later.pid(), Pid(4), "a number is never given again");
    within(later.wait()).await.unwrap();
    within(again.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_branch_keeps_what_it_goes_on_from_and_reads_the_contents_of_that() {
    let (folder, requests, gate) = (
        tempfile::tempdir().unwrap(),
        Requests::default(),
        Gate::default(),
    );
    let kernel = builder(folder.path(), &requests, &gate)
        .build()
        .await
        .unwrap();
    for name in ["first", "second"] {
        within(
            kernel
                .start(program(&kernel, PROGRAM))
                .input(name)
                .await
                .unwrap()
                .wait(),
        )
        .await
        .unwrap();
    }
    let facts = kernel.log(Pid(1)).await.unwrap();
    let replied: Vec<_> = facts
        .iter()
        .filter(|line| line.name == "model_replied")
        .map(|line| line.number)
        .collect();
    let branch = within(kernel.branch(Pid(1), replied[2]).stopped().into_future())
        .await
        .unwrap();
    let retention = || Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    let report = within(kernel.collect_garbage(retention(), SweepMode::Free))
        .await
        .unwrap();
    assert_eq!(report.deletions.processes, [Pid(2)].into());
    assert!(
        report.swept.freed_contents >= 1 && report.unreadable.is_empty(),
        "{report:?}"
    );
    within(kernel.shutdown()).await.unwrap();

    // What it reads lies where the other left it, or was moved from there.
    let kernel = builder(folder.path(), &requests, &gate)
        .build()
        .await
        .unwrap();
    let branch = within(kernel.resume(branch.pid())).await.unwrap();
    within(branch.cont()).await.unwrap();
    within(branch.wait()).await.unwrap();
    let read = requests
        .of(branch.pid().0)
        .last()
        .map(|request| results(request, 0))
        .unwrap();
    assert!(read[0].0.contains("first says in line 2000"), "{read:?}");
    let report = within(kernel.collect_garbage(retention(), SweepMode::Free))
        .await
        .unwrap();
    assert_eq!(report.deletions.processes, [Pid(1), branch.pid()].into());
    within(kernel.shutdown()).await.unwrap();
}

const SESSION: &str = "[tools]\nenabled = [\"read_fd\", \"goto\"]\n";

async fn sessions(folder: &Path) -> Kernel {
    let model = FnModel(|_| async { Ok(says("ok")) });
    let store = LogStore::options()
        .segment_bytes(40_000)
        .open(folder)
        .unwrap();
    Kernel::open(store)
        .model("m", model)
        .snapshot_after_facts(6)
        .build()
        .await
        .unwrap()
}

/// 30 KB that are no other's.
fn text(number: u64) -> String {
    (0..1_500)
        .map(|line| format!("content {number:04}, {line:04}\n"))
        .collect()
}

async fn reads(process: &Process, fds: u64) {
    for fd in 1..=fds {
        let args = format!("{{\"fd\": \"fd:{fd}\", \"start_line\": 1000, \"end_line\": 1000}}");
        let answer = within(process.call("read_fd", args)).await.unwrap();
        assert!(
            answer.text.contains(&format!("content {fd:04}, 0999")),
            "fd:{fd}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_history_that_is_shortened_goes_on_and_is_not_asked_for_what_was_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = sessions(folder.path()).await;
    let process = kernel
        .start(program(&kernel, SESSION))
        .session()
        .without_input()
        .await
        .unwrap();
    let untouched = kernel
        .start(program(&kernel, SESSION))
        .session()
        .without_input()
        .await
        .unwrap();
    for number in 1..=4 {
        within(process.open("it", text(number), None))
            .await
            .unwrap();
        within(untouched.open("it", text(number), None))
            .await
            .unwrap();
    }
    for round in 0..10 {
        turn(&process, &format!("say {round}")).await;
    }
    let old = process.checkpoint("old").await.unwrap();
    for round in 10..30 {
        turn(&process, &format!("say {round}")).await;
    }
    let kept = process.checkpoint("kept").await.unwrap();
    turn(&process, "and on").await;
    let shorten = |last| Retention {
        checkpoints: CheckpointRules {
            last,
            ..CheckpointRules::default()
        },
        history: HistoryRule::FromOldestCheckpoint,
        ..Retention::default()
    };

    // What a checkpoint that is kept goes back to is kept.
    let report = within(kernel.collect_garbage(shorten(None), SweepMode::Free))
        .await
        .unwrap();
    let below = report.deletions.histories[&process.pid()];
    assert!(
        below <= old.position_of(process.pid()).unwrap() && below > FactNumber(0),
        "{report:?}"
    );
    assert!(
        !report.deletions.histories.contains_key(&untouched.pid()),
        "one in no checkpoint keeps all: {report:?}"
    );
    let branch = within(kernel.restore(old.id).stopped().into_future())
        .await
        .unwrap();
    within(branch.cont()).await.unwrap();
    reads(&branch, 4).await;
    within(branch.kill()).await.unwrap();

    let report = within(kernel.collect_garbage(shorten(Some(1)), SweepMode::Free))
        .await
        .unwrap();
    assert_eq!(report.deletions.checkpoints, [old.id].into());
    let later = report.deletions.histories[&process.pid()];
    assert!(
        later > below && later <= kept.position_of(process.pid()).unwrap(),
        "{report:?}"
    );
    let again = within(kernel.collect_garbage(shorten(Some(1)), SweepMode::Count))
        .await
        .unwrap();
    assert!(
        again.deletions.is_empty(),
        "there is nothing more to give up: {again:?}"
    );

    let refused = within(kernel.branch(process.pid(), FactNumber(1)).into_future())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("fact 1 of process 1 was deleted") && refused.contains("kept from fact"),
        "{refused}"
    );
    let refused = within(kernel.copy(process.pid(), Some(FactNumber(later.0 - 1))))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("was deleted"), "{refused}");
    let refused = within(kernel.restore(old.id).into_future())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&format!("no checkpoint {}", old.id)),
        "{refused}"
    );
    assert_eq!(
        kernel.log(process.pid()).await.unwrap()[0].number,
        later.plus(1),
        "the log begins where it is kept"
    );

    // The process itself notices nothing: in memory, back from its journal, as a fork, restored,
    // and in another kernel.
    reads(&process, 4).await;
    within(process.hibernate()).await.unwrap();
    assert_eq!(turn(&process, "wake").await, "ok");
    reads(&within(process.fork()).await.unwrap(), 4).await;
    let copy = within(kernel.copy(process.pid(), Some(later)))
        .await
        .unwrap();
    // Its model may have been asked there.
    within(copy.wait_for(ProcessView::is_idle)).await.unwrap();
    reads(&copy, 4).await;
    within(process.restore(kept.id)).await.unwrap();
    reads(&process, 4).await;
    within(kernel.shutdown()).await.unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let kernel = sessions(folder.path()).await;
    kernel.resume_all().await.unwrap();
    let process = kernel.process(process.pid()).await.unwrap();
    reads(&process, 4).await;
    assert_eq!(turn(&process, "on").await, "ok");
    assert_eq!(
        kernel.log(untouched.pid()).await.unwrap()[0].number,
        FactNumber(0)
    );
    within(kernel.shutdown()).await.unwrap();
}

/// A store that stands still before it is gone through for what a collection has given up, once it
/// is told to, and counts sweeps.
struct Standing {
    /// So many more times it is gone through before it stands still; 0 for never.
    armed: AtomicUsize,
    entered: Semaphore,
    released: Mutex<mpsc::Receiver<()>>,
    sweeps: AtomicUsize,
}

impl Standing {
    fn stands_still(&self) -> bool {
        let left = self
            .armed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        left == Ok(1)
    }

    fn around(inner: LogStore) -> (Faulty<LogStore>, Arc<Self>, mpsc::Sender<()>) {
        let (release, released) = mpsc::channel();
        let (armed, sweeps, released) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            Mutex::new(released),
        );
        let standing = Arc::new(Self {
            armed,
            entered: Semaphore::new(0),
            released,
            sweeps,
        });
        let plan = standing.clone();
        let store = Faulty::new(inner, move |_, operation| {
            match operation {
                Operation::UpdateInventory if plan.stands_still() => {
                    plan.entered.add_permits(1);
                    let _ = plan.released.lock().unwrap().recv();
                }
                Operation::Sweep => drop(plan.sweeps.fetch_add(1, Ordering::SeqCst)),
                _ => {}
            }
            Fate::Pass
        });
        (store, standing, release)
    }
}

#[tokio::test]
async fn a_collection_that_nobody_waits_for_any_more_stops_in_its_mark_and_the_next_goes_on() {
    for by_shutdown in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (store, standing, release) = Standing::around(
            LogStore::options()
                .segment_bytes(40_000)
                .open(folder.path())
                .unwrap(),
        );
        let model = || FnModel(|_| async { Ok(says("ok")) });
        let kernel = Kernel::open(store)
            .model("m", model())
            .build()
            .await
            .unwrap();
        for number in 1..=6 {
            let process = kernel
                .start(program(&kernel, SESSION))
                .session()
                .without_input()
                .await
                .unwrap();
            within(process.open("it", text(number), None))
                .await
                .unwrap();
            if number == 3 {
                within(process.kill()).await.unwrap();
                within(process.wait()).await.unwrap();
            }
        }
        let retention = || Retention {
            ended: EndedRule::ForMs(0),
            ..Retention::default()
        };
        standing.armed.store(2, Ordering::SeqCst);
        let collecting = {
            let (kernel, retention) = (kernel.clone(), retention());
            tokio::spawn(async move { kernel.collect_garbage(retention, SweepMode::Free).await })
        };
        within(standing.entered.acquire()).await.unwrap().forget();
        assert_eq!(
            kernel.processes().await.unwrap().len(),
            5,
            "what was given up is in no list, whatever comes after"
        );
        let kernel = if by_shutdown {
            let closing = tokio::spawn(kernel.shutdown());
            // It is closing when it takes no more.
            let store_is_let_go_of = async {
                while !collecting.is_finished() && !closing.is_finished() {
                    tokio::task::yield_now().await
                }
            };
            let _ = tokio::time::timeout(std::time::Duration::from_millis(50), store_is_let_go_of)
                .await;
            release.send(()).unwrap();
            let report = within(collecting).await.unwrap().unwrap();
            assert_eq!(report.swept.outcome, SweepOutcome::Interrupted);
            within(closing).await.unwrap().unwrap();
            let store = LogStore::options()
                .segment_bytes(40_000)
                .open(folder.path())
                .unwrap();
            Kernel::open(store)
                .model("m", model())
                .build()
                .await
                .unwrap()
        } else {
            collecting.abort();
            assert!(within(collecting).await.unwrap_err().is_cancelled());
            release.send(()).unwrap();
            kernel
        };
        // One waits for the other, so that this is asked when the first has stopped.
        let nothing = within(kernel.collect_garbage(Retention::default(), SweepMode::Count))
            .await
            .unwrap();
        assert!(nothing.deletions.is_empty(), "{nothing:?}");
        assert_eq!(
            standing.sweeps.load(Ordering::SeqCst),
            usize::from(!by_shutdown),
            "the first did not sweep"
        );
        let report = within(kernel.collect_garbage(retention(), SweepMode::Free))
            .await
            .unwrap();
        assert!(
            report.swept.outcome == SweepOutcome::Done && report.swept.freed_contents == 1,
            "{report:?}"
        );
        kernel.resume_all().await.unwrap();
        for pid in [1, 2, 4, 5, 6] {
            let args = r#"{"fd": "fd:1", "start_line": 1000, "end_line": 1000}"#;
            let answer = within(
                kernel
                    .process(Pid(pid))
                    .await
                    .unwrap()
                    .call("read_fd", args),
            )
            .await
            .unwrap();
            assert!(
                answer.text.contains(&format!("content {pid:04}, 0999")),
                "{answer:?}"
            );
        }
        within(kernel.shutdown()).await.unwrap();
    }
}

#[tokio::test]
async fn collections_that_are_asked_for_at_once_run_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = sessions(folder.path()).await;
    let keeper = kernel
        .start(program(&kernel, SESSION))
        .session()
        .without_input()
        .await
        .unwrap();
    for number in 1..=6 {
        let process = kernel
            .start(program(&kernel, SESSION))
            .session()
            .without_input()
            .await
            .unwrap();
        within(process.open("it", text(100 + number), None))
            .await
            .unwrap();
        within(keeper.open("it", text(number), None)).await.unwrap();
        within(process.kill()).await.unwrap();
        within(process.wait()).await.unwrap();
    }
    let retention = || Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    let collect = |mode| within(kernel.collect_garbage(retention(), mode));
    let all = tokio::join!(
        collect(SweepMode::Free),
        collect(SweepMode::Count),
        collect(SweepMode::Free),
        collect(SweepMode::Free),
        collect(SweepMode::Count)
    );
    let all = [
        all.0.unwrap(),
        all.1.unwrap(),
        all.2.unwrap(),
        all.3.unwrap(),
        all.4.unwrap(),
    ];
    assert_eq!(all[0].deletions.processes.len(), 6, "{:?}", all[0]);
    for later in &all[1..] {
        assert!(
            later.deletions.is_empty() && later.swept.damaged_segments.is_empty(),
            "{later:?}"
        );
    }
    reads(&keeper, 6).await;
    within(kernel.shutdown()).await.unwrap();
}

#[tokio::test]
async fn nobody_is_given_up_while_it_cannot_be_read_which_checkpoints_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = sessions(folder.path()).await;
    let process = kernel
        .start(program(&kernel, SESSION))
        .session()
        .without_input()
        .await
        .unwrap();
    within(process.open("it", text(1), None)).await.unwrap();
    process.checkpoint("the label").await.unwrap();
    within(process.kill()).await.unwrap();
    within(process.wait()).await.unwrap();
    within(kernel.shutdown()).await.unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    for segment in fs::read_dir(folder.path().join("log")).unwrap() {
        let path = segment.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(9).position(|window| window == b"the label") {
            bytes[at] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    }
    let kernel = sessions(folder.path()).await;
    assert!(kernel.checkpoints().await.unwrap().is_empty());
    let retention = Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    let report = within(kernel.collect_garbage(retention, SweepMode::Free))
        .await
        .unwrap();
    assert!(
        report.deletions.is_empty() && report.swept.freed_contents == 0,
        "{report:?}"
    );
    assert!(
        report
            .unreadable
            .iter()
            .any(|what| what.contains("checkpoint cp:1")),
        "{report:?}"
    );
    within(kernel.shutdown()).await.unwrap();
}

/// What a branch or a checkpoint has made is read back before anybody knows of it: a collection in
/// between leaves it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_somebody_is_about_to_use_is_kept() {
    let (is_armed, reads, goes_on) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Barrier::new(2)),
        Arc::new(Barrier::new(2)),
    );
    let (armed, reading, going_on) = (is_armed.clone(), reads.clone(), goes_on.clone());
    let store = Faulty::new(MemoryStore::new(), move |_, operation| {
        if operation == Operation::Checkpoints && armed.swap(false, Ordering::SeqCst) {
            reading.wait();
            going_on.wait();
        }
        Fate::Pass
    });
    let kernel = Kernel::open(store)
        .model("m", FnModel(|_| async { Ok(says("ok")) }))
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, SESSION))
        .session()
        .without_input()
        .await
        .unwrap();
    let none = || Retention {
        checkpoints: CheckpointRules {
            last: Some(0),
            ..CheckpointRules::default()
        },
        ..Retention::default()
    };
    for branches in [true, false] {
        is_armed.store(true, Ordering::SeqCst);
        let (making, of) = (kernel.clone(), process.clone());
        let made = tokio::spawn(async move {
            if branches {
                making.branch(of.pid(), Position::Now).await.map(drop)
            } else {
                of.checkpoint("mine").await.map(drop)
            }
        });
        let (reads, goes_on) = (reads.clone(), goes_on.clone());
        within(tokio::task::spawn_blocking(move || reads.wait()))
            .await
            .unwrap();
        let report = within(kernel.collect_garbage(none(), SweepMode::Free))
            .await
            .unwrap();
        assert!(report.deletions.is_empty(), "{report:?}");
        within(tokio::task::spawn_blocking(move || goes_on.wait()))
            .await
            .unwrap();
        within(made).await.unwrap().unwrap();
    }
    let report = within(kernel.collect_garbage(none(), SweepMode::Free))
        .await
        .unwrap();
    assert_eq!(
        report.deletions.checkpoints.len(),
        1,
        "that of the branch is given up, the other one can be now: {report:?}"
    );
    within(kernel.shutdown()).await.unwrap();
}

/// A tree that has ended goes as a whole, or not at all, wherever a collection ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_is_given_up_as_a_whole() {
    let mut gone = Vec::new();
    for commits in 0..5 {
        let (room, store) = (
            Arc::new(AtomicUsize::new(usize::MAX)),
            Arc::new(MemoryStore::new()),
        );
        let faulty = Faulty::full_after(room.clone(), store.clone());
        let kernel = Kernel::open(faulty)
            .model("m", pair::model())
            .build()
            .await
            .unwrap();
        for _ in 0..2 {
            let root = kernel
                .start(program(&kernel, pair::TOOLS))
                .input("go")
                .await
                .unwrap();
            within(root.wait()).await.unwrap();
        }
        assert_eq!(store.processes().unwrap().rows.len(), 6);
        room.store(commits, Ordering::SeqCst);
        let retention = Retention {
            ended: EndedRule::ForMs(0),
            ..Retention::default()
        };
        let _ = within(kernel.collect_garbage(retention, SweepMode::Free)).await;
        let left: Vec<_> = store
            .processes()
            .unwrap()
            .rows
            .iter()
            .map(|row| row.pid.0)
            .collect();
        assert!(
            [&[1, 2, 3, 4, 5, 6][..], &[4, 5, 6], &[]].contains(&&*left),
            "{left:?} after {commits} commits"
        );
        gone.push(6 - left.len());
        room.store(usize::MAX, Ordering::SeqCst);
        kernel.shutdown().await.unwrap();
    }
    assert!(
        gone.contains(&3) && gone.ends_with(&[6]),
        "a commit gives up a tree: {gone:?}"
    );
}

#[tokio::test]
async fn a_collection_that_panics_is_reported_as_that_and_the_next_one_is_complete() {
    let panics = Arc::new(AtomicBool::new(true));
    let plan = {
        let panics = panics.clone();
        move |_, operation| {
            let is_hit = operation == Operation::Sweep && panics.swap(false, Ordering::SeqCst);
            assert!(!is_hit, "the sweep is broken");
            Fate::Pass
        }
    };
    let requests = Requests::default();
    let kernel = Kernel::open(Faulty::new(MemoryStore::default(), plan))
        .model(
            "m",
            requests.record(FnModel(|_| async { Ok(says("done")) })),
        )
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, ""))
        .input("go")
        .await
        .unwrap();
    within(process.wait()).await.unwrap();
    let collect = || kernel.collect_garbage(Retention::default(), SweepMode::Free);
    let error = within(collect()).await.unwrap_err();
    assert!(
        matches!(&error, KernelError::Panicked(text) if text.contains("the sweep is broken")),
        "{error:?}"
    );
    let report = within(collect()).await.unwrap();
    assert!(report.read > 0, "everything is read again: {report:?}");
    within(kernel.clone().shutdown()).await.unwrap();
    let closed = within(collect()).await;
    assert!(matches!(closed, Err(KernelError::Closed)), "{closed:?}");
}
