//! A disk that is full in the middle of the work: said by name, nothing lost, and all goes on when
//! there is room again.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::ports::StoreError;
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{FnTool, Kernel, KernelBuilder, KernelError, ProcessError, StoreFailure};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::swarm::{self, Held, Ledger, Line, STORE, Snapshots};
use dormouse_tests::{FnModel, Gate, asks, program, results, says, within};
use futures_util::StreamExt;

/// Why a process is held, as who waits for its end is told.
fn why_held(error: &KernelError) -> String {
    match error {
        KernelError::Process(ProcessError::Held { reason, .. }) => reason.to_string(),
        error => panic!("{error:?}"),
    }
}

/// What the coordinator says in the end, and how often the disk was full before; there is room
/// again when it was.
async fn end(kernel: &Kernel, folder: &Path, room: &AtomicUsize) -> (String, usize) {
    let mut fulls = 0;
    loop {
        let said = match within(swarm::coordinator(kernel, folder)).await {
            Ok(coordinator) => {
                let clerk = kernel.process_named("clerk").await.unwrap();
                let exit = within(async {
                    // Whoever answers to the coordinator may be stopped while it is not.
                    tokio::select! {
                        exit = coordinator.wait() => exit,
                        exit = clerk.wait() => exit,
                    }
                });
                match exit.await {
                    Ok(exit) => {
                        assert_eq!(exit.status, ExitStatus::Done, "{exit:?}");
                        return (exit.message.to_string(), fulls);
                    }
                    Err(held) => why_held(&held),
                }
            }
            Err(error) => {
                let refused = error.downcast_ref::<KernelError>();
                assert!(
                    matches!(
                        refused,
                        Some(KernelError::Store(StoreFailure::NotDurable(_)))
                    ),
                    "{error}"
                );
                error.to_string()
            }
        };
        assert!(said.contains("the store cannot append"), "{said}");
        fulls += 1;
        room.store(usize::MAX, Ordering::SeqCst);
        within(kernel.resume_all()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swarm_that_is_stopped_by_a_full_disk_goes_on_when_there_is_room() {
    let mut expected = None;
    for commits in [usize::MAX, 0, 1, 5, 20, 50, 90, 140] {
        let folder = tempfile::tempdir().unwrap();
        swarm::prepare(folder.path()).unwrap();
        let room = Arc::new(AtomicUsize::new(commits));
        let store = Faulty::full_after(
            room.clone(),
            LogStore::open(folder.path().join(STORE)).unwrap(),
        );
        let kernel = swarm::kernel(store, folder.path(), Snapshots::Often)
            .await
            .unwrap();
        let (said, fulls) = end(&kernel, folder.path(), &room).await;
        // A commit that was on its way when there was no room may be refused after the others were
        // resumed.
        assert!(
            fulls <= 3 && (fulls > 0) == (commits != usize::MAX),
            "{commits}: {fulls}"
        );
        let expected = expected.get_or_insert_with(|| said.clone());
        assert_eq!(said, *expected, "after {commits} commits");
        let mut ran = Ledger::of(folder.path()).ids().unwrap();
        let all = ran.len();
        ran.sort_unstable();
        ran.dedup();
        assert_eq!(ran.len(), all, "CALL-2, after {commits} commits: {ran:?}");
        within(kernel.shutdown()).await.unwrap();
    }
}

/// The store refuses the one commit of a child in which its tool was called, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_a_full_disk_stops_has_not_ended_for_its_parent() {
    let full = Arc::new(AtomicBool::new(false));
    let refuses = full.clone();
    let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
        Operation::Commit { .. } if refuses.swap(false, Ordering::SeqCst) => {
            Fate::Fail(disk_full())
        }
        _ => Fate::Pass,
    });
    let model = FnModel(|request: Request| async move {
        let last = results(&request, 0);
        Ok(match (request.pid.0, last.first()) {
            (1, None) => asks(&[("fork", r#"{"prompts": ["look"]}"#)]),
            (1, Some((text, _))) => says(text),
            (2, Some((text, _))) if text.starts_with("You are") => asks(&[("fill", "{}")]),
            _ => says("fine"),
        })
    });
    let calls = AtomicUsize::new(0);
    let fill = FnTool::new("fill", "Fills the disk, the first time.", move |()| {
        full.store(calls.fetch_add(1, Ordering::SeqCst) == 0, Ordering::SeqCst);
        async { Ok::<_, String>("filled") }
    });
    let kernel = Kernel::open(store)
        .model("m", model)
        .tool(fill.idempotent())
        .build()
        .await
        .unwrap();
    let program = program(&kernel, "[tools]\nenabled = [\"fork\", \"fill\"]\n");
    let parent = kernel.start(program).input("go").await.unwrap();
    let held = within(parent.wait()).await.unwrap_err();
    assert!(
        why_held(&held).contains("append") && parent.exit().is_none(),
        "{held}"
    );
    assert!(
        kernel
            .processes()
            .await
            .unwrap()
            .iter()
            .all(|info| info.row.exit.is_none()),
        "nobody has ended"
    );
    within(kernel.resume_all()).await.unwrap();
    let exit = within(parent.wait()).await.unwrap();
    assert!(
        exit.status == ExitStatus::Done && exit.message.contains("fine"),
        "{exit:?}"
    );
    let ended = kernel.processes().await.unwrap();
    assert!(
        ended.iter().all(|info| info.status.word() == "done"),
        "{ended:?}"
    );
}

/// Without room nothing can be journalled, so that nothing is begun: no call is made again whose
/// answer could not be kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resume_that_finds_no_room_begins_no_call() {
    let (full, inner) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(MemoryStore::new()),
    );
    let (asked, ran, gate) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
        Gate::default(),
    );
    let open = || {
        let (refuses, asked, ran, gate) = (full.clone(), asked.clone(), ran.clone(), gate.clone());
        let store = Faulty::new(inner.clone(), move |_, operation| match operation {
            Operation::Commit { .. } if refuses.load(Ordering::SeqCst) => Fate::Fail(disk_full()),
            _ => Fate::Pass,
        });
        let (standing, stands) = (gate.clone(), gate);
        let model = FnModel(move |request: Request| {
            let (number, gate) = (asked.fetch_add(1, Ordering::SeqCst), standing.clone());
            async move {
                match (request.pid.0, results(&request, 0).first()) {
                    (1, None) => Ok(asks(&[("repeatable", "{}")])),
                    // The first time it is asked it does not come to an answer.
                    (2, None) if number < 2 => {
                        gate.pass().await;
                        Ok(says("too late"))
                    }
                    (_, answer) => Ok(says(answer.map_or("answered", |(text, _)| text))),
                }
            }
        });
        let tool = FnTool::new("repeatable", "Stands, the first time.", move |()| {
            let (is_first, gate) = (ran.fetch_add(1, Ordering::SeqCst) == 0, stands.clone());
            async move {
                if is_first {
                    gate.pass().await;
                }
                Ok::<_, String>("repeated")
            }
        });
        Kernel::open(store)
            .model("m", model)
            .tool(tool.idempotent())
            .build()
    };
    let first = open().await.unwrap();
    for _ in 0..2 {
        let program = program(&first, "[tools]\nenabled = [\"repeatable\"]\n");
        first.start(program).input("go").await.unwrap();
        gate.entered().await;
    }
    within(first.shutdown()).await.unwrap();
    let begun = || (asked.load(Ordering::SeqCst), ran.load(Ordering::SeqCst));
    assert_eq!(begun(), (2, 1));

    full.store(true, Ordering::SeqCst);
    let second = open().await.unwrap();
    for process in within(second.resume_all()).await.unwrap() {
        let held = within(process.wait()).await.unwrap_err();
        assert!(why_held(&held).contains("append"), "{held}");
    }
    assert_eq!(begun(), (2, 1), "nothing begins");
    full.store(false, Ordering::SeqCst);
    for (process, said) in within(second.resume_all())
        .await
        .unwrap()
        .iter()
        .zip(["repeated", "answered"])
    {
        let exit = within(process.wait()).await.unwrap();
        assert_eq!((exit.status, &*exit.message), (ExitStatus::Done, said));
    }
    assert_eq!(begun().1, 2, "each call is made again once");
}

/// The store is gone while a journal is read for a process that is to run again: who waits for it
/// is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_resumes_a_process_that_is_stopped_before_it_runs_is_answered() {
    let inner = Arc::new(MemoryStore::new());
    let kernel = Kernel::open(inner.clone()).build().await.unwrap();
    for _ in 0..2 {
        kernel
            .start(program(&kernel, ""))
            .session()
            .without_input()
            .await
            .unwrap();
    }
    within(kernel.shutdown()).await.unwrap();
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = is_gone.clone();
    let (reads, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (reading, going_on) = (reads.clone(), goes_on.clone());
    let store = Faulty::new(inner, move |_, operation| match operation {
        Operation::Journal if gone.load(Ordering::SeqCst) => {
            reading.wait();
            going_on.wait();
            Fate::Pass
        }
        Operation::Commit { .. } if gone.load(Ordering::SeqCst) => {
            Fate::Fail(StoreError::Failed("the disk is gone".to_owned()))
        }
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(store).build().await.unwrap();
    let other = within(kernel.resume(Pid(2))).await.unwrap();
    is_gone.store(true, Ordering::SeqCst);
    let resuming = kernel.clone();
    let resumed = tokio::spawn(async move { resuming.resume(Pid(1)).await });
    within(tokio::task::spawn_blocking(move || reads.wait()))
        .await
        .unwrap();
    let refused = within(other.input("go on")).await;
    assert!(refused.is_err(), "it is not durable");
    within(tokio::task::spawn_blocking(move || goes_on.wait()))
        .await
        .unwrap();
    let stopped = within(resumed).await.unwrap().unwrap();
    let held = within(stopped.wait()).await.unwrap_err();
    assert!(why_held(&held).contains("the disk is gone"), "{held}");
}

/// How often the process on the small disk calls its tool, of which each answer is some 40 KB.
const CALLS: usize = 60;

/// Calls `survey` again and again; says in the end how many answers it has.
fn surveying(folder: &Path) -> KernelBuilder {
    let model = FnModel(|request: Request| async move {
        let answers = request.messages.len() / 2;
        Ok(if answers < CALLS {
            asks(&[("survey", "{}")])
        } else {
            says(&format!("{answers} answers"))
        })
    });
    let count = AtomicUsize::new(0);
    let survey = FnTool::new("survey", "Describes it.", move |()| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let text: String = (0..1_000)
            .map(|line| format!("line {line} of survey {number} by one\n"))
            .collect();
        async move { Ok::<_, String>(text) }
    });
    Kernel::open(LogStore::open(folder).unwrap())
        .model("m", model)
        .tool(survey.idempotent())
}

const SURVEY: &str = "max_iterations = 100\n[tools]\nenabled = [\"survey\", \"read_fd\"]\n";

/// Fills what is left of a disk, but for so many bytes.
fn fill(disk: &Path, left: usize) -> PathBuf {
    let (path, reserve) = (disk.join("ballast"), disk.join("reserve"));
    std::fs::write(&reserve, vec![1; left]).unwrap();
    let mut ballast = File::create(&path).unwrap();
    for bytes in [1 << 16, 1 << 10] {
        let full = std::iter::repeat_with(|| ballast.write_all(&vec![1; bytes]))
            .find_map(Result::err)
            .unwrap();
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    }
    ballast.sync_all().unwrap();
    std::fs::remove_file(&reserve).unwrap();
    path
}

/// On a real file system: what the operating system says when it is full is not for us to play.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a small file system at DORMOUSE_SMALL_DISK: .ci/crash makes one"]
async fn a_small_disk_fills_up_and_is_emptied() {
    let disk = PathBuf::from(std::env::var_os("DORMOUSE_SMALL_DISK").expect("set by .ci/crash"));
    for left in [400_000, 700_000, 1_000_000, 1_500_000] {
        let folder = tempfile::tempdir_in(&disk).unwrap();
        let kernel = surveying(folder.path()).build().await.unwrap();
        let mut events = kernel.events();
        let ballast = fill(&disk, left);
        let process = kernel
            .start(program(&kernel, SURVEY))
            .input("go")
            .await
            .unwrap();
        let held = why_held(&within(process.wait()).await.unwrap_err());
        eprintln!("{left} bytes were left: {held}");
        assert!(held.contains("No space left on device"), "{held}");
        within(kernel.shutdown()).await.unwrap();
        let mut acknowledged = String::new();
        while let Some(event) = events.next().await {
            acknowledged.extend(Line::of(&event).unwrap().map(|line| format!("{line}\n")));
        }
        assert!(acknowledged.lines().count() > 10, "{acknowledged}");

        match LogStore::open(folder.path()) {
            Ok(store) => assert_eq!(
                Held::of(&store).unwrap().lost(&acknowledged),
                None,
                "while the disk is full"
            ),
            Err(error) => {
                eprintln!("opened while it is full: {error}");
                assert!(
                    error.to_string().contains("No space left on device"),
                    "{error}"
                );
            }
        }
        std::fs::remove_file(ballast).unwrap();
        let store = LogStore::open(folder.path()).unwrap();
        assert_eq!(Held::of(&store).unwrap().lost(&acknowledged), None, "DUR-1");
        drop(store);
        let kernel = surveying(folder.path()).build().await.unwrap();
        let resumed = within(kernel.resume_all()).await.unwrap();
        let exit = within(resumed[0].wait()).await.unwrap();
        assert_eq!(
            (exit.status, &*exit.message),
            (ExitStatus::Done, &*format!("{CALLS} answers"))
        );
        within(kernel.shutdown()).await.unwrap();
    }
}
